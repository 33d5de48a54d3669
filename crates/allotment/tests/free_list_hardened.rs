//! What is particular to a hardened free list: runs and boxes. The misuses that every hardened
//! allocator detects are in `claims_misuse.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;

use allotment::free_list::FreeListBuilder;
use allotment::source::SharedSource;
use allotment::{Budget, ErrorKind, File, FreeList, Malloc, RawFreeList};

use support::child::{self, Child};
use support::list::{self, free_all, objects_of, stamped, stamped_run};
use support::misuse::{self, print_address};
use support::setup::file_directory;
use support::slab::{assert_apart, layout};

const SIZE: usize = 24;
/// The bytes of the red zone behind an object.
const ZONE: usize = 24;

fn named(name: &str) -> FreeListBuilder<RawFreeList> {
    RawFreeList::builder(layout(SIZE, 8)).name(name)
}

fn hardened() -> RawFreeList {
    named("victim").hardened(true).build()
}

/// Allocates an object, and prints its address.
fn object(list: &RawFreeList) -> NonNull<u8> {
    let object = list.alloc();
    print_address(object);
    object
}

/// Frees an object, correctly or not.
fn free(list: &RawFreeList, object: NonNull<u8>) {
    // SAFETY: none: this is the misuse, or the call before it.
    unsafe { list.free(object) }
}

/// Writes a byte, correctly or not.
fn write(object: NonNull<u8>, offset: usize) {
    // SAFETY: none: this is the misuse. The slab is still mapped.
    unsafe { object.add(offset).write(1) }
}

/// Runs `misuse` in a child process, which must be stopped.
fn is_stopped(test: &str, words: &str, misuse: impl Fn()) -> String {
    is_stopped_as(test, test, words, misuse)
}

/// As above, for one of several cases of a test.
fn is_stopped_as(test: &str, case: &str, words: &str, misuse: impl Fn()) -> String {
    misuse::is_stopped(test, case, "free list 'victim'", words, SIZE, misuse)
}

#[test]
fn an_object_that_is_freed_twice_is_stopped_beside_a_run_and_of_it() {
    let test = "an_object_that_is_freed_twice_is_stopped_beside_a_run_and_of_it";
    is_stopped_as(test, "beside", "double free", || {
        let list = hardened();
        let _kept = list.alloc();
        let object = object(&list);
        free(&list, object);
        let run = list.alloc_run(5);
        objects_of(&list, run, 5).for_each(|object| free(&list, object));
        free(&list, object);
    });
    is_stopped_as(test, "of it", "double free", || {
        let list = hardened();
        let run = list.alloc_run(100);
        let third = objects_of(&list, run, 100).nth(2).expect("a hundred");
        print_address(third);
        objects_of(&list, run, 100).for_each(|object| free(&list, object));
        free(&list, third);
    });
}

#[test]
fn a_box_made_from_a_freed_box_is_stopped_when_it_is_dropped() {
    let test = "a_box_made_from_a_freed_box_is_stopped_when_it_is_dropped";
    is_stopped(test, "double free", || {
        let list = FreeList::<[u64; 3]>::builder().name("victim").hardened(true).build();
        let raw = allotment::ListBox::into_raw(list.alloc([1; 3]));
        print_address(raw.cast());
        // SAFETY: none for the second: this is the misuse.
        unsafe {
            drop(list.from_raw(raw));
            drop(list.from_raw(raw));
        }
    });
}

#[test]
fn an_overrun_in_a_run_is_stopped_at_the_free() {
    let test = "an_overrun_in_a_run_is_stopped_at_the_free";
    assert_eq!(hardened().stride(), SIZE + ZONE);
    for offset in [SIZE, SIZE + 7, SIZE + ZONE - 1] {
        is_stopped_as(test, &format!("byte {offset}"), "overrun", || {
            let list = hardened();
            let run = list.alloc_run(10);
            let object = objects_of(&list, run, 10).nth(4).expect("ten");
            print_address(object);
            write(object, offset);
            objects_of(&list, run, 10).for_each(|object| free(&list, object));
        });
    }
}

#[test]
fn an_overrun_of_a_value_is_stopped_when_its_box_is_dropped() {
    is_stopped("an_overrun_of_a_value_is_stopped_when_its_box_is_dropped", "overrun", || {
        let list = FreeList::<[u8; SIZE]>::builder().name("victim").hardened(true).build();
        let mut boxed = list.alloc([1; SIZE]);
        let object = NonNull::from(&mut *boxed).cast();
        print_address(object);
        write(object, SIZE);
        drop(boxed);
    });
}

#[test]
fn a_write_to_a_block_that_was_never_allocated_is_stopped_when_a_run_has_it() {
    let test = "a_write_to_a_block_that_was_never_allocated_is_stopped_when_a_run_has_it";
    for case in ["of the run", "left beside it"] {
        is_stopped_as(test, case, "write after free", || {
            let list = hardened();
            let first = list.alloc();
            // SAFETY: the chunk has room for more.
            let next = unsafe { first.add(list.stride()) };
            print_address(next);
            write(next, 3);
            match case {
                "of the run" => drop(stamped_run(&list, 10)),
                _ => drop((stamped_run(&list, 100_000), stamped(&list, 2000))),
            }
        });
    }
}

#[test]
fn correct_programs_are_not_stopped_on_any_source() {
    let file = SharedSource::from(File::in_directory(&file_directory()).unwrap());
    for source in [SharedSource::default(), Malloc.into(), file] {
        for size in [0, 1, 24, 100, 5000, 300_000] {
            let builder =
                RawFreeList::builder(layout(size, 8)).source(source.clone()).hardened(true);
            let list = builder.build();
            for _ in 0..3 {
                let count = if size < 1000 { 3000 } else { 20 };
                let mut objects = stamped(&list, count);
                objects.extend(stamped_run(&list, count));
                assert_apart(&objects);
                list::assert_exact(&list, 2 * count, None);
                free_all(&list, objects);
            }
            list::assert_empties(&list);
        }
    }
}

#[test]
fn a_run_that_the_budget_refuses_leaves_no_memory_in_the_records() {
    let test = "a_run_that_the_budget_refuses_leaves_no_memory_in_the_records";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    let mapped_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let budget = Budget::new(64 << 10);
    let list = RawFreeList::builder(layout(8, 8)).hardened(true).budget(&budget).build();
    let before = mapped_kib();
    let error = list.try_alloc_run(20_000_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    let grown = mapped_kib() - before;
    assert!(grown < 1 << 10, "{grown} KiB for objects that do not exist");
}
