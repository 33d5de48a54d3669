//! The arena's unsafe heart: one position that moves up through chunks.
//!
//! ```text
//! newest                                                  pos lies in `bumped`
//!   │      prev          prev                                  (usually = newest)
//!   ▼    ┌───────┐     ┌───────┐
//! ┌────────────┐ │ ┌────────────┐ │ ┌────────────┐
//! │Header│ obj │ └▶│Header│ obj… │ └▶│Header│ obj… │──▶ null
//! └────────────┘   └────────────┘   └────────────┘
//!
//! │Header│obj│pad│obj│obj│      free       │
//! start                  pos               end
//! ```
//!
//! # Invariants
//!
//! 1. `newest` heads a list of chunks that this arena alone holds, newest first; `spare` heads another, of
//!    chunks kept by a reset. Each begins with its `Header`, `size` bytes from its start are valid, and
//!    `held_bytes` is the sum of the sizes of both lists, which is also what the budget was charged.
//! 2. `bumped` is null, or one of the chunks on the `newest` list. If it is null, `pos == end == DANGLING`.
//!    Otherwise `start(bumped) <= pos <= limit(bumped)`, where `start` is the first byte behind the header
//!    and `limit` the chunk's last; both are multiples of 16 (`MIN_ALIGN` is at most 16).
//! 3. `end` is `limit(bumped)`, or null when the arena is watched: then no allocation passes the fast path's
//!    test, and the slow path does its checks.
//! 4. Bytes in `[pos, limit(bumped))`, and behind the object of a chunk that is not bumped, belong to no
//!    object. Every object lies in `[start, pos)` of `bumped` or in another chunk of the `newest` list, and
//!    no two overlap.
//! 5. Between a mark and its rewind, `scope` says where the mark was: objects of the scope are in
//!    `[scope.start, scope.limit)`, the rest of the chunk that was bumped, or in chunks newer than
//!    `scope.newest`. Older objects are not moved, shrunk or freed.
//! 6. One thread at a time has access: the arena is `Send` and not `Sync`, so `Cell` is enough. The record
//!    may be read by others (see statistics/records.rs).

use core::alloc::Layout;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};

use super::builder::Settings;
use super::retain::Retain;
use super::watch::Watch;
use crate::error::{AllocError, ErrorKind, OnFailure};
use crate::memory::layout::{MAX_GROWTH, MIN_CHUNK, bump, chunk_bytes_for, next_chunk};
use crate::memory::release::Release;
use crate::memory::source::{SharedSource, Taken};
use crate::statistics::{Kind, Record};

/// The largest minimum alignment: what every chunk's start and end have.
pub(crate) const MAX_MIN_ALIGN: usize = 16;

/// Where `pos` and `end` point while there is no chunk: nothing fits below it, and it is never touched.
const DANGLING: *mut u8 = ptr::without_provenance_mut(MAX_MIN_ALIGN);

/// The beginning of each chunk.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Header {
    prev: *mut Header,
    size: usize,
    align: usize,
    link: u32,
}

pub(super) const HEADER: usize = size_of::<Header>();

/// Where a scope began (invariant 5). `newest` and `start` are null if there was no chunk then.
#[derive(Clone, Copy, Debug)]
struct ScopeStart {
    active: bool,
    start: *mut u8,
    limit: *mut u8,
    newest: *mut Header,
    watched: usize,
}

const NO_SCOPE: ScopeStart = ScopeStart {
    active: false,
    start: ptr::null_mut(),
    limit: ptr::null_mut(),
    newest: ptr::null_mut(),
    watched: 0,
};

/// A place to go back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pos: *mut u8,
    bumped: *mut Header,
    newest: *mut Header,
    outer: ScopeStart,
    live_objects: u64,
    live_bytes: u64,
    wasted_bytes: u64,
    watched: usize,
}

/// The state of an arena. Its first four words are what the fast path reads and writes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawArena {
    pos: Cell<*mut u8>,
    end: Cell<*mut u8>,
    record: &'static Record,
    bumped: Cell<*mut Header>,
    newest: Cell<*mut Header>,
    spare: Cell<*mut Header>,
    /// The size of the last chunk taken for growth, from which the next one doubles; 0 at first.
    grown: Cell<usize>,
    scope: Cell<ScopeStart>,
    /// The size of the first chunk that was asked for, in bytes.
    hint: usize,
    watch: Option<Box<Watch>>,
    settings: Option<Box<Settings>>,
}

