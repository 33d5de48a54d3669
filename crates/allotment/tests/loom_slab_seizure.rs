//! Models of the thread that ends a slab and takes over the caches of threads that sleep
//! (`src/slab/cache_seizure.rs`, `cache_ownership.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The ownership and the steps of the seizure are those that ship. A cache is a cell that loom
//! watches: the model fails if two threads access it at the same time. Slots are only counted: one
//! word for the page, one for each cache.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::cache_ownership::CacheOwnership;
use allotment::for_loom::cache_seizure::{EndedSlab, seize_caches};
use allotment::for_loom::fences::{KernelFences, as_thread, light};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

struct Cache {
    ownership: CacheOwnership,
    /// The number of slots in the cache, which other threads read too.
    held: AtomicUsize,
    /// The same number, where the slots are: the owner's.
    entries: UnsafeCell<usize>,
}

impl Cache {
    fn new(held: usize) -> Self {
        Self {
            ownership: CacheOwnership::owned(),
            held: AtomicUsize::new(held),
            entries: UnsafeCell::new(held),
        }
    }

    /// Accesses the entries as the owner does.
    fn entries<R>(&self, work: impl FnOnce(&mut usize) -> R) -> R {
        // SAFETY: the caller is the owner; loom fails the model if another thread is inside.
        self.entries.with_mut(|entries| work(unsafe { &mut *entries }))
    }
}

/// A slab. Each slot is in the page, in a cache, or in use.
struct Slab {
    gate: Gate,
    slots: usize,
    page: AtomicUsize,
    caches: Vec<Cache>,
}

impl Slab {
    fn new(slots: usize, caches: &[usize]) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            slots,
            page: AtomicUsize::new(0),
            caches: caches.iter().map(|held| Cache::new(*held)).collect(),
        })
    }

    /// The fast path of a free. The kernel's fence falls between any two instructions of another
    /// thread; in the model it falls before or behind a light fence.
    fn push(&self, number: usize) {
        let cache = &self.caches[number];
        cache.entries(|entries| *entries += 1);
        light();
        self.gate.pass();
        cache.held.store(cache.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the cache's slots to the page. They count twice for a moment.
    fn flush(&self, number: usize) {
        let cache = &self.caches[number];
        let slots = cache.entries(|entries| std::mem::take(entries));
        self.page.fetch_add(slots, Ordering::AcqRel);
        self.gate.pass();
        cache.held.store(0, Ordering::Relaxed);
    }

    /// The slow path of a free: the slot goes to the page, and the cache is emptied.
    fn free_slowly(&self, number: usize) {
        let _visit = self.caches[number].ownership.visit();
        self.page.fetch_add(1, Ordering::AcqRel);
        self.gate.pass();
        self.flush(number);
    }

    /// The thread of a cache leaves it. Returns whether it was still its own.
    fn leave(&self, number: usize) -> bool {
        let Some(_visit) = self.caches[number].ownership.visit_to_leave() else { return false };
        self.flush(number);
        self.caches[number].ownership.release();
        true
    }
}

impl EndedSlab for Slab {
    type Cache = usize;

    fn caches(&self) -> impl Iterator<Item = usize> {
        0..self.caches.len()
    }

    fn ownership(&self, cache: usize) -> &CacheOwnership {
        &self.caches[cache].ownership
    }

    fn all_slots_are_free(&self) -> bool {
        self.gate.pass();
        let page = self.page.load(Ordering::Acquire);
        let held: usize = self.caches.iter().map(|cache| cache.held.load(Ordering::Relaxed)).sum();
        page + held >= self.slots
    }

    fn empty(&self, cache: usize) {
        self.flush(cache);
        self.caches[cache].ownership.release();
    }

    fn wait(&self) {
        thread::yield_now();
    }
}

/// Each thread does something while the first one ends the slab. In the end each of `slots` is free,
/// in the page or in a cache that its thread still has.
fn ends(slots: usize, caches: &'static [usize], threads: &'static [fn(&Slab)]) {
    let _by_kernel = KernelFences::new();
    explore(3, move || {
        let slab = Slab::new(slots, caches);
        let threads: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(number, work)| {
                let slab = Arc::clone(&slab);
                thread::spawn(move || {
                    as_thread(number + 1);
                    work(&slab);
                })
            })
            .collect();
        as_thread(0);
        seize_caches(&*slab);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut cached = 0;
        for cache in &slab.caches {
            let held = cache.entries(|held| *held);
            let is_owned = cache.ownership.is_in_use();
            assert!(is_owned || held == 0, "a slot is in a cache without an owner");
            cached += held;
        }
        let page = slab.page.load(Ordering::Relaxed);
        assert_eq!(page + cached, slots, "a slot was lost");
    });
}

