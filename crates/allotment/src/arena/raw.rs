//! The state of an arena: one position that moves up through chunks.
//!
//! ```text
//! newest                                                  the window lies in `current`
//!   │      prev          prev                                  (usually = newest)
//!   ▼    ┌───────┐     ┌───────┐
//! ┌────────────┐ │ ┌────────────┐ │ ┌────────────┐
//! │header│ obj │ └▶│header│ obj… │ └▶│header│ obj… │──▶ null
//! └────────────┘   └────────────┘   └────────────┘
//!
//! │header│obj│pad│obj│obj│pad│obj│      free       │
//! first                  base    pos               end of the chunk
//!                        └── window, at most 1 MiB ──┘
//! ```
//!
//! An allocation moves `pos = base + offset(word)`. It adds a constant to the record's word, which
//! holds the offset together with the number and the bytes of the objects
//! (memory/position_word.rs), and compares the sum with `limit`. When the window is full, the word
//! is added to the counters and the next window is opened after it.
//!
//! # Invariants
//!
//! 1. `newest` heads a list of chunks that only this arena holds, newest first. `spare_chunks`
//!    heads another list, of chunks that a reset kept. Each chunk begins with its
//!    `ArenaChunkHeader`, and `size` bytes from its start are valid. `held_bytes` is the sum of the
//!    sizes in both lists; the budget was charged the same sum.
//! 2. `current` is null, or one of the chunks on the `newest` list. If it is null, `base` is
//!    [`DANGLING`] and the window is empty. Otherwise
//!    `first(current) <= base <= pos <= end(current)`, where `first` is the first byte after the
//!    header and `end` the first byte after the chunk. `first`, `base` and `end` are multiples of
//!    16 (`MIN_ALIGN` is at most 16), and `pos` is a multiple of `MIN_ALIGN`.
//! 3. A word below `limit` has an offset that is at most the window's length, and the window lies
//!    in `[base, end(current)]`. `limit` is 0 when the arena is checked: then no allocation passes
//!    the test of the fast path, and the slow path does its checks.
//! 4. Bytes in `[pos, end(current))`, and bytes after the object of a chunk that is not current,
//!    belong to no object. Every object lies in `[first, pos)` of `current` or in another chunk of
//!    the `newest` list, and no two objects overlap. In a chunk of that list which is not current,
//!    every object ends at or before `end_of_objects`.
//! 5. While a scope is open, the window begins at or after the scope's start, or lies in a chunk
//!    that was taken after that; and `before_window` is not older than the scope. So the last
//!    object (numbers 7 and 8) is the scope's. An older object keeps its bytes: a call that frees
//!    or shrinks it changes the counters only, which the rewind sets back. `scope` records where
//!    the scope began. Its objects lie in `[scope.start, scope.end)`, which is the rest of the
//!    chunk that was current, or in chunks newer than `scope.newest`.
//! 6. One thread at a time has access: the arena is `Send` and not `Sync`, so `Cell` is enough.
//!    Other threads may read the record (see statistics/records.rs).
//! 7. An object in `[base, pos)` was counted in the word, and any other object in the counters,
//!    which may be negative: the live objects are counters plus word. An object counted in the word
//!    that shrinks is subtracted from the word.
//! 8. `before_window` is null, or the start of the object that was placed last before the window
//!    was opened at that object's end, rounded up to 16.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::cell::Cell;
use core::fmt::Debug;
use core::ptr::{self, NonNull};

use super::chunk_header::{ArenaChunkHeader, end_of};
use super::position::OpenScope;
use super::settings::ArenaSettings;
use crate::error::AllocError;
use crate::memory::layout::align_up;
use crate::memory::os;
use crate::memory::position_word::{self, WINDOW};
use crate::memory::source::SharedSource;
use crate::statistics::{HeldRecord, RecordRef, record_ref};

/// The largest minimum alignment. Every window's base and every chunk's end have this alignment.
pub(crate) const MAX_MIN_ALIGN: usize = 16;

/// The bytes of untouched pages that are faulted in at once, and so the most that an arena touches
/// beyond its last object. One system call for 16 pages of 4 KiB takes about a fifth less time than
/// 16 page faults.
const POPULATED_AT_ONCE: usize = 64 << 10;
/// In a shorter chunk, pages are faulted in one by one.
pub(super) const MIN_POPULATED_CHUNK: usize = 2 * POPULATED_AT_ONCE;

/// The base while there is no chunk. The window is empty then, so this address is never accessed.
pub(super) const DANGLING: *mut u8 = ptr::without_provenance_mut(MAX_MIN_ALIGN);