// SAFETY: the chunks belong to the arena alone (invariant 1), sources and budgets are Send and Sync, and the
// pointers in the cells point into its own chunks.
unsafe impl Send for RawArena {}

/// Chunks linked in the order in which they were appended.
struct Chain {
    first: *mut Header,
    last: *mut Header,
    total: usize,
}

impl Chain {
    const EMPTY: Self = Self { first: ptr::null_mut(), last: ptr::null_mut(), total: 0 };

    /// # Safety
    /// The chunk is held, `size` bytes long, and on no other chain or list.
    unsafe fn append(&mut self, chunk: NonNull<Header>, size: usize) {
        // SAFETY: passed on to the caller; `last` is null or was appended before.
        unsafe {
            (*chunk.as_ptr()).prev = ptr::null_mut();
            if self.last.is_null() {
                self.first = chunk.as_ptr();
            } else {
                (*self.last).prev = chunk.as_ptr();
            }
        }
        self.last = chunk.as_ptr();
        self.total += size;
    }
}

static DEFAULTS: Settings = Settings::new();

/// The first byte of a chunk that an object may take.
fn start_of(chunk: NonNull<Header>) -> NonNull<u8> {
    // SAFETY: every chunk is larger than its header (`take_chunk` sees to it).
    unsafe { chunk.cast::<u8>().add(HEADER) }
}

/// The byte behind a chunk's last.
fn limit_of(chunk: NonNull<Header>) -> NonNull<u8> {
    // SAFETY: the chunk is held, so its header can be read and `size` bytes from its start are one block
    // (invariant 1).
    unsafe { chunk.cast::<u8>().add(chunk.as_ref().size) }
}

impl RawArena {
    /// An arena; with a hint above zero it takes its first chunk now.
    pub(crate) fn new(hint: usize, settings: Option<Box<Settings>>) -> Result<Self, AllocError> {
        let given = settings.as_deref().unwrap_or(&DEFAULTS);
        let watch = Watch::wanted(given.hardened).map(Box::new);
        let record = Record::acquire(Kind::Arena, given.name.as_deref())?;
        let arena = Self {
            pos: Cell::new(DANGLING),
            end: Cell::new(if watch.is_some() { ptr::null_mut() } else { DANGLING }),
            record,
            bumped: Cell::new(ptr::null_mut()),
            newest: Cell::new(ptr::null_mut()),
            spare: Cell::new(ptr::null_mut()),
            grown: Cell::new(0),
            scope: Cell::new(NO_SCOPE),
            hint,
            watch,
            settings,
        };
        if hint > 0 && !arena.watch().is_some_and(Watch::has_no_chunks) {
            // If this fails the arena is dropped, and with it the record goes back.
            let need = chunk_bytes_for(HEADER, hint, 1, MAX_MIN_ALIGN)
                .ok_or(AllocError::new(ErrorKind::SizeOverflow, hint))?;
            let (chunk, _) = arena.take_chunk(need)?;
            arena.bump_in(chunk, start_of(chunk));
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
    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    fn source(&self) -> &SharedSource {
        &self.settings().source
    }

    /// Memory for one object. For `layout.size() == 0` no memory: an address that is aligned.
    #[inline(always)]
    pub(crate) fn alloc<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        match self.alloc_fast::<MIN_ALIGN>(layout) {
            Some(object) => Ok(object),
            None => self.alloc_slow::<F, MIN_ALIGN>(layout),
        }
    }

    /// Memory for one object, if the bumped chunk has it.
    #[inline(always)]
    pub(crate) fn alloc_fast<const MIN_ALIGN: usize>(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        if size == 0 {
            // An alignment is not zero.
            return NonZeroUsize::new(align).map(NonNull::without_provenance);
        }
        let pos = self.pos.get();
        let (start, end) = bump(pos.addr(), size, align, MIN_ALIGN);
        if end > self.end.get().addr() {
            return None;
        }
        // The two addresses lie in `[pos, end]` of the bumped chunk: `pos`'s provenance reaches them.
        self.pos.set(pos.with_addr(end));
        let record = self.record;
        record.live_objects.add(1);
        record.live_bytes.add(size as u64);
        // SAFETY: `start >= pos`, which is never null.
        Some(unsafe { NonNull::new_unchecked(pos.with_addr(start)) })
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        self.alloc_in_fresh_chunk::<F, MIN_ALIGN>(layout).map(|(object, _)| object)
    }

    /// As [`alloc`](Self::alloc), and whether the bytes are known to be zero.
    #[inline]
    pub(crate) fn alloc_maybe_zeroed<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<(NonNull<u8>, bool), F::Error> {
        let pos = self.pos.get();
        let (_, end) = bump(pos.addr(), layout.size(), layout.align(), MIN_ALIGN);
        if layout.size() > 0 && end > self.end.get().addr() {
            return self.alloc_in_fresh_chunk::<F, MIN_ALIGN>(layout);
        }
        self.alloc::<F, MIN_ALIGN>(layout).map(|object| (object, false))
    }

    #[cold]
    fn alloc_in_fresh_chunk<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        layout: Layout,
    ) -> Result<(NonNull<u8>, bool), F::Error> {
        match self.watch() {
            Some(watch) => watch.alloc(self, layout).map(|object| (object, false)),
            None => self.alloc_in_new_chunk(layout, MIN_ALIGN),
        }
        .map_err(F::fail)
    }

