//! Models of the threads' records of `Published` (`src/sealed/readers.rs`), explored by loom; `.ci/loom` runs them.
//!
//! A thread at its end has no record of its own: it takes one, reserves a slot, gives the record up and reads by that slot. Another does
//! the same meanwhile. Which records there are lies in static memory, which loom's atomics can't; the list of them and the records are what ships.
#![cfg(loom)]

use core::ptr::NonNull;

use allotment::for_loom::fences::{ByKernel, as_thread};
use allotment::for_loom::publication::{FREE, Generation, Publication, Slot, unlink};
use allotment::for_loom::readers::{Record, Records, reserve};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// Where threads find slots.
trait Slots: Send + Sync + 'static {
    fn make() -> Self;
    /// A slot that nobody else announces in until it is cleared.
    fn slot(&self) -> &'static Slot;
    fn announce(&self, word: usize) -> bool;
}

struct Real(Records);

fn new_record() -> &'static Record {
    Box::leak(Box::new(Record::new()))
}

impl Slots for Real {
    fn make() -> Self {
        let records = Records::new();
        let record = new_record();
        records.add(record);
        record.disown();
        Self(records)
    }

    fn slot(&self) -> &'static Slot {
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

    fn announce(&self, word: usize) -> bool {
        self.0.announce(word)
    }
}

/// What is done instead of what should be.
mod wrong {
    pub const NOTHING: u8 = 0;
    /// A record is adopted without a look at its slots.
    pub const ADOPTS_BLINDLY: u8 = 1;
    /// A record is given up before a slot of it is reserved.
    pub const DISOWNS_FIRST: u8 = 2;
    /// A slot is reserved without the order that puts the reads of who had it before first.
    pub const RESERVES_RELAXED: u8 = 3;
}

/// The same once more with records of one slot, wrong in one way or in none.
struct Written<const WRONG: u8> {
    records: [(AtomicU32, &'static Slot); 2],
}

impl<const WRONG: u8> Slots for Written<WRONG> {
    fn make() -> Self {
        let record = |_| (AtomicU32::new(0), &*Box::leak(Box::new(Slot::new(FREE))));
        Self { records: [0, 1].map(record) }
    }

    fn slot(&self) -> &'static Slot {
        loop {
            for (owned, slot) in &self.records {
                if owned.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                if WRONG != wrong::ADOPTS_BLINDLY && slot.load(Ordering::Acquire) != FREE {
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

    fn announce(&self, word: usize) -> bool {
        self.records.iter().any(|(_, slot)| slot.load(Ordering::Acquire) == word)
    }
}

/// Two values: the first one is replaced by the second.
struct Model<S> {
    slots: S,
    /// The writer's, which nobody else is after.
    writers: &'static Slot,
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
            writers: Box::leak(Box::new(Slot::new(FREE))),
            publication: Publication::new(generation(0), 0),
            alive: [UnsafeCell::new(true), UnsafeCell::new(true)],
        })
    }

    fn read(&self) {
        loop {
            let slot = self.slots.slot();
            if let Some(generation) = self.publication.enter(slot) {
                return self.end(slot, generation);
            }
            self.look();
        }
    }

    fn end(&self, slot: &Slot, generation: NonNull<Generation<usize>>) {
        // SAFETY: announced, and generations stay.
        let value = unsafe { generation.as_ref() }.value;
        // SAFETY: announced; loom fails the model if it ends meanwhile.
        assert!(self.alive[value].with(|alive| unsafe { *alive }), "what is read has not ended");
        if self.publication.leave(slot, generation) {
            self.look();
        }
    }

    fn publish(&self) {
        let current = self.publication.enter(self.writers).expect("nobody else publishes");
        // SAFETY: announced; the new one is ours.
        assert!(unsafe { self.publication.replace(current, generation(1), || ()) });
        self.end(self.writers, current);
    }

    fn look(&self) {
        let mut chain = self
            .publication
            .look(|word| self.writers.load(Ordering::Acquire) == word || self.slots.announce(word));
        // SAFETY: ours, and generations stay.
        while let Some(generation) = unsafe { unlink(&mut chain) } {
            // SAFETY: as above.
            let value = unsafe { generation.as_ref() }.value;
            // SAFETY: nobody reads it, or loom fails the model.
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
        // SAFETY: all readers are gone.
        let alive = [0, 1].map(|value| model.alive[value].with(|alive| unsafe { *alive }));
        assert_eq!(alive, [false, true], "every replaced generation has ended");
    });
}

#[test]
fn threads_that_share_a_record_keep_what_they_read() {
    two_threads_at_their_end::<Real>();
}

#[test]
fn what_the_models_that_must_fail_are_made_from_holds() {
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
    // For loom two full fences order more than they must.
    let _by_kernel = ByKernel::new();
    two_threads_at_their_end::<Written<{ wrong::RESERVES_RELAXED }>>();
}
