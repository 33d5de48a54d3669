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
//!    holds the same numbers; in a pool with a budget, those of the chunks that are charged, and
//!    the `piece_bytes` of other chunks. (In pass-through mode the record's held bytes are those of
//!    malloc's blocks.)
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

/// The bytes of the free blocks of an ended pool that a pool with a budget takes at a time, at first.
/// Taking them reads each one: more than are needed would be cache misses for nothing.
const ASIDE_BYTES: usize = 1 << 10;
/// The most bytes that it takes at a time.
const MAX_ASIDE_BYTES: usize = 4 << 10;
/// The most bytes that it takes at once when it begins.
const MAX_TAKEN_AT_ONCE: usize = 128 << 10;
/// The bytes that it takes at a time of memory that is not carved yet.
const CARVED_BYTES: usize = 4 << 10;

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
    /// Maximum bytes of freed large blocks kept now.
    pub spare_limit: Cell<usize>,
    /// The size of the chunk of the large block that was released last, or 0.
    pub last_large_released: Cell<usize>,
    /// The size of the chunk taken last, at most 1 MiB; 0 if none is held.
    pub last_size: Cell<usize>,
    pub held: Cell<usize>,
    /// The live blocks that an ended pool left and that the record does not count, and their bytes.
    pub inherited: Cell<(usize, usize)>,
    /// The bytes charged to the budget piece by piece, of chunks that an ended pool left.
    pub piece_bytes: Cell<usize>,
    /// The bytes behind the headers of the chunks on `chunks`.
    pub opened_bytes: Cell<usize>,
    /// Whether a chunk is reserved.
    pub has_reserved: Cell<bool>,
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
            spare_limit: Cell::new(growth.spare_large_bytes),
            last_large_released: Cell::new(0),
            last_size: Cell::new(0),
            held: Cell::new(0),
            inherited: Cell::new((0, 0)),
            piece_bytes: Cell::new(0),
            opened_bytes: Cell::new(0),
            has_reserved: Cell::new(false),
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
                if let Some(block) = self.lists.alloc(class) {
                    return Ok(block);
                }
                if self.lists.has_aside(class) && self.take_aside(class) {
                    return Ok(self.lists.alloc(class).expect("at least one was taken"));
                }
                let piece = CARVED_BYTES;
                self.lists.extend_range(class, piece, |bytes| self.charge_piece(bytes));
                if let Some(block) = self.lists.carve(class) {
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
                Some(class) => self.free_to_list(class, block),
                None => self.free_large(block),
            }
        }
    }

    /// Puts a block on the list of its class, or sets it aside: see [`ClassLists::free`].
    ///
    /// # Safety
    /// As for [`ClassLists::free`], outside checked mode.
    pub(super) unsafe fn free_to_list(&self, class: SizeClass, block: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        if unsafe { !self.lists.free(class, block) && self.lists.free_inherited(class, block) } {
            let (blocks, bytes) = self.inherited.get();
            self.inherited.set((blocks.saturating_sub(1), bytes.saturating_sub(class.size())));
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
            // SAFETY: passed on to the caller.
            (None, None) => unsafe { self.resize_large_in_place(block, new_size) },
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
        self.with_large(self.lists.live())
    }

    /// Adds the large blocks to the number of small ones and their bytes.
    pub(super) fn with_large(&self, (blocks, bytes): (usize, usize)) -> (usize, usize) {
        (blocks + self.large_blocks.get(), bytes + self.large_bytes.get())
    }

    /// Returns the live blocks and their bytes without those that an ended pool left to a pool with
    /// a budget.
    pub(super) fn own_live(&self) -> (usize, usize) {
        let ((blocks, bytes), (before, bytes_before)) = (self.live(), self.inherited.get());
        (blocks.saturating_sub(before), bytes.saturating_sub(bytes_before))
    }

    /// Makes this what a pool with a budget begins with, after an ended pool. If that one had a
    /// budget too, what it has used and freed is taken at once, if it is at most `at_once` bytes:
    /// it is likely to be what this pool needs, and in the caches. The rest is set aside.
    /// `live_bytes` is as for [`free_bytes`](Self::free_bytes).
    pub(super) fn take_over_with_budget(&self, at_once: usize, live_bytes: usize) {
        let free = self.free_bytes(live_bytes);
        if let Some(aside) = self.lists.aside_bytes() {
            let used = free.saturating_sub(aside);
            if used <= MAX_TAKEN_AT_ONCE.min(at_once) && self.charge_piece(used) {
                return;
            }
        }
        self.lists.set_aside(free);
    }

    /// Takes free blocks of an ended pool: the more, the more is charged already. Returns whether
    /// the budget allowed it.
    fn take_aside(&self, class: SizeClass) -> bool {
        let piece = (self.supply.charged() / 8).clamp(ASIDE_BYTES, MAX_ASIDE_BYTES);
        let take = |bytes| self.lists.take_aside(class, bytes, |bytes| self.charge_piece(bytes));
        take(piece) || take(class.size())
    }

    /// Charges bytes that an ended pool left to the budget. Returns whether it allowed them.
    fn charge_piece(&self, bytes: usize) -> bool {
        let is_charged = self.supply.charge(bytes).is_ok();
        if is_charged {
            self.piece_bytes.set(self.piece_bytes.get() + bytes);
            self.record.add_held_bytes(bytes);
        }
        is_charged
    }

    /// Takes the charge for pieces back, except for `left` bytes. Returns how much that was.
    pub(super) fn credit_pieces(&self, left: usize) -> usize {
        let credited = self.piece_bytes.get().saturating_sub(left);
        self.piece_bytes.set(self.piece_bytes.get() - credited);
        self.supply.credit(credited);
        self.record.held_bytes.sub(credited as u64);
        credited
    }

    /// Publishes the live blocks if the allocator is named: a report shows only those.
    pub(super) fn publish_live_if_named(&self) {
        if self.record.is_named() {
            self.publish_live();
        }
    }

    /// Publishes the live blocks in the record, for threads that ask for a report.
    pub(super) fn publish_live(&self) {
        let (blocks, bytes) = self.own_live();
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
    }

    /// Returns the bytes of all chunks.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Switches to another record, as if nothing had been held before. With `inherited`, which are
    /// the live blocks and their bytes, what is held now counts as nothing.
    pub(super) fn switch_record(
        &mut self,
        record: &'static Record,
        inherited: Option<(usize, usize)>,
    ) {
        let counts = inherited.is_none();
        record.held_bytes.set(0);
        record.peak_held_bytes.set(0);
        record.source_calls.set(0);
        record.add_held_bytes(if counts { self.held.get() } else { 0 });
        record.chunks.set(if counts { self.chunk_count.get() as u64 } else { 0 });
        self.inherited.set(inherited.unwrap_or_default());
        self.piece_bytes.set(0);
        self.record = record;
    }
}
