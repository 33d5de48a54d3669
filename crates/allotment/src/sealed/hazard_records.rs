//! Hazard records: the slots in which threads announce what they read.
//!
//! The names are Michael's (*Hazard Pointers*, 2004): a thread owns a record, and a scan reads the
//! slots of all records.
//!
//! # Invariants
//!
//! 1. A record that was added is never removed or freed; the list of records only grows.
//! 2. Only the owner of a record announces in its free slots. A slot that is not free may be
//!    cleared by the thread that announced there, even if that thread no longer owns the record.
//! 3. A record gets a new owner only when all of its slots are free. So a thread may give up a
//!    record while it still reads through its slots. It does so when the thread ends, and when all
//!    slots of the record are taken.

use core::ptr;

use super::generations::{FREE_SLOT, HazardSlot};
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, mutant, order};

/// The number of generations that a thread can announce in one record. For more, it takes another
/// record.
#[cfg(not(loom))]
pub const SLOTS: usize = 8;
/// One slot: each further slot makes a model many times longer.
#[cfg(loom)]
pub const SLOTS: usize = 1;

/// A slot that announces nothing, but is not free.
const RESERVED: usize = 1;

/// The slots of one thread, on cache lines of their own.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct HazardRecord {
    slots: [HazardSlot; SLOTS],
    owned: AtomicU32,
    next: AtomicPtr<HazardRecord>,
}

impl HazardRecord {
    /// An owned record whose slots are free, and which is on no list.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            slots: core::array::from_fn(|_| AtomicUsize::new(FREE_SLOT)),
            owned: AtomicU32::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The placeholder for a thread without a record: a record without a free slot.
    #[cfg(not(loom))]
    const fn none() -> Self {
        Self {
            slots: [const { AtomicUsize::new(RESERVED) }; SLOTS],
            owned: AtomicU32::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A free slot. Only the owner calls this.
    pub fn free_slot(&self) -> Option<&HazardSlot> {
        self.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == FREE_SLOT)
    }

    /// Gives the record up, and returns a slot of it, in which the caller announces a generation.
    /// The record gets no new owner before the caller clears the slot.
    pub fn disown_keeping_slot(&self) -> Option<&HazardSlot> {
        let slot = self.free_slot()?;
        if !mutant("disown: slot not reserved") {
            // Release pairs with the Acquire in `announces`: a scanning thread that finds this word
            // in the slot, instead of what another thread announced there before, comes after the
            // reads of that other thread.
            slot.store(RESERVED, order(Ordering::Release, "disown: slot reserved relaxed"));
        }
        self.disown();
        Some(slot)
    }

    /// Gives the record up. The former owner may continue to read through slots that are not free.
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
        // Acquire pairs with the Release of the thread that clears a slot: that thread does not
        // write to the slot any more.
        let acquire = order(Ordering::Acquire, "adopt: relaxed");
        let all_free = self.slots.iter().all(|slot| slot.load(acquire) == FREE_SLOT);
        if !all_free {
            self.disown();
        }
        all_free
    }
}

/// The list of all records.
#[derive(Debug)]
pub struct HazardRecords {
    first: AtomicPtr<HazardRecord>,
}

impl HazardRecords {
    /// An empty list.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// An empty list. Not `const`, because loom's atomics can't be made in a constant.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    fn iter(&self) -> impl Iterator<Item = &'static HazardRecord> {
        // Acquire pairs with the Release in `add`.
        let first = self.first.load(Ordering::Acquire);
        // SAFETY: null, or a record that was added and so is never freed (invariant 1).
        let mut next = unsafe { first.as_ref() };
        core::iter::from_fn(move || {
            let record = next?;
            // Relaxed: `next` was written before the record was added, and is not written again.
            // SAFETY: as above.
            next = unsafe { record.next.load(Ordering::Relaxed).as_ref() };
            Some(record)
        })
    }

    /// Takes a record that has no owner any more. The caller becomes its owner.
    pub fn adopt(&self) -> Option<&'static HazardRecord> {
        self.iter().find(|record| record.adopt())
    }

    /// Adds a record, which the caller owns.
    pub fn add(&self, record: &'static HazardRecord) {
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

    /// Whether any slot holds this word.
    pub fn announces(&self, word: usize) -> bool {
        // Acquire pairs with the Release of the thread that clears a slot or announces another
        // generation in it.
        let holds_word = |slot: &HazardSlot| slot.load(Ordering::Acquire) == word;
        self.iter().any(|record| record.slots.iter().any(holds_word))
    }
}