#[test]
fn the_cache_of_a_thread_that_sleeps_is_emptied() {
    let _by_kernel = KernelFences::new();
    explore(3, || {
        let slab = Slab::new(3, &[1, 2]);
        seize_caches(&*slab);
        assert_eq!(slab.page.load(Ordering::Relaxed), 3);
        assert!(!slab.leave(0) && !slab.leave(1));
    });
}

#[test]
fn nothing_is_seized_without_the_kernels_fences() {
    explore(3, || {
        let slab = Slab::new(1, &[1]);
        seize_caches(&*slab);
        assert!(slab.leave(0));
    });
}

/// A thread leaves its cache, which is its own or was taken over.
fn one_leaves() {
    ends(
        2,
        &[1, 1],
        &[|slab| {
            slab.leave(0);
        }],
    );
}

#[test]
fn a_thread_that_leaves_while_its_slab_ends_empties_its_cache_or_leaves_it_to_the_other() {
    one_leaves();
    ends(
        2,
        &[1, 1],
        &[
            |slab| {
                slab.leave(0);
            },
            |slab| {
                slab.leave(1);
            },
        ],
    );
}

/// Two threads free the last slots while the slab ends. Each frees one by a slow path, in which slots
/// count twice for a moment: as many as the second thread has in use meanwhile.
fn two_free() {
    ends(
        6,
        &[2, 1],
        &[
            |slab| slab.free_slowly(0),
            |slab| {
                slab.free_slowly(1);
                slab.push(1);
            },
        ],
    );
}

/// A slow path of one thread counts a slot twice, which hides that the other thread has one in use.
/// That frees it and leaves its seized cache.
fn one_frees_and_abandons() {
    ends(
        4,
        &[1, 1],
        &[
            |slab| slab.free_slowly(0),
            |slab| {
                slab.push(1);
                slab.leave(1);
            },
        ],
    );
}

#[test]
fn a_slab_whose_last_objects_are_freed_while_it_ends_loses_no_slot() {
    ends(2, &[1], &[|slab| slab.push(0)]);
    ends(2, &[1], &[|slab| slab.free_slowly(0)]);
    two_free();
}

#[test]
fn a_thread_that_frees_and_then_leaves_loses_no_slot() {
    ends(
        2,
        &[1],
        &[|slab| {
            slab.push(0);
            slab.leave(0);
        }],
    );
    ends(
        2,
        &[1],
        &[|slab| {
            slab.free_slowly(0);
            slab.leave(0);
        }],
    );
}

#[test]
fn a_thread_that_frees_and_abandons_its_cache_loses_no_slot() {
    one_frees_and_abandons();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thread_that_looks_before_its_visit_has_its_cache_taken_over_meanwhile() {
    let _mutant = Mutant::new("leave: look before the visit");
    one_leaves();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_seizure_without_a_fence_misses_a_visit() {
    let _mutant = Mutant::new("seize: no fence");
    one_leaves();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_seizure_without_a_fence_does_not_see_the_slots_that_it_counted() {
    let _mutant = Mutant::new("seize: no fence");
    ends(2, &[1], &[|slab| slab.push(0)]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_seizure_that_does_not_count_the_visit_of_a_thread_that_left_counts_slots_twice() {
    let _mutant = Mutant::new("seize: only seized caches count");
    one_frees_and_abandons();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_seizure_that_does_not_count_visits_again_counts_slots_twice() {
    let _mutant = Mutant::new("seize: visits not counted again");
    two_free();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_visit_whose_end_is_seen_relaxed_is_not_over() {
    let _mutant = Mutant::new("visits: relaxed");
    ends(2, &[1], &[|slab| slab.free_slowly(0)]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cache_that_is_abandoned_relaxed_has_two_owners() {
    let _mutant = Mutant::new("abandon: relaxed");
    one_frees_and_abandons();
}
