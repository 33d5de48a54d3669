//! The arena's unsafe core: one position that moves up through chunks.
//!
//! ```text
//! newest                                                  the window lies in `bumped`
//!   │      prev          prev                                  (usually = newest)
//!   ▼    ┌───────┐     ┌───────┐
//! ┌────────────┐ │ ┌────────────┐ │ ┌────────────┐
//! │Header│ obj │ └▶│Header│ obj… │ └▶│Header│ obj… │──▶ null
//! └────────────┘   └────────────┘   └────────────┘
//!
//! │Header│obj│pad│obj│obj│pad│obj│      free       │
//! first                  base    pos               end of the chunk
//!                        └── window, at most 1 MiB ──┘
//! ```
//!
//! An allocation moves `pos = base + offset(word)`. It adds a constant to the record's word, which
//! holds the offset together with the number and the bytes of the objects (memory/word.rs), and
//! compares the sum with `limit`. When the window is full, the word is added to the counters and
//! the next window is opened behind it.
//!
//! # Invariants
//!
//! 1. `newest` heads a list of chunks that only this arena holds, newest first. `spare` heads
//!    another list, of chunks that a reset kept. Each chunk begins with its `Header`, and `size`
//!    bytes from its start are valid. `held_bytes` is the sum of the sizes in both lists; the
//!    budget was charged the same sum.
//! 2. `bumped` is null, or one of the chunks on the `newest` list. If it is null, `base` is
//!    [`DANGLING`] and the window is empty. Otherwise
//!    `first(bumped) <= base <= pos <= end(bumped)`, where `first` is the first byte after the
//!    header and `end` the first byte after the chunk. `first`, `base` and `end` are multiples of
//!    16 (`MIN_ALIGN` is at most 16), and `pos` is a multiple of `MIN_ALIGN`.
//! 3. A word below `limit` has an offset that is at most the window's length, and the window lies
//!    in `[base, end(bumped)]`. `limit` is 0 when the arena is checked: then no allocation passes
//!    the test of the fast path, and the slow path does its checks.
//! 4. Bytes in `[pos, end(bumped))`, and bytes behind the object of a chunk that is not bumped,
//!    belong to no object. Every object lies in `[first, pos)` of `bumped` or in another chunk of
//!    the `newest` list, and no two objects overlap.
//! 5. Between a mark and its rewind, `scope` records where the mark was. Objects of the scope lie
//!    in `[scope.start, scope.end)`, which is the rest of the chunk that was bumped, or in chunks
//!    newer than `scope.newest`. Older objects are not moved, shrunk or freed.
//! 6. One thread at a time has access: the arena is `Send` and not `Sync`, so `Cell` is enough.
//!    Other threads may read the record (see statistics/records.rs).
//! 7. An object in `[base, pos)` was counted in the word, and any other object in the counters,
//!    which may be negative: the live objects are counters plus word. An object counted in the word
//!    that shrinks is subtracted from the word.
//! 8. `behind` is null, or the start of the one object that was placed last before the window was
//!    opened at that object's end, rounded up to 16.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::builder::Settings;
use super::checked_objects::CheckedObjects;
use super::chunks::{Header, end_of, first_of};
use super::rewind::ScopeStart;
use crate::error::{AllocError, ErrorKind, OnFailure};
use crate::memory::layout::align_up;
use crate::memory::source::SharedSource;
use crate::memory::word::{self, MAX_STEP, WINDOW};
use crate::statistics::{AllocatorKind, Record};

/// The largest minimum alignment. Every window's base and every chunk's end have this alignment.
pub(crate) const MAX_MIN_ALIGN: usize = 16;

/// The base while there is no chunk. The window is empty then, so this address is never accessed.
pub(super) const DANGLING: *mut u8 = ptr::without_provenance_mut(MAX_MIN_ALIGN);

/// The state of an arena. The fast path, here and in C (`frozen.rs`), uses its first three words
/// and the first word of the record.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawArena {
    pub(super) base: Cell<*mut u8>,
    pub(super) limit: Cell<u64>,
    record: &'static Record,
    /// The object that ends where the window begins, if placing it there was the last operation;
    /// otherwise null.
    pub(super) behind: Cell<*mut u8>,
    pub(super) bumped: Cell<*mut Header>,
    pub(super) newest: Cell<*mut Header>,
    pub(super) spare: Cell<*mut Header>,
    /// The size of the last chunk taken for growth; the next chunk has twice that size. 0 before
    /// the first chunk.
    pub(super) grown: Cell<usize>,
    pub(super) scope: Cell<ScopeStart>,
    /// The requested size of the first chunk, in bytes.
    pub(super) hint: usize,
    checked: Option<Box<CheckedObjects>>,
    settings: Option<Box<Settings>>,
}

