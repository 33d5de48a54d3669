//! The reserved ranges of one source, and which of their granules are free.
//!
//! # Invariants
//!
//! 1. A bit of `free` is 1 while its granule has no owner. A thread that clears bits by an exchange
//!    owns the granules. Setting the bits gives the granules back, after their memory was
//!    decommitted.
//! 2. If all bits of a range are set, they may be cleared together. The thread that did so owns
//!    the whole range, unmaps it, and makes its entry vacant. A vacant entry is then taken as a
//!    whole, and its bits are set last.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::error::AllocError;
use crate::memory::bits::{low_bits, lowest_run};
use crate::memory::growing_table::{GrowingTable, TableEntry};
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::os;
use crate::memory::system_array::SystemArray;

/// State of a range's pages: small pages.
pub(super) const SMALL: u8 = 0;
/// State of a range's pages: one huge page, and every span has memory.
pub(super) const WHOLE: u8 = 1;
/// State of a range's pages: one huge page, and some spans were decommitted.
const BROKEN: u8 = 2;

/// A range of at most 32 granules.
#[derive(Debug, Default)]
pub(super) struct ReservedRange {
    pub start: AtomicPtr<u8>,
    pub granules: AtomicU32,
    pub align: AtomicUsize,
    pub free: AtomicU32,
    /// [`SMALL`], [`WHOLE`] or [`BROKEN`].
    pub pages: AtomicU8,
    next: AtomicU32,
}

impl TableEntry for ReservedRange {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

impl ReservedRange {
    /// Prepares a range that is a huge page for the return of a span of this many granules.
    ///
    /// # Safety
    /// The caller has the span, and nothing refers to its bytes.
    pub(super) unsafe fn break_up(&self, span: NonNull<u8>, len: usize, span_granules: u32) {
        let change = |from, to| {
            self.pages.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let granules = self.granules.load(Ordering::Relaxed);
        if change(WHOLE, BROKEN) {
            // Otherwise the kernel may make the range a whole huge page again.
            let start = self.start.load(Ordering::Relaxed);
            let start = NonNull::new(start).expect("a range with granules has a mapping");
            let _ = os::advise_small(start, granules as usize * SEGMENT_GRANULE);
        }
        let free = self.free.load(Ordering::Relaxed).count_ones() + span_granules;
        if free > granules / 2 && change(BROKEN, SMALL) {
            // SAFETY: guaranteed by the caller.
            unsafe { os::split_huge(span, len) };
        }
    }
}

/// The mask of the first granules of a range.
pub(super) fn first_granules(granules: u32) -> u32 {
    low_bits(granules as usize) as u32
}

/// The ranges of one source.
#[derive(Debug)]
pub(super) struct ReservedRanges {
    pub table: GrowingTable<SystemArray<ReservedRange>, 8>,
    /// A hint: the first range that may have a free granule.
    first_free: AtomicU32,
}

impl ReservedRanges {
    pub(super) fn new() -> Self {
        Self { table: GrowingTable::new(), first_free: AtomicU32::new(0) }
    }

    /// Takes an entry for a range that is about to be reserved.
    pub(super) fn take_vacant(&self) -> Result<u32, AllocError> {
        let new_entries = |_, len| SystemArray::new(len, |_| ReservedRange::default());
        self.table.take(new_entries, |_| ())
    }

    /// Claims contiguous granules. Returns the index of their range, and their mask.
    pub(super) fn claim(&self, granules: u32) -> Option<(u32, u32)> {
        let first = self.first_free.load(Ordering::Relaxed);
        let mut lowest_free = u32::MAX;
        // The hint may be too high: a thread may raise it after another thread gave back granules
        // below it.
        for index in (first..self.table.issued()).chain(0..first) {
            let Some(range) = self.table.get(index) else { continue };
            let mut free = range.free.load(Ordering::Relaxed);
            if free != 0 {
                lowest_free = lowest_free.min(index);
            }
            while let Some(start) = lowest_run(u64::from(free), granules as usize) {
                let mask = first_granules(granules) << start;
                // Acquire pairs with the Release that set the bits: the memory was decommitted
                // before, and the range's start belongs to these bits.
                match range.free.compare_exchange_weak(
                    free,
                    free & !mask,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        if lowest_free != first {
                            let (new, order) = (lowest_free, Ordering::Relaxed);
                            let _ = self.first_free.compare_exchange(first, new, order, order);
                        }
                        return Some((index, mask));
                    }
                    Err(now) => free = now,
                }
            }
        }
        None
    }

    /// Sets bits of a range, and lets searches find them. Returns all free bits.
    pub(super) fn set_free(&self, index: u32, mask: u32) -> u32 {
        // Release pairs with the Acquire in `claim`.
        let free = self.table[index].free.fetch_or(mask, Ordering::AcqRel) | mask;
        self.first_free.fetch_min(index, Ordering::Relaxed);
        free
    }
}
