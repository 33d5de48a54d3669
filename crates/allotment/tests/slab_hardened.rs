//! What is particular to a hardened slab: each of its calls, threads, boxes that outlive it. The
//! misuses that every hardened allocator detects are in `claims_misuse.rs`. The misuse that the
//! ordinary mode detects is tested here too.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use allotment::slab::SlabBuilder;
use allotment::source::SharedSource;
use allotment::{Budget, File, Malloc, RawSlab, Slab};
use support::child::{self, Child};
use support::misuse::{self, pointer_to, print_address};
use support::setup::file_directory;
use support::slab::{self, free_all, layout, stamped};

const SIZE: usize = 24;

/// One of several cases of a test: the role of its child, and what the child does.
type Case<F> = (&'static str, F);
type Frees = fn(&RawSlab, NonNull<u8>);

fn named(name: &str) -> SlabBuilder<RawSlab> {
    RawSlab::builder(layout(SIZE, 8)).name(name)
}

fn hardened() -> RawSlab {
    named("victim").hardened(true).build()
}

/// Allocates an object, and prints its address.
fn object(slab: &RawSlab) -> NonNull<u8> {
    let object = slab.alloc();
    print_address(object);
    object
}

/// Frees an object, correctly or not.
fn free(slab: &RawSlab, slot: NonNull<u8>) {
    // SAFETY: none: this is the misuse, or the call before it.
    unsafe { slab.free(slot) }
}

/// Runs `misuse` in a child process, which must be stopped.
fn is_stopped(test: &str, words: &str, misuse: impl Fn()) -> String {
    is_stopped_as(test, test, words, misuse)
}

/// As above, for one of several cases of a test.
fn is_stopped_as(test: &str, case: &str, words: &str, misuse: impl Fn()) -> String {
    misuse::is_stopped(test, case, "slab 'victim'", words, SIZE, misuse)
}

#[test]
fn a_double_free_is_stopped_while_other_threads_print_the_slab() {
    let test = "a_double_free_is_stopped_while_other_threads_print_the_slab";
    if !child::is(test) {
        // Within a printed line, perhaps: the message waits for no lock.
        let stderr = Child::new(test, test).aborts();
        assert!(stderr.contains("allotment: slab 'victim': double free"), "{stderr}");
        return;
    }
    let slab = hardened();
    let address = slab.alloc().as_ptr().expose_provenance();
    let printed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    printed.fetch_add(1, Ordering::Relaxed);
                    // Holds the lock of standard error while it asks for the slab's statistics.
                    eprintln!("{slab:?}");
                }
            });
        }
        while printed.load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        let object = core::ptr::with_exposed_provenance_mut(address);
        let object = NonNull::new(object).expect("an address of the slab");
        free(&slab, object);
        free(&slab, object);
    });
}

#[test]
fn a_double_free_by_any_call_is_stopped() {
    let test = "a_double_free_by_any_call_is_stopped";
    let cases: [Case<Frees>; 4] = [
        // SAFETY: none: this is the misuse.
        ("handle", |slab, object| unsafe { slab.handle().free(object) }),
        // SAFETY: none: this is the misuse.
        ("many", |slab, object| unsafe { slab.free_many(&[object]) }),
        ("thread", |slab, object| {
            let address = object.as_ptr().expose_provenance();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let object = core::ptr::with_exposed_provenance_mut(address);
                    free(slab, NonNull::new(object).expect("as before"));
                });
            });
        }),
        // SAFETY: none: this is the misuse.
        ("box", |_, object| drop(unsafe { allotment::SlabBox::from_raw(object.cast::<u64>()) })),
    ];
    for (case, free_again) in cases {
        is_stopped_as(test, case, "double free", || {
            let slab = hardened();
            let object = object(&slab);
            free(&slab, object);
            free_again(&slab, object);
        });
    }
}

#[test]
fn two_equal_slots_freed_by_one_call_are_stopped() {
    is_stopped("two_equal_slots_freed_by_one_call_are_stopped", "double free", || {
        let slab = hardened();
        let object = object(&slab);
        // SAFETY: none: this is the misuse.
        unsafe { slab.free_many(&[object, object]) };
    });
}

#[test]
fn foreign_pointers_given_to_a_handle_are_stopped() {
    let test = "foreign_pointers_given_to_a_handle_are_stopped";
    // Addresses that a process can have. With others the handle may fault.
    for (role, address) in [("small", 8), ("middle", 1 << 46), ("large", (1 << 47) - 8)] {
        is_stopped_as(test, role, "foreign pointer", || {
            let slab = hardened();
            let handle = slab.handle();
            let pointer = pointer_to(address);
            // SAFETY: none: this is the misuse.
            unsafe { handle.free(pointer) };
        });
    }
}

#[test]
fn foreign_pointers_among_many_are_stopped() {
    let test = "foreign_pointers_among_many_are_stopped";
    for (role, address) in [("small", 8), ("large", 0xdead_beef_dead_bee8)] {
        is_stopped_as(test, role, "foreign pointer", || {
            let slab = hardened();
            let slots = [slab.alloc(), pointer_to(address)];
            // SAFETY: none: this is the misuse.
            unsafe { slab.free_many(&slots) };
        });
    }
}

#[test]
fn the_ordinary_mode_stops_a_slot_of_another_slab_and_names_both() {
    let test = "the_ordinary_mode_stops_a_slot_of_another_slab_and_names_both";
    for (role, other) in [("hardened", true), ("ordinary", false)] {
        let line = is_stopped_as(test, role, "foreign pointer", || {
            let other = named("neighbour").hardened(other).build();
            let slab = named("victim").build();
            free(&slab, slab.alloc());
            free(&slab, object(&other));
        });
        assert!(line.is_empty() || line.contains("it lies in slab 'neighbour'"), "{line}");
    }
}

