//! Blocks of any layout from chunks: what a reap and a pool have in common.
//!
//! ```text
//! chunks ──▶ │header│ blocks of all small classes …          │ ──▶ …      carved by the lists
//! spare  ──▶ │header│ free                                   │ ──▶ …
//! large  ◀─▶ │header│ one large block                        │ ◀─▶ …
//! ```
//!
//! # Invariants
//!
//! 1. `chunks`, `spare` and `large` are the heads of lists of chunks that are held. Each chunk's
//!    memory was taken from the supply at once, and its header describes it. The range and the
//!    blocks of `lists` lie in the chunks on `chunks`.
//! 2. A chunk on `large` has one live block, right behind its header. Its `prev` and `next` are
//!    exact.
//! 3. `held` is the sum of the sizes of all chunks, and `chunk_count` their number. The record
//!    holds the same numbers. (In pass-through mode the record's held bytes are those of malloc's
//!    blocks.)
//! 4. One thread at a time has access.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::checked::BlockLedger;
use super::chunk_supply::{ChunkGrowth, ChunkSupply, PoolChunkHeader};
use super::class_lists::ClassLists;
use super::size_classes::{STEP, SizeClass};
use crate::error::{AllocError, ErrorKind, OnFailure, ReturnError};
use crate::memory::layout::MAX_GROWTH;
use crate::statistics::Record;

/// Blocks of any layout, freed one by one or all at once. The lists come first, at offset zero.
#[derive(Debug)]
#[repr(C)]
pub(super) struct BlockAllocator<S> {
    pub lists: ClassLists,
    pub chunks: Cell<*mut PoolChunkHeader>,
    pub spare: Cell<*mut PoolChunkHeader>,
    pub large: Cell<*mut PoolChunkHeader>,
    pub large_blocks: Cell<usize>,
    pub large_bytes: Cell<usize>,
    /// The size of the chunk taken last, at most 1 MiB; 0 if none is held.
    pub last_size: Cell<usize>,
    pub held: Cell<usize>,
    pub chunk_count: Cell<usize>,
    pub growth: ChunkGrowth,
    pub record: &'static Record,
    pub checked: Option<Box<BlockLedger>>,
    pub supply: S,
}

impl<S: ChunkSupply> BlockAllocator<S> {
    pub(super) const fn new(
        supply: S,
        growth: ChunkGrowth,
        record: &'static Record,
        checked: Option<Box<BlockLedger>>,
    ) -> Self {
        Self {
            lists: ClassLists::new(),
            chunks: Cell::new(ptr::null_mut()),
            spare: Cell::new(ptr::null_mut()),
            large: Cell::new(ptr::null_mut()),
            large_blocks: Cell::new(0),
            large_bytes: Cell::new(0),
            last_size: Cell::new(0),
            held: Cell::new(0),
            chunk_count: Cell::new(0),
            growth,
            record,
            checked,
            supply,
        }
    }

