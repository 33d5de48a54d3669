//! Blocks that are too large for a class: each has a chunk of its own.
//!
//! The invariants are those of block_allocator.rs.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::block_allocator::BlockAllocator;
use super::chunk_supply::{ChunkMemory, ChunkSupply, HEADER_BYTES, PoolChunkHeader};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{CACHE_LINE, align_up, chunk_bytes_for};

impl<S: ChunkSupply> BlockAllocator<S> {
    /// Allocates a large block, with a capacity of `capacity` bytes if that much memory is
    /// available.
    pub(super) fn alloc_large(
        &self,
        layout: Layout,
        capacity: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let align = layout.align().max(CACHE_LINE);
        let size = layout.size().max(1);
        let need =
            chunk_bytes_for(HEADER_BYTES, size, align, self.supply.align()).ok_or(overflow)?;
        let wanted = need.saturating_add(capacity - layout.size());
        let spare = self.take_spare_for_large(need, wanted);
        let memory = match spare {
            Some(memory) => memory,
            None if wanted > need => {
                self.supply.take(wanted, 0).or_else(|_| self.supply.take(need, 0))?
            }
            None => self.supply.take(need, 0)?,
        };
        let start = memory.start.addr().get();
        // SAFETY: the memory is large enough (`chunk_bytes_for`).
        let block = unsafe { memory.start.add(align_up(start + HEADER_BYTES, align) - start) };
        // SAFETY: as above.
        let address = unsafe { block.sub(HEADER_BYTES) };
        let header = if spare.is_some() {
            self.write_header(memory, address)
        } else {
            self.add_chunk(memory, address)
        };
        // SAFETY: the header was just written.
        let header = unsafe { header.as_ref() };
        header.requested.set(layout.size());
        let first = self.large.replace(ptr::from_ref(header).cast_mut());
        header.next.set(first);
        if let Some(first) = NonNull::new(first) {
            // SAFETY: a chunk of our list (invariant 1).
            unsafe { first.as_ref() }.prev.set(ptr::from_ref(header).cast_mut());
        }
        self.large_blocks.set(self.large_blocks.get() + 1);
        self.large_bytes.set(self.large_bytes.get() + layout.size());
        self.publish_live_if_named();
        Ok(block)
    }

    /// Takes a spare chunk that is at most twice as large as wanted, and not reserved.
    fn take_spare_for_large(&self, need: usize, wanted: usize) -> Option<ChunkMemory> {
        if self.growth.spare_large_bytes == 0 || self.checked.is_some() {
            return None;
        }
        let chunk = self.take_spare(need, wanted.saturating_mul(2))?;
        // SAFETY: it was a chunk of our list (invariant 1), and is still held.
        let header = unsafe { chunk.as_ref() };
        if header.reserved.get() {
            header.next.set(self.spare.replace(chunk.as_ptr()));
            return None;
        }
        Some(header.memory())
    }

    /// Frees a large block.
    ///
    /// # Safety
    /// The block is a large block of this value, and has not been freed.
    pub(super) unsafe fn free_large(&self, block: NonNull<u8>) {
        // SAFETY: its header lies right before it (invariant 2).
        let header = unsafe { block.cast::<PoolChunkHeader>().sub(1).as_ref() };
        let (next, prev) = (header.next.get(), header.prev.get());
        // SAFETY: the neighbours are on our list (invariants 1 and 2).
        unsafe {
            match NonNull::new(prev) {
                Some(prev) => prev.as_ref().next.set(next),
                None => self.large.set(next),
            }
            if let Some(next) = NonNull::new(next) {
                next.as_ref().prev.set(prev);
            }
        }
        self.large_blocks.set(self.large_blocks.get() - 1);
        self.large_bytes.set(self.large_bytes.get() - header.requested.get());
        let memory = header.memory();
        if !self.keep_spare(memory) {
            // SAFETY: the chunk is off the list, and its one block is free.
            unsafe { self.release([memory].into_iter(), memory.size) };
        }
        self.publish_live_if_named();
    }

    /// Keeps the memory of a freed large block as a spare chunk, if the spare bytes stay within the
    /// limit. Returns whether it did.
    fn keep_spare(&self, memory: ChunkMemory) -> bool {
        if self.growth.spare_large_bytes == 0 || self.checked.is_some() {
            return false;
        }
        let mut spare_bytes = memory.size;
        let mut next = self.spare.get();
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            spare_bytes += header.size;
            next = header.next.get();
        }
        if spare_bytes > self.growth.spare_large_bytes {
            return false;
        }
        let chunk = self.write_header(memory, memory.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.next.set(self.spare.replace(chunk.as_ptr()));
        true
    }
}
