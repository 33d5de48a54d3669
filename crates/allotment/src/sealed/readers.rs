//! The threads' records: where each announces what it reads.
//!
//! # Invariants
//!
//! 1. A record that was added stays for ever; the list of them only grows.
//! 2. Whoever owns a record announces in its free slots, and nobody else does. A slot that is not free may be
//!    cleared by the thread that announced there, also when that thread no longer owns the record.
//! 3. A record is given to the next owner only when all of its slots are free. So a thread may let go of one
//!    while it still reads: when its thread ends, and when all slots are taken.

use core::ptr;

use super::publication::{FREE, Slot};
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// How many generations a thread announces in one record. It takes another one for more.
#[cfg(not(loom))]
pub const SLOTS: usize = 8;
/// Each slot makes a model many times longer.
#[cfg(loom)]
pub const SLOTS: usize = 1;

/// A slot that announces nothing, but is no longer free.
const TAKEN: usize = 1;

/// Takes a free slot of a record that the caller owns, before he announces something there.
pub fn reserve(slot: &Slot) {
    // Release: who finds this in the slot, instead of what another thread announced there before, comes after that one's reads.
    slot.store(TAKEN, Ordering::Release);
}

/// One thread's slots, on cache lines of their own.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Record {
    slots: [Slot; SLOTS],
    owned: AtomicU32,
    next: AtomicPtr<Record>,
}

impl Record {
    /// An owned record with free slots, that is in no list.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            slots: core::array::from_fn(|_| AtomicUsize::new(FREE)),
            owned: AtomicU32::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// What a thread has that has none: a record without a free slot.
    #[cfg(not(loom))]
    const fn none() -> Self {
        Self {
            slots: [const { AtomicUsize::new(TAKEN) }; SLOTS],
            owned: AtomicU32::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A slot that is free, for the owner.
    pub fn free_slot(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == FREE)
    }

    /// Gives the record up. The owner may read on by slots that are not free.
    pub fn disown(&self) {
        // Release pairs with the Acquire in `adopt`.
        self.owned.store(0, Ordering::Release);
    }

    fn adopt(&self) -> bool {
        if self.owned.load(Ordering::Relaxed) != 0
            || self.owned.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Acquire pairs with the Release of who clears a slot: he writes it no more.
        let all_free = self.slots.iter().all(|slot| slot.load(Ordering::Acquire) == FREE);
        if !all_free {
            self.disown();
        }
        all_free
    }
}

/// All records there are.
#[derive(Debug)]
pub struct Records {
    first: AtomicPtr<Record>,
}

impl Records {
    /// None yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// None yet; loom's atomics can't be made in a constant.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    fn iter(&self) -> impl Iterator<Item = &'static Record> {
        // Acquire pairs with the Release in `add`.
        let first = self.first.load(Ordering::Acquire);
        // SAFETY: null, or a record that was added and so stays (1).
        let mut next = unsafe { first.as_ref() };
        core::iter::from_fn(move || {
            let record = next?;
            // Relaxed: written before the record was added.
            // SAFETY: as above.
            next = unsafe { record.next.load(Ordering::Relaxed).as_ref() };
            Some(record)
        })
    }

    /// A record that nobody owns any more; the caller does now.
    pub fn adopt(&self) -> Option<&'static Record> {
        self.iter().find(|record| record.adopt())
    }

    /// Adds a record, which the caller owns.
    pub fn add(&self, record: &'static Record) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            record.next.store(first, Ordering::Relaxed);
            match self.first.compare_exchange_weak(
                first,
                ptr::from_ref(record).cast_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Whether a slot has this word.
    pub fn announce(&self, word: usize) -> bool {
        // Acquire pairs with the Release of who clears a slot or announces something else there.
        let has = |slot: &Slot| slot.load(Ordering::Acquire) == word;
        self.iter().any(|record| record.slots.iter().any(has))
    }
}

#[cfg(not(loom))]
pub(super) use of_this_process::{announced, first_slot, slot};

#[cfg(not(loom))]
mod of_this_process {
    use core::cell::Cell;
    use core::mem;

    use super::{FREE, Ordering, Record, Records, Slot, reserve};
    use crate::error::AllocError;
    use crate::memory::structures::Structures;

    static RECORDS: Records = Records::new();
    static NONE: Record = Record::none();

    thread_local! {
        /// The record that this thread owns. Without a destructor, so that a thread may read to its last instruction.
        static RECORD: Cell<*const Record> = const { Cell::new(&raw const NONE) };
        static GUARD: Guard = const { Guard };
    }

    /// Gives the thread's record up at its end.
    struct Guard;

    impl Drop for Guard {
        fn drop(&mut self) {
            give_up();
        }
    }

    /// The record that this thread owns, or [`NONE`].
    #[inline(always)]
    fn owned() -> &'static Record {
        // SAFETY: `RECORD` holds the address of `NONE`, or of a record that `of_another_record` took from
        // `RECORDS`, whose records are never freed. It is a pointer because Rust 1.85 allows no reference to a
        // static with atomics in a constant.
        unsafe { &*RECORD.get() }
    }

    fn give_up() {
        let record = owned();
        RECORD.set(&raw const NONE);
        if !core::ptr::eq(record, &NONE) {
            record.disown();
        }
    }

    /// Whether any thread announces this word.
    pub(in super::super) fn announced(word: usize) -> bool {
        RECORDS.announce(word)
    }

    /// The thread's first slot, if nothing is announced there.
    #[inline(always)]
    pub(in super::super) fn first_slot() -> Option<&'static Slot> {
        let slot = &owned().slots[0];
        (slot.load(Ordering::Relaxed) == FREE).then_some(slot)
    }

    /// A slot of this thread's in which nothing is announced. To be used before the next call.
    ///
    /// # Errors
    /// When there is no memory for a record: a thread's first one, or its next for many at a time.
    pub(in super::super) fn slot() -> Result<&'static Slot, AllocError> {
        match owned().free_slot() {
            Some(slot) => Ok(slot),
            None => of_another_record(),
        }
    }

    #[cold]
    fn of_another_record() -> Result<&'static Slot, AllocError> {
        let record = match RECORDS.adopt() {
            Some(record) => record,
            None => {
                let made = Structures::new(1, |_| Record::new())?;
                // SAFETY: made just now, and forgotten on the next line: it stays for ever.
                let record = unsafe { made.as_ptr().as_ref() };
                mem::forget(made);
                RECORDS.add(record);
                record
            }
        };
        let slot = record.free_slot().expect("a new record has free slots");
        if GUARD.try_with(|_| ()).is_ok() {
            // The one before has no free slot. The thread reads on by its slots.
            give_up();
            RECORD.set(record);
        } else {
            // The thread is at its end: nobody will give the record up for it. A slot that is taken keeps it from the next owner.
            reserve(slot);
            record.disown();
        }
        Ok(slot)
    }

    #[cfg(test)]
    mod tests {
        use crate::sealed::Published;

        #[test]
        fn threads_one_after_the_other_share_their_records() {
            let published = Published::new(7);
            let count = || super::RECORDS.iter().count();
            let before = count();
            for _ in 0..300 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let readings: Vec<_> = (0..20).map(|_| published.read()).collect();
                        assert!(readings.iter().all(|reading| **reading == 7));
                    });
                });
            }
            // A thread's own end comes after a scope's; others of this process read too.
            let more = count() - before;
            assert!(more < 100, "{more} records for 300 threads that have three each");
        }
    }
}
