//! The chunks beneath the blocks: taking new ones, keeping and giving back empty ones.
//!
//! The invariants are those of blocks.rs.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::blocks::Blocks;
use super::classes::{Class, align_of, size_of};
use super::pieces::{HEADER, Header, Piece, Supply};
use crate::checked::Ledger;
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::{MAX_GROWTH, chunk_bytes_for};
use crate::memory::{os, tools};

impl<S: Supply> Blocks<S> {
    /// Opens a chunk with room for a block of this class.
    pub(super) fn grow(&self, class: Class) -> Result<(), AllocError> {
        let need = chunk_bytes_for(HEADER, size_of(class), align_of(class), self.supply.align())
            .expect("a class is small");
        let chunk = match self.take_spare(need, usize::MAX) {
            Some(chunk) => chunk,
            None => {
                let first = self.grown.get() == 0;
                let (wanted, grown) = match self.growth.increment {
                    Some(increment) if !first => (increment, 0),
                    _ if first => (self.growth.initial, 0),
                    _ => (0, self.grown.get()),
                };
                let piece = match self.supply.take(need.max(wanted), grown) {
                    Ok(piece) => piece,
                    // The configured size is a preference: retry with what is needed.
                    Err(_) if wanted > need => self.supply.take(need, 0)?,
                    Err(error) => return Err(error),
                };
                self.grown.set(piece.size.min(MAX_GROWTH));
                self.hold(piece, piece.start)
            }
        };
        self.open(chunk);
        Ok(())
    }

    /// Carves new blocks from this chunk, which is on no list.
    pub(super) fn open(&self, chunk: NonNull<Header>) {
        // SAFETY: the chunk is held, nothing uses its blocks, and its size is a multiple of a step.
        unsafe {
            chunk.as_ref().next.set(self.chunks.replace(chunk.as_ptr()));
            let start = chunk.as_ptr().cast::<u8>();
            let (first, end) = (start.add(HEADER), start.add(chunk.as_ref().size));
            match self.ledger {
                Some(_) => self.checked_range.open(first, end),
                None => self.lists.open(first, end),
            }
        }
        self.note_live_if_named();
    }

    /// Accounts for a new piece and writes its header at `at`, an address inside it.
    pub(super) fn hold(&self, piece: Piece, at: NonNull<u8>) -> NonNull<Header> {
        let Piece { start, size, recycled, .. } = piece;
        if self.ledger.is_some() {
            tools::forbid(start, size);
            tools::allow(at, HEADER);
        }
        let chunk = self.write_header(piece, at);
        self.held.set(self.held.get() + size);
        self.pieces.set(self.pieces.get() + 1);
        self.record.hold(size);
        self.record.chunks.add(1);
        if recycled {
            self.record.recycled_chunks.add(1);
        } else {
            self.record.source_calls.add(1);
        }
        chunk
    }

    pub(super) fn write_header(&self, piece: Piece, at: NonNull<u8>) -> NonNull<Header> {
        let Piece { start, size, align, link, .. } = piece;
        let (next, prev) = (Cell::new(ptr::null_mut()), Cell::new(ptr::null_mut()));
        let (stays, asked) = (Cell::new(false), Cell::new(0));
        let header = Header { next, prev, start, size, align, link, stays, asked };
        // SAFETY: the piece is held and has room for a header at `at`, which is a multiple of a
        // cache line.
        unsafe { at.cast::<Header>().write(header) };
        at.cast()
    }

    /// Takes a spare chunk whose size is in `least..=most`.
    pub(super) fn take_spare(&self, least: usize, most: usize) -> Option<NonNull<Header>> {
        let mut link = &self.spare;
        while let Some(chunk) = NonNull::new(link.get()) {
            // SAFETY: a chunk of our list (invariant 1), which stays there during the search.
            let header = unsafe { &*chunk.as_ptr() };
            if (least..=most).contains(&header.size) {
                link.set(header.next.get());
                return Some(chunk);
            }
            link = &header.next;
        }
        None
    }

    /// Takes a chunk with at least `bytes` bytes for blocks, and faults its pages in.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), AllocError> {
        if self.ledger.as_deref().is_some_and(Ledger::is_passthrough) {
            return Ok(());
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, bytes);
        let need = bytes.checked_add(HEADER).filter(|need| *need <= isize::MAX as usize);
        let piece = self.supply.take(need.ok_or(overflow)?, 0)?;
        self.grown.set(piece.size.min(MAX_GROWTH));
        if os::populate(piece.start, piece.size).is_err() {
            for page in (0..piece.size).step_by(os::page_size()) {
                // SAFETY: the piece is new, and nothing uses it yet. Volatile, because only the
                // page fault matters.
                unsafe { piece.start.add(page).write_volatile(0) };
            }
        }
        let chunk = self.hold(piece, piece.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.stays.set(true);
        self.open(chunk);
        Ok(())
    }

