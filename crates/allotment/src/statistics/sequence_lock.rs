//! How a statistics record passes from one owner to the next while reports read it.
//!
//! The owner writes the record without a lock, and a report may read it at any time. A sequence
//! number tells the report whether all that it read belongs to one owner. If not, the report leaves
//! the record out.
//!
//! # Invariants
//!
//! 1. A record has one owner at a time, and only the owner changes the number. When one thread
//!    gives a record back and another takes it, the hand-over orders all that the former owner did
//!    before all that the new owner does.
//! 2. The number only grows. It is odd while the record belongs to an allocator, and even while the
//!    record is free or its name is being written.
//! 3. Between two reads of the same odd number, all that a reader sees was written by one owner.
//!
//! The number protects the name as a sequence lock does (Boehm, *Can seqlocks get along with
//! programming language memory models?*, 2012). Unlike the data of such a lock, the figures change
//! while the number stays the same. A reader may see one figure before a change and the next figure
//! after it.

use crate::sync::{AtomicU64, Ordering, fence, mutant};

/// The sequence number of one record.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SequenceLock {
    number: AtomicU64,
}

impl SequenceLock {
    /// Opens the record to readers after `write` has written the new owner's name, by relaxed
    /// stores. The caller owns the record, whose number is even.
    #[inline]
    pub fn open(&self, write: impl FnOnce()) {
        // Pairs with the Acquire fence in `read`: a reader that sees what is written below also
        // sees that the former owner has closed the record.
        if !mutant("open: no fence") {
            fence(Ordering::Release);
        }
        if mutant("open: before the name") {
            self.advance(Ordering::Release);
            return write();
        }
        write();
        // Release pairs with the Acquire in `read`: a reader that sees the odd number sees the
        // name.
        self.advance(Ordering::Release);
    }

    /// Closes the record to readers; then `clear` sets its figures to zero, by relaxed stores. The
    /// caller owns the record, whose number is odd.
    #[inline]
    pub fn close(&self, clear: impl FnOnce()) {
        if mutant("close: after the figures") {
            clear();
            return self.advance(Ordering::Relaxed);
        }
        self.advance(Ordering::Relaxed);
        // Pairs with the Acquire fence in `read`: a reader that sees a zero written below also sees
        // that the record is closed.
        if !mutant("close: no fence") {
            fence(Ordering::Release);
        }
        clear();
    }

    fn advance(&self, order: Ordering) {
        self.number.store(self.number.load(Ordering::Relaxed) + 1, order);
    }

    /// Reads the record by `read`, which uses relaxed loads. `None` if the record is closed, or was
    /// closed in the meantime.
    #[inline]
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        // Acquire pairs with the Release in `open`.
        let before = self.number.load(Ordering::Acquire);
        if before % 2 == 0 {
            return None;
        }
        let read = read();
        // Pairs with the Release fences in `open` and `close`: the reads above happen before the
        // second load of the number.
        if !mutant("read: no fence") {
            fence(Ordering::Acquire);
        }
        let same = self.number.load(Ordering::Relaxed) == before;
        (same || mutant("read: no second look")).then_some(read)
    }
}