// SAFETY: only this arena owns its chunks (invariant 1), sources and budgets are `Send` and `Sync`,
// and the pointers in the cells point into the arena's own chunks.
unsafe impl Send for RawArena {}

static DEFAULTS: Settings = Settings::new();

/// Tells the compiler that the branch containing this call is rare, so that its code is moved out
/// of the way.
#[cold]
#[inline(always)]
pub(super) const fn unlikely() {}

impl RawArena {
    /// The offset of the record's address, for inline C code.
    #[allow(dead_code, reason = "Rust 1.85 does not see its use in a constant")]
    pub(super) const RECORD_AT: usize = core::mem::offset_of!(Self, record);

    /// An arena. With a hint above zero it takes its first chunk immediately.
    pub(crate) fn new(hint: usize, settings: Option<Box<Settings>>) -> Result<Self, AllocError> {
        let given = settings.as_deref().unwrap_or(&DEFAULTS);
        let record = Record::acquire(AllocatorKind::Arena, given.name.as_deref())?;
        let checked = CheckedObjects::wanted(given.hardened, given.name.as_deref());
        let arena = Self {
            base: Cell::new(DANGLING),
            limit: Cell::new(0),
            record,
            behind: Cell::new(ptr::null_mut()),
            bumped: Cell::new(ptr::null_mut()),
            newest: Cell::new(ptr::null_mut()),
            spare: Cell::new(ptr::null_mut()),
            grown: Cell::new(0),
            scope: Cell::new(ScopeStart::NONE),
            hint,
            checked,
            settings,
        };
        if hint > 0 {
            // If this fails, the arena is dropped, and its drop returns the record.
            arena.take_hinted_chunk()?;
        }
        Ok(arena)
    }

    #[inline]
    pub(super) fn settings(&self) -> &Settings {
        self.settings.as_deref().unwrap_or(&DEFAULTS)
    }

