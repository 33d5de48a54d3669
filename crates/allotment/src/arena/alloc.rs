//! Allocating: the fast path, and the slow path that opens another window or takes a chunk.
//!
//! The invariants are those of `raw.rs`.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::chunk_header::{end_of, first_of};
use super::chunks::TakenChunk;
use super::raw::{MAX_MIN_ALIGN, RawArena};
use crate::error::{AllocError, ErrorKind, OnFailure, unlikely};
use crate::memory::layout::{MAX_GROWTH, align_up, start_within};
use crate::memory::position_word::{self, MAX_STEP};

impl RawArena {
    /// Memory for one object. If `layout.size() == 0`, an aligned address without memory.
    #[inline(always)]
    pub(crate) fn alloc<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        match self.alloc_fast::<MIN_ALIGN>(layout) {
            Some(object) => Ok(object),
            None => {
                unlikely();
                self.alloc_slow::<F, MIN_ALIGN>(layout)
            }
        }
    }

    /// Memory for one object, if the window has room for it.
    #[inline(always)]
    pub(crate) fn alloc_fast<const MIN_ALIGN: usize>(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        if size == 0 {
            // An alignment is not zero.
            return NonNull::new(ptr::without_provenance_mut(align));
        }
        if size > MAX_STEP || align > MAX_STEP {
            return None;
        }
        let record = self.record();
        let before = record.position_word.fast_get();
        let base = self.base.get();
        let mut start = position_word::offset(before);
        let mut after = before + position_word::object(size, MIN_ALIGN);
        if align > MIN_ALIGN {
            // The base is a multiple of 16. For a larger alignment, use the address.
            let known = if align <= MAX_MIN_ALIGN { start } else { base.addr() + start };
            let padding = known.wrapping_neg() & (align - 1);
            start += padding;
            after += position_word::padding(padding);
        }
        if after >= self.limit.get() {
            unlikely();
            return None;
        }
        record.position_word.fast_set(after);
        // SAFETY: the object ends at the new offset, inside the window (invariant 3). So `start`
        // lies in the chunk that `base` points into, and a base is never null.
        Some(unsafe { NonNull::new_unchecked(base.add(start)) })
    }

    #[inline(always)]
    pub(crate) fn alloc_slow<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        alloc_in_chunk(self, layout.size(), layout.align(), MIN_ALIGN).map_err(F::fail)
    }

    /// As [`alloc`](Self::alloc), and whether the bytes are known to be zero.
    #[inline]
    pub(crate) fn alloc_maybe_zeroed<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<(NonNull<u8>, bool), F::Error> {
        match self.alloc_fast::<MIN_ALIGN>(layout) {
            Some(object) => Ok((object, false)),
            None => self.alloc_in_chunk(layout, MIN_ALIGN, false).map_err(F::fail),
        }
    }

    /// Memory for an object that grew and will probably grow again. If it needs a new chunk, and
    /// the recycler has one with room to grow, it takes that one: chunks double up to
    /// [`MAX_GROWTH`] only, so that a larger object would move each time that it doubles.
    #[inline]
    pub(super) fn alloc_grown<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        if layout.size() < MAX_GROWTH {
            return self.alloc::<F, MIN_ALIGN>(layout);
        }
        self.alloc_in_chunk(layout, MIN_ALIGN, true).map(|(object, _)| object).map_err(F::fail)
    }

    /// Memory for one object in pages of the window that were not touched, after the window, or in
    /// a new chunk; and whether it is zero.
    #[cold]
    fn alloc_in_chunk(
        &self,
        layout: Layout,
        min_align: usize,
        roomy: bool,
    ) -> Result<(NonNull<u8>, bool), AllocError> {
        if self.forget_orphaned_chunks() {
            return Err(AllocError::new(ErrorKind::ForkedChild, layout.size()));
        }
        if let Some(checks) = self.checks() {
            return checks.alloc(self, layout).map(|object| (object, false));
        }
        let (size, align) = (layout.size(), layout.align());
        if let Some(current) = NonNull::new(self.current.get()) {
            let pos = self.pos();
            let start = align_up(pos.addr(), align);
            let end = start.saturating_add(size).checked_next_multiple_of(min_align);
            if end.is_some_and(|end| self.extend_window(end)) {
                let padding = position_word::padding(start - pos.addr());
                let more = position_word::object(size, min_align) + padding;
                self.record().position_word.set(self.record().position_word.get() + more);
                // SAFETY: `pos` is never null, and `start` is not below it, in the same chunk.
                return Ok((unsafe { NonNull::new_unchecked(pos.with_addr(start)) }, false));
            }
            // A multiple of 16, and so of every `MIN_ALIGN`.
            let end = end_of(current).addr().get();
            if let Some(start) = start_within(pos.addr(), align.max(MAX_MIN_ALIGN), size, end) {
                // SAFETY: `pos` is never null, and `start` is not below it, in the same chunk.
                let start = unsafe { NonNull::new_unchecked(pos.with_addr(start)) };
                self.place_before_window(current, start, size);
                return Ok((start, false));
            }
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, size);
        let padded = size.checked_next_multiple_of(MAX_MIN_ALIGN).ok_or(overflow)?;
        let taken = self.take_chunk_for(padded, align, roomy)?;
        let TakenChunk { chunk, zeroed, .. } = taken;
        let first = first_of(chunk);
        let start = align_up(first.addr().get(), align.max(MAX_MIN_ALIGN));
        // SAFETY: the chunk was taken with room for the header, the alignment and the padded size.
        let start = unsafe { first.add(start - first.addr().get()) };
        let left_here = end_of(chunk).addr().get() - start.addr().get() - padded;
        let left_there = self.left_in_current();
        if left_here >= left_there {
            // Continue in the chunk that has more room left.
            self.record().wasted_bytes.add(left_there as u64);
            self.enter_chunk(taken);
            self.place_before_window(chunk, start, size);
        } else {
            self.record().wasted_bytes.add(left_here as u64);
            self.count(1, size as u64);
            // SAFETY: the object lies in the chunk, which the arena has just taken, and no reference
            // to its header exists.
            unsafe { (*chunk.as_ptr()).end_of_objects = start.add(size).as_ptr() };
        }
        Ok((start, zeroed))
    }
}

/// [`RawArena::alloc_in_chunk`] as a function that can't unwind, as its ABI tells the compiler:
/// nothing in it panics, and [sources](crate::Source) don't. A caller that owns the arena would have
/// to drop it if this call unwound. The compiler then keeps what the caller computes on the stack
/// instead of in registers, on the fast path too. A refusal, which may unwind, follows outside.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "called from Rust alone, and the same compiler")]
extern "C" fn alloc_in_chunk(
    arena: &RawArena,
    size: usize,
    align: usize,
    min_align: usize,
) -> Result<NonNull<u8>, AllocError> {
    // SAFETY: the size and the alignment of a layout.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    arena.alloc_in_chunk(layout, min_align, false).map(|(object, _)| object)
}
