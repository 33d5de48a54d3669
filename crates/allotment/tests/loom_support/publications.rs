//! A publication for models: the shipped protocol, with values whose accesses loom checks.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize as Counter, Ordering::Relaxed as Counting};

use std::sync::Mutex;

use allotment::for_loom::generations::{self, FREE_SLOT, HazardSlot, Publication, unlink};
use allotment::for_loom::mutant;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering;

const THREADS: usize = 3;
const VALUES: usize = 4;

type Generation = generations::Generation<usize>;

/// A generation that has ended.
struct Spare(NonNull<Generation>);

// SAFETY: the list of spare generations alone has it.
unsafe impl Send for Spare {}

/// Leaked: some bytes for each schedule.
fn generation(value: usize) -> NonNull<Generation> {
    NonNull::from(Box::leak(Box::new(Generation::new(0, value))))
}

/// The publication, the threads' slots, and the values.
pub struct Model {
    publication: Publication<usize>,
    slots: [HazardSlot; THREADS],
    alive: [UnsafeCell<bool>; VALUES],
    ended: Counter,
    /// Ended generations whose addresses serve again; `None` if no address does, so that loom finds
    /// a read that comes too late.
    spare: Option<Mutex<Vec<Spare>>>,
}

impl Model {
    pub fn new(reuses_addresses: bool) -> Arc<Self> {
        Arc::new(Self {
            publication: Publication::new(generation(0), 0),
            slots: core::array::from_fn(|_| HazardSlot::new(FREE_SLOT)),
            alive: core::array::from_fn(|value| UnsafeCell::new(value == 0)),
            ended: Counter::new(0),
            spare: reuses_addresses.then(Mutex::default),
        })
    }

    /// Enters the current generation as this thread. The caller ends the reading.
    pub fn begin(&self, thread: usize) -> NonNull<Generation> {
        let slot = &self.slots[thread];
        loop {
            if let Some(generation) = self.publication.announce(slot) {
                self.use_value(generation);
                return generation;
            }
            if !mutant("reader: no scan after a failed announcement") {
                self.scan();
            }
        }
    }

    fn use_value(&self, generation: NonNull<Generation>) {
        // SAFETY: generations are never freed, and one that is announced is not written.
        let value = unsafe { generation.as_ref() }.value;
        // SAFETY: announced; loom fails the model if another thread ends it meanwhile.
        let alive = self.alive[value].with(|alive| unsafe { *alive });
        assert!(alive, "what is read has not ended");
    }

    pub fn end(&self, thread: usize, generation: NonNull<Generation>) {
        self.use_value(generation);
        if self.publication.withdraw(&self.slots[thread], generation) {
            self.scan();
        }
    }

    pub fn read(&self, thread: usize) {
        let generation = self.begin(thread);
        self.end(thread, generation);
    }

    pub fn publish(&self, thread: usize, value: usize) {
        // SAFETY: no other thread has the value yet.
        self.alive[value].with_mut(|alive| unsafe { *alive = true });
        loop {
            let current = self.begin(thread);
            let replaced = self.replace(current, value);
            // The thread that replaced it may still read it.
            self.end(thread, current);
            if replaced {
                return;
            }
        }
    }

    fn replace(&self, old: NonNull<Generation>, value: usize) -> bool {
        let spare = self.spare.as_ref().and_then(|spare| spare.lock().unwrap().pop());
        let mut new = spare.map_or_else(|| generation(value), |spare| spare.0);
        // SAFETY: only this thread has the new one; `old` is announced.
        let replaced = unsafe {
            new.as_mut().value = value;
            self.publication.replace(old, new, || ())
        };
        if !replaced {
            self.keep_spare(new);
        }
        replaced
    }

    fn keep_spare(&self, generation: NonNull<Generation>) {
        if let Some(spare) = &self.spare {
            spare.lock().unwrap().push(Spare(generation));
        }
    }

    fn scan(&self) {
        let announced = |word| self.slots.iter().any(|slot| slot.load(Ordering::Acquire) == word);
        let mut chain = self.publication.scan(announced);
        // SAFETY: the chain belongs to this scan, and its generations are never freed.
        while let Some(generation) = unsafe { unlink(&mut chain) } {
            // SAFETY: as above.
            let value = unsafe { generation.as_ref() }.value;
            // SAFETY: by the protocol no thread reads it; loom fails the model if one does.
            let alive = self.alive[value]
                .with_mut(|alive| unsafe { core::mem::replace(&mut *alive, false) });
            assert!(alive, "a generation ends once");
            self.ended.fetch_add(1, Counting);
            self.keep_spare(generation);
        }
    }

    /// The caller has joined all readers.
    pub fn assert_ended(&self, count: usize) {
        assert_eq!(self.ended.load(Counting), count, "every replaced generation has ended");
    }
}
