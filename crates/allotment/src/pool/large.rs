//! Blocks that are too large for a class: each has a piece of its own.
//!
//! The invariants are those of blocks.rs.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use super::blocks::Blocks;
use super::pieces::{HEADER, Header, Piece, Supply};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{CACHE_LINE, align_up, chunk_bytes_for};

impl<S: Supply> Blocks<S> {
    /// Allocates a large block, with room for `room` bytes if that much memory is available.
    pub(super) fn alloc_large(
        &self,
        layout: Layout,
        room: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let align = layout.align().max(CACHE_LINE);
        let size = layout.size().max(1);
        let need = chunk_bytes_for(HEADER, size, align, self.supply.align()).ok_or(overflow)?;
        let wanted = need.saturating_add(room - layout.size());
        let spare = self.take_spare_for_large(need, wanted);
        let piece = match spare {
            Some(piece) => piece,
            None if wanted > need => {
                self.supply.take(wanted, 0).or_else(|_| self.supply.take(need, 0))?
            }
            None => self.supply.take(need, 0)?,
        };
        let start = piece.start.addr().get();
        // SAFETY: the piece is large enough (`chunk_bytes_for`).
        let block = unsafe { piece.start.add(align_up(start + HEADER, align) - start) };
        // SAFETY: as above.
        let at = unsafe { block.sub(HEADER) };
        let header =
            if spare.is_some() { self.write_header(piece, at) } else { self.hold(piece, at) };
        // SAFETY: the header was just written.
        let header = unsafe { header.as_ref() };
        header.asked.set(layout.size());
        let first = self.large.replace(ptr::from_ref(header).cast_mut());
        header.next.set(first);
        if let Some(first) = NonNull::new(first) {
            // SAFETY: a chunk of our list (invariant 1).
            unsafe { first.as_ref() }.prev.set(ptr::from_ref(header).cast_mut());
        }
        self.large_blocks.set(self.large_blocks.get() + 1);
        self.large_bytes.set(self.large_bytes.get() + layout.size());
        self.note_live_if_named();
        Ok(block)
    }

    /// Takes a spare chunk that is at most twice as large as wanted, and not reserved.
    pub(super) fn take_spare_for_large(&self, need: usize, wanted: usize) -> Option<Piece> {
        if self.growth.large_kept == 0 || self.ledger.is_some() {
            return None;
        }
        let chunk = self.take_spare(need, wanted.saturating_mul(2))?;
        // SAFETY: it was a chunk of our list (invariant 1), and is still held.
        let header = unsafe { chunk.as_ref() };
        if header.stays.get() {
            header.next.set(self.spare.replace(chunk.as_ptr()));
            return None;
        }
        Some(header.piece())
    }

    /// # Safety
    /// The block is a large block of this value, and has not been freed.
    pub(super) unsafe fn free_large(&self, block: NonNull<u8>) {
        // SAFETY: its header lies right before it (invariant 2).
        let header = unsafe { block.cast::<Header>().sub(1).as_ref() };
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
        self.large_bytes.set(self.large_bytes.get() - header.asked.get());
        let piece = header.piece();
        if !self.keep_large(piece) {
            // SAFETY: the chunk is off the list, and its one block is free.
            unsafe { self.give([piece].into_iter(), piece.size) };
        }
        self.note_live_if_named();
    }

    /// Keeps the piece of a freed large block for later ones, if the kept bytes stay within the
    /// limit.
    pub(super) fn keep_large(&self, piece: Piece) -> bool {
        if self.growth.large_kept == 0 || self.ledger.is_some() {
            return false;
        }
        let mut kept = piece.size;
        let mut next = self.spare.get();
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            kept += header.size;
            next = header.next.get();
        }
        if kept > self.growth.large_kept {
            return false;
        }
        let chunk = self.write_header(piece, piece.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.next.set(self.spare.replace(chunk.as_ptr()));
        true
    }
}
