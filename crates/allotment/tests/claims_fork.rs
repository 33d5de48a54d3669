//! Forks, claimed of every allocator: a child goes on with what it inherits, and with allocators of
//! its own. What threads of the parent share at the fork is particular to slabs (`slab_fork.rs`),
//! to pools (`pool_fork.rs`) and to `Published` (`published_fork.rs`).
//!
//! The threads of the parent have ordinary allocators and hardened ones.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use allotment::{Budget, ErrorKind, recycler};
use support::child::{self, Child};
use support::fork::{faulted, forked, rounds};
use support::list::{passed_through, under_a_tool};
use support::slab::{Object, Random, assert_apart, layout};
use support::subject::{Limited, Options, Sourced, Subject, claims};

claims! {
    every:
        a_forked_child_goes_on_with_what_it_inherits,
        a_child_of_a_child_goes_on_with_what_it_inherits,
        a_forked_child_makes_its_own_while_the_parents_threads_were_inside_theirs;
    sourced: what_a_child_does_changes_nothing_of_its_parents_on_any_source;
    limited: a_child_that_drops_what_it_inherits_has_everything_back;
}

fn a_forked_child_goes_on_with_what_it_inherits<S: Subject>(_: &str) {
    for &hardened in S::MODES {
        let options = Options::of_size(100).name("inherited").hardened(hardened);
        let layout = options.layout;
        let subject = S::create(&options);
        let objects = subject.stamped(layout, 1000);
        let gone = subject.stamped(layout, 500);
        subject.free_all(layout, gone);
        let work = || {
            objects.iter().for_each(Object::assert_intact);
            let more = subject.stamped(layout, 2000);
            assert_apart(objects.iter().chain(&more));
            // The child's copies of half of the objects, which it does not use again.
            for object in &objects[..500] {
                // SAFETY: live in this process, and freed once in it.
                unsafe { subject.free(object.start, layout) };
            }
            subject.free_all(layout, more);
            subject.trim();
            let again = subject.stamped(layout, 700);
            assert_apart(objects[500..].iter().chain(&again));
            objects[500..].iter().for_each(Object::assert_intact);
        };
        // SAFETY: the child uses its own copy of the allocator, and malloc.
        assert_eq!(unsafe { forked(work) }, 0, "the child neither hung nor failed");
        // The child's memory is its own.
        objects.iter().for_each(Object::assert_intact);
        let more = subject.stamped(layout, 500);
        assert_apart(objects.iter().chain(&more));
        subject.free_all(layout, objects);
        subject.free_all(layout, more);
    }
}

fn a_child_of_a_child_goes_on_with_what_it_inherits<S: Subject>(_: &str) {
    let layout = layout(72, 8);
    let subject = S::create(&Options::of(layout));
    let objects = subject.stamped(layout, 300);
    let work = || {
        let more = subject.stamped(layout, 300);
        let work = || {
            objects.iter().chain(&more).for_each(Object::assert_intact);
            subject.free_all(layout, subject.stamped(layout, 300));
        };
        // SAFETY: as below.
        assert_eq!(unsafe { forked(work) }, 0);
        subject.free_all(layout, more);
    };
    // SAFETY: the child uses its own copy of the allocator, and malloc.
    assert_eq!(unsafe { forked(work) }, 0);
    subject.free_all(layout, objects);
}

fn a_child_that_drops_what_it_inherits_has_everything_back<S: Limited>(_: &str) {
    for &hardened in S::MODES {
        let budget = Budget::new(usize::MAX);
        let options = Options::of_size(40).budget(&budget).hardened(hardened);
        let subject = S::create(&options);
        let layout = options.layout;
        let mut objects = subject.stamped(layout, 2000);
        let gone = objects.split_off(1000);
        subject.free_all(layout, gone);
        let before = subject.figures();
        let work = || {
            for object in &objects {
                object.assert_intact();
                // SAFETY: the child's copy, freed once in this process.
                unsafe { subject.free(object.start, layout) };
            }
            // SAFETY: the child's copy, which is dropped once in this process.
            drop(unsafe { core::ptr::read(&subject) });
            assert_eq!(budget.used(), 0);
        };
        // SAFETY: the child uses its own copy of the allocator, and malloc.
        assert_eq!(unsafe { forked(work) }, 0);
        assert_eq!((subject.figures(), budget.used()), (before, before.held_bytes));
        subject.free_all(layout, objects);
        drop(subject);
        assert_eq!(budget.used(), 0);
    }
}

