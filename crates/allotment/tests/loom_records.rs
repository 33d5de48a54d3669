//! A model of how a statistics record changes hands while a report reads it
//! (`src/statistics/records.rs`), explored by loom; `.ci/loom` runs it.
//!
//! The records are in static memory, and loom's atomics can't be static. So this file repeats the
//! protocol: two words of a name, one counter, and the steps of `acquire`, `release` and `snapshot`
//! in their order.
#![cfg(loom)]

use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

struct Record {
    gate: Gate,
    free: IndexStack,
    next: AtomicU32,
    state: AtomicU64,
    name: [AtomicU64; 2],
    counter: AtomicU64,
    /// Whether an owner that takes a record fences its writes against the former owner's state.
    fenced: bool,
}

impl Links for Record {
    fn next(&self, _: u32) -> &AtomicU32 {
        &self.next
    }
}

impl Record {
    fn acquire(&self, name: u64) -> bool {
        self.gate.pass();
        if self.free.pop(self).is_none() {
            return false;
        }
        if self.fenced {
            fence(Ordering::Release);
        }
        for word in &self.name {
            word.store(name, Ordering::Relaxed);
        }
        self.state.store(self.state.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.counter.store(name, Ordering::Relaxed);
        true
    }

    fn release(&self) {
        self.gate.pass();
        self.state.store(self.state.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.counter.store(0, Ordering::Relaxed);
        self.free.push(self, 0);
    }

    fn snapshot(&self) -> Option<(u64, u64, u64)> {
        self.gate.pass();
        let before = self.state.load(Ordering::Acquire);
        if before % 2 == 0 {
            return None;
        }
        let [first, second] = [0, 1].map(|word| self.name[word].load(Ordering::Relaxed));
        let counter = self.counter.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == before).then_some((first, second, counter))
    }
}

/// One thread returns a record, another takes it under another name, and a third reads it.
fn changes_hands_while_a_report_reads(fenced: bool) {
    explore(3, move || {
        let record = Arc::new(Record {
            gate: Gate::new(),
            free: IndexStack::new(),
            next: AtomicU32::new(NIL),
            state: AtomicU64::new(0),
            name: [AtomicU64::new(0), AtomicU64::new(0)],
            counter: AtomicU64::new(0),
            fenced,
        });
        record.free.push(&*record, 0);
        assert!(record.acquire(1));
        let (giving, taking) = (Arc::clone(&record), Arc::clone(&record));
        let giver = thread::spawn(move || giving.release());
        let taker = thread::spawn(move || taking.acquire(2));
        if let Some((first, second, counter)) = record.snapshot() {
            assert_eq!(first, second, "a name of two allocators");
            assert!(
                counter == first || counter == 0,
                "one allocator's figures under another's name"
            );
        }
        giver.join().unwrap();
        taker.join().unwrap();
    });
}

#[test]
fn a_report_never_mixes_two_owners_of_a_record() {
    changes_hands_while_a_report_reads(true);
}

#[test]
#[should_panic(expected = "another's name")]
fn an_owner_that_takes_a_record_without_a_fence_shows_its_figures_under_the_old_name() {
    changes_hands_while_a_report_reads(false);
}
