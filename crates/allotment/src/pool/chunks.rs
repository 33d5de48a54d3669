//! The chunks beneath the blocks: taking new ones, keeping and releasing empty ones.
//!
//! The invariants are those of block_allocator.rs.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::block_allocator::BlockAllocator;
use super::checked::BlockLedger;
use super::chunk_supply::{ChunkMemory, ChunkSupply, HEADER_BYTES, PoolChunkHeader};
use super::size_classes::SizeClass;
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{MAX_GROWTH, chunk_bytes_for};
use crate::memory::{os, tools};

impl<S: ChunkSupply> BlockAllocator<S> {
    /// Opens a chunk that has enough bytes for a block of this class.
    pub(super) fn grow(&self, class: SizeClass) -> Result<(), AllocError> {
        let need = chunk_bytes_for(HEADER_BYTES, class.size(), class.align(), self.supply.align())
            .expect("a class is small");
        let chunk = match self.take_spare(need, usize::MAX) {
            Some(chunk) => chunk,
            None => {
                let first = self.last_size.get() == 0;
                let (wanted, last) = match self.growth.increment {
                    Some(increment) if !first => (increment, 0),
                    _ if first => (self.growth.initial, 0),
                    _ => (0, self.last_size.get()),
                };
                let memory = match self.supply.take(need.max(wanted), last) {
                    Ok(memory) => memory,
                    // The configured size is a preference: retry with what is needed.
                    Err(_) if wanted > need => self.supply.take(need, 0)?,
                    Err(error) => return Err(error),
                };
                self.last_size.set(memory.size.min(MAX_GROWTH));
                self.add_chunk(memory, memory.start)
            }
        };
        self.open(chunk);
        Ok(())
    }

    /// Carves new blocks from this chunk, which is on no list.
    pub(super) fn open(&self, chunk: NonNull<PoolChunkHeader>) {
        // SAFETY: the chunk is held, nothing uses its blocks, and its size is a multiple of a step.
        unsafe {
            chunk.as_ref().next.set(self.chunks.replace(chunk.as_ptr()));
            self.opened_bytes
                .set(self.opened_bytes.get() + chunk.as_ref().size.get() - HEADER_BYTES);
            let start = chunk.as_ptr().cast::<u8>();
            let (first, end) = (start.add(HEADER_BYTES), start.add(chunk.as_ref().size.get()));
            match self.checked.as_deref() {
                Some(checked) => checked.open(first, end),
                None => self.lists.open(first, end),
            }
        }
        self.publish_live_if_named();
    }

    /// In a child made by fork that does not have the chunks, forgets them and all blocks, so that
    /// neither headers nor free blocks are read. There is no chunk from then on. Returns whether
    /// this is such a child.
    pub(super) fn forget_orphaned_chunks(&self) -> bool {
        if !self.is_orphaned() {
            return false;
        }
        self.lists.clear();
        for list in [&self.chunks, &self.spare, &self.large] {
            list.set(ptr::null_mut());
        }
        self.large_blocks.set(0);
        self.large_bytes.set(0);
        self.opened_bytes.set(0);
        self.last_size.set(0);
        self.supply.credit(self.held.replace(0));
        self.chunk_count.set(0);
        self.record.held_bytes.set(0);
        self.record.chunks.set(0);
        true
    }

    /// Whether this is a child made by fork that does not have the chunks. (In pass-through mode
    /// the blocks are malloc's, which the child has.)
    pub(super) fn is_orphaned(&self) -> bool {
        let has_chunks = |checked: &BlockLedger| !checked.ledger.is_passthrough();
        self.supply.is_orphaned() && self.checked.as_deref().is_none_or(has_chunks)
    }

    /// Accounts for a chunk's new memory and writes its header at the address `header`, inside it.
    pub(super) fn add_chunk(
        &self,
        memory: ChunkMemory,
        header: NonNull<u8>,
    ) -> NonNull<PoolChunkHeader> {
        let ChunkMemory { start, size, recycled, .. } = memory;
        if self.checked.is_some() {
            tools::forbid(start, size);
            tools::allow(header, HEADER_BYTES);
        }
        let chunk = self.write_header(memory, header);
        self.held.set(self.held.get() + size);
        self.chunk_count.set(self.chunk_count.get() + 1);
        self.record.hold_chunk(size, recycled);
        chunk
    }

    /// Writes the header of a chunk at an address inside its memory.
    pub(super) fn write_header(
        &self,
        memory: ChunkMemory,
        address: NonNull<u8>,
    ) -> NonNull<PoolChunkHeader> {
        let ChunkMemory { start, size, align, mapping, charged, .. } = memory;
        let (next, prev) = (Cell::new(ptr::null_mut()), Cell::new(ptr::null_mut()));
        let header = PoolChunkHeader {
            next,
            prev,
            start,
            size: Cell::new(size),
            align,
            mapping,
            reserved: Cell::new(false),
            charged_to: Cell::new(if charged { self.supply.user() } else { 0 }),
            requested: Cell::new(0),
        };
        // SAFETY: the memory is held and has a header's bytes from `address` on, which is a
        // multiple of a cache line.
        unsafe { address.cast::<PoolChunkHeader>().write(header) };
        address.cast()
    }