fn what_a_child_does_changes_nothing_of_its_parents_on_any_source<S: Sourced>(_: &str) {
    if passed_through() {
        return println!("skipped: objects are malloc's, and on no source");
    }
    for source in S::sources() {
        for &hardened in S::MODES {
            let options = Options::of_size(100).hardened(hardened);
            let options = Options { source: source.clone(), ..options };
            let layout = options.layout;
            let mut subject = S::create(&options);
            // Memory that is free and needs no call to the source.
            let gone = subject.stamped(layout, 2000);
            subject.free_all(layout, gone);
            subject.recycle();
            let mut objects = subject.stamped(layout, 1000);
            let gone = objects.split_off(900);
            subject.free_all(layout, gone);
            let before = subject.figures();
            let write = |start: NonNull<u8>| {
                // SAFETY: the child's copy of a live object of this size.
                unsafe { start.write_bytes(0xee, layout.size()) };
            };
            let writes = || objects.iter().for_each(|object| write(object.start));
            let allocates = || {
                for _ in 0..3000 {
                    match subject.try_alloc(layout) {
                        Ok(start) => write(start),
                        Err(error) => return assert_eq!(error.kind(), ErrorKind::ForkedChild),
                    }
                }
            };
            let frees = || {
                for object in &objects[..500] {
                    // SAFETY: the child's copy, freed once in this process.
                    unsafe { subject.free(object.start, layout) };
                }
            };
            let trims = || {
                subject.trim();
                subject.figures();
            };
            // SAFETY: the child's copy, dropped once in this process.
            let drops = || drop(unsafe { core::ptr::read(&subject) });
            let shared = source.as_ref().is_some_and(|source| source.name() == "file");
            let works: [(&dyn Fn(), bool); 5] = [
                (&writes, true),
                (&allocates, true),
                (&frees, true),
                (&trims, false),
                (&drops, false),
            ];
            for (index, (work, faults)) in works.into_iter().enumerate() {
                if shared && faults && under_a_tool() {
                    continue;
                }
                // SAFETY: the child uses its own copy of the allocator, and malloc.
                let status = unsafe { forked(work) };
                let may_fault = shared && faults;
                assert!(
                    status == 0 || may_fault && faulted(status),
                    "{source:?}, hardened {hardened}, work {index}: {status:#x}"
                );
                assert!(!shared || index > 0 || faulted(status), "a write to a file faults");
                objects.iter().for_each(Object::assert_intact);
                assert_eq!(subject.figures(), before);
            }
            let more = subject.stamped(layout, 3000);
            assert_apart(objects.iter().chain(&more));
            objects.iter().for_each(Object::assert_intact);
            subject.free_all(layout, objects);
            subject.free_all(layout, more);
        }
    }
}

/// Makes allocators, uses them and drops them.
fn churn<S: Subject>(random: &mut Random, rounds: usize) {
    for _ in 0..rounds {
        let bits = random.below(11);
        let layout = layout(random.below(100) << bits, 1 << random.below(7));
        let hardened = S::MODES[random.below(S::MODES.len())];
        let mut subject = S::create(&Options::of(layout).hardened(hardened));
        for _ in 0..2 {
            let mut objects = subject.stamped(layout, 1 + random.below(1 << (11 - bits)));
            let rest = objects.split_off(objects.len() / 2);
            subject.free_all(layout, objects);
            if random.one_in(3) {
                subject.trim();
            }
            subject.free_all(layout, rest);
            subject.recycle();
        }
    }
}

/// Ends the other threads' work when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_forked_child_makes_its_own_while_the_parents_threads_were_inside_theirs<S: Subject>(
    test: &str,
) {
    // Alone in a process, so that the recycler is this test's.
    if !child::is(test) {
        Child::new(test, test).succeeds();
        Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
        return;
    }
    let stop = AtomicBool::new(false);
    let options = Options::of_size(100);
    let ours = S::create(&options);
    let objects = ours.stamped(options.layout, 1000);
    std::thread::scope(|scope| {
        // Also if the test fails.
        let stops = Stops(&stop);
        let mut threads = Vec::new();
        for seed in 0..3 {
            let stop = &stop;
            threads.push(scope.spawn(move || {
                let mut random = Random::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    churn::<S>(&mut random, 5);
                }
            }));
        }
        threads.push(scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                recycler().trim();
                std::thread::yield_now();
            }
        }));
        for round in 0..rounds(8) {
            let work = || {
                objects.iter().for_each(Object::assert_intact);
                let mut random = Random::new(100 + round);
                churn::<S>(&mut random, 10);
                recycler().trim();
                churn::<S>(&mut random, 5);
                let more = ours.stamped(options.layout, 1000);
                assert_apart(objects.iter().chain(&more));
                ours.free_all(options.layout, more);
                // The child's own threads.
                std::thread::scope(|scope| {
                    for seed in [200, 300] {
                        scope.spawn(move || churn::<S>(&mut Random::new(seed + round), 5));
                    }
                });
                let report = allotment::report();
                assert!(report.recycler_cached_bytes <= report.recycler_limit_bytes);
            };
            // SAFETY: the child uses allocators that take no lock that another thread may hold,
            // threads, and malloc.
            assert_eq!(unsafe { forked(work) }, 0, "the child neither hung nor failed");
        }
        drop(stops);
        // One by one: the end of the scope does not wait for what a thread does when it ends.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    objects.iter().for_each(Object::assert_intact);
    ours.free_all(options.layout, objects);
    recycler().trim();
    assert_eq!(recycler().cached_bytes(), 0, "the forks lost no chunk of it");
}
