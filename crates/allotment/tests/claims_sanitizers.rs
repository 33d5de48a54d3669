//! Memory tools, claimed of every allocator whose objects may be written to: its free memory is
//! poisoned, so that AddressSanitizer and Valgrind catch the access. What is particular to one
//! allocator is in `sanitizer_memory.rs` and `sanitizer_pools.rs`.
//!
//! Each test runs its misuses in child processes under the tool that is there (see
//! `support/tool.rs`).
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use support::slab::layout;
use support::subject::{Options, Resets, Reuses, Subject, claims};
use support::tool::{self, Access, branch_on, fill, read, write};

claims! {
    writable:
        correct_programs_make_no_report,
        a_touch_of_a_freed_object_is_caught,
        an_overrun_by_one_byte_is_caught,
        a_touch_of_memory_that_was_never_allocated_is_caught;
    reusing:
        a_touch_of_a_freed_object_is_caught_while_it_is_in_quarantine,
        a_branch_on_reused_bytes_that_were_not_written_is_caught_by_valgrind;
    resets: a_touch_of_an_object_from_before_a_reset_is_caught;
}

/// A small object, one whose size is no multiple of a tool's unit, and a large one.
const SIZES: [usize; 3] = [24, 5, 100_000];

/// Runs a case in a child process, where the tool must stop it.
fn is_caught(test: &str, case: &str, access: Access, misuse: impl FnOnce()) {
    let case = format!("{test} {case}");
    if tool::is_case(&case) {
        return misuse();
    }
    if !tool::is_child() {
        tool::is_caught_in(test, &case, access);
    }
}

/// An allocator, and an object that stays, so that no case is about a chunk's first bytes alone.
fn create<S: Subject>(layout: Layout) -> (S, NonNull<u8>) {
    let subject = S::create(&Options::of(layout));
    let kept = alloc(&subject, layout);
    fill(kept, layout.size());
    (subject, kept)
}

fn alloc<S: Subject>(subject: &S, layout: Layout) -> NonNull<u8> {
    subject.try_alloc(layout).expect("nothing is refused")
}

fn free<S: Subject>(subject: &S, object: NonNull<u8>, layout: Layout) {
    // SAFETY: allocated with this layout, and freed once.
    unsafe { subject.free(object, layout) };
}

fn correct_programs_make_no_report<S: Subject>(test: &str) {
    if !tool::is_child() {
        return tool::is_clean_in(test, test);
    }
    for &hardened in S::MODES {
        for size in [0, 1, 7, 24, 100, 1000, 5000, 70_000, 300_000] {
            for align in [1, 64, 4096] {
                let layout = layout(size, align);
                let mut subject = S::create(&Options::of(layout).hardened(hardened));
                let count = if size < 1000 { 200 } else { 5 };
                for _ in 0..3 {
                    let mut objects: Vec<_> = (0..count).map(|_| alloc(&subject, layout)).collect();
                    objects.iter().for_each(|object| fill(*object, size));
                    let rest = objects.split_off(count / 2);
                    objects.into_iter().for_each(|object| free(&subject, object, layout));
                    subject.trim();
                    rest.into_iter().for_each(|object| {
                        fill(object, size);
                        free(&subject, object, layout);
                    });
                    subject.recycle();
                }
            }
        }
    }
    allotment::recycler().trim();
}

fn a_touch_of_a_freed_object_is_caught<S: Subject>(test: &str) {
    for size in SIZES {
        let layout = layout(size, 1);
        let freed = || {
            let (subject, _) = create::<S>(layout);
            let object = alloc(&subject, layout);
            fill(object, size);
            free(&subject, object, layout);
            (subject, object)
        };
        is_caught(test, &format!("write {size}"), Access::Write, || {
            let (_subject, object) = freed();
            write(object.as_ptr());
        });
        is_caught(test, &format!("read {size}"), Access::Read, || {
            let (_subject, object) = freed();
            read(object.as_ptr().wrapping_add(size - 1));
        });
    }
}

fn an_overrun_by_one_byte_is_caught<S: Subject>(test: &str) {
    for size in SIZES {
        // A slab that is shared by size has objects of certain sizes, powers of two among them.
        let size = if S::SHARED { size.next_power_of_two().max(16) } else { size };
        let layout = layout(size, 1);
        is_caught(test, &format!("write {size}"), Access::Write, || {
            let (_subject, kept) = create::<S>(layout);
            write(kept.as_ptr().wrapping_add(size));
        });
        is_caught(test, &format!("read {size}"), Access::Read, || {
            let (subject, kept) = create::<S>(layout);
            // There may be another object behind it.
            alloc(&subject, layout);
            read(kept.as_ptr().wrapping_add(size));
        });
    }
}

fn a_touch_of_memory_that_was_never_allocated_is_caught<S: Subject>(test: &str) {
    let layout = Layout::new::<[u64; 3]>();
    is_caught(test, "write", Access::Write, || {
        let (_subject, kept) = create::<S>(layout);
        write(kept.as_ptr().wrapping_add(480));
    });
    is_caught(test, "read", Access::Read, || {
        let (_subject, kept) = create::<S>(layout);
        read(kept.as_ptr().wrapping_add(2400));
    });
}

fn a_touch_of_a_freed_object_is_caught_while_it_is_in_quarantine<S: Subject + Reuses>(test: &str) {
    let layout = Layout::new::<[u64; 3]>();
    is_caught(test, "", Access::Write, || {
        let (subject, _) = create::<S>(layout);
        let object = alloc(&subject, layout);
        free(&subject, object, layout);
        for _ in 0..1000 {
            free(&subject, alloc(&subject, layout), layout);
        }
        write(object.as_ptr());
    });
}

fn a_branch_on_reused_bytes_that_were_not_written_is_caught_by_valgrind<S: Subject + Reuses>(
    test: &str,
) {
    if !tool::is_child() {
        return tool::is_unwritten_in(test, test);
    }
    let layout = Layout::new::<[u64; 3]>();
    let (subject, _) = create::<S>(layout);
    for _ in 0..1200 {
        let object = alloc(&subject, layout);
        fill(object, layout.size());
        free(&subject, object, layout);
    }
    branch_on(alloc(&subject, layout));
}

fn a_touch_of_an_object_from_before_a_reset_is_caught<S: Subject + Resets>(test: &str) {
    let layout = Layout::new::<[u64; 3]>();
    is_caught(test, "write", Access::Write, || {
        let (mut subject, kept) = create::<S>(layout);
        subject.reset();
        write(kept.as_ptr());
    });
    is_caught(test, "read", Access::Read, || {
        let (mut subject, kept) = create::<S>(layout);
        subject.reset();
        read(kept.as_ptr());
    });
}
