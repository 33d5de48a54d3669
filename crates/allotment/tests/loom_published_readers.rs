//! Models of the threads' records of `Published` (`src/sealed/hazard_records.rs`), explored by
//! loom; `.ci/loom` runs them.
//!
//! A thread at its end has no record of its own: it takes one, reserves a slot, gives the record up
//! and reads through that slot. Another thread does the same at the same time. The shipped list is
//! a static, which loom's atomics can't be; the list and the records here are of the shipped types.
#![cfg(loom)]

use core::ptr::NonNull;

use allotment::for_loom::fences::{KernelFences, as_thread};
use allotment::for_loom::hazard_records::{HazardRecord, HazardRecords, reserve};
use allotment::for_loom::publication::{FREE_SLOT, Generation, HazardSlot, Publication, unlink};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// Where threads find slots.
trait Slots: Send + Sync + 'static {
    fn make() -> Self;
    /// A slot in which no other thread announces until it is cleared.
    fn slot(&self) -> &'static HazardSlot;
    fn announces(&self, word: usize) -> bool;
}

struct Real(HazardRecords);

fn new_record() -> &'static HazardRecord {
    Box::leak(Box::new(HazardRecord::new()))
}

impl Slots for Real {
    fn make() -> Self {
        let records = HazardRecords::new();
        let record = new_record();
        records.add(record);
        record.disown();
        Self(records)
    }

    fn slot(&self) -> &'static HazardSlot {
        let record = self.0.adopt().unwrap_or_else(|| {
            let record = new_record();
            self.0.add(record);
            record
        });
        let slot = record.free_slot().unwrap();
        reserve(slot);
        record.disown();
        slot
    }

    fn announces(&self, word: usize) -> bool {
        self.0.announces(word)
    }
}

/// The mistakes of the copy.
mod wrong {
    pub const NOTHING: u8 = 0;
    /// A record is adopted without a check of its slots.
    pub const ADOPTS_BLINDLY: u8 = 1;
    /// A record is given up before a slot of it is reserved.
    pub const DISOWNS_FIRST: u8 = 2;
    /// A slot is reserved without the order that puts the reads of its former owner first.
    pub const RESERVES_RELAXED: u8 = 3;
}

/// A copy with records of one slot, with one mistake or none.
struct Written<const WRONG: u8> {
    records: [(AtomicU32, &'static HazardSlot); 2],
}

impl<const WRONG: u8> Slots for Written<WRONG> {
    fn make() -> Self {
        let record = |_| (AtomicU32::new(0), &*Box::leak(Box::new(HazardSlot::new(FREE_SLOT))));
        Self { records: [0, 1].map(record) }
    }

    fn slot(&self) -> &'static HazardSlot {
        loop {
            for (owned, slot) in &self.records {
                if owned.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                if WRONG != wrong::ADOPTS_BLINDLY && slot.load(Ordering::Acquire) != FREE_SLOT {
                    owned.store(0, Ordering::Release);
                    continue;
                }
                match WRONG {
                    wrong::DISOWNS_FIRST => {}
                    wrong::RESERVES_RELAXED => slot.store(1, Ordering::Relaxed),
                    _ => reserve(slot),
                }
                owned.store(0, Ordering::Release);
                return slot;
            }
            thread::yield_now();
        }
    }

    fn announces(&self, word: usize) -> bool {
        self.records.iter().any(|(_, slot)| slot.load(Ordering::Acquire) == word)
    }
}

/// Two values: the first one is replaced by the second.
struct Model<S> {
    slots: S,
    /// The writer's slot, which no other thread takes.
    writers: &'static HazardSlot,
    publication: Publication<usize>,
    alive: [UnsafeCell<bool>; 2],
}

fn generation(value: usize) -> NonNull<Generation<usize>> {
    NonNull::from(Box::leak(Box::new(Generation::new(0, value))))
}

impl<S: Slots> Model<S> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: S::make(),
            writers: Box::leak(Box::new(HazardSlot::new(FREE_SLOT))),
            publication: Publication::new(generation(0), 0),
            alive: [UnsafeCell::new(true), UnsafeCell::new(true)],
        })
    }

    fn read(&self) {
        loop {
            let slot = self.slots.slot();
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
            self.writers.load(Ordering::Acquire) == word || self.slots.announces(word)
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

fn two_threads_at_their_end<S: Slots>() {
    explore(2, || {
        let model = Model::<S>::new();
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
    two_threads_at_their_end::<Real>();
}

#[test]
fn the_copy_without_a_mistake_holds() {
    two_threads_at_their_end::<Written<{ wrong::NOTHING }>>();
}

#[test]
#[should_panic(expected = "Concurrent read and write")]
fn a_record_that_is_adopted_blindly_loses_what_its_former_owner_reads() {
    two_threads_at_their_end::<Written<{ wrong::ADOPTS_BLINDLY }>>();
}

#[test]
#[should_panic(expected = "Concurrent read and write")]
fn a_record_that_is_given_up_before_its_slot_is_reserved_loses_what_is_read() {
    two_threads_at_their_end::<Written<{ wrong::DISOWNS_FIRST }>>();
}

#[test]
#[should_panic(expected = "Concurrent read and write")]
fn a_slot_that_is_reserved_relaxed_lets_a_generation_end_beside_its_reader() {
    // In loom, two full fences order more than they must.
    let _by_kernel = KernelFences::new();
    two_threads_at_their_end::<Written<{ wrong::RESERVES_RELAXED }>>();
}