    #[inline]
    pub(crate) fn record(&self) -> &'static Record {
        self.record
    }

    #[inline]
    pub(super) fn checked(&self) -> Option<&CheckedObjects> {
        self.checked.as_deref()
    }

    pub(super) fn source(&self) -> &SharedSource {
        &self.settings().source
    }

    /// Where the next object begins.
    #[inline]
    pub(super) fn pos(&self) -> *mut u8 {
        self.base.get().wrapping_add(word::offset(self.record.word.get()))
    }

    /// The free bytes behind `pos`.
    pub(super) fn left_in_bumped(&self) -> usize {
        match NonNull::new(self.bumped.get()) {
            Some(bumped) => end_of(bumped).addr().get() - self.pos().addr(),
            None => 0,
        }
    }

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
        let record = self.record;
        let before = record.word.get();
        let base = self.base.get();
        let mut start = word::offset(before);
        let mut after = before + word::object(size, MIN_ALIGN);
        if align > MIN_ALIGN {
            // The base is a multiple of 16. For a larger alignment, use the address.
            let known = if align <= MAX_MIN_ALIGN { start } else { base.addr() + start };
            let padding = known.wrapping_neg() & (align - 1);
            start += padding;
            after += word::padding(padding);
        }
        if after >= self.limit.get() {
            unlikely();
            return None;
        }
        record.word.set(after);
        // SAFETY: the object ends at the new offset, inside the window (invariant 3). So `start`
        // lies in the chunk that `base` points into, and a base is never null.
        Some(unsafe { NonNull::new_unchecked(base.add(start)) })
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        self.alloc_in_chunk(layout).map(|(object, _)| object).map_err(F::fail)
    }

    /// As [`alloc`](Self::alloc), and whether the bytes are known to be zero.
    #[inline]
    pub(crate) fn alloc_maybe_zeroed<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<(NonNull<u8>, bool), F::Error> {
        match self.alloc_fast::<MIN_ALIGN>(layout) {
            Some(object) => Ok((object, false)),
            None => self.alloc_in_chunk(layout).map_err(F::fail),
        }
    }

    /// Memory for one object behind the window, or in a new chunk; and whether it is zero.
    #[cold]
    fn alloc_in_chunk(&self, layout: Layout) -> Result<(NonNull<u8>, bool), AllocError> {
        if let Some(checked) = self.checked() {
            return self.checked_alloc(checked, layout).map(|object| (object, false));
        }
        let (size, align) = (layout.size(), layout.align());
        if let Some(bumped) = NonNull::new(self.bumped.get()) {
            let pos = self.pos();
            // A multiple of 16, and so of every `MIN_ALIGN`.
            let start = align_up(pos.addr(), align.max(MAX_MIN_ALIGN));
            if start.wrapping_add(size) <= end_of(bumped).addr().get() {
                // SAFETY: `pos` is never null, and `start` is not below it, in the same chunk.
                let start = unsafe { NonNull::new_unchecked(pos.with_addr(start)) };
                self.place_behind_window(bumped, start, size);
                return Ok((start, false));
            }
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, size);
        let padded = size.checked_next_multiple_of(MAX_MIN_ALIGN).ok_or(overflow)?;
        let (chunk, zeroed) = self.take_chunk_for(padded, align)?;
        let first = first_of(chunk);
        let start = align_up(first.addr().get(), align.max(MAX_MIN_ALIGN));
        // SAFETY: the chunk was taken with room for the header, the alignment and the padded size.
        let start = unsafe { first.add(start - first.addr().get()) };
        let left_here = end_of(chunk).addr().get() - start.addr().get() - padded;
        let left_there = self.left_in_bumped();
        if left_here >= left_there {
            // Continue in the chunk that has more room left.
            self.record.wasted_bytes.add(left_there as u64);
            self.place_behind_window(chunk, start, size);
        } else {
            self.record.wasted_bytes.add(left_here as u64);
            self.count(1, size as u64);
        }
        Ok((start, zeroed))
    }

    /// Counts objects that lie before the window, or in a chunk that is not bumped (invariant 7).
    fn count(&self, objects: u64, bytes: u64) {
        self.record.live_objects.add(objects);
        self.record.live_bytes.add(bytes);
    }

    /// Puts an object at `start`, behind all other objects of its chunk, and opens the next window
    /// behind it.
    pub(super) fn place_behind_window(
        &self,
        chunk: NonNull<Header>,
        start: NonNull<u8>,
        size: usize,
    ) {
        self.fold();
        self.count(1, size as u64);
        self.open_window(chunk, start.addr().get() + size);
        self.behind.set(start.as_ptr());
    }

    /// Adds the word to the counters and clears it. The caller must open a window next.
    pub(super) fn fold(&self) {
        let word = self.record.word.get();
        self.record.word.set(0);
        self.count(word::objects(word), word::bytes(word));
    }

    /// Opens a window in this chunk at the address `from`, rounded up to 16. The word must be 0.
    pub(super) fn open_window(&self, chunk: NonNull<Header>, from: usize) {
        let end = end_of(chunk).addr().get();
        let base = align_up(from, MAX_MIN_ALIGN);
        debug_assert!(base <= end && self.record.word.get() == 0);
        self.bumped.set(chunk.as_ptr());
        self.behind.set(ptr::null_mut());
        // Use the chunk's provenance. That of a caller's pointer may reach only one object.
        self.base.set(chunk.as_ptr().cast::<u8>().with_addr(base));
        let window = (end - base).min(WINDOW);
        self.limit.set(if self.checked.is_some() { 0 } else { word::limit(window) });
    }

    /// Closes the window: no chunk is bumped.
    pub(super) fn close_window(&self) {
        self.record.word.set(0);
        self.bumped.set(ptr::null_mut());
        self.behind.set(ptr::null_mut());
        self.base.set(DANGLING);
        self.limit.set(0);
    }

    /// The current window, for [`restore_window`](Self::restore_window).
    pub(super) fn window(&self) -> (*mut u8, u64) {
        (self.base.get(), self.record.word.get())
    }

    /// Opens a window again in its former state.
    pub(super) fn restore_window(&self, chunk: NonNull<Header>, (base, word): (*mut u8, u64)) {
        self.record.word.set(0);
        self.open_window(chunk, base.addr());
        self.record.word.set(word);
    }

    /// For checked arenas: moves `pos` up by `bytes`, a multiple of 16 that the chunk has left.
    pub(super) fn advance(&self, bytes: usize) -> NonNull<u8> {
        debug_assert!(bytes <= self.left_in_bumped() && bytes % MAX_MIN_ALIGN == 0);
        let base = self.base.get();
        self.base.set(base.wrapping_add(bytes));
        NonNull::new(base).expect("a base is never null")
    }
}
