//! Blocks of any layout from chunks: what a reap and a pool have in common.
//!
//! ```text
//! chunks ──▶ │Header│ blocks of all small classes …          │ ──▶ …      carved by the lists
//! large  ◀─▶ │Header│ one large block                        │ ◀─▶ …
//! ```
//!
//! # Invariants
//!
//! 1. `chunks`, `spare` and `large` are the heads of lists of chunks that are held. Each chunk is
//!    one piece of the supply, described by its header. The range and the blocks of `lists` lie in
//!    the chunks on `chunks`.
//! 2. A chunk on `large` has one live block, right behind its header. Its `prev` and `next` are
//!    exact.
//! 3. `held` is the sum of the sizes of all pieces, and `pieces` their number. The record holds the
//!    same numbers. (In pass-through mode the record's held bytes are those of malloc's blocks.)
//! 4. One thread at a time has access.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::classes::{Class, STEP, class_of, common_class_of};
use super::lists::{Lists, Range};
use super::pieces::{Growth, Header, Supply};
use crate::checked::Ledger;
use crate::error::{AllocError, OnFailure, Report};
use crate::memory::layout::MAX_GROWTH;
use crate::statistics::Record;

/// Blocks of any layout, freed one by one or all at once. The lists come first, at offset zero.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Blocks<S> {
    pub lists: Lists,
    pub chunks: Cell<*mut Header>,
    pub spare: Cell<*mut Header>,
    pub large: Cell<*mut Header>,
    pub large_blocks: Cell<usize>,
    pub large_bytes: Cell<usize>,
    pub grown: Cell<usize>,
    pub held: Cell<usize>,
    pub pieces: Cell<usize>,
    pub growth: Growth,
    pub record: &'static Record,
    pub ledger: Option<Box<Ledger>>,
    /// The range that new checked blocks are carved from.
    pub checked_range: Range,
    pub supply: S,
}

impl<S: Supply> Blocks<S> {
    pub(super) const fn new(
        supply: S,
        growth: Growth,
        record: &'static Record,
        ledger: Option<Box<Ledger>>,
    ) -> Self {
        Self {
            lists: Lists::new(),
            chunks: Cell::new(ptr::null_mut()),
            spare: Cell::new(ptr::null_mut()),
            large: Cell::new(ptr::null_mut()),
            large_blocks: Cell::new(0),
            large_bytes: Cell::new(0),
            grown: Cell::new(0),
            held: Cell::new(0),
            pieces: Cell::new(0),
            growth,
            record,
            ledger,
            checked_range: Range::empty(),
            supply,
        }
    }

    /// Allocates a block for this layout.
    #[inline(always)]
    pub(super) fn alloc<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        match common_class_of(layout) {
            Some(class) => match self.lists.take(class) {
                Some(block) => Ok(block),
                // Inlined too: in a reap for one piece of work about half of the blocks are new.
                None => match self.lists.carve_common(class) {
                    Some(block) => Ok(block),
                    None => self.alloc_others::<F>(layout),
                },
            },
            None => self.alloc_others::<F>(layout),
        }
    }

    /// Takes a block from a free list, or carves one.
    #[inline(always)]
    pub(super) fn take_at_hand(&self, layout: Layout) -> Option<NonNull<u8>> {
        let class = common_class_of(layout)?;
        self.lists.take(class).or_else(|| self.lists.carve_common(class))
    }

    #[cold]
    #[inline(never)]
    fn alloc_others<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.alloc_slowly(layout).map_err(F::fail)
    }

    pub(super) fn alloc_slowly(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if let Some(ledger) = self.ledger.as_deref() {
            return ledger.alloc(self, layout);
        }
        match class_of(layout) {
            Some(class) => {
                if let Some(block) = self.lists.take(class).or_else(|| self.lists.carve(class)) {
                    return Ok(block);
                }
                self.grow(class)?;
                Ok(self.lists.carve(class).expect("a chunk has room for what it was taken for"))
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
        match common_class_of(layout) {
            // SAFETY: passed on to the caller.
            Some(class) if unsafe { self.lists.put(class, block) } => {}
            // SAFETY: passed on to the caller.
            _ => unsafe { self.free_others(block, layout) },
        }
    }

    /// # Safety
    /// As for [`free`](Self::free), where no list took the block.
    #[inline(never)]
    unsafe fn free_others(&self, block: NonNull<u8>, layout: Layout) {
        if let Some(ledger) = self.ledger.as_deref() {
            self.lists.unput(layout);
            return ledger.free(self, block, layout);
        }
        // SAFETY: passed on to the caller. Lists that are not checked take every block.
        unsafe {
            match class_of(layout) {
                Some(class) => {
                    self.lists.put(class, block);
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

    /// Allocates a block to copy another one to. A block that grows beyond the classes gets room to
    /// grow again: it is likely to double once more, and room that stays unused is never touched.
    pub(super) fn alloc_grown(&self, old: Layout, new: Layout) -> Result<NonNull<u8>, AllocError> {
        let grows = new.size() > old.size() && class_of(new).is_none();
        if grows && self.ledger.is_none() && !self.supply.is_limited() {
            let room = if new.size() <= MAX_GROWTH / 2 { 4 } else { 2 };
            return self.alloc_large(new, new.size().saturating_mul(room));
        }
        self.alloc::<Report>(new)
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
        let (from, to) = (class_of(old), class_of(new));
        if self.ledger.is_some() {
            return false;
        }
        if from.is_some() && from == to {
            return true;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.resize_across(block, old.align(), from, to, new_size) }
    }

    /// # Safety
    /// As for [`resize`](Self::resize), with the classes of both sizes.
    unsafe fn resize_across(
        &self,
        block: NonNull<u8>,
        align: usize,
        from: Option<Class>,
        to: Option<Class>,
        new_size: usize,
    ) -> bool {
        match (from, to) {
            // SAFETY: passed on to the caller.
            (Some(from), Some(to)) if align <= STEP => unsafe {
                self.lists.resize_last(block, from, to)
            },
            (None, None) => {
                // SAFETY: a large block has its header right before it (invariant 2).
                let header = unsafe { block.cast::<Header>().sub(1).as_ref() };
                let room = header.start.addr().get() + header.size - block.addr().get();
                // A block that shrinks below a quarter of its room moves to a chunk of its size.
                let fits = new_size <= room && room / 4 <= new_size;
                if fits {
                    let bytes = self.large_bytes.get() - header.asked.replace(new_size);
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
        if let Some(ledger) = self.ledger.as_deref() {
            return ledger.live();
        }
        let (blocks, bytes) = self.lists.live();
        (blocks + self.large_blocks.get(), bytes + self.large_bytes.get())
    }

    /// Publishes the live blocks of a named allocator: only those with names are in a report.
    pub(super) fn note_live_if_named(&self) {
        if self.record.is_named() {
            self.note_live();
        }
    }

    /// Publishes the live blocks for threads that ask for a report.
    pub(super) fn note_live(&self) {
        let (blocks, bytes) = self.live();
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
    }

    /// Returns the bytes of all chunks.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Switches to another record, as if nothing had been held before.
    pub(super) fn account_under(&mut self, record: &'static Record) {
        record.held_bytes.set(0);
        record.peak_held_bytes.set(0);
        record.source_calls.set(0);
        record.hold(self.held.get());
        record.chunks.set(self.pieces.get() as u64);
        self.record = record;
    }
}