/// The state of an arena. The fast path, here and in C (`c_layout.rs`), uses its first three words
/// and the first word of the record.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawArena {
    pub(super) base: Cell<*mut u8>,
    pub(super) limit: Cell<u64>,
    record: HeldRecord,
    /// The object that ends where the window begins, if placing it there was the last operation;
    /// otherwise null.
    pub(super) before_window: Cell<*mut u8>,
    /// The chunk that holds the window.
    pub(super) current: Cell<*mut ArenaChunkHeader>,
    pub(super) newest: Cell<*mut ArenaChunkHeader>,
    /// Chunks that a reset kept.
    pub(super) spare_chunks: Cell<*mut ArenaChunkHeader>,
    /// The size of the last chunk taken for growth; the next chunk has twice that size. 0 before
    /// the first chunk.
    pub(super) growth_size: Cell<usize>,
    /// The first address in the current chunk from which on no page was touched, or `usize::MAX`.
    /// See [`open_window`](Self::open_window).
    pub(super) untouched_from: Cell<usize>,
    pub(super) scope: Cell<OpenScope>,
    /// The requested size of the first chunk, in bytes.
    pub(super) hint: usize,
    checks: Option<Box<dyn ArenaChecks>>,
    settings: Option<Box<ArenaSettings>>,
}

// SAFETY: only this arena owns its chunks (invariant 1), sources and budgets are `Send` and `Sync`,
// and the pointers in the cells and in the checks point into the arena's own chunks.
unsafe impl Send for RawArena {}

/// What a checked arena does in each slow path, in addition to what an ordinary arena does there,
/// or instead of it. It records every object.
pub(super) trait ArenaChecks: Debug {
    /// Whether each object is a malloc block.
    fn has_no_chunks(&self) -> bool;

    /// The unit of chunks that are registered as segments, or 1.
    fn segment_unit(&self, source: &SharedSource) -> usize;

    /// The number of the next object. All objects that are allocated later have a number that is
    /// not below it.
    fn next_number(&self) -> u64;

    /// A chunk was taken. It holds only its header. On an error nothing has changed.
    fn chunk_taken(
        &self,
        record: RecordRef<'_>,
        start: NonNull<u8>,
        size: usize,
        registered: bool,
    ) -> Result<(), AllocError>;

    /// A chunk is about to go back to its source.
    fn chunk_released(&self, start: NonNull<u8>, size: usize, registered: bool);

    /// Marks bytes of a chunk as belonging to no object.
    fn fill_free(&self, start: *mut u8, len: usize);

    /// Checks, before free bytes of a chunk are given up, that no stray write changed them.
    fn check_free(&self, start: *mut u8, len: usize);

