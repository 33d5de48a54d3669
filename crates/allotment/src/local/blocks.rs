//! Blocks of any layout from chunks: what a reap and a pool have in common.
//!
//! ```text
//! chunks ──▶ │Header│ blocks of all small classes …          │ ──▶ …      carved by the lists
//! large  ◀─▶ │Header│ one large block                        │ ◀─▶ …
//! ```
//!
//! # Invariants
//!
//! 1. `chunks`, `spare` and `large` head lists of chunks that are held: each is one piece of the supply, noted in its header.
//!    The ranges and the blocks of `lists` lie in those on `chunks`.
//! 2. A chunk on `large` has one live block, right behind its header. `prev` and `next` there are exact.
//! 3. `held` is the sum of all pieces' sizes, `pieces` their number; the record has both. (In pass-through mode its held
//!    bytes are those of malloc's blocks.)
//! 4. One thread at a time has access.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::classes::{Class, STEP, align_of, class_of, common_class_of, size_of};
use super::lists::Lists;
use super::watch::Watch;
use crate::error::{AllocError, ErrorKind, OnFailure, Report};
use crate::memory::layout::{CACHE_LINE, MAX_GROWTH, align_up, chunk_bytes_for};
use crate::memory::{os, tools};
use crate::statistics::Record;

/// One piece of memory, as a supply gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: NonNull<u8>,
    pub size: usize,
    pub align: usize,
    pub link: u32,
    /// It came warm.
    pub recycled: bool,
}

/// Where pieces come from.
pub(super) trait Supply {
    /// The alignment of every piece, at least [`CACHE_LINE`].
    fn align(&self) -> usize;

    /// A piece of at least `need` bytes; if it can be had, of twice the size of the one before (`grown`). On an error
    /// nothing has changed.
    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError>;

    /// Gives pieces back; the calls that it took.
    ///
    /// # Safety
    /// Each came from this supply, is given back once, and nothing refers to it any more.
    unsafe fn give(&self, pieces: &mut dyn Iterator<Item = Piece>, total: usize) -> usize;

    /// Whether a budget says how many bytes there are.
    fn is_limited(&self) -> bool;

    /// Charges bytes that come from elsewhere.
    fn charge(&self, bytes: usize) -> Result<(), AllocError>;

    /// Undoes [`charge`](Self::charge).
    fn credit(&self, bytes: usize);
}

/// The beginning of each chunk; of a large block's, right before the block.
#[derive(Debug)]
#[repr(C, align(64))]
struct Header {
    next: Cell<*mut Header>,
    prev: Cell<*mut Header>,
    start: NonNull<u8>,
    size: usize,
    align: usize,
    link: u32,
    /// It was reserved, and stays until the end.
    stays: Cell<bool>,
    /// The bytes of the large block as they were asked for.
    asked: Cell<usize>,
}

const HEADER: usize = core::mem::size_of::<Header>();
const _: () = assert!(HEADER == CACHE_LINE);

impl Header {
    fn piece(&self) -> Piece {
        let Self { start, size, align, link, .. } = *self;
        Piece { start, size, align, link, recycled: false }
    }
}

/// How chunks grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The bytes of the first chunk, at least.
    pub initial: usize,
    /// The bytes of each further one; if there is none, each is twice the one before, up to 1 MiB.
    pub increment: Option<usize>,
    /// The bytes of freed large blocks that wait for the next ones, at most.
    pub large_kept: usize,
}

/// Blocks of any layout, one by one or all at once. The lists come first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Blocks<S> {
    pub lists: Lists,
    chunks: Cell<*mut Header>,
    spare: Cell<*mut Header>,
    large: Cell<*mut Header>,
    large_blocks: Cell<usize>,
    large_bytes: Cell<usize>,
    grown: Cell<usize>,
    held: Cell<usize>,
    pieces: Cell<usize>,
    pub growth: Growth,
    pub record: &'static Record,
    pub watch: Option<Box<Watch>>,
    pub supply: S,
}