    /// Frees every block. With `Some(keep)`, reserved chunks stay for later blocks, and other
    /// chunks up to that many bytes, the newest first. With `None`, no chunk stays.
    ///
    /// # Safety
    /// No block is used again.
    pub(super) unsafe fn clear(&self, keep: Option<usize>) {
        if let Some(ledger) = self.ledger.as_deref() {
            self.checked_clear(ledger);
        }
        self.lists.clear();
        let mut kept: *mut Header = ptr::null_mut();
        let mut left = keep.unwrap_or(0);
        let mut going: *mut Header = ptr::null_mut();
        let mut total = 0;
        for list in [&self.chunks, &self.spare, &self.large] {
            let mut next = list.replace(ptr::null_mut());
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: a chunk of our list (invariant 1).
                let header = unsafe { chunk.as_ref() };
                next = header.next.get();
                let is_large = ptr::eq(list, &self.large);
                let reserved = header.stays.get() && keep.is_some();
                if reserved || header.size <= left && !is_large {
                    left -= if reserved { 0 } else { header.size };
                    if self.ledger.is_some() {
                        tools::forbid(header.start, header.size);
                        tools::allow_defined(chunk.cast(), HEADER);
                    }
                    header.next.set(kept);
                    kept = chunk.as_ptr();
                } else {
                    total += header.size;
                    header.next.set(going);
                    going = chunk.as_ptr();
                }
            }
        }
        self.spare.set(kept);
        self.large_blocks.set(0);
        self.large_bytes.set(0);
        // SAFETY: the chunks are on no list any more, and nothing uses their blocks.
        unsafe { self.give_list(going, total) };
        if self.spare.get().is_null() {
            self.grown.set(0);
        }
        self.note_live_if_named();
    }

    /// Returns the start of each opened chunk, its bytes for blocks, and whether it is reserved.
    pub(super) fn each_chunk(&self) -> impl Iterator<Item = (usize, usize, bool)> + use<'_, S> {
        let mut next = self.chunks.get();
        core::iter::from_fn(move || {
            let chunk = NonNull::new(next)?;
            // SAFETY: a chunk of our list (invariant 1).
            let header = unsafe { chunk.as_ref() };
            next = header.next.get();
            Some((chunk.addr().get(), header.size - HEADER, header.stays.get()))
        })
    }

    /// Makes reserved chunks ordinary ones.
    pub(super) fn unreserve(&self) {
        for list in [&self.chunks, &self.spare] {
            let mut next = list.get();
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: a chunk of our list (invariant 1).
                let header = unsafe { chunk.as_ref() };
                header.stays.set(false);
                next = header.next.get();
            }
        }
    }

    /// Gives back the spare chunks that are not reserved.
    pub(super) fn give_spare(&self) {
        // SAFETY: nothing in a spare chunk is live or on a list.
        unsafe { self.give_from(&self.spare, |_| true) };
    }

    /// Gives back the chunks for whose start address `goes` returns `true`, except reserved ones.
    ///
    /// # Safety
    /// Nothing in these chunks is live, on a free list or in the range.
    pub(super) unsafe fn give_chunks(&self, goes: impl Fn(usize) -> bool) {
        // SAFETY: passed on to the caller.
        unsafe { self.give_from(&self.chunks, goes) };
    }

    /// # Safety
    /// As for [`give_chunks`](Self::give_chunks), for one of the lists of this value.
    pub(super) unsafe fn give_from(&self, list: &Cell<*mut Header>, goes: impl Fn(usize) -> bool) {
        let mut going: *mut Header = ptr::null_mut();
        let mut total = 0;
        let mut link = list;
        while let Some(chunk) = NonNull::new(link.get()) {
            // SAFETY: a chunk of our list (invariant 1), held until `give_list` below.
            let header = unsafe { &*chunk.as_ptr() };
            if !header.stays.get() && goes(chunk.addr().get()) {
                link.set(header.next.replace(going));
                going = chunk.as_ptr();
                total += header.size;
            } else {
                link = &header.next;
            }
        }
        // SAFETY: the chunks are on no list any more, and the caller ensures that nothing in them
        // is used.
        unsafe { self.give_list(going, total) };
    }

    /// Gives back the chunks that are linked from `first`.
    ///
    /// # Safety
    /// The chunks are held but on no list, `total` is the sum of their sizes, and nothing in them
    /// is used.
    pub(super) unsafe fn give_list(&self, mut first: *mut Header, total: usize) {
        if first.is_null() {
            return;
        }
        let pieces = core::iter::from_fn(|| {
            let chunk = NonNull::new(first)?;
            // SAFETY: the chunk is held until it is given back, and its header is read before that.
            let header = unsafe { chunk.as_ref() };
            first = header.next.get();
            Some(header.piece())
        });
        // SAFETY: passed on to the caller.
        unsafe { self.give(pieces, total) };
    }

    /// # Safety
    /// As for [`Supply::give`]. The pieces are held, and `total` is the sum of their sizes.
    pub(super) unsafe fn give(&self, pieces: impl Iterator<Item = Piece>, total: usize) {
        let mut count = 0;
        let mut pieces = pieces.inspect(|piece| {
            count += 1;
            if self.ledger.is_some() {
                tools::allow_defined(piece.start, piece.size);
            }
        });
        // SAFETY: passed on to the caller.
        let calls = unsafe { self.supply.give(&mut pieces, total) };
        self.record.source_calls.add(calls as u64);
        self.pieces.set(self.pieces.get() - count);
        self.held.set(self.held.get() - total);
        self.record.chunks.sub(count as u64);
        self.record.held_bytes.sub(total as u64);
    }
}