    /// Takes a spare chunk whose size is in `least..=most`, and charges it to the budget if an
    /// ended pool left it.
    pub(super) fn take_spare(&self, least: usize, most: usize) -> Option<NonNull<PoolChunkHeader>> {
        let mut previous = &self.spare;
        while let Some(chunk) = NonNull::new(previous.get()) {
            // SAFETY: a chunk of our list (invariant 1), which stays there during the search.
            let header = unsafe { &*chunk.as_ptr() };
            if (least..=most).contains(&header.size.get()) && self.charge_chunk(header) {
                previous.set(header.next.get());
                return Some(chunk);
            }
            previous = &header.next;
        }
        None
    }

    /// Charges a chunk to the budget, if there is one and the chunk is not charged yet. Returns
    /// whether the budget allowed it.
    fn charge_chunk(&self, chunk: &PoolChunkHeader) -> bool {
        if !self.supply.is_limited() || chunk.is_charged(&self.supply) {
            return true;
        }
        let is_charged = self.supply.charge(chunk.size.get()).is_ok();
        if is_charged {
            chunk.charged_to.set(self.supply.user());
            self.record.hold_chunk(chunk.size.get(), true);
        }
        is_charged
    }

    /// Takes a chunk with at least `bytes` bytes for blocks, and faults its pages in.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), AllocError> {
        if self.checked.as_deref().is_some_and(|checked| checked.ledger.is_passthrough()) {
            return Ok(());
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, bytes);
        let need = bytes.checked_add(HEADER_BYTES).filter(|need| *need <= isize::MAX as usize);
        let memory = self.supply.take(need.ok_or(overflow)?, 0)?;
        self.last_size.set(memory.size.min(MAX_GROWTH));
        if os::populate(memory.start, memory.size).is_err() {
            for page in (0..memory.size).step_by(os::page_size()) {
                // SAFETY: the memory is new, and nothing uses it yet. Volatile, because only the
                // page fault matters.
                unsafe { memory.start.add(page).write_volatile(0) };
            }
        }
        let chunk = self.add_chunk(memory, memory.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.reserved.set(true);
        self.has_reserved.set(true);
        self.open(chunk);
        Ok(())
    }