impl<S: Supply> Blocks<S> {
    pub(super) const fn new(
        supply: S,
        growth: Growth,
        record: &'static Record,
        watch: Option<Box<Watch>>,
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
            watch,
            supply,
        }
    }

    /// A block for this layout.
    #[inline(always)]
    pub(super) fn alloc<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        match common_class_of(layout) {
            Some(class) => match self.lists.take(class) {
                Some(block) => Ok(block),
                // Inlined too: in a piece of work's own reap half of the blocks are new.
                None => match self.lists.carve_common(class) {
                    Some(block) => Ok(block),
                    None => self.alloc_others::<F>(layout),
                },
            },
            None => self.alloc_others::<F>(layout),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_others<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.alloc_slowly(layout).map_err(F::fail)
    }

    pub(super) fn alloc_slowly(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if let Some(watch) = self.watch.as_deref() {
            return watch.alloc(self, layout);
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
    /// It came from these blocks with a layout of this size class, was not freed since, and is not used any more.
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
    /// As for [`free`](Self::free), where no list has taken the block.
    #[inline(never)]
    unsafe fn free_others(&self, block: NonNull<u8>, layout: Layout) {
        if let Some(watch) = self.watch.as_deref() {
            self.lists.unput(layout);
            return watch.free(self, block, layout);
        }
        // SAFETY: passed on to the caller. Lists that are not watched take every block.
        unsafe {
            match class_of(layout) {
                Some(class) => {
                    self.lists.put(class, block);
                }
                None => self.free_large(block),
            }
        }
    }

    /// Gives a block another size, where it is if it can be. On an error it is as it was.
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
        // SAFETY: both blocks are the caller's, apart, and so long.
        unsafe {
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
        }
        Ok(fresh)
    }

    /// A block to copy another one to. One that grows beyond the classes gets room to grow again: it may well double
    /// once more, and what it doesn't use is not touched.
    pub(super) fn alloc_grown(&self, old: Layout, new: Layout) -> Result<NonNull<u8>, AllocError> {
        let grows = new.size() > old.size() && class_of(new).is_none();
        if grows && self.watch.is_none() && !self.supply.is_limited() {
            let room = if new.size() <= MAX_GROWTH / 2 { 4 } else { 2 };
            return self.alloc_large(new, new.size().saturating_mul(room));
        }
        self.alloc::<Report>(new)
    }

    /// Whether a block could be given another size where it is.
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
        if self.watch.is_some() {
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
                // SAFETY: a large block has its header before it (invariant 2).
                let header = unsafe { block.cast::<Header>().sub(1).as_ref() };
                let room = header.start.addr().get() + header.size - block.addr().get();
                // A block that has become much smaller moves to a chunk of its size.
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

    // ---- chunks ----

    /// Goes on carving in a chunk with room for a block of this class.
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
                    // What is configured is a wish.
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

    /// Carves from this chunk, which is on no list.
    fn open(&self, chunk: NonNull<Header>) {
        // SAFETY: the chunk is held, and its blocks are nobody's; it is a multiple of a step long.
        unsafe {
            chunk.as_ref().next.set(self.chunks.replace(chunk.as_ptr()));
            let start = chunk.as_ptr().cast::<u8>();
            let (first, end) = (start.add(HEADER), start.add(chunk.as_ref().size));
            match self.watch.as_deref() {
                Some(watch) => watch.open(first, end),
                None => self.lists.open(first, end),
            }
        }
        self.note_live_if_named();
    }

    /// Notes a piece, with its header at this address in it.
    fn hold(&self, piece: Piece, at: NonNull<u8>) -> NonNull<Header> {
        let Piece { start, size, recycled, .. } = piece;
        if self.watch.is_some() {
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

    fn write_header(&self, piece: Piece, at: NonNull<u8>) -> NonNull<Header> {
        let Piece { start, size, align, link, .. } = piece;
        let (next, prev) = (Cell::new(ptr::null_mut()), Cell::new(ptr::null_mut()));
        let (stays, asked) = (Cell::new(false), Cell::new(0));
        let header = Header { next, prev, start, size, align, link, stays, asked };
        // SAFETY: the piece is ours, and has room for a header there, at a multiple of a cache line.
        unsafe { at.cast::<Header>().write(header) };
        at.cast()
    }

    /// A spare chunk of so many bytes to so many.
    fn take_spare(&self, least: usize, most: usize) -> Option<NonNull<Header>> {
        let mut link = &self.spare;
        while let Some(chunk) = NonNull::new(link.get()) {
            // SAFETY: a chunk of our list (invariant 1), which stays where it is while we look.
            let header = unsafe { &*chunk.as_ptr() };
            if (least..=most).contains(&header.size) {
                link.set(header.next.get());
                return Some(chunk);
            }
            link = &header.next;
        }
        None
    }

    /// Keeps the piece of a freed large block for the next ones, if there is room for it.
    fn keep_large(&self, piece: Piece) -> bool {
        if self.growth.large_kept == 0 || self.watch.is_some() {
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

    /// Takes a chunk of at least so many bytes for blocks, and faults its pages in.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), AllocError> {
        if self.watch.as_deref().is_some_and(Watch::has_no_chunks) {
            return Ok(());
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, bytes);
        let need = bytes.checked_add(HEADER).filter(|need| *need <= isize::MAX as usize);
        let piece = self.supply.take(need.ok_or(overflow)?, 0)?;
        self.grown.set(piece.size.min(MAX_GROWTH));
        if os::populate(piece.start, piece.size).is_err() {
            for page in (0..piece.size).step_by(os::page_size()) {
                // SAFETY: the piece is ours, and nobody's yet. Volatile: it is done for the fault.
                unsafe { piece.start.add(page).write_volatile(0) };
            }
        }
        let chunk = self.hold(piece, piece.start);
        // SAFETY: the header was just written.
        unsafe { chunk.as_ref() }.stays.set(true);
        self.open(chunk);
        Ok(())
    }

    // ---- large blocks ----

    /// A large block, with room for so many bytes if that can be had.
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
        // SAFETY: the piece has so many bytes (`chunk_bytes_for`).
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

    /// The piece of a spare chunk that is not much larger than what is wanted, and was not reserved.
    fn take_spare_for_large(&self, need: usize, wanted: usize) -> Option<Piece> {
        if self.growth.large_kept == 0 || self.watch.is_some() {
            return None;
        }
        let chunk = self.take_spare(need, wanted.saturating_mul(2))?;
        // SAFETY: it was a chunk of our list (invariant 1).
        let header = unsafe { chunk.as_ref() };
        if header.stays.get() {
            header.next.set(self.spare.replace(chunk.as_ptr()));
            return None;
        }
        Some(header.piece())
    }

    /// # Safety
    /// A large block of ours, live until now.
    pub(super) unsafe fn free_large(&self, block: NonNull<u8>) {
        // SAFETY: its header lies before it (invariant 2).
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
            // SAFETY: off the list, and its one block is nobody's.
            unsafe { self.give([piece].into_iter(), piece.size) };
        }
        self.note_live_if_named();
    }

    // ---- the end of all blocks ----

    /// Frees every block. Chunks stay for the next ones, those that were reserved and others up to so many bytes, the newest
    /// first; or none at all.
    ///
    /// # Safety
    /// No block is used any more.
    pub(super) unsafe fn clear(&self, keep: Option<usize>) {
        if let Some(watch) = self.watch.as_deref() {
            watch.clear(self);
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
                    if self.watch.is_some() {
                        tools::forbid(header.start, header.size);
                        tools::allow(chunk.cast(), HEADER);
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
        // SAFETY: they are on no list any more, and their blocks are nobody's.
        unsafe { self.give_list(going, total) };
        if self.spare.get().is_null() {
            self.grown.set(0);
        }
        self.note_live_if_named();
    }

    /// The start, and the bytes for blocks, of each chunk that was opened, and whether it was reserved.
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

    /// What was reserved is kept for nobody any more.
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

    /// Gives spare chunks back that were not reserved.
    pub(super) fn give_spare(&self) {
        // SAFETY: nothing in a spare chunk is live or on a list.
        unsafe { self.give_from(&self.spare, |_| true) };
    }

    /// Gives those chunks back whose start says so.
    ///
    /// # Safety
    /// Nothing in them is live, on a list or in the range.
    pub(super) unsafe fn give_chunks(&self, goes: impl Fn(usize) -> bool) {
        // SAFETY: passed on to the caller.
        unsafe { self.give_from(&self.chunks, goes) };
    }

    /// # Safety
    /// As for [`give_chunks`](Self::give_chunks), of one of our lists.
    unsafe fn give_from(&self, list: &Cell<*mut Header>, goes: impl Fn(usize) -> bool) {
        let mut going: *mut Header = ptr::null_mut();
        let mut total = 0;
        let mut link = list;
        while let Some(chunk) = NonNull::new(link.get()) {
            // SAFETY: a chunk of our list (invariant 1), held until below.
            let header = unsafe { &*chunk.as_ptr() };
            if !header.stays.get() && goes(chunk.addr().get()) {
                link.set(header.next.replace(going));
                going = chunk.as_ptr();
                total += header.size;
            } else {
                link = &header.next;
            }
        }
        // SAFETY: they are on no list any more, and nothing of them is used, says the caller.
        unsafe { self.give_list(going, total) };
    }

    /// Gives chunks back that are linked from `first`.
    ///
    /// # Safety
    /// They are on no list of ours, `total` bytes in all, and nothing in them is used.
    unsafe fn give_list(&self, mut first: *mut Header, total: usize) {
        if first.is_null() {
            return;
        }
        let pieces = core::iter::from_fn(|| {
            let chunk = NonNull::new(first)?;
            // SAFETY: held until it is given; its header is read before that.
            let header = unsafe { chunk.as_ref() };
            first = header.next.get();
            Some(header.piece())
        });
        // SAFETY: passed on to the caller.
        unsafe { self.give(pieces, total) };
    }

    /// # Safety
    /// As for [`Supply::give`]; the pieces are held, and `total` bytes.
    unsafe fn give(&self, pieces: impl Iterator<Item = Piece>, total: usize) {
        let mut count = 0;
        let mut pieces = pieces.inspect(|piece| {
            count += 1;
            if self.watch.is_some() {
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

    // ---- statistics ----

    /// Blocks handed out, and their bytes: of small ones those of their classes.
    pub(super) fn live(&self) -> (usize, usize) {
        if let Some(watch) = self.watch.as_deref() {
            return watch.live();
        }
        let (blocks, bytes) = self.lists.live();
        (blocks + self.large_blocks.get(), bytes + self.large_bytes.get())
    }

    /// Lets others read what is live, if they can: a report shows those that have names.
    fn note_live_if_named(&self) {
        if self.record.is_named() {
            self.note_live();
        }
    }

    /// Lets others read what is live.
    pub(super) fn note_live(&self) {
        let (blocks, bytes) = self.live();
        self.record.live_objects.set(blocks as u64);
        self.record.live_bytes.set(bytes as u64);
    }

    /// The bytes of all chunks.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Accounts under another record from now on, as if nothing had been held before.
    pub(super) fn account_under(&mut self, record: &'static Record) {
        record.held_bytes.set(0);
        record.peak_held_bytes.set(0);
        record.source_calls.set(0);
        record.hold(self.held.get());
        record.chunks.set(self.pieces.get() as u64);
        self.record = record;
    }
}
