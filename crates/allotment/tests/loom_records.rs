//! Models of how a statistics record passes from one owner to the next while a report reads it
//! (`src/statistics/sequence_lock.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The lock and the stack of free records are those that ship. The records that ship are in static
//! memory, and loom's atomics can't be static, so a record here is the test's own: its name has two
//! words, and it has one figure.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use allotment::for_loom::sequence_lock::SequenceLock;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

struct Record {
    gate: Gate,
    free: IndexStack,
    next: AtomicU32,
    lock: SequenceLock,
    name: [AtomicU64; 2],
    figure: AtomicU64,
}

impl Links for Record {
    fn next(&self, _: u32) -> &AtomicU32 {
        &self.next
    }
}

impl Record {
    fn new() -> Self {
        Self {
            gate: Gate::new(),
            free: IndexStack::new(),
            next: AtomicU32::new(NIL),
            lock: SequenceLock::default(),
            name: [AtomicU64::new(0), AtomicU64::new(0)],
            figure: AtomicU64::new(0),
        }
    }

    /// Takes the record, if it is free, for an allocator of this name, whose figure is the name
    /// too.
    fn acquire(&self, name: u64) {
        self.gate.pass();
        if self.free.pop(self).is_none() {
            return;
        }
        self.lock.open(|| self.name.iter().for_each(|word| word.store(name, Ordering::Relaxed)));
        self.figure.store(name, Ordering::Relaxed);
    }

    fn release(&self) {
        self.gate.pass();
        self.lock.close(|| self.figure.store(0, Ordering::Relaxed));
        self.free.push(self, 0);
    }

    /// The two words of the name, and the figure.
    fn snapshot(&self) -> Option<([u64; 2], u64)> {
        self.gate.pass();
        self.lock.read(|| {
            let name = [0, 1].map(|word: usize| self.name[word].load(Ordering::Relaxed));
            (name, self.figure.load(Ordering::Relaxed))
        })
    }
}

/// One thread gives a record back, another takes it under another name, and a third reads it.
fn a_record_changes_its_owner_while_a_report_reads_it() {
    explore(3, || {
        let record = Arc::new(Record::new());
        record.free.push(&*record, 0);
        record.acquire(1);
        let (giving, taking) = (Arc::clone(&record), Arc::clone(&record));
        let giver = thread::spawn(move || giving.release());
        let taker = thread::spawn(move || taking.acquire(2));
        if let Some(([first, second], figure)) = record.snapshot() {
            assert_eq!(first, second, "a name of two allocators");
            // This thread took the record the first time, so it can't have missed the figure of
            // that allocator. The figure of the second one is zero at first.
            assert!(
                figure == first || (first == 2 && figure == 0),
                "one allocator's figures under another's name"
            );
        }
        giver.join().unwrap();
        taker.join().unwrap();
    });
}

#[test]
fn a_report_never_mixes_two_owners_of_a_record() {
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn an_owner_that_takes_a_record_without_a_fence_shows_its_figures_under_the_old_name() {
    let _mutant = Mutant::new("open: no fence");
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn a_record_that_is_opened_before_its_name_is_written_shows_its_figures_under_the_old_name() {
    let _mutant = Mutant::new("open: before the name");
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn a_record_that_is_closed_without_a_fence_shows_zeros_under_its_name() {
    let _mutant = Mutant::new("close: no fence");
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn a_record_that_is_cleared_before_it_is_closed_shows_zeros_under_its_name() {
    let _mutant = Mutant::new("close: after the figures");
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn a_report_without_a_fence_before_its_second_look_mixes_two_owners() {
    let _mutant = Mutant::new("read: no fence");
    a_record_changes_its_owner_while_a_report_reads_it();
}

#[test]
#[should_panic(expected = "another's name")]
fn a_report_without_a_second_look_mixes_two_owners() {
    let _mutant = Mutant::new("read: no second look");
    a_record_changes_its_owner_while_a_report_reads_it();
}
