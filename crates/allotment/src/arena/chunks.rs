//! An arena's chunks: where they come from, where they go, and which of them a reset keeps.
//!
//! The invariants are those of `raw.rs`; the ones about chunks are 1 and 2.

use core::ptr::{self, NonNull};

use super::chunk_header::{ArenaChunkHeader, HEADER, first_of};
use super::raw::{ArenaChecks, MAX_MIN_ALIGN, MIN_POPULATED_CHUNK, RawArena};
use super::retain::Retain;
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::{AcquiredChunk, SmallTouch, WarmChunk};
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::{HUGE_PAGE, MAX_GROWTH, MIN_CHUNK, chunk_bytes_for, next_chunk};

/// A chunk that was just taken and holds no object.
#[derive(Clone, Copy)]
pub(super) struct TakenChunk {
    pub chunk: NonNull<ArenaChunkHeader>,
    /// Whether its bytes are known to be zero.
    pub zeroed: bool,
    /// Whether its pages are small and were not touched yet.
    pub untouched: bool,
}

impl RawArena {
    /// Takes the chunk that the hint asks for, and opens a window in it.
    pub(super) fn take_hinted_chunk(&self) -> Result<(), AllocError> {
        if self.checks().is_some_and(ArenaChecks::has_no_chunks) {
            return Ok(());
        }
        let need = hinted_chunk_bytes(self.hint)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, self.hint))?;
        let taken = self.take_chunk(need, false)?;
        self.enter_chunk(taken);
        self.open_window(taken.chunk, first_of(taken.chunk).addr().get());
        Ok(())
    }

    /// Takes a chunk with room for an object of `padded` bytes, a multiple of 16, with this
    /// alignment. For an object that grows, `roomy` asks for more room than that.
    pub(super) fn take_chunk_for(
        &self,
        padded: usize,
        align: usize,
        roomy: bool,
    ) -> Result<TakenChunk, AllocError> {
        let align = align.max(MAX_MIN_ALIGN);
        let need = chunk_bytes_for(HEADER, padded, align, self.source().chunk_align())
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, padded))?;
        self.take_chunk(need, roomy)
    }

    /// Makes a chunk that was just taken the current one. The caller must open a window in it.
    pub(super) fn enter_chunk(&self, taken: TakenChunk) {
        let TakenChunk { chunk, untouched, .. } = taken;
        self.note_end_of_objects();
        // SAFETY: a chunk of this arena (invariant 1).
        let is_populated = untouched && unsafe { chunk.as_ref() }.size >= MIN_POPULATED_CHUNK;
        self.current.set(chunk.as_ptr());
        let untouched_from = if is_populated { chunk.addr().get() } else { usize::MAX };
        self.untouched_from.set(untouched_from);
    }

    /// Notes where the objects of the current chunk end, before another chunk becomes current.
    fn note_end_of_objects(&self) {
        if let Some(current) = NonNull::new(self.current.get()) {
            // SAFETY: a chunk of this arena (invariant 1), and no reference to its header exists.
            unsafe { (*current.as_ptr()).end_of_objects = self.pos() };
        }
    }

    /// For checked arenas: takes a chunk with at least `bytes` after its header, and continues
    /// there.
    #[cfg(system_memory)]
    pub(super) fn grow_by_chunk(&self, bytes: usize) -> Result<(), AllocError> {
        let TakenChunk { chunk, .. } = self.take_chunk_for(bytes, MAX_MIN_ALIGN, false)?;
        self.record().wasted_bytes.add(self.left_in_current() as u64);
        self.note_end_of_objects();
        self.fold();
        self.open_window(chunk, first_of(chunk).addr().get());
        Ok(())
    }

    /// Puts a chunk of at least `need` bytes at the head of the `newest` list: a spare one, or one
    /// from the source. On an error nothing has changed.
    fn take_chunk(&self, need: usize, roomy: bool) -> Result<TakenChunk, AllocError> {
        if let Some(chunk) = self.take_spare_chunk(need) {
            // SAFETY: a chunk of this arena (invariant 1).
            let size = unsafe { chunk.as_ref() }.size;
            if size <= MAX_GROWTH {
                self.growth_size.set(size.max(self.growth_size.get()));
            }
            return Ok(TakenChunk { chunk, zeroed: false, untouched: false });
        }
        let chunk_source = self.chunk_source();
        // A checked arena's chunk may be registered, and that may fail.
        if self.checks().is_none() {
            let own = chunk_source.take_thread_chunk(need, self.growth_size.get());
            if let Some((WarmChunk { start, mapping }, size, align)) = own {
                let chunk = self.hold_chunk(start, size, align, mapping, true);
                return Ok(TakenChunk { chunk, zeroed: false, untouched: false });
            }
        }
        let warm = if roomy { chunk_source.take_roomy(need) } else { None };
        let taken = match warm {
            Some(taken) => taken,
            None => chunk_source.take(need, self.growth_size.get())?,
        };
        let AcquiredChunk { start, size, align, mapping, recycled, zeroed, untouched } = taken;
        if let Some(checks) = self.checks() {
            let registered = self.segment_unit() > 1;
            if let Err(error) = checks.chunk_taken(self.record(), start, size, registered) {
                chunk_source.return_unused(taken);
                return Err(error);
            }
        }
        let chunk = self.hold_chunk(start, size, align, mapping, recycled);
        Ok(TakenChunk { chunk, zeroed, untouched })
    }

    /// Puts a chunk that was taken at the head of the `newest` list.
    #[inline]
    fn hold_chunk(
        &self,
        start: NonNull<u8>,
        size: usize,
        align: usize,
        mapping: u32,
        recycled: bool,
    ) -> NonNull<ArenaChunkHeader> {
        let chunk = start.cast::<ArenaChunkHeader>();
        let end_of_objects = first_of(chunk).as_ptr();
        let header =
            ArenaChunkHeader { prev: self.newest.get(), end_of_objects, size, align, mapping };
        // SAFETY: the chunk is the arena's, is larger than its header, and is aligned to a cache line
        // or more.
        unsafe { chunk.write(header) };
        self.newest.set(chunk.as_ptr());
        if size <= MAX_GROWTH {
            self.growth_size.set(size);
        }
        self.record().hold_chunk(size, recycled);
        chunk
    }

    /// Where chunks come from, and on which terms.
    fn chunk_source(&self) -> ChunkSource<'_> {
        let settings = &self.settings().common;
        ChunkSource {
            source: &settings.source,
            budget: settings.budget.as_ref(),
            recycles: settings.recycles(),
            exact: settings.budget.is_some(),
            segment_unit: self.segment_unit(),
            grows_huge: self.checks().is_none(),
            small: SmallTouch::Populate,
        }
    }

    /// Whether this is a child made by fork that does not have the arena's chunks: then an access
    /// to them, and to their headers, faults.
    pub(super) fn is_orphaned(&self) -> bool {
        self.source().is_orphaned() && !self.checks().is_some_and(ArenaChecks::has_no_chunks)
    }

    /// In a child made by fork that does not have the arena's chunks, forgets them and the objects
    /// in them, so that no header is read. The arena stays without a chunk from then on. Returns
    /// whether this is such a child.
    pub(super) fn forget_orphaned_chunks(&self) -> bool {
        if !self.is_orphaned() {
            return false;
        }
        self.close_window();
        self.newest.set(ptr::null_mut());
        self.spare_chunks.set(ptr::null_mut());
        self.growth_size.set(0);
        let record = self.record();
        self.settings().common.credit(record.held_bytes.get() as usize);
        for counter in [
            &record.live_objects,
            &record.live_bytes,
            &record.wasted_bytes,
            &record.held_bytes,
            &record.chunks,
        ] {
            counter.set(0);
        }
        true
    }

    /// The unit of chunks that are registered as segments, or 1 if this arena registers none.
    fn segment_unit(&self) -> usize {
        match self.checks() {
            Some(checks) => checks.segment_unit(self.source()),
            None => 1,
        }
    }

    /// Moves a spare chunk of at least `need` bytes to the head of the `newest` list.
    fn take_spare_chunk(&self, need: usize) -> Option<NonNull<ArenaChunkHeader>> {
        let mut before: *mut ArenaChunkHeader = ptr::null_mut();
        let mut spare = NonNull::new(self.spare_chunks.get())?;
        // SAFETY: the chunks of both lists are the arena's, and one thread has access (invariants 1
        // and 6). No reference to a header outlives its statement.
        unsafe {
            while spare.as_ref().size < need {
                before = spare.as_ptr();
                spare = NonNull::new(spare.as_ref().prev)?;
            }
            let after = spare.as_ref().prev;
            if before.is_null() {
                self.spare_chunks.set(after);
            } else {
                (*before).prev = after;
            }
            (*spare.as_ptr()).prev = self.newest.get();
        }
        self.newest.set(spare.as_ptr());
        Some(spare)
    }

    /// Starts again with these chunks: the first is current, the others become spare. The word must
    /// be 0.
    pub(super) fn start_over(&self, chunks: *mut ArenaChunkHeader) {
        let Some(first) = NonNull::new(chunks) else {
            self.growth_size.set(0);
            return self.close_window();
        };
        // SAFETY: a kept chunk is the arena's (invariant 1), and is on one list.
        let (spare, size) = unsafe {
            let header = &mut *first.as_ptr();
            (core::mem::replace(&mut header.prev, ptr::null_mut()), header.size)
        };
        self.growth_size.set(size.min(MAX_GROWTH));
        self.newest.set(first.as_ptr());
        self.spare_chunks.set(spare);
        self.open_window(first, first_of(first).addr().get());
        if let Some(checks) = self.checks() {
            for list in [first.as_ptr(), spare] {
                let mut next = list;
                while let Some(chunk) = NonNull::new(next) {
                    // SAFETY: as above.
                    let (prev, size) = unsafe { (chunk.as_ref().prev, chunk.as_ref().size) };
                    checks.fill_free(first_of(chunk).as_ptr(), size - HEADER);
                    next = prev;
                }
            }
        }
    }

    /// For checked arenas: checks the bytes that no object has had after the last reset or rewind.
    pub(super) fn check_free_bytes(&self, checks: &dyn ArenaChecks) {
        if !self.current.get().is_null() {
            checks.check_free(self.pos(), self.left_in_current());
        }
        let mut next = self.spare_chunks.get();
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: a chunk of this arena (invariant 1).
            let (prev, size) = unsafe { (chunk.as_ref().prev, chunk.as_ref().size) };
            checks.check_free(first_of(chunk).as_ptr(), size - HEADER);
            next = prev;
        }
    }

    /// How many bytes a reset keeps, and in how many chunks.
    pub(super) fn retained(&self) -> (usize, usize) {
        match self.settings().retain {
            Retain::Nothing => (0, 0),
            Retain::UpTo(bytes) => (bytes, usize::MAX),
            Retain::Newest => {
                let unit = self.chunk_source().unit();
                let (least, most) = match self.hint {
                    0 => (MIN_CHUNK.max(unit), MAX_GROWTH.max(unit)),
                    hint => {
                        let hinted =
                            hinted_chunk_bytes(hint).and_then(|need| next_chunk(need, 0, unit));
                        let least = hinted.unwrap_or(MIN_CHUNK).max(unit);
                        // A hinted chunk may have been rounded up to huge pages.
                        (least, least.max(MAX_GROWTH).saturating_add(HUGE_PAGE))
                    }
                };
                // A chunk that was hardly used is too large for this use. The arena takes a smaller
                // one next time, so that one large request does not fix the size permanently.
                let bytes = match NonNull::new(self.newest.get()) {
                    // SAFETY: a chunk of this arena (invariant 1).
                    Some(only) if unsafe { only.as_ref() }.prev.is_null() => {
                        let used = self.pos().addr() - only.addr().get();
                        used.saturating_mul(4).clamp(least, most)
                    }
                    _ => most,
                };
                (bytes, 1)
            }
        }
    }

    /// Releases the chunks from `first` to `stop`, without `stop`, to where they came from.
    ///
    /// # Safety
    /// The chunks are no longer on a list of the arena, have `total` bytes together, and nothing in
    /// them is in use.
    pub(super) unsafe fn release_chunks(
        &self,
        first: *mut ArenaChunkHeader,
        stop: *mut ArenaChunkHeader,
        total: usize,
    ) {
        let settings = &self.settings().common;
        let mut batch = settings.source.release_batch(total, settings.recycles());
        let mut chunk = first;
        let mut count = 0;
        while chunk != stop {
            // SAFETY: the header is read before its chunk is released. Size, alignment and mapping
            // number are those with which it was taken.
            unsafe {
                let ArenaChunkHeader { prev, size, align, mapping, .. } = chunk.read();
                let start = NonNull::new_unchecked(chunk.cast::<u8>());
                if let Some(checks) = self.checks() {
                    checks.chunk_released(start, size, self.segment_unit() > 1);
                }
                batch.add(start, size, align, mapping);
                chunk = prev;
            }
            count += 1;
        }
        let record = self.record();
        record.source_calls.add(batch.finish() as u64);
        record.chunks.sub(count);
        record.held_bytes.sub(total as u64);
        settings.credit(total);
    }
}

/// The size of a chunk with room for this hint.
fn hinted_chunk_bytes(hint: usize) -> Option<usize> {
    chunk_bytes_for(HEADER, hint, 1, MAX_MIN_ALIGN)
        .and_then(|need| need.checked_next_multiple_of(MAX_MIN_ALIGN))
}

impl Drop for RawArena {
    fn drop(&mut self) {
        let orphaned = self.forget_orphaned_chunks();
        if let Some(checks) = self.checks().filter(|_| !orphaned) {
            checks.rewound(self, 0);
            self.check_free_bytes(checks);
        }
        for list in [&self.newest, &self.spare_chunks] {
            let first = list.replace(ptr::null_mut());
            let mut total = 0;
            let mut chunk = first;
            while !chunk.is_null() {
                // SAFETY: a chunk of this arenas (invariant 1).
                unsafe {
                    total += (*chunk).size;
                    chunk = (*chunk).prev;
                }
            }
            if !first.is_null() {
                // SAFETY: dropping takes the arena by value, so no object is borrowed any more.
                unsafe { self.release_chunks(first, ptr::null_mut(), total) };
            }
        }
        debug_assert_eq!(self.record().held_bytes.get(), 0, "every chunk is on a list");
        self.record().release();
    }
}
