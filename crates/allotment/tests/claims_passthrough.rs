//! `ALLOTMENT_PASSTHROUGH=1`, claimed of every allocator whose objects malloc can serve: every
//! object is a malloc block of its own, and the allocator's guarantees still hold. What is
//! particular to one allocator is in `arena_passthrough.rs`, `free_list_passthrough.rs` and
//! `slab_passthrough.rs`; random programs are in `arena_programs.rs`, `free_list_programs.rs`,
//! `slab_programs.rs` and `pool_programs.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;

use allotment::{Budget, ErrorKind};
use support::child::{self, Child};
use support::slab::{assert_apart, assert_sums, layout};
use support::subject::{Checked, FOREIGN, Options, Sourced, Subject, claims};

claims! {
    writable: each_object_is_a_malloc_block;
    sourced:
        figures_and_budgets_are_exact,
        a_double_free_and_a_foreign_pointer_are_stopped;
    ending: a_drop_frees_the_blocks_of_live_objects;
}

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

/// The bytes that malloc has for a block, which must be malloc's.
fn usable(block: NonNull<u8>) -> usize {
    // SAFETY: a live block of malloc, if the claim holds.
    unsafe { libc::malloc_usable_size(block.as_ptr().cast()) }
}

fn each_object_is_a_malloc_block<S: Subject>(test: &str) {
    passed_through(test, || {
        for &hardened in S::MODES {
            for size in (1..200).chain([5000, 100_000]) {
                let layout = layout(size, 8);
                let subject = S::create(&Options::of(layout).hardened(hardened));
                let objects = subject.stamped(layout, 3);
                // A slab that is shared by size has larger objects.
                let most = size + size / 8 + 64;
                for object in &objects {
                    let usable = usable(object.start);
                    assert!((size..=most).contains(&usable), "{usable} for {size}");
                }
                assert_apart(&objects);
                subject.free_all(layout, objects);
                subject.trim();
            }
        }
    });
}

fn figures_and_budgets_are_exact<S: Sourced>(test: &str) {
    passed_through(test, || {
        let budget = Budget::new(100_000);
        let options = Options::of_size(100).budget(&budget).name("through");
        let layout = options.layout;
        let mut subject = S::create(&options);
        let empty = subject.statistics();
        assert_eq!(empty.held_bytes, empty.structure_bytes);
        let objects = subject.stamped(layout, 300);
        let statistics = subject.statistics();
        assert_eq!((statistics.live_objects, statistics.live_bytes), (300, 30_000));
        assert_eq!((statistics.chunks, statistics.free_bytes, statistics.wasted_bytes), (0, 0, 0));
        assert_eq!(statistics.held_bytes, statistics.structure_bytes + statistics.live_bytes);
        assert_eq!(statistics.held_bytes, budget.used() as u64);
        assert_sums(&statistics);
        assert_eq!(allotment::report().allocators[0].statistics, statistics);
        subject.trim();
        assert_eq!(subject.statistics(), statistics, "nothing is empty");
        subject.free_all(layout, objects);
        assert_eq!(budget.used() as u64, empty.held_bytes);
        for _ in 0..2 {
            let mut more = Vec::new();
            let error = loop {
                match subject.try_stamped(layout, more.len() as u64) {
                    Ok(object) => more.push(object),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
            let room = 100_000 - empty.held_bytes as usize;
            assert_eq!(more.len(), room / 100);
            assert_eq!(budget.used() as u64, subject.statistics().held_bytes);
            subject.free_all(layout, more);
            subject.recycle();
            assert_eq!(subject.statistics().live_objects, 0);
        }
        drop(subject);
        assert_eq!(budget.used(), 0);
    });
}

fn a_drop_frees_the_blocks_of_live_objects<S: Sourced>(test: &str) {
    passed_through(test, || {
        let budget = Budget::new(100_000);
        let options = Options::of_size(100).budget(&budget);
        let subject = S::create(&options);
        subject.stamped(options.layout, 300);
        assert!(budget.used() >= 30_000);
        drop(subject);
        assert_eq!(budget.used(), 0);
    });
}

/// Makes a pointer that may not be freed.
type Makes<S> = fn(&S) -> NonNull<u8>;

fn a_double_free_and_a_foreign_pointer_are_stopped<S: Checked>(test: &str) {
    const LAYOUT: Layout = Layout::new::<[u64; 3]>();
    let cases: [(String, &str, Makes<S>); 2] = [
        (format!("{test} double"), S::PASSED_DOUBLE_FREE, |subject| {
            let object = subject.try_alloc(LAYOUT).expect("nothing is refused");
            // SAFETY: allocated above.
            unsafe { subject.free(object, LAYOUT) };
            object
        }),
        (format!("{test} foreign"), FOREIGN, |_| {
            NonNull::from(Box::leak(Box::new([7u64; 3]))).cast()
        }),
    ];
    for (case, words, make) in &cases {
        if child::is(case) {
            let subject = S::create(&Options::of(LAYOUT).name("victim"));
            let pointer = make(&subject);
            // SAFETY: none: this is the misuse.
            unsafe { subject.free(pointer, LAYOUT) };
            panic!("the misuse was not detected");
        }
        if !child::is_any() {
            let stderr = Child::new(test, case).env("ALLOTMENT_PASSTHROUGH", "1").aborts();
            let start = format!("allotment: {} 'victim': ", S::KIND);
            let line = stderr.lines().find(|line| line.starts_with(&start));
            assert!(line.is_some_and(|line| line.contains(words)), "{case}: {stderr}");
        }
    }
}