#[test]
fn a_slot_of_another_slab_is_stopped_by_any_call_that_frees_it() {
    let test = "a_slot_of_another_slab_is_stopped_by_any_call_that_frees_it";
    let cases: [Case<Frees>; 3] = [
        // SAFETY: none: this is the misuse.
        ("handle", |slab, object| unsafe { slab.handle().free(object) }),
        ("thread", |slab, object| {
            let address = object.as_ptr().expose_provenance();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let object = core::ptr::with_exposed_provenance_mut(address);
                    free(slab, NonNull::new(object).expect("as before"));
                });
            });
        }),
        // SAFETY: none: this is the misuse.
        ("many hardened", |_, object| unsafe { hardened().free_many(&[object]) }),
    ];
    for (case, free_there) in cases {
        let line = is_stopped_as(test, case, "foreign pointer", || {
            let other = named("neighbour").build();
            let slab = named("victim").build();
            free_there(&slab, object(&other));
        });
        assert!(line.is_empty() || line.contains("it lies in slab 'neighbour'"), "{line}");
    }
}

#[test]
fn a_hardened_box_that_outlives_its_slab_is_freed_and_checked() {
    let budget = Budget::new(usize::MAX);
    let slab =
        Slab::<[u8; 24]>::builder().hardened(true).report_live(false).budget(&budget).build();
    let boxes: Vec<_> = (0..2000).map(|_| slab.alloc([1; 24])).collect();
    drop(slab);
    drop(boxes);
    assert_eq!(budget.used(), 0);
    let test = "a_hardened_box_that_outlives_its_slab_is_freed_and_checked";
    is_stopped(test, "overrun", || {
        let slab = Slab::<[u8; SIZE]>::builder().name("victim").hardened(true).build();
        let mut boxed = slab.alloc([1; SIZE]);
        drop(slab);
        print_address(NonNull::from(&mut *boxed).cast());
        // SAFETY: none: this is the misuse.
        unsafe { boxed.as_mut_ptr().add(SIZE).write(1) };
        drop(boxed);
    });
}

#[test]
fn a_slab_dropped_with_live_objects_reports_them_if_that_is_on() {
    let test = "a_slab_dropped_with_live_objects_reports_them_if_that_is_on";
    let cases = [
        (false, None, false),
        (false, Some(true), true),
        (true, None, true),
        (true, Some(false), false),
    ];
    if child::is(test) {
        for (number, (hardened, told, _)) in cases.into_iter().enumerate() {
            let builder =
                Slab::<u64>::builder().name(format!("number {number}")).hardened(hardened);
            let slab = match told {
                Some(report) => builder.report_live(report).build(),
                None => builder.build(),
            };
            let boxes: Vec<_> = (0..7).map(|number| slab.alloc(number)).collect();
            drop(slab.alloc(8));
            drop(slab);
            assert!(boxes.iter().enumerate().all(|(number, boxed)| **boxed == number as u64));
        }
        return;
    }
    let text = Child::new(test, test).succeeds();
    for (number, (_, _, says)) in cases.into_iter().enumerate() {
        let line =
            format!("allotment: slab 'number {number}' dropped with 7 live objects of 8 bytes");
        assert_eq!(text.contains(&line), says, "{line}:\n{text}");
    }
}

#[test]
fn correct_programs_are_not_stopped_on_any_source() {
    let file = SharedSource::from(File::in_directory(&file_directory()).unwrap());
    for source in [SharedSource::default(), Malloc.into(), file] {
        for size in [0, 1, 24, 100, 5000, 300_000] {
            let builder = RawSlab::builder(layout(size, 8)).source(source.clone()).hardened(true);
            let slab = builder.build();
            for _ in 0..3 {
                let count = if size < 1000 { 3000 } else { 20 };
                let objects = stamped(&slab, count);
                slab::assert_apart(&objects);
                slab::assert_exact(&slab, count, None);
                std::thread::scope(|scope| {
                    scope.spawn(|| free_all(&slab, objects)).join().unwrap();
                });
            }
            slab::assert_empties(&slab);
        }
    }
}

#[test]
fn the_ordinary_mode_stops_a_slot_that_is_returned_to_its_page_twice() {
    let test = "the_ordinary_mode_stops_a_slot_that_is_returned_to_its_page_twice";
    let cases: [Case<Frees>; 4] = [
        ("flushed twice", |slab, object| {
            free(slab, object);
            slab.flush();
            free(slab, object);
            slab.flush();
        }),
        ("flushed once", |slab, object| {
            free(slab, object);
            free(slab, object);
            slab.flush();
        }),
        ("by two threads", |slab, object| {
            let address = object.as_ptr().expose_provenance();
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let object = core::ptr::with_exposed_provenance_mut(address);
                    free(slab, NonNull::new(object).expect("as before"));
                });
                thread.join().unwrap();
            });
            free(slab, object);
            slab.flush();
        }),
        // SAFETY: none: this is the misuse.
        ("by one call", |slab, object| unsafe { slab.free_many(&[object, object]) }),
    ];
    for (case, free_twice) in cases {
        is_stopped_as(test, case, "double free", || {
            let slab = named("victim").build();
            // These keep the page.
            let kept = stamped(&slab, 10);
            free_twice(&slab, object(&slab));
            core::mem::forget(kept);
        });
    }
}
