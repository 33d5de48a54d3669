//! Models of the ranges that the kernel refused to unmap (`src/memory/refused_runs.rs`), explored
//! by loom; `.ci/loom` runs them.
//!
//! The protocol is the one that ships, on entries that the test provides. Loom checks each access
//! to a granule, so the model fails if two threads own a run at the same time.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::refused_runs::{REFUSED_RUN, Run, RunEntries, mark};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

struct Process {
    gate: Gate,
    entries: Vec<AtomicUsize>,
    granules: Vec<UnsafeCell<()>>,
}

impl RunEntries for Process {
    fn entry(&self, granule: usize) -> Option<&AtomicUsize> {
        self.gate.pass();
        self.entries.get(granule)
    }
}

impl Process {
    fn new(granules: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            entries: (0..granules).map(|_| AtomicUsize::new(0)).collect(),
            granules: (0..granules).map(|_| UnsafeCell::new(())).collect(),
        })
    }

    /// Asks the kernel to unmap a run of this thread, which it refuses.
    fn refuse(&self, run: Run) -> bool {
        assert!(run.last() < self.granules.len(), "a granule has two owners");
        for granule in run.first..=run.last() {
            // Loom fails the model if another thread owns the granule.
            self.granules[granule].with_mut(|_| ());
        }
        false
    }

    /// Unmaps a granule as the library does, where the kernel refuses everything.
    fn unmap(&self, granule: usize) {
        let run = Run { first: granule, count: 1 }.with_neighbours(self);
        self.refuse(run);
        run.leave(self, |run| self.refuse(run));
    }

    /// Each thread unmaps one granule after the other of its own.
    fn unmapped_by(threads: &'static [&'static [usize]]) {
        let preemptions = if threads.len() > 2 { 2 } else { 3 };
        explore(preemptions, move || {
            let count = threads.iter().map(|granules| granules.len()).sum();
            let process = Self::new(count);
            let others: Vec<_> = threads[1..]
                .iter()
                .map(|granules| {
                    let process = Arc::clone(&process);
                    thread::spawn(move || granules.iter().for_each(|one| process.unmap(*one)))
                })
                .collect();
            threads[0].iter().for_each(|one| process.unmap(*one));
            others.into_iter().for_each(|thread| thread.join().unwrap());
            let entries: Vec<_> =
                process.entries.iter().map(|entry| entry.load(Ordering::Relaxed)).collect();
            let runs = runs_of(&entries);
            assert_eq!(runs.iter().sum::<usize>(), count, "each granule is in one run");
            // A run of several granules is entered in two steps. A thread that meets it between
            // them may use up its rounds.
            assert!(count > 2 || runs.len() == 1, "neighbours are one run");
        });
    }
}

/// The lengths of the runs, which have no granule between them.
fn runs_of(entries: &[usize]) -> Vec<usize> {
    let mut runs = Vec::new();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let count = first & !REFUSED_RUN;
        let (run, behind) = rest.split_at_checked(count).expect("a run is not longer");
        assert_eq!((run[0], run[count - 1]), (mark(count), mark(count)));
        assert!(run.iter().skip(1).take(count.saturating_sub(2)).all(|entry| *entry == 0));
        runs.push(count);
        rest = behind;
    }
    runs
}

#[test]
fn neighbours_that_two_threads_leave_are_one_run() {
    Process::unmapped_by(&[&[0], &[1]]);
}

#[test]
fn no_granule_is_lost_or_in_two_runs() {
    Process::unmapped_by(&[&[0, 1], &[2]]);
    Process::unmapped_by(&[&[1], &[0, 2]]);
    Process::unmapped_by(&[&[0], &[1], &[2]]);
}

#[test]
#[should_panic(expected = "a granule has two owners")]
fn a_run_of_one_granule_that_is_stored_twice_has_two_owners() {
    let _mutant = Mutant::new("enter run: one granule stored twice");
    Process::unmapped_by(&[&[1], &[0, 2]]);
}

#[test]
#[should_panic(expected = "neighbours are one run")]
fn a_thread_that_does_not_order_its_run_and_its_look_leaves_two_runs() {
    let _mutant = Mutant::new("enter run: unordered");
    Process::unmapped_by(&[&[0], &[1]]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_run_that_is_entered_relaxed_is_used_before_its_owner_is_done() {
    let _mutant = Mutant::new("enter run: relaxed");
    Process::unmapped_by(&[&[0], &[1]]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_run_that_is_claimed_relaxed_is_used_before_its_owner_is_done() {
    let _mutant = Mutant::new("claim run: relaxed");
    Process::unmapped_by(&[&[0], &[1]]);
}