    /// Takes a chunk for this object, and goes on in whichever of the two chunks has more room left.
    fn alloc_in_new_chunk(
        &self,
        layout: Layout,
        min_align: usize,
    ) -> Result<(NonNull<u8>, bool), AllocError> {
        let (size, align) = (layout.size(), layout.align());
        let need = chunk_bytes_for(HEADER, size, align, self.source().chunk_align())
            .and_then(|need| need.checked_next_multiple_of(MAX_MIN_ALIGN))
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, size))?;
        let (chunk, zeroed) = self.take_chunk(need)?;
        let first = start_of(chunk);
        let (start, end) = bump(first.addr().get(), size, align, min_align);
        let limit = limit_of(chunk).addr().get();
        debug_assert!(end <= limit, "`need` covers header, alignment and size");
        let left_here = limit - end;
        let left_there = self.left_in_bumped();
        if left_here >= left_there {
            self.record.wasted_bytes.add(left_there as u64);
            // SAFETY: `end <= limit`, inside the chunk.
            self.bump_in(chunk, unsafe { first.add(end - first.addr().get()) });
        } else {
            self.record.wasted_bytes.add(left_here as u64);
        }
        self.record.live_objects.add(1);
        self.record.live_bytes.add(size as u64);
        // SAFETY: `start <= end <= limit`, inside the chunk.
        Ok((unsafe { first.add(start - first.addr().get()) }, zeroed))
    }

    /// The free bytes behind `pos`.
    pub(super) fn left_in_bumped(&self) -> usize {
        match NonNull::new(self.bumped.get()) {
            Some(bumped) => limit_of(bumped).addr().get() - self.pos.get().addr(),
            None => 0,
        }
    }

    /// Goes on bumping in this chunk from `pos`.
    fn bump_in(&self, chunk: NonNull<Header>, pos: NonNull<u8>) {
        self.bumped.set(chunk.as_ptr());
        self.pos.set(pos.as_ptr());
        self.end.set(if self.watch.is_some() { ptr::null_mut() } else { limit_of(chunk).as_ptr() });
    }

    /// For the watched mode: moves `pos` over `bytes` that are there.
    pub(super) fn advance(&self, bytes: usize) -> NonNull<u8> {
        debug_assert!(bytes <= self.left_in_bumped());
        let pos = self.pos.get();
        self.pos.set(pos.wrapping_add(bytes));
        NonNull::new(pos).expect("pos is never null")
    }

    /// For the watched mode: takes a chunk with at least `bytes` behind its header and bumps in it.
    pub(super) fn grow_by_chunk(&self, bytes: usize) -> Result<(NonNull<u8>, usize), AllocError> {
        let need = bytes
            .checked_add(HEADER)
            .and_then(|need| need.checked_next_multiple_of(MAX_MIN_ALIGN))
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, bytes))?;
        let (chunk, _) = self.take_chunk(need)?;
        self.record.wasted_bytes.add(self.left_in_bumped() as u64);
        let start = start_of(chunk);
        self.bump_in(chunk, start);
        Ok((start, self.left_in_bumped()))
    }

    /// Puts a chunk of at least `need` bytes at the head of the list: a spare one, or one from the source.
    /// Returns it and whether its bytes are zero. On an error nothing has changed.
    fn take_chunk(&self, need: usize) -> Result<(NonNull<Header>, bool), AllocError> {
        if let Some(chunk) = self.take_spare(need) {
            return Ok((chunk, false));
        }
        let source = self.source();
        let unit = source.chunk_unit().max(self.segment_unit());
        let overflow = AllocError::new(ErrorKind::SizeOverflow, need);
        let wanted = next_chunk(need, self.grown.get(), unit).ok_or(overflow)?;
        let taken = match self.charge_and_take(wanted) {
            Ok(taken) => Ok((taken, wanted)),
            // Doubling is a wish; what the object needs may still be had.
            Err(error) => match next_chunk(need, 0, unit) {
                Some(least) if least < wanted => {
                    self.charge_and_take(least).map(|taken| (taken, least))
                }
                _ => Err(error),
            },
        };
        let (taken, size) = taken?;
        if let Some(watch) = self.watch() {
            let registered = self.segment_unit() > 1;
            if let Err(error) = watch.chunk_taken(self.record, taken.start, size, registered) {
                self.uncharge_and_return(taken, size);
                return Err(error);
            }
        }
        let chunk = taken.start.cast::<Header>();
        let header =
            Header { prev: self.newest.get(), size, align: self.chunk_align(), link: taken.link };
        // SAFETY: the chunk is ours, at least `need > HEADER` bytes, aligned to 16 or more.
        unsafe { chunk.write(header) };
        self.newest.set(chunk.as_ptr());
        if size <= MAX_GROWTH {
            self.grown.set(size);
        }
        self.record.hold(size);
        self.record.chunks.add(1);
        if taken.recycled {
            self.record.recycled_chunks.add(1);
        } else {
            self.record.source_calls.add(1);
        }
        Ok((chunk, taken.zeroed))
    }

    fn charge_and_take(&self, size: usize) -> Result<Taken, AllocError> {
        let settings = self.settings();
        if let Some(budget) = &settings.budget {
            budget.charge(size)?;
        }
        let recycle = settings.release != Release::AtOnce && !settings.hardened;
        settings.source.take(size, self.chunk_align(), recycle).inspect_err(|_| {
            if let Some(budget) = &settings.budget {
                budget.credit(size);
            }
        })
    }

    /// Undoes `charge_and_take`.
    #[cold]
    fn uncharge_and_return(&self, taken: Taken, size: usize) {
        let settings = self.settings();
        let mut giving = settings.source.give(0);
        // SAFETY: taken with this size and alignment, and not used.
        unsafe { giving.add(taken.start, size, self.chunk_align(), taken.link) };
        giving.finish();
        if let Some(budget) = &settings.budget {
            budget.credit(size);
        }
    }

    fn chunk_align(&self) -> usize {
        self.source().chunk_align().max(self.segment_unit())
    }

    /// The unit of chunks that are registered as segments, or 1 if this arena registers none.
    fn segment_unit(&self) -> usize {
        match self.watch() {
            Some(watch) => watch.segment_unit(self.source()),
            None => 1,
        }
    }

    /// Moves a spare chunk of at least `need` bytes to the head of the list.
    fn take_spare(&self, need: usize) -> Option<NonNull<Header>> {
        let mut before: *mut Header = ptr::null_mut();
        let mut spare = NonNull::new(self.spare.get())?;
        // SAFETY: the chunks of both lists are ours, and one thread is here (invariants 1 and 6); no
        // reference to a header outlives its statement.
        unsafe {
            while spare.as_ref().size < need {
                before = spare.as_ptr();
                spare = NonNull::new(spare.as_ref().prev)?;
            }
            let after = spare.as_ref().prev;
            if before.is_null() {
                self.spare.set(after);
            } else {
                (*before).prev = after;
            }
            (*spare.as_ptr()).prev = self.newest.get();
        }
        self.newest.set(spare.as_ptr());
        Some(spare)
    }

    /// Whether the object was allocated in the scope that is open now, or no scope is.
    pub(super) fn in_scope(&self, object: NonNull<u8>) -> bool {
        let scope = self.scope.get();
        if !scope.active {
            return true;
        }
        let object = object.as_ptr();
        if scope.start <= object && object < scope.limit {
            return true;
        }
        let mut chunk = self.newest.get();
        while chunk != scope.newest {
            let Some(held) = NonNull::new(chunk) else { return false };
            if held.as_ptr().cast() <= object && object < limit_of(held).as_ptr() {
                return true;
            }
            // SAFETY: a chunk of our list (invariant 1).
            chunk = unsafe { held.as_ref() }.prev;
        }
        false
    }

    /// Whether the object is the last one, so that it may move its end.
    #[inline]
    fn is_last(&self, object: NonNull<u8>, size: usize, min_align: usize) -> bool {
        let end = object.as_ptr().wrapping_add(size);
        let end = end.wrapping_add(end.addr().wrapping_neg() & (min_align - 1));
        end == self.pos.get() && !self.end.get().is_null()
    }

    /// Frees one object: the last one gives its bytes back to the chunk, an earlier one counts as gone.
    /// An object of an outer scope stays as it is.
    ///
    /// # Safety
    /// The object is this arena's, live, allocated (or last resized) with this layout and `MIN_ALIGN`.
    #[inline]
    pub(crate) unsafe fn free<const MIN_ALIGN: usize>(&self, object: NonNull<u8>, layout: Layout) {
        let size = layout.size();
        if size == 0 {
            return;
        }
        if let Some(watch) = self.watch() {
            return watch.free(self, object, layout);
        }
        if self.scope.get().active && !self.in_scope(object) {
            return;
        }
        if self.is_last(object, size, MIN_ALIGN) {
            self.pos.set(object.as_ptr());
        }
        self.record.live_objects.sub(1);
        self.record.live_bytes.sub(size as u64);
    }

    /// Makes one object larger: in place if it is the last and there is room, else moved.
    ///
    /// # Safety
    /// As for [`free`](Self::free); `new` has the same alignment and at least the size of `old`.
    #[inline]
    pub(crate) unsafe fn grow<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        debug_assert!(new.size() >= old.size());
        let fits = new.align() <= old.align() || object.addr().get() % new.align() == 0;
        if old.size() > 0
            && fits
            && self.is_last(object, old.size(), MIN_ALIGN)
            && (!self.scope.get().active || self.in_scope(object))
        {
            let (_, end) = bump(object.addr().get(), new.size(), 1, MIN_ALIGN);
            if end <= self.end.get().addr() {
                self.pos.set(self.pos.get().with_addr(end));
                self.record.live_bytes.add((new.size() - old.size()) as u64);
                return Ok(object);
            }
        }
        let moved = self.alloc::<F, MIN_ALIGN>(new)?;
        // SAFETY: the new object has at least `old.size()` bytes and overlaps no other one (invariant 4);
        // the old one is freed once, and its caller gives it up.
        unsafe {
            moved.copy_from_nonoverlapping(object, old.size());
            self.free::<MIN_ALIGN>(object, old);
        }
        Ok(moved)
    }

    /// Makes one object smaller, in place; the last one gives the difference back to the chunk. It moves
    /// only when a larger alignment is asked than it happens to have.
    ///
    /// # Safety
    /// As for [`free`](Self::free); `new` has at most the size of `old`.
    #[inline]
    pub(crate) unsafe fn shrink<F: OnFailure, const MIN_ALIGN: usize>(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        debug_assert!(new.size() <= old.size());
        if new.size() == 0 {
            // SAFETY: passed on to the caller.
            unsafe { self.free::<MIN_ALIGN>(object, old) };
            return self.alloc::<F, MIN_ALIGN>(new);
        }
        let aligned = object.addr().get() % new.align() == 0;
        if !aligned || self.watch.is_some() {
            let moved = self.alloc::<F, MIN_ALIGN>(new)?;
            // SAFETY: as in `grow`; `new.size()` bytes are in both.
            unsafe {
                moved.copy_from_nonoverlapping(object, new.size());
                self.free::<MIN_ALIGN>(object, old);
            }
            return Ok(moved);
        }
        if self.scope.get().active && !self.in_scope(object) {
            return Ok(object);
        }
        if self.is_last(object, old.size(), MIN_ALIGN) {
            let (_, end) = bump(object.addr().get(), new.size(), 1, MIN_ALIGN);
            self.pos.set(self.pos.get().with_addr(end));
        }
        self.record.live_bytes.sub((old.size() - new.size()) as u64);
        Ok(object)
    }

    /// Where the arena stands.
    pub(crate) fn position(&self) -> Position {
        Position {
            pos: self.pos.get(),
            bumped: self.bumped.get(),
            newest: self.newest.get(),
            outer: self.scope.get(),
            live_objects: self.record.live_objects.get(),
            live_bytes: self.record.live_bytes.get(),
            wasted_bytes: self.record.wasted_bytes.get(),
            watched: self.watch().map_or(0, Watch::count),
        }
    }

    /// Opens a scope at a position where the arena stands now.
    pub(crate) fn open_scope(&self, position: &Position) {
        let limit = NonNull::new(position.bumped).map(|chunk| limit_of(chunk).as_ptr());
        self.scope.set(ScopeStart {
            active: true,
            start: if limit.is_some() { position.pos } else { ptr::null_mut() },
            limit: limit.unwrap_or(ptr::null_mut()),
            newest: position.newest,
            watched: position.watched,
        });
    }

    /// The number of watched objects that lie outside the open scope.
    pub(super) fn watched_outside_scope(&self) -> usize {
        self.scope.get().watched
    }

    /// Goes back to a position, and to the scope that was open there.
    ///
    /// # Safety
    /// The position came from this arena's `position`; no rewind to an older position and no reset came since;
    /// nothing allocated since is used any more.
    pub(crate) unsafe fn rewind(&self, position: &Position) {
        if let Some(watch) = self.watch() {
            watch.rewound(self, position.watched);
        }
        let mut total = 0;
        let mut chunk = self.newest.get();
        while chunk != position.newest {
            // SAFETY: chunks newer than the mark's are ours and non-null (invariant 1), until they are
            // given back below.
            unsafe {
                total += (*chunk).size;
                chunk = (*chunk).prev;
            }
        }
        if total > 0 {
            let newer = self.newest.replace(position.newest);
            // SAFETY: `newer` down to `position.newest` holds only objects that the caller gave up.
            unsafe { self.give_back(newer, position.newest, total) };
        }
        self.pos.set(position.pos);
        self.bumped.set(position.bumped);
        let limit = NonNull::new(position.bumped).map(|chunk| limit_of(chunk).as_ptr());
        self.end.set(match (limit, &self.watch) {
            (_, Some(_)) => ptr::null_mut(),
            (Some(limit), None) => limit,
            (None, None) => DANGLING,
        });
        // Growth starts over from what is still held.
        let grown = NonNull::new(position.newest).map_or(0, |chunk| {
            // SAFETY: a chunk of our list (invariant 1).
            unsafe { chunk.as_ref() }.size.min(MAX_GROWTH)
        });
        self.grown.set(grown);
        self.record.live_objects.set(position.live_objects);
        self.record.live_bytes.set(position.live_bytes);
        self.record.wasted_bytes.set(position.wasted_bytes);
        self.scope.set(position.outer);
        if let Some(watch) = self.watch() {
            watch.now_free(self.pos.get(), self.left_in_bumped());
        }
    }

    /// Frees every object, and keeps what the retain policy says.
    ///
    /// # Safety
    /// No object of the arena is used any more, and no scope is open that will be rewound.
    pub(crate) unsafe fn reset(&self) {
        if let Some(watch) = self.watch() {
            watch.rewound(self, 0);
        }
        self.scope.set(NO_SCOPE);
        let mut room = self.retained_bytes();
        let mut most = match self.settings().retain {
            Retain::Newest => 1,
            Retain::Nothing | Retain::UpTo(_) => usize::MAX,
        };
        let mut staying = Chain::EMPTY;
        let mut going = Chain::EMPTY;
        for list in [self.newest.replace(ptr::null_mut()), self.spare.replace(ptr::null_mut())] {
            let mut next = list;
            while let Some(chunk) = NonNull::new(next) {
                // SAFETY: chunks of our lists (invariant 1), which were taken off the arena above.
                let size = unsafe {
                    next = chunk.as_ref().prev;
                    chunk.as_ref().size
                };
                let chain = if size <= room && most > 0 {
                    room -= size;
                    most -= 1;
                    &mut staying
                } else {
                    &mut going
                };
                // SAFETY: the chunk is on no other chain, and its successor was read above.
                unsafe { chain.append(chunk, size) };
            }
        }
        if going.total > 0 {
            // SAFETY: these chunks are on no list of the arena any more, and their objects are given up.
            unsafe { self.give_back(going.first, ptr::null_mut(), going.total) };
        }
        self.record.live_objects.set(0);
        self.record.live_bytes.set(0);
        self.record.wasted_bytes.set(0);
        self.start_over(staying.first);
    }

    /// Begins again with these chunks: the first is bumped, the others are spare.
    fn start_over(&self, chunks: *mut Header) {
        let Some(first) = NonNull::new(chunks) else {
            self.grown.set(0);
            self.bumped.set(ptr::null_mut());
            self.pos.set(DANGLING);
            self.end.set(if self.watch.is_some() { ptr::null_mut() } else { DANGLING });
            return;
        };
        // SAFETY: a chunk that stays is ours (invariant 1) and on one chain.
        let (spare, size) = unsafe {
            let header = &mut *first.as_ptr();
            (core::mem::replace(&mut header.prev, ptr::null_mut()), header.size)
        };
        self.grown.set(size.min(MAX_GROWTH));
        self.newest.set(first.as_ptr());
        self.spare.set(spare);
        self.bump_in(first, start_of(first));
        if let Some(watch) = self.watch() {
            for list in [first.as_ptr(), spare] {
                let mut next = list;
                while let Some(chunk) = NonNull::new(next) {
                    // SAFETY: as above.
                    let (prev, size) = unsafe { (chunk.as_ref().prev, chunk.as_ref().size) };
                    watch.now_free(start_of(chunk).as_ptr(), size - HEADER);
                    next = prev;
                }
            }
        }
    }

    /// How much a reset keeps, in bytes.
    fn retained_bytes(&self) -> usize {
        match self.settings().retain {
            Retain::Nothing => 0,
            Retain::UpTo(bytes) => bytes,
            Retain::Newest => {
                let hinted = chunk_bytes_for(HEADER, self.hint, 1, MAX_MIN_ALIGN)
                    .and_then(|need| next_chunk(need, 0, self.source().chunk_unit()));
                let least = hinted.filter(|_| self.hint > 0).unwrap_or(MIN_CHUNK);
                // A chunk that was hardly used is too large for this use: the arena takes a smaller one
                // next time, so that one large request doesn't set the size for ever.
                match NonNull::new(self.newest.get()) {
                    // SAFETY: a chunk of our list (invariant 1).
                    Some(only) if unsafe { only.as_ref() }.prev.is_null() => {
                        let used = self.pos.get().addr() - only.addr().get();
                        used.saturating_mul(4).clamp(least, least.max(MAX_GROWTH))
                    }
                    _ => least.max(MAX_GROWTH),
                }
            }
        }
    }

    /// Gives the chunks from `first` down to `stop`, not included, back to where they came from.
    ///
    /// # Safety
    /// They are on no list of the arena any more, `total` bytes in all, and nothing in them is used.
    unsafe fn give_back(&self, first: *mut Header, stop: *mut Header, total: usize) {
        let settings = self.settings();
        let recycled = settings.release != Release::AtOnce && !settings.hardened;
        let mut giving = settings.source.give(if recycled { total } else { 0 });
        let mut chunk = first;
        let mut count = 0;
        while chunk != stop {
            // SAFETY: the header is read before its chunk goes; size, alignment and link are those that
            // it was taken with.
            unsafe {
                let Header { prev, size, align, link } = chunk.read();
                let start = NonNull::new_unchecked(chunk.cast::<u8>());
                if let Some(watch) = self.watch() {
                    watch.chunk_going(start, size, self.segment_unit() > 1);
                }
                giving.add(start, size, align, link);
                chunk = prev;
            }
            count += 1;
        }
        self.record.source_calls.add(giving.finish() as u64);
        self.record.chunks.sub(count);
        self.record.held_bytes.sub(total as u64);
        if let Some(budget) = &settings.budget {
            budget.credit(total);
        }
    }
}

impl Drop for RawArena {
    fn drop(&mut self) {
        if let Some(watch) = self.watch() {
            watch.rewound(self, 0);
        }
        for list in [&self.newest, &self.spare] {
            let first = list.replace(ptr::null_mut());
            let mut total = 0;
            let mut chunk = first;
            while !chunk.is_null() {
                // SAFETY: a chunk of our lists (invariant 1).
                unsafe {
                    total += (*chunk).size;
                    chunk = (*chunk).prev;
                }
            }
            if !first.is_null() {
                // SAFETY: dropping takes the arena by value, so no borrowed object is left.
                unsafe { self.give_back(first, ptr::null_mut(), total) };
            }
        }
        debug_assert_eq!(self.record.held_bytes.get(), 0, "every chunk is on a list");
        self.record.release();
    }
}
