//! The checked list: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! All blocks are of one class: the places of the list's slabs, with room for a red zone. Vacant
//! blocks are recorded in the ledger, outside the slabs, so that a write after free destroys no
//! evidence.
//!
//! # Invariant
//!
//! Hardened: every byte of a slab behind its header that is in no live object's block is free, in
//! the ledger's sense, also where no object was ever handed out.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::chunks::{Chunk, HEADER};
use super::raw::RawFreeList;
use crate::checked::{CheckedAllocator, Ledger};
use crate::error::{AllocError, ErrorKind};
use crate::statistics::Record;

/// The class of all blocks.
const CLASS: usize = 0;

impl CheckedAllocator for RawFreeList {
    fn record(&self) -> &'static Record {
        self.record
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.charge(bytes)
    }

    fn credit(&self, bytes: usize) {
        self.credit(bytes);
    }

    fn block_size(&self, _: Layout) -> usize {
        self.stride()
    }

    fn vacant_class(&self, _: Layout) -> Option<usize> {
        Some(CLASS)
    }

    fn class_layout(&self, _: usize) -> Layout {
        self.layout()
    }

    fn new_block(&self, ledger: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let block = self.take_fresh(1)?;
        ledger.check_free_block(self, block, layout);
        Ok(block)
    }
}

impl RawFreeList {
    /// The number of classes of blocks.
    pub(super) const CHECKED_CLASSES: usize = CLASS + 1;

    /// Prepares a slab that was just taken, and holds nothing but its header.
    pub(super) fn checked_slab_taken(
        &self,
        ledger: &Ledger,
        start: NonNull<u8>,
        size: usize,
    ) -> Result<(), AllocError> {
        let registered = self.segment_unit() > 1;
        // SAFETY: the list has just taken the slab, which is larger than its header.
        unsafe { ledger.chunk_taken(self.record, start, size, HEADER, registered) }
    }

    /// Prepares a slab that is about to go back to its source.
    pub(super) fn checked_slab_released(&self, ledger: &Ledger, slab: Chunk) {
        ledger.chunk_released(slab.header.cast(), slab.size, self.segment_unit() > 1);
    }

    /// Allocates `objects` objects next to each other.
    pub(super) fn checked_alloc_run(
        &self,
        ledger: &Ledger,
        objects: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        if ledger.is_passthrough() {
            return match objects {
                1 => ledger.alloc(self, self.layout()),
                _ => Err(AllocError::new(ErrorKind::SourceRefused, objects)),
            };
        }
        ledger.reserve(Some(CLASS), objects, objects)?;
        let run = self.take_fresh(objects).inspect_err(|_| ledger.unreserve(objects))?;
        for index in 0..objects {
            // SAFETY: the run has `objects` objects.
            let block = unsafe { run.add(index * self.stride()) };
            ledger.check_free_block(self, block, self.layout());
            ledger.hand_out(self, block, self.layout());
        }
        Ok(run)
    }

    /// Records places of a slab that were not handed out, before another slab becomes the fresh
    /// one.
    pub(super) fn checked_leave(&self, ledger: &Ledger, first: *mut u8, objects: usize) {
        // The lowest is handed out first.
        let places = (0..objects).rev().map(|index| {
            NonNull::new(first.wrapping_add(index * self.stride())).expect("a place in a slab")
        });
        ledger.add_vacant(CLASS, places);
    }

    /// Empties the quarantine, and releases the slabs if nothing is live. Returns the bytes
    /// released.
    pub(super) fn checked_trim(&self, ledger: &Ledger) -> usize {
        ledger.empty_quarantine(self);
        if ledger.live().0 > 0 || ledger.is_passthrough() {
            return 0;
        }
        ledger.clear(self);
        self.give_all_back()
    }
}
