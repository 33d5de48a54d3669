//! Checked blocks: the slow path of hardened mode, memory tools and pass-through mode.
//!
//! A block has room for the object and a red zone of at least [`GUARD`] bytes. A block of a size
//! class is vacant after its quarantine, a large block goes back to the supply. Blocks that were
//! never handed out are not filled.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::blocks::Blocks;
use super::classes::{Class, STEP, align_of, class_of, size_of};
use super::pieces::Supply;
use crate::checked::{CheckedAllocator, GUARD, Ledger};
use crate::error::{AllocError, ErrorKind};
use crate::statistics::Record;

const _: () = assert!(GUARD == STEP, "a block of a class has room for its zone");

/// The layout of a block with room for an object and its red zone.
fn block_layout(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(GUARD)?.checked_next_multiple_of(GUARD)?;
    Layout::from_size_align(size, layout.align().max(GUARD)).ok()
}

impl<S: Supply> CheckedAllocator for Blocks<S> {
    fn record(&self) -> &'static Record {
        self.record
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.supply.charge(bytes)
    }

    fn credit(&self, bytes: usize) {
        self.supply.credit(bytes);
    }

    fn block_size(&self, layout: Layout) -> usize {
        let block = block_layout(layout).expect("it was allocated");
        class_of(block).map_or(block.size(), size_of)
    }

    fn vacant_class(&self, layout: Layout) -> Option<usize> {
        block_layout(layout).and_then(class_of).map(Class::index)
    }

    fn class_layout(&self, class: usize) -> Layout {
        let class = Class::of_index(class).expect("a class of the ledger");
        Layout::from_size_align(size_of(class) - GUARD, align_of(class)).expect("a class is small")
    }

    fn new_block(&self, _: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let block = block_layout(layout).ok_or(overflow)?;
        let Some(class) = class_of(block) else { return self.alloc_large(block, block.size()) };
        if let Some(block) = self.checked_carve(class) {
            return Ok(block);
        }
        self.grow(class)?;
        Ok(self.checked_carve(class).expect("a chunk has room for what it was taken for"))
    }

    unsafe fn release_block(&self, block: NonNull<u8>) {
        // SAFETY: guaranteed by the caller. A block of no class is large.
        unsafe { self.free_large(block) };
    }
}

impl<S: Supply> Blocks<S> {
    /// Takes a new block of a class from the range of checked blocks.
    fn checked_carve(&self, class: Class) -> Option<NonNull<u8>> {
        let range = &self.checked_range;
        let gap = range.gap(align_of(class));
        let start = range.advance(gap + size_of(class))?;
        // SAFETY: the range had at least `gap + size_of(class)` bytes.
        Some(unsafe { start.add(gap) })
    }

    /// Frees every checked block, and checks those that were free before.
    pub(super) fn checked_clear(&self, ledger: &Ledger) {
        ledger.clear(self);
        self.checked_range.open(core::ptr::null_mut(), core::ptr::null_mut());
    }
}
