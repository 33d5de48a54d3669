//! What the ledger of checked mode asks of the blocks of a reap or a pool.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::block_allocator::BlockAllocator;
use super::checked::block_layout;
use super::chunk_supply::ChunkSupply;
use super::size_classes::SizeClass;
use crate::checked::{CheckedAllocator, GUARD, Ledger};
use crate::error::{AllocError, ErrorKind};
use crate::statistics::Record;

impl<S: ChunkSupply> CheckedAllocator for BlockAllocator<S> {
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
        SizeClass::of(block).map_or(block.size(), SizeClass::size)
    }

    fn vacant_class(&self, layout: Layout) -> Option<usize> {
        block_layout(layout).and_then(SizeClass::of).map(SizeClass::index)
    }

    fn class_layout(&self, class: usize) -> Layout {
        let class = SizeClass::of_index(class).expect("a class of the ledger");
        Layout::from_size_align(class.size() - GUARD, class.align()).expect("a class is small")
    }

    fn new_block(&self, _: &Ledger, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let block = block_layout(layout).ok_or(overflow)?;
        let Some(class) = SizeClass::of(block) else {
            return self.alloc_large(block, block.size());
        };
        let checked = self.checked.as_deref().expect("only checked blocks have a ledger");
        if let Some(block) = checked.carve(class) {
            return Ok(block);
        }
        self.grow(class)?;
        Ok(checked.carve(class).expect("a chunk fits the block that it was taken for"))
    }

    unsafe fn release_block(&self, block: NonNull<u8>) {
        // SAFETY: guaranteed by the caller. A block of no class is large.
        unsafe { self.free_large(block) };
    }
}