#[cfg(all(not(loom), test))]
pub(super) use of_this_process::record_count;
#[cfg(not(loom))]
pub(super) use of_this_process::{announced, first_slot, free_slot};

#[cfg(not(loom))]
mod of_this_process {
    use core::cell::Cell;
    use core::ffi::c_void;

    use super::{FREE_SLOT, HazardRecord, HazardRecords, HazardSlot, Ordering};
    use crate::error::AllocError;
    use crate::memory::system_array::SystemArray;
    use crate::memory::thread_end::{EndStage, ThreadEnd};

    static RECORDS: HazardRecords = HazardRecords::new();
    static NONE: HazardRecord = HazardRecord::none();

    thread_local! {
        /// The record that this thread owns. It has no destructor, so that a thread can read until
        /// its last instruction.
        static RECORD: Cell<*const HazardRecord> = const { Cell::new(&raw const NONE) };
        static END: EndStage = const { EndStage::new() };
    }

    /// Gives the thread's record up when the thread ends.
    static DISOWN_AT_END: ThreadEnd = ThreadEnd::new(disown_at_end);

    extern "C" fn disown_at_end(_: *mut c_void) {
        END.with(EndStage::end);
        disown_record();
    }

    /// The record that this thread owns, or [`NONE`].
    #[inline(always)]
    fn owned() -> &'static HazardRecord {
        // SAFETY: `RECORD` holds the address of `NONE`, or of a record that
        // `slot_of_another_record` took from `RECORDS`, whose records are never freed. It is a
        // pointer because Rust 1.85 allows no reference to a static with atomics in a constant.
        unsafe { &*RECORD.get() }
    }

    fn disown_record() {
        let record = owned();
        RECORD.set(&raw const NONE);
        if !core::ptr::eq(record, &NONE) {
            record.disown();
        }
    }

    /// Whether any thread announces this word.
    pub(in super::super) fn announced(word: usize) -> bool {
        RECORDS.announces(word)
    }

    /// The first slot of the thread's record, if it is free.
    #[inline(always)]
    pub(in super::super) fn first_slot() -> Option<&'static HazardSlot> {
        let slot = &owned().slots[0];
        (slot.load(Ordering::Relaxed) == FREE_SLOT).then_some(slot)
    }

    /// A free slot of this thread. The caller must announce in it before the next call.
    ///
    /// # Errors
    /// If there is no memory for a record. A thread needs one for its first reading, and when all
    /// slots of its record are taken.
    pub(in super::super) fn free_slot() -> Result<&'static HazardSlot, AllocError> {
        match owned().free_slot() {
            Some(slot) => Ok(slot),
            None => slot_of_another_record(),
        }
    }

    #[cold]
    fn slot_of_another_record() -> Result<&'static HazardSlot, AllocError> {
        let record = match RECORDS.adopt() {
            Some(record) => record,
            None => {
                let made = SystemArray::new(1, |_| HazardRecord::new())?;
                // SAFETY: the block is leaked, so it is never freed.
                let record = unsafe { made.leak().as_ref() };
                RECORDS.add(record);
                record
            }
        };
        let slot = if END.with(|stage| DISOWN_AT_END.will_run(stage)) {
            // The old record has no free slot. The thread continues to read through its slots.
            disown_record();
            RECORD.set(record);
            record.free_slot()
        } else {
            // Nothing will give the record up at the thread's end, so give it up here.
            record.disown_keeping_slot()
        };
        Ok(slot.expect("a new record has free slots"))
    }

    /// The number of records that all threads share.
    #[cfg(test)]
    pub(in super::super) fn record_count() -> usize {
        RECORDS.iter().count()
    }
}
