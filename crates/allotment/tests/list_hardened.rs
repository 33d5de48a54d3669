//! The free list's hardened mode: each misuse, in its own process, is named and stops the process.

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;

use allotment::{
    Arena, Budget, ErrorKind, File, FreeList, FreeListBuilder, Malloc, RawFreeList, RawSlab,
    SharedSource,
};

use support::child::{self, Child};
use support::list::{self, free_all, objects_of, stamped, stamped_run};
use support::misuse::{self, pointer_to, print_address};
use support::setup::file_directory;
use support::slab::{assert_apart, layout};

const SIZE: usize = 24;
/// The bytes of the red zone behind an object.
const ZONE: usize = 24;

/// One of several cases of a test: the role of its child, and what the child does.
type Case<F> = (&'static str, F);
type Does = fn(&RawFreeList, NonNull<u8>);
type Makes = fn(&RawFreeList) -> NonNull<u8>;

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
fn a_double_free_is_stopped() {
    let test = "a_double_free_is_stopped";
    let cases: [Case<Does>; 3] = [
        ("by address", free),
        // SAFETY: none: this is the misuse.
        ("by a slot of a run", |list, object| {
            let run = list.alloc_run(5);
            objects_of(list, run, 5).for_each(|object| free(list, object));
            free(list, object);
        }),
        ("after a trim", |list, object| {
            list.trim();
            free(list, object);
        }),
    ];
    for (case, free_again) in cases {
        is_stopped_as(test, case, "double free", || {
            let list = hardened();
            let _kept = list.alloc();
            let object = object(&list);
            free(&list, object);
            free_again(&list, object);
        });
    }
}

#[test]
fn an_object_of_a_run_that_is_freed_twice_is_stopped() {
    is_stopped("an_object_of_a_run_that_is_freed_twice_is_stopped", "double free", || {
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
fn a_stale_free_is_stopped_while_the_object_is_in_quarantine() {
    is_stopped("a_stale_free_is_stopped_while_the_object_is_in_quarantine", "double free", || {
        let list = hardened();
        let stale = object(&list);
        free(&list, stale);
        // New objects don't get the block, whatever is allocated and freed.
        for _ in 0..1000 {
            let new = list.alloc();
            assert_ne!(new, stale);
            free(&list, new);
        }
        free(&list, stale);
    });
}

#[test]
fn a_stale_free_is_stopped_after_the_quarantine_while_the_block_is_vacant() {
    let test = "a_stale_free_is_stopped_after_the_quarantine_while_the_block_is_vacant";
    is_stopped(test, "double free", || {
        let list = hardened();
        let stale = object(&list);
        let others = stamped(&list, 3000);
        free(&list, stale);
        free_all(&list, others.into_iter().take(2000));
        free(&list, stale);
    });
}

#[test]
fn foreign_pointers_of_all_kinds_are_stopped() {
    let test = "foreign_pointers_of_all_kinds_are_stopped";
    let pointers: [Case<Makes>; 11] = [
        ("mallocs", |_| {
            let block = NonNull::from(Box::leak(Box::new(7u64))).cast();
            print_address(block);
            block
        }),
        ("the stack", |_| {
            let mut local = 7u64;
            pointer_to((&raw mut local).addr())
        }),
        ("code", |_| pointer_to(print_address as *const () as usize)),
        ("the middle of an object", |list| pointer_to(list.alloc().addr().get() + 8)),
        ("the second byte of an object", |list| pointer_to(list.alloc().addr().get() + 1)),
        ("behind an object", |list| pointer_to(list.alloc().addr().get() + SIZE)),
        ("a block that was never allocated", |list| {
            pointer_to(list.alloc().addr().get() + 10 * list.stride())
        }),
        ("the beginning of a slab", |list| pointer_to(list.alloc().addr().get() & !0xffff)),
        ("one", |_| pointer_to(1)),
        ("the last user address", |_| pointer_to((1 << 47) - 8)),
        ("no address", |_| pointer_to(0xdead_beef_dead_bee8)),
    ];
    for (role, make) in pointers {
        let line = is_stopped_as(test, role, "foreign pointer", || {
            let list = hardened();
            free(&list, list.alloc());
            let pointer = make(&list);
            free(&list, pointer);
        });
        assert!(!line.contains("it lies in"), "it lies in no other allocator: {line}");
    }
}

#[test]
fn an_object_of_another_list_is_stopped_and_both_are_named() {
    let test = "an_object_of_another_list_is_stopped_and_both_are_named";
    let line = is_stopped(test, "foreign pointer", || {
        let other = named("neighbour").hardened(true).build();
        let list = hardened();
        free(&list, list.alloc());
        free(&list, object(&other));
    });
    assert!(line.is_empty() || line.contains("it lies in free list 'neighbour'"), "{line}");
}

#[test]
fn an_object_of_another_list_that_is_not_hardened_is_stopped() {
    let test = "an_object_of_another_list_that_is_not_hardened_is_stopped";
    is_stopped(test, "foreign pointer", || {
        let other = named("neighbour").build();
        free(&hardened(), object(&other));
    });
}

#[test]
fn an_arenas_object_and_a_slabs_are_stopped_and_their_owners_named() {
    let test = "an_arenas_object_and_a_slabs_are_stopped_and_their_owners_named";
    let line = is_stopped_as(test, "arena", "foreign pointer", || {
        let arena = Arena::builder().name("neighbour").hardened(true).build();
        let object = arena.alloc_layout(layout(SIZE, 8));
        print_address(object);
        free(&hardened(), object);
    });
    assert!(line.is_empty() || line.contains("it lies in arena 'neighbour'"), "{line}");
    let line = is_stopped_as(test, "slab", "foreign pointer", || {
        let slab = RawSlab::builder(layout(SIZE, 8)).name("neighbour").build();
        let object = slab.alloc();
        print_address(object);
        free(&hardened(), object);
    });
    assert!(line.is_empty() || line.contains("it lies in slab 'neighbour'"), "{line}");
}

#[test]
fn an_overrun_is_stopped_at_the_free() {
    let test = "an_overrun_is_stopped_at_the_free";
    assert_eq!(hardened().stride(), SIZE + ZONE);
    for offset in [SIZE, SIZE + 7, SIZE + ZONE - 1] {
        is_stopped_as(test, &format!("single {offset}"), "overrun", || {
            let list = hardened();
            let object = object(&list);
            write(object, offset);
            free(&list, object);
        });
        is_stopped_as(test, &format!("in a run {offset}"), "overrun", || {
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
fn a_write_after_free_is_stopped_when_the_block_would_be_reused() {
    let test = "a_write_after_free_is_stopped_when_the_block_would_be_reused";
    for offset in [0, 5, SIZE - 1, SIZE + 3] {
        is_stopped_as(test, &format!("byte {offset}"), "write after free", || {
            let list = hardened();
            let object = object(&list);
            let kept = stamped(&list, 10);
            free(&list, object);
            write(object, offset);
            for _ in 0..3000 {
                free(&list, list.alloc());
            }
            free_all(&list, kept);
        });
    }
}

#[test]
fn a_write_after_free_is_stopped_at_the_trim_or_the_drop() {
    let test = "a_write_after_free_is_stopped_at_the_trim_or_the_drop";
    for (end, live) in
        [("trim", 0), ("drop", 0), ("trim while some live", 3), ("drop while some live", 3)]
    {
        is_stopped_as(test, end, "write after free", || {
            let list = hardened();
            let _kept: Vec<_> = (0..live).map(|_| list.alloc()).collect();
            let object = object(&list);
            free(&list, object);
            write(object, 7);
            if end.starts_with("trim") {
                list.trim();
                panic!("the trim did not detect it");
            }
            drop(list);
        });
    }
}

#[test]
fn a_write_after_the_quarantine_is_stopped_too() {
    let test = "a_write_after_the_quarantine_is_stopped_too";
    for end in ["used again", "trim", "drop"] {
        is_stopped_as(test, end, "write after free", || {
            let list = hardened();
            let object = object(&list);
            free(&list, object);
            let others = stamped(&list, 2000);
            free_all(&list, others);
            write(object, 9);
            match end {
                "used again" => (0..3000).for_each(|_| drop(stamped(&list, 1))),
                "trim" => drop(list.trim()),
                _ => {}
            }
        });
    }
}

#[test]
fn a_write_to_a_block_that_was_never_allocated_is_stopped_when_it_is_allocated() {
    let test = "a_write_to_a_block_that_was_never_allocated_is_stopped_when_it_is_allocated";
    for case in ["single", "run", "rest of a slab"] {
        is_stopped_as(test, case, "write after free", || {
            let list = hardened();
            let first = list.alloc();
            // SAFETY: the chunk has room for more.
            let next = unsafe { first.add(list.stride()) };
            print_address(next);
            write(next, 3);
            match case {
                "single" => drop(stamped(&list, 1)),
                "run" => drop(stamped_run(&list, 10)),
                _ => drop((stamped_run(&list, 100_000), stamped(&list, 2000))),
            }
        });
    }
}

#[test]
fn a_list_dropped_with_live_objects_reports_them_if_that_is_on() {
    let test = "a_list_dropped_with_live_objects_reports_them_if_that_is_on";
    let cases = [
        (false, None, false),
        (false, Some(true), true),
        (true, None, true),
        (true, Some(false), false),
    ];
    if child::is(test) {
        for (number, (hardened, told, _)) in cases.into_iter().enumerate() {
            let builder =
                FreeList::<u64>::builder().name(format!("number {number}")).hardened(hardened);
            let list = match told {
                Some(report) => builder.report_live(report).build(),
                None => builder.build(),
            };
            (0..7).for_each(|number| core::mem::forget(list.alloc(number)));
            drop(list.alloc(8));
        }
        // A list without live objects reports nothing.
        let list = FreeList::<u64>::builder().name("number 9").hardened(true).build();
        drop(list.alloc(1));
        return;
    }
    let text = Child::new(test, test).succeeds();
    for (number, (_, _, says)) in cases.into_iter().enumerate() {
        let line = format!(
            "allotment: free list 'number {number}' dropped with 7 live objects of 8 bytes"
        );
        assert_eq!(text.contains(&line), says, "{line}:\n{text}");
    }
    assert!(!text.contains("number 9"), "{text}");
}

#[test]
fn a_name_with_control_characters_is_one_line_of_the_message() {
    let test = "a_name_with_control_characters_is_one_line_of_the_message";
    if child::is(test) {
        let list = named("two\nlines\u{1b}[31m").hardened(true).build();
        free(&list, pointer_to(8));
    }
    let stderr = Child::new(test, test).aborts();
    assert!(
        stderr
            .lines()
            .any(|line| line.starts_with(r"allotment: free list 'two\nlines\u{1b}[31m': ")),
        "{stderr}"
    );
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
