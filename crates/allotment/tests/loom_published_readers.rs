//! Models of the threads' records of `Published` (`src/sealed/hazard_records.rs`), explored by
//! loom; `.ci/loom` runs them.
//!
//! A thread at its end has no record of its own: it takes one, reserves a slot, gives the record up
//! and reads through that slot. Another thread does the same at the same time. The shipped list is
//! a static, which loom's atomics can't be; the list and the records here are of the shipped types.
#![cfg(loom)]

use core::ptr::NonNull;

use allotment::for_loom::Mutant;
use allotment::for_loom::fences::{KernelFences, as_thread};
use allotment::for_loom::generations::{FREE_SLOT, Generation, HazardSlot, Publication, unlink};
use allotment::for_loom::hazard_records::{HazardRecord, HazardRecords};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

mod loom_support;
use loom_support::explore;

fn new_record() -> &'static HazardRecord {
    Box::leak(Box::new(HazardRecord::new()))
}

/// Two values: the first one is replaced by the second.
struct Model {
    records: HazardRecords,
    /// The writer's slot, which no other thread takes.
    writers: &'static HazardSlot,
    publication: Publication<usize>,
    alive: [UnsafeCell<bool>; 2],
}

fn generation(value: usize) -> NonNull<Generation<usize>> {
    NonNull::from(Box::leak(Box::new(Generation::new(0, value))))
}

impl Model {
    /// There is one record, which has no owner.
    fn new() -> Arc<Self> {
        let records = HazardRecords::new();
        let record = new_record();
        records.add(record);
        record.disown();
        Arc::new(Self {
            records,
            writers: Box::leak(Box::new(HazardSlot::new(FREE_SLOT))),
            publication: Publication::new(generation(0), 0),
            alive: [UnsafeCell::new(true), UnsafeCell::new(true)],
        })
    }

    /// A slot in which no other thread announces until it is cleared.
    fn slot(&self) -> &'static HazardSlot {
        let record = self.records.adopt().unwrap_or_else(|| {
            let record = new_record();
            self.records.add(record);
            record
        });
        record.disown_keeping_slot().expect("a record without an owner has a free slot")
    }

    fn read(&self) {
        loop {
            let slot = self.slot();
            if let Some(generation) = self.publication.announce(slot) {
                return self.end(slot, generation);
            }
            self.scan();
        }
    }

    fn end(&self, slot: &HazardSlot, generation: NonNull<Generation<usize>>) {
        // SAFETY: announced, and generations are never freed.
        let value = unsafe { generation.as_ref() }.value;
        // SAFETY: announced; loom fails the model if it ends meanwhile.
        assert!(self.alive[value].with(|alive| unsafe { *alive }), "what is read has not ended");
        if self.publication.withdraw(slot, generation) {
            self.scan();
        }
    }

    fn publish(&self) {
        let current = self.publication.announce(self.writers).expect("no other thread publishes");
        // SAFETY: announced; only this thread has the new one.
        assert!(unsafe { self.publication.replace(current, generation(1), || ()) });
        self.end(self.writers, current);
    }

    fn scan(&self) {
        let mut chain = self.publication.scan(|word| {
            self.writers.load(Ordering::Acquire) == word || self.records.announces(word)
        });
        // SAFETY: the chain belongs to this scan, and generations are never freed.
        while let Some(generation) = unsafe { unlink(&mut chain) } {
            // SAFETY: as above.
            let value = unsafe { generation.as_ref() }.value;
            // SAFETY: no thread reads it, or loom fails the model.
            self.alive[value].with_mut(|alive| unsafe { *alive = false });
        }
    }
}

fn two_threads_at_their_end() {
    explore(2, || {
        let model = Model::new();
        let readers = [1, 2].map(|number| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                as_thread(number);
                model.read();
            })
        });
        model.publish();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        // SAFETY: all readers were joined.
        let alive = [0, 1].map(|value| model.alive[value].with(|alive| unsafe { *alive }));
        assert_eq!(alive, [false, true], "every replaced generation has ended");
    });
}

#[test]
fn threads_that_share_a_record_keep_what_they_read() {
    two_threads_at_their_end();
}

#[test]
#[should_panic(expected = "a record without an owner has a free slot")]
fn a_record_that_is_given_up_before_its_slot_is_reserved_is_full_for_its_next_owner() {
    let _mutant = Mutant::new("disown: slot not reserved");
    two_threads_at_their_end();
}

/// A mutant with the kernel's fences: in loom, two full fences order more than they must.
fn with_the_kernels_fences(name: &'static str) {
    let (_mutant, _by_kernel) = (Mutant::new(name), KernelFences::new());
    two_threads_at_their_end();
}

#[test]
#[should_panic(expected = "Concurrent read and write")]
fn a_record_that_is_adopted_relaxed_lets_a_generation_end_beside_its_reader() {
    with_the_kernels_fences("adopt: relaxed");
}

#[test]
#[should_panic(expected = "Concurrent read and write")]
fn a_slot_that_is_reserved_relaxed_lets_a_generation_end_beside_its_reader() {
    with_the_kernels_fences("disown: slot reserved relaxed");
}
