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
        self.alloc_large_and_tell(layout, capacity).map(|(block, _)| block)
    }

    /// As [`alloc_large`](Self::alloc_large). Returns whether the block reads zeros too.
    pub(super) fn alloc_large_and_tell(
        &self,
        layout: Layout,
        capacity: usize,
    ) -> Result<(NonNull<u8>, bool), AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let align = layout.align().max(CACHE_LINE);
        let size = layout.size().max(1);
        let need =
            chunk_bytes_for(HEADER_BYTES, size, align, self.supply.align()).ok_or(overflow)?;
        let wanted = need.saturating_add(capacity - layout.size());
        let spare = self.take_spare_for_large(need, wanted);
        if spare.is_none() {
            self.adapt_spare_limit(need);
        }
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
        Ok((block, spare.is_none() && self.supply.is_zeroed()))
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
        Some(header.memory(&self.supply))
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
        let memory = header.memory(&self.supply);
        if !self.keep_spare(memory) {
            self.last_large_released.set(memory.size);
            // SAFETY: the chunk is off the list, and its one block is free.
            unsafe { self.release([memory].into_iter(), memory.size) };
        }
        self.publish_live_if_named();
    }

    /// Raises the limit on spare bytes if the memory of the large block that was released last would
    /// have served a block of `need` bytes now.
    fn adapt_spare_limit(&self, need: usize) {
        let released = self.last_large_released.get();
        // A block that needs much less may grow to that size.
        if released > need.saturating_mul(2) {
            return;
        }
        self.last_large_released.set(0);
        if released >= need {
            let limit = released.saturating_mul(2).min(self.growth.most_spare_bytes);
            self.spare_limit.set(limit.max(self.spare_limit.get()));
        }
    }

    /// Whether there is a spare chunk for a block that grows to `need` bytes and moves there. A block
    /// without a budget gets capacity to double once more (see `alloc_grown`), so the chunk may be
    /// four times as large.
    fn has_spare_for_large(&self, need: usize) -> bool {
        if self.growth.spare_large_bytes == 0 || self.checked.is_some() || self.supply.is_limited()
        {
            return false;
        }
        let mut next = self.spare.get();
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            if (need..=need.saturating_mul(4)).contains(&header.size.get()) {
                // `take_spare_for_large` looks no further than at the first one that fits.
                return !header.reserved.get();
            }
            next = header.next.get();
        }
        false
    }

    /// Resizes a large block in place, if its chunk has the capacity, or can be made longer. Gives
    /// back what a shorter block does not need. Returns whether it did.
    ///
    /// # Safety
    /// The block is a live large block of this value.
    pub(super) unsafe fn resize_large_in_place(&self, block: NonNull<u8>, new_size: usize) -> bool {
        // SAFETY: a large block has its header right before it (invariant 2).
        let header = unsafe { block.cast::<PoolChunkHeader>().sub(1).as_ref() };
        let offset = block.addr().get() - header.start.addr().get();
        let old_size = header.requested.get();
        let capacity = header.size.get() - offset;
        if new_size > capacity {
            let need = offset.saturating_add(new_size);
            // Copying to a spare chunk is cheaper than the page faults of a longer chunk.
            if self.has_spare_for_large(need) {
                return false;
            }
            self.adapt_spare_limit(need);
            let more = (new_size - capacity).checked_next_multiple_of(self.supply.align());
            if !more.is_some_and(|more| self.supply.extend(header, more)) {
                return false;
            }
        } else if new_size < old_size && capacity - new_size > new_size / 8 {
            // A block of no bytes keeps one: its own address must stay the pool's.
            let less = capacity - new_size.max(1);
            // SAFETY: only the block uses the chunk, and it gives these bytes up.
            let shorter = unsafe { self.supply.shorten(header, less) } > 0;
            // Otherwise a block that shrinks below a quarter of its capacity moves to a chunk of
            // its size.
            if !shorter && capacity / 4 > new_size {
                return false;
            }
        }
        self.note_chunk_size(header, offset + capacity);
        header.requested.set(new_size);
        self.large_bytes.set(self.large_bytes.get() - old_size + new_size);
        self.publish_live_if_named();
        true
    }

    /// Counts what [`resize_large_in_place`](Self::resize_large_in_place) has taken or released.
    fn note_chunk_size(&self, chunk: &PoolChunkHeader, before: usize) {
        let size = chunk.size.get();
        self.held.set(self.held.get() - before + size);
        if chunk.is_charged(&self.supply) || !self.supply.is_limited() {
            if size > before {
                self.record.add_held_bytes(size - before);
            } else {
                self.record.held_bytes.sub((before - size) as u64);
            }
        }
    }

    /// Returns the sizes of the live large blocks.
    pub(super) fn live_large_sizes(&self) -> impl Iterator<Item = usize> {
        let mut next = self.large.get();
        core::iter::from_fn(move || {
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { NonNull::new(next)?.as_ref() };
            next = header.next.get();
            Some(header.requested.get())
        })
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
            spare_bytes += header.size.get();
            next = header.next.get();
        }
        if spare_bytes > self.spare_limit.get() {
            return false;
        }
        let chunk = self.write_header(memory, memory.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.next.set(self.spare.replace(chunk.as_ptr()));
        true
    }
}