    /// Frees every block. With `Some(keep)`, keeps the reserved chunks for later blocks, and other
    /// chunks up to that many bytes, the newest first. With `None`, keeps no chunk.
    ///
    /// # Safety
    /// No block is used again.
    pub(super) unsafe fn clear(&self, keep: Option<usize>) {
        if self.forget_orphaned_chunks() {
            return;
        }
        if let Some(checked) = self.checked.as_deref() {
            checked.clear(self);
        }
        self.lists.clear();
        self.credit_pieces(0);
        let mut kept: *mut PoolChunkHeader = ptr::null_mut();
        let mut keep_bytes = keep.unwrap_or(0);
        let mut released: *mut PoolChunkHeader = ptr::null_mut();
        let mut total = 0;
        for list in [&self.chunks, &self.spare, &self.large] {
            let mut next = list.replace(ptr::null_mut());
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: a chunk of our list (invariant 1).
                let header = unsafe { chunk.as_ref() };
                next = header.next.get();
                let is_large = ptr::eq(list, &self.large);
                let reserved = header.reserved.get() && keep.is_some();
                if reserved || header.size.get() <= keep_bytes && !is_large {
                    keep_bytes -= if reserved { 0 } else { header.size.get() };
                    if self.checked.is_some() {
                        tools::forbid(header.start, header.size.get());
                        tools::allow_defined(chunk.cast(), HEADER_BYTES);
                    }
                    header.next.set(kept);
                    kept = chunk.as_ptr();
                } else {
                    total += header.size.get();
                    header.next.set(released);
                    released = chunk.as_ptr();
                }
            }
        }
        self.spare.set(kept);
        self.opened_bytes.set(0);
        self.large_blocks.set(0);
        self.large_bytes.set(0);
        // SAFETY: the chunks are on no list any more, and nothing uses their blocks.
        unsafe { self.release_list(released, total) };
        if self.spare.get().is_null() {
            self.last_size.set(0);
        }
        self.publish_live_if_named();
    }

    /// Returns each opened chunk.
    pub(super) fn each_chunk(&self) -> impl Iterator<Item = &PoolChunkHeader> + use<'_, S> {
        let mut next = self.chunks.get();
        core::iter::from_fn(move || {
            let chunk = NonNull::new(next)?;
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            next = header.next.get();
            Some(header)
        })
    }

    /// Returns the free bytes of the chunks that blocks are carved from: those of the free blocks
    /// and of the range. `live_bytes` are those of the live blocks of the classes.
    pub(super) fn free_bytes(&self, live_bytes: usize) -> usize {
        self.opened_bytes.get() - live_bytes
    }

    /// Makes reserved chunks ordinary ones.
    pub(super) fn unreserve(&self) {
        if !self.has_reserved.replace(false) {
            return;
        }
        for list in [&self.chunks, &self.spare] {
            let mut next = list.get();
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: a chunk of our list (invariant 1).
                let header = unsafe { chunk.as_ref() };
                header.reserved.set(false);
                next = header.next.get();
            }
        }
    }

    /// Releases the spare chunks that are not reserved.
    pub(super) fn release_spare(&self) {
        // SAFETY: nothing in a spare chunk is live or on a list.
        unsafe { self.release_from(&self.spare, |_| true) };
    }

    /// Releases spare chunks that are not reserved, but keeps the newest of them, up to `keep`
    /// bytes.
    pub(super) fn release_spare_beyond(&self, keep: usize) {
        let mut left = keep;
        // SAFETY: nothing in a spare chunk is live or on a list.
        unsafe {
            self.release_from(&self.spare, |chunk| match left.checked_sub(chunk.size.get()) {
                Some(less) => {
                    left = less;
                    false
                }
                None => true,
            });
        }
    }

    /// Releases the chunks for whose start address `is_empty` returns `true`, except reserved ones.
    ///
    /// # Safety
    /// Nothing in these chunks is live, on a free list or in the range.
    pub(super) unsafe fn release_chunks(&self, is_empty: impl Fn(usize) -> bool) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.release_from(&self.chunks, |chunk| {
                let releases = is_empty(ptr::from_ref(chunk).addr());
                let bytes = if releases { chunk.size.get() - HEADER_BYTES } else { 0 };
                self.opened_bytes.set(self.opened_bytes.get() - bytes);
                releases
            });
        }
    }

    /// # Safety
    /// As for [`release_chunks`](Self::release_chunks), for one of the lists of this value.
    unsafe fn release_from(
        &self,
        list: &Cell<*mut PoolChunkHeader>,
        mut is_released: impl FnMut(&PoolChunkHeader) -> bool,
    ) {
        let mut released: *mut PoolChunkHeader = ptr::null_mut();
        let mut total = 0;
        let mut previous = list;
        while let Some(chunk) = NonNull::new(previous.get()) {
            // SAFETY: a chunk of our list (invariant 1), held until `release_list` below.
            let header = unsafe { &*chunk.as_ptr() };
            if !header.reserved.get() && is_released(header) {
                previous.set(header.next.replace(released));
                released = chunk.as_ptr();
                total += header.size.get();
            } else {
                previous = &header.next;
            }
        }
        // SAFETY: the chunks are on no list any more, and the caller ensures that nothing in them
        // is used.
        unsafe { self.release_list(released, total) };
    }

    /// Releases the chunks that are linked from `first`.
    ///
    /// # Safety
    /// The chunks are held but on no list, `total` is the sum of their sizes, and nothing in them
    /// is used.
    unsafe fn release_list(&self, mut first: *mut PoolChunkHeader, total: usize) {
        if first.is_null() {
            return;
        }
        let chunks = core::iter::from_fn(|| {
            let chunk = NonNull::new(first)?;
            // SAFETY: the chunk is held until it is released, and its header is read before that.
            let header = unsafe { chunk.as_ref() };
            first = header.next.get();
            Some(header.memory(&self.supply))
        });
        // SAFETY: passed on to the caller.
        unsafe { self.release(chunks, total) };
    }

    /// Releases the memory of chunks.
    ///
    /// # Safety
    /// As for [`ChunkSupply::release`]. The chunks are held, and `total` is the sum of their sizes.
    pub(super) unsafe fn release(&self, chunks: impl Iterator<Item = ChunkMemory>, total: usize) {
        let (mut count, mut counted, mut counted_bytes) = (0, 0, 0);
        let mut chunks = chunks.inspect(|chunk| {
            count += 1;
            if chunk.charged || !self.supply.is_limited() {
                counted += 1;
                counted_bytes += chunk.size as u64;
            }
            if self.checked.is_some() {
                tools::allow_defined(chunk.start, chunk.size);
            }
        });
        // SAFETY: passed on to the caller.
        let calls = unsafe { self.supply.release(&mut chunks, total) };
        self.record.source_calls.add(calls as u64);
        self.chunk_count.set(self.chunk_count.get() - count);
        self.held.set(self.held.get() - total);
        self.record.chunks.sub(counted);
        self.record.held_bytes.sub(counted_bytes);
    }
}