    /// Memory for one object. The size must not be zero.
    fn alloc(&self, arena: &RawArena, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Frees one object. An object from outside the open scope stays as it is, and is only counted
    /// as freed.
    fn free(&self, arena: &RawArena, object: NonNull<u8>, layout: Layout);

    /// Makes one object smaller. It stays in place, except that malloc may move it in pass-through
    /// mode. An object from outside the open scope stays as it is, and is only counted as smaller.
    /// The new size must not be zero.
    fn shrink(
        &self,
        arena: &RawArena,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> NonNull<u8>;

    /// The objects from this number on are gone. Checks the bytes that they left.
    fn rewound(&self, arena: &RawArena, first: u64);
}

static DEFAULTS: ArenaSettings = ArenaSettings::DEFAULT;

impl RawArena {
    /// The offset of the record's address, for inline C code.
    #[cfg(system_memory)]
    #[allow(dead_code, reason = "Rust 1.85 does not see its use in a constant")]
    pub(super) const RECORD_AT: usize = core::mem::offset_of!(Self, record);

    /// An arena without chunks.
    #[inline(always)]
    pub(super) fn empty(
        hint: usize,
        record: HeldRecord,
        checks: Option<Box<dyn ArenaChecks>>,
        settings: Option<Box<ArenaSettings>>,
    ) -> Self {
        Self {
            base: Cell::new(DANGLING),
            limit: Cell::new(0),
            record,
            before_window: Cell::new(ptr::null_mut()),
            current: Cell::new(ptr::null_mut()),
            newest: Cell::new(ptr::null_mut()),
            spare_chunks: Cell::new(ptr::null_mut()),
            growth_size: Cell::new(0),
            untouched_from: Cell::new(usize::MAX),
            scope: Cell::new(OpenScope::NONE),
            hint,
            checks,
            settings,
        }
    }

    #[inline]
    pub(super) fn settings(&self) -> &ArenaSettings {
        self.settings.as_deref().unwrap_or(&DEFAULTS)
    }

    #[inline]
    pub(crate) fn record(&self) -> RecordRef<'_> {
        record_ref(&self.record)
    }

    #[inline]
    pub(super) fn checks(&self) -> Option<&dyn ArenaChecks> {
        self.checks.as_deref()
    }

    pub(super) fn source(&self) -> &SharedSource {
        &self.settings().common.source
    }

    /// Where the next object begins.
    #[inline]
    pub(super) fn pos(&self) -> *mut u8 {
        self.base.get().wrapping_add(position_word::offset(self.record.position_word.get()))
    }

    /// The free bytes after `pos`.
    pub(super) fn left_in_current(&self) -> usize {
        match NonNull::new(self.current.get()) {
            Some(current) => end_of(current).addr().get() - self.pos().addr(),
            None => 0,
        }
    }

    /// Counts objects that lie before the window, or in a chunk that is not current (invariant 7).
    pub(super) fn count(&self, objects: u64, bytes: u64) {
        self.record.live_objects.add(objects);
        self.record.live_bytes.add(bytes);
    }

    /// Puts an object at `start`, after all other objects of its chunk, and opens the next window
    /// after it.
    pub(super) fn place_before_window(
        &self,
        chunk: NonNull<ArenaChunkHeader>,
        start: NonNull<u8>,
        size: usize,
    ) {
        self.fold();
        self.count(1, size as u64);
        self.open_window(chunk, start.addr().get() + size);
        self.before_window.set(start.as_ptr());
    }

    /// Adds the word to the counters and clears it. The caller must open a window next.
    pub(super) fn fold(&self) {
        let word = self.record.position_word.get();
        self.record.position_word.set(0);
        self.count(position_word::objects(word), position_word::bytes(word));
    }

    /// Opens a window in this chunk at the address `from`, rounded up to 16. The word must be 0.
    ///
    /// In a chunk whose pages were not touched, the window ends where the touched pages end, until
    /// [`extend_window`](Self::extend_window) moves its end. If it begins there, the next pages are
    /// faulted in.
    pub(super) fn open_window(&self, chunk: NonNull<ArenaChunkHeader>, from: usize) {
        let mut end = end_of(chunk).addr().get();
        let base = align_up(from, MAX_MIN_ALIGN);
        debug_assert!(base <= end && self.record.position_word.get() == 0);
        if self.current.replace(chunk.as_ptr()) != chunk.as_ptr() {
            self.untouched_from.set(usize::MAX);
        }
        if base >= self.untouched_from.get() {
            self.populate(chunk, base, base);
        }
        end = end.min(self.untouched_from.get());
        self.before_window.set(ptr::null_mut());
        // Use the chunk's provenance. That of a caller's pointer may reach only one object.
        self.base.set(chunk.as_ptr().cast::<u8>().with_addr(base));
        let window = (end - base).min(WINDOW);
        self.limit.set(if self.checks.is_some() { 0 } else { position_word::limit(window) });
    }

    /// Moves the end of the window to or beyond the address `to`, if the window ends where untouched
    /// pages begin and may be that long. Returns whether it did. The objects in the window stay in
    /// it, so they can still be given back in reverse order.
    pub(super) fn extend_window(&self, to: usize) -> bool {
        let Some(chunk) = NonNull::new(self.current.get()) else { return false };
        let base = self.base.get().addr();
        let end = end_of(chunk).addr().get();
        let untouched_from = self.untouched_from.get();
        if untouched_from == usize::MAX || to > end || to - base > WINDOW {
            return false;
        }
        // The pages of a large object are left to its writes.
        let is_large = to.saturating_sub(untouched_from) > POPULATED_AT_ONCE;
        self.populate(chunk, if is_large { to } else { untouched_from }, to);
        let window = (end.min(self.untouched_from.get()) - base).min(WINDOW);
        self.limit.set(position_word::limit(window));
        true
    }

    /// Faults in pages of the current chunk: from the address `from` to `to` or beyond,
    /// [`POPULATED_AT_ONCE`] bytes or more with one system call.
    #[cold]
    fn populate(&self, chunk: NonNull<ArenaChunkHeader>, from: usize, to: usize) {
        let page = os::page_size();
        let start = from / page * page;
        let end = end_of(chunk).addr().get();
        let until = (start + POPULATED_AT_ONCE).max(to.next_multiple_of(page)).min(end);
        if let Some(pages) = NonNull::new(chunk.as_ptr().cast::<u8>().with_addr(start)) {
            // If the system refuses, each page is faulted in by its first access.
            let _ = os::populate(pages, until - start);
        }
        self.untouched_from.set(if until < end { until } else { usize::MAX });
    }

    /// Closes the window: no chunk is current.
    pub(super) fn close_window(&self) {
        self.record.position_word.set(0);
        self.current.set(ptr::null_mut());
        self.untouched_from.set(usize::MAX);
        self.before_window.set(ptr::null_mut());
        self.base.set(DANGLING);
        self.limit.set(0);
    }

    /// The current window, for [`restore_window`](Self::restore_window).
    pub(super) fn window(&self) -> (*mut u8, u64) {
        (self.base.get(), self.record.position_word.get())
    }

    /// Opens a window again in its former state.
    pub(super) fn restore_window(
        &self,
        chunk: NonNull<ArenaChunkHeader>,
        (base, word): (*mut u8, u64),
    ) {
        self.record.position_word.set(0);
        self.open_window(chunk, base.addr());
        self.record.position_word.set(word);
    }

    /// For checked arenas: moves `pos` up by `bytes`, a multiple of 16 that the chunk has left.
    #[cfg(system_memory)]
    pub(super) fn advance(&self, bytes: usize) -> NonNull<u8> {
        debug_assert!(bytes <= self.left_in_current() && bytes % MAX_MIN_ALIGN == 0);
        let base = self.base.get();
        self.base.set(base.wrapping_add(bytes));
        NonNull::new(base).expect("a base is never null")
    }
}