    /// Allocates a block for this layout.
    #[inline(always)]
    pub(super) fn alloc<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        match SizeClass::of_common(layout) {
            Some(class) => match self.lists.alloc(class) {
                Some(block) => Ok(block),
                // Inlined too: in a reap for one task about half of the blocks are new.
                None => match self.lists.carve_common(class) {
                    Some(block) => Ok(block),
                    None => self.alloc_slow_or::<F>(layout.size(), layout.align()),
                },
            },
            None => self.alloc_slow_or::<F>(layout.size(), layout.align()),
        }
    }

    /// Takes a block from a free list, or carves one.
    #[inline(always)]
    pub(super) fn alloc_fast(&self, layout: Layout) -> Option<NonNull<u8>> {
        let class = SizeClass::of_common(layout)?;
        self.lists.alloc(class).or_else(|| self.lists.carve_common(class))
    }

    /// The size comes first: a caller of `alloc_layout` that knows the alignment passes the size on
    /// without moving it to another register.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow_or<F: OnFailure>(
        &self,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: the size and the alignment of a layout.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        self.alloc_slow(layout).map_err(F::fail)
    }

    pub(super) fn alloc_slow(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if self.forget_orphaned_chunks() {
            return Err(AllocError::new(ErrorKind::ForkedChild, layout.size()));
        }
        if let Some(checked) = self.checked.as_deref() {
            return checked.ledger.alloc(self, layout);
        }
        match SizeClass::of(layout) {
            Some(class) => {
                if let Some(block) = self.lists.alloc(class).or_else(|| self.lists.carve(class)) {
                    return Ok(block);
                }
                self.grow(class)?;
                Ok(self.lists.carve(class).expect("a chunk fits the block that it was taken for"))
            }
            None => self.alloc_large(layout, layout.size()),
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from this value with a layout of this size class, has not been freed, and is
    /// not used again.
    #[inline(always)]
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        match SizeClass::of_common(layout) {
            // SAFETY: passed on to the caller.
            Some(class) if unsafe { self.lists.free(class, block) } => {}
            // SAFETY: passed on to the caller.
            _ => unsafe { self.free_slow(block, layout.size(), layout.align()) },
        }
    }

    /// The size comes first, as in `alloc_slow_or`.
    ///
    /// # Safety
    /// As for [`free`](Self::free), where no list took the block.
    #[inline(never)]
    unsafe fn free_slow(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: the size and the alignment of a layout.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        if self.is_orphaned() {
            return self.lists.undo_refused_free(layout);
        }
        if let Some(checked) = self.checked.as_deref() {
            self.lists.undo_refused_free(layout);
            return checked.ledger.free(self, block, layout);
        }
        // SAFETY: passed on to the caller. Outside checked mode the lists take every block.
        unsafe {
            match SizeClass::of(layout) {
                Some(class) => {
                    self.lists.free(class, block);
                }
                None => self.free_large(block),
            }
        }
    }

    /// Resizes a block, in place if possible. On an error the block is unchanged.
    ///
    /// # Safety
    /// As for [`free`](Self::free); the new size is valid for the alignment.
    #[inline]
    pub(super) unsafe fn resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        if unsafe { self.resize_in_place(block, old, new_size) } {
            return Ok(block);
        }
        // SAFETY: passed on to the caller.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        let fresh = self.alloc_grown(old, new)?;
        // SAFETY: two different blocks of the caller's, both at least as long as the copy.
        unsafe {
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
        }
        Ok(fresh)
    }

    /// Allocates a block to copy another one to. A block that grows beyond the classes gets
    /// capacity to grow again: it is likely to double once more, and capacity that stays unused is
    /// never touched.
    pub(super) fn alloc_grown(&self, old: Layout, new: Layout) -> Result<NonNull<u8>, AllocError> {
        let grows = new.size() > old.size() && SizeClass::of(new).is_none();
        if grows && self.checked.is_none() && !self.supply.is_limited() {
            let factor = if new.size() <= MAX_GROWTH / 2 { 4 } else { 2 };
            return self.alloc_large(new, new.size().saturating_mul(factor));
        }
        self.alloc::<ReturnError>(new)
    }

    /// Resizes a block in place if possible. Returns whether it did.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    #[inline]
    pub(super) unsafe fn resize_in_place(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> bool {
        // SAFETY: passed on to the caller.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        let (from, to) = (SizeClass::of(old), SizeClass::of(new));
        if self.checked.is_some() {
            return false;
        }
        if from.is_some() && from == to {
            return true;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.resize_in_place_slow(block, old.align(), from, to, new_size) }
    }

    /// # Safety
    /// As for [`resize`](Self::resize), with the classes of both sizes.
    unsafe fn resize_in_place_slow(
        &self,
        block: NonNull<u8>,
        align: usize,
        from: Option<SizeClass>,
        to: Option<SizeClass>,
        new_size: usize,
    ) -> bool {
        match (from, to) {
            // SAFETY: passed on to the caller.
            (Some(from), Some(to)) if align <= STEP => unsafe {
                self.lists.resize_last(block, from, to)
            },
            (None, None) => {
                // SAFETY: a large block has its header right before it (invariant 2).
                let header = unsafe { block.cast::<PoolChunkHeader>().sub(1).as_ref() };
                let capacity = header.start.addr().get() + header.size - block.addr().get();
                // A block that shrinks below a quarter of its capacity moves to a chunk of its
                // size.
                let fits = new_size <= capacity && capacity / 4 <= new_size;
                if fits {
                    let bytes = self.large_bytes.get() - header.requested.replace(new_size);
                    self.large_bytes.set(bytes + new_size);
                }
                fits
            }
            _ => false,
        }
    }

    /// Returns the number of live blocks and their bytes. A small block counts with the size of its
    /// class.
    pub(super) fn live(&self) -> (usize, usize) {
        if self.is_orphaned() {
            return (0, 0);
        }
        if let Some(checked) = self.checked.as_deref() {
            return checked.ledger.live();
        }
        let (blocks, bytes) = self.lists.live();
        (blocks + self.large_blocks.get(), bytes + self.large_bytes.get())
    }

    /// Publishes the live blocks if the allocator is named: a report shows only those.
    pub(super) fn publish_live_if_named(&self) {
        if self.record.is_named() {
            self.publish_live();
        }
    }

    /// Publishes the live blocks in the record, for threads that ask for a report.
    pub(super) fn publish_live(&self) {
        let (blocks, bytes) = self.live();
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
    }

    /// Returns the bytes of all chunks.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Switches to another record, as if nothing had been held before.
    pub(super) fn switch_record(&mut self, record: &'static Record) {
        record.held_bytes.set(0);
        record.peak_held_bytes.set(0);
        record.source_calls.set(0);
        record.add_held_bytes(self.held.get());
        record.chunks.set(self.chunk_count.get() as u64);
        self.record = record;
    }
}
