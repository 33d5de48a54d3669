//! A list's chunks: where they come from, and how they are released.
//!
//! # Invariants
//!
//! 1. A chunk begins with its `ListChunkHeader`. `size` bytes from its start are one block, taken
//!    from the source with `align` and `mapping`. After the header, from `first` on, lie `objects`
//!    objects.
//! 2. `held_bytes` of the record is the sum of all chunks' sizes, and equals what the budget was
//!    charged. (In pass-through mode it is the sum of the malloc blocks' sizes.)

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::chunk_header::{HEADER, ListChunk, ListChunkHeader};
use super::raw::{ListChecks, RawFreeList};
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::SmallTouch;
use crate::memory::chunk_source::ChunkSource;
use crate::memory::layout::{CACHE_LINE, MAX_GROWTH, MIN_CHUNK, chunk_bytes_for};
use crate::memory::release::Release;

/// How many spare chunks are looked at for a run of objects. A list may have thousands, all too
/// small for it.
const MAX_SPARE_LOOKUPS: usize = 16;

impl RawFreeList {
    /// All chunks in use, the newest first.
    pub(super) fn each_chunk(&self) -> impl Iterator<Item = ListChunk> + '_ {
        self.chunks_from(self.chunks.get())
    }

    fn chunks_from(&self, first: *mut ListChunkHeader) -> impl Iterator<Item = ListChunk> + '_ {
        let mut next = first;
        core::iter::from_fn(move || {
            let header = NonNull::new(next)?;
            let chunk = self.chunk_at(header);
            // SAFETY: a chunk of this list (raw.rs, invariant 1).
            next = unsafe { header.as_ref() }.next.get();
            Some(chunk)
        })
    }

    pub(super) fn chunk_at(&self, header: NonNull<ListChunkHeader>) -> ListChunk {
        // SAFETY: callers pass the header of one of the list's chunks.
        unsafe { ListChunk::at(header, &self.sizes) }
    }

    // ---- objects that were never handed out ----

    /// Takes fresh objects that lie next to each other, if need be from another chunk. Does not
    /// count them.
    pub(super) fn take_fresh(&self, objects: usize) -> Result<NonNull<u8>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, objects);
        let bytes = objects.checked_mul(self.sizes.stride).ok_or(overflow)?;
        if bytes > self.fresh_bytes() {
            self.take_chunk(objects)?;
        }
        let start = self.fresh.get();
        self.fresh.set(start.wrapping_add(bytes));
        Ok(NonNull::new(start).expect("a chunk has room for them"))
    }

    /// Puts this many fresh objects on the first chain, so that the lowest comes first.
    pub(super) fn link_fresh(&self, objects: usize) {
        let stride = self.sizes.stride;
        let start = self.fresh.get();
        self.fresh.set(start.wrapping_add(objects * stride));
        for index in (0..objects).rev() {
            // SAFETY: these objects were fresh, and no longer are. The list owns them (raw.rs,
            // invariant 3).
            unsafe { self.push(NonNull::new_unchecked(start.add(index * stride))) };
        }
    }

    // ---- chunks ----

    /// Takes a chunk with room for this many objects, which become the fresh objects. An error
    /// changes nothing, except that spare chunks may have been released.
    fn take_chunk(&self, objects: usize) -> Result<(), AllocError> {
        if self.forget_orphaned_chunks() {
            return Err(AllocError::new(ErrorKind::ForkedChild, self.sizes.layout.size()));
        }
        if self.take_spare_chunk(objects) {
            return Ok(());
        }
        let overflow = AllocError::new(ErrorKind::SizeOverflow, objects);
        let wanted_objects = objects;
        let objects = objects.max(self.settings.objects_per_chunk.unwrap_or(1));
        let bytes = objects.checked_mul(self.sizes.stride).ok_or(overflow)?;
        let align = self.sizes.align.max(CACHE_LINE);
        let chunk_align = self.settings.common.source.chunk_align();
        let need = chunk_bytes_for(HEADER, bytes, align, chunk_align).ok_or(overflow)?;
        let chunk_source = self.chunk_source();
        let growth_size = self.size_to_double();
        let taken = match chunk_source.take(need, growth_size) {
            // The budget or the source may lack just what the spare chunks hold.
            Err(_) if self.release_spare(0) > 0 => chunk_source.take(need, growth_size)?,
            taken => taken?,
        };
        let size = taken.size;
        if let Some(checks) = self.checks() {
            if let Err(error) = checks.chunk_taken(self, taken.start, size) {
                chunk_source.return_unused(taken);
                return Err(error);
            }
        }
        // The fresh objects left in the previous chunk go on the free list.
        let left = self.fresh_objects();
        match self.checks() {
            Some(checks) => checks.record_fresh(self, self.fresh.get(), left),
            None => self.link_fresh(left),
        }
        let header = taken.start.cast::<ListChunkHeader>();
        let before = self.sizes.bytes_before_objects(header.addr().get());
        let objects = (size - before) / self.sizes.stride;
        let next = Cell::new(ptr::null_mut());
        // SAFETY: the chunk is ours. It has at least `need > HEADER` bytes and is aligned to at
        // least a cache line.
        unsafe {
            let (align, mapping) = (taken.align, taken.mapping);
            header.write(ListChunkHeader { next, size, align, mapping, objects });
        }
        self.push_chunk(self.chunk_at(header));
        if size <= MAX_GROWTH && self.settings.objects_per_chunk.is_none() {
            self.growth_size.set(size);
        }
        self.make_fresh(self.chunk_at(header));
        let record = &self.record;
        record.hold_chunk(size, taken.recycled);
        record.structure_bytes.add(before as u64);
        self.update_record();
        if self.checks.is_none() {
            self.raise_sweep_level(wanted_objects);
            let skips =
                matches!(self.settings.common.release, Release::Adaptive | Release::Decay(_));
            self.back_off.note_chunk_taken(skips);
        }
        Ok(())
    }

    /// The size that the next chunk doubles. Chunks that have doubled from the smallest hold almost
    /// twice the size of the last one. If the list holds less than that, it has shrunk, and the
    /// next chunk doubles half of what the list holds.
    fn size_to_double(&self) -> usize {
        let (held, growth_size) = (self.record.held_bytes.get() as usize, self.growth_size.get());
        if held + MIN_CHUNK < 2 * growth_size { held / 2 } else { growth_size }
    }

    /// Continues with a spare chunk, if one of the first has room for this many objects.
    fn take_spare_chunk(&self, objects: usize) -> bool {
        let mut before: *mut ListChunkHeader = ptr::null_mut();
        let mut next = self.spare_chunks.get();
        for _ in 0..MAX_SPARE_LOOKUPS {
            let Some(header) = NonNull::new(next) else { return false };
            let chunk = self.chunk_at(header);
            // SAFETY: these are our spare chunks. The one that is found is taken off their list.
            unsafe {
                next = header.as_ref().next.get();
                if chunk.objects < objects {
                    before = header.as_ptr();
                    continue;
                }
                match before.as_ref() {
                    Some(before) => before.next.set(next),
                    None => self.spare_chunks.set(next),
                }
            }
            self.spare_capacity.set(self.spare_capacity.get() - chunk.objects);
            self.link_fresh(self.fresh_objects());
            self.push_chunk(chunk);
            self.make_fresh(chunk);
            self.raise_sweep_level(objects);
            return true;
        }
        false
    }

    /// Puts a chunk on the list of chunks in use, and counts it.
    pub(super) fn push_chunk(&self, chunk: ListChunk) {
        // SAFETY: a chunk of this list that is on no list.
        unsafe { chunk.header.as_ref() }.next.set(self.chunks.get());
        self.chunks.set(chunk.header.as_ptr());
        self.capacity.set(self.capacity.get() + chunk.objects);
    }

    /// Subtracts a chunk that is no longer on the list of chunks in use. The caller has removed it.
    pub(super) fn uncount_chunk(&self, chunk: ListChunk) {
        self.capacity.set(self.capacity.get() - chunk.objects);
    }

    /// Sets a chunk without live objects aside as spare.
    pub(super) fn push_spare_chunk(&self, chunk: ListChunk) {
        // SAFETY: a chunk of this list that is on no list.
        unsafe { chunk.header.as_ref() }.next.set(self.spare_chunks.get());
        self.spare_chunks.set(chunk.header.as_ptr());
        self.spare_capacity.set(self.spare_capacity.get() + chunk.objects);
    }

    /// All spare chunks.
    pub(super) fn each_spare_chunk(&self) -> impl Iterator<Item = ListChunk> + '_ {
        self.chunks_from(self.spare_chunks.get())
    }

    /// Declares all objects of a chunk fresh.
    pub(super) fn make_fresh(&self, chunk: ListChunk) {
        let start = chunk.first.as_ptr();
        self.fresh.set(start);
        self.fresh_end.set(start.wrapping_add(chunk.objects * self.sizes.stride));
    }

    /// Where chunks come from, and on which terms.
    fn chunk_source(&self) -> ChunkSource<'_> {
        let settings = &self.settings.common;
        ChunkSource {
            source: &settings.source,
            budget: settings.budget.as_ref(),
            recycles: settings.recycles(),
            exact: settings.budget.is_some() || self.settings.objects_per_chunk.is_some(),
            segment_unit: self.segment_unit(),
            grows_huge: self.checks.is_none(),
            small: SmallTouch::Faults,
        }
    }

    /// The unit of chunks that are registered as segments, or 1 if this list registers none.
    pub(super) fn segment_unit(&self) -> usize {
        self.checks().map_or(1, |checks| checks.segment_unit(&self.settings.common.source))
    }

    /// In a child made by fork that does not have the list's chunks, forgets them and the objects
    /// in them, so that neither headers nor links are read. The list stays without a chunk from
    /// then on. Returns whether this is such a child.
    pub(super) fn forget_orphaned_chunks(&self) -> bool {
        if !self.settings.common.source.is_orphaned() || !self.has_chunks() {
            return false;
        }
        self.clear_chains();
        self.fresh.set(ptr::null_mut());
        self.fresh_end.set(ptr::null_mut());
        self.chunks.set(ptr::null_mut());
        self.spare_chunks.set(ptr::null_mut());
        self.spare_capacity.set(0);
        self.growth_size.set(0);
        self.capacity.set(0);
        // Each later free takes the slow path, which comes here.
        self.watermark.set(0);
        self.count.set(0);
        self.sweep_below.set(0);
        self.paid_below.set(0);
        self.watched_since.set(None);
        let record = &self.record;
        self.credit(record.held_bytes.get() as usize);
        record.held_bytes.set(0);
        record.structure_bytes.set(0);
        record.chunks.set(0);
        true
    }

    /// Charges the budget, if there is one.
    #[cfg(system_memory)]
    pub(super) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.settings.common.charge(bytes)
    }

    pub(super) fn credit(&self, bytes: usize) {
        self.settings.common.credit(bytes);
    }

    /// Releases chunks that are on no list. Returns their bytes.
    ///
    /// # Safety
    /// The chunks belonged to this list. Nothing in them is used, and none of their objects is on a
    /// chain or fresh.
    pub(super) unsafe fn release_chunks(
        &self,
        chunks: impl Iterator<Item = ListChunk> + Clone,
    ) -> usize {
        let total: usize = chunks.clone().map(|chunk| chunk.size).sum();
        if total == 0 {
            return 0;
        }
        let record = &self.record;
        let settings = &self.settings.common;
        let mut batch = settings.source.release_batch(total, settings.recycles());
        for chunk in chunks {
            // SAFETY: the header is read before its chunk is released. Size, alignment and mapping
            // number are those that the chunk was taken with.
            unsafe {
                let (align, mapping) = (chunk.header.as_ref().align, chunk.header.as_ref().mapping);
                let start = chunk.header.cast::<u8>();
                if let Some(checks) = self.checks() {
                    checks.chunk_released(self, chunk);
                }
                let before = chunk.first.addr().get() - start.addr().get();
                record.structure_bytes.sub(before as u64);
                batch.add(start, chunk.size, align, mapping);
            }
            record.chunks.sub(1);
        }
        record.source_calls.add(batch.finish() as u64);
        record.held_bytes.sub(total as u64);
        self.credit(total);
        total
    }

    /// Releases all chunks. The caller has no live objects, or gives them up.
    pub(super) fn release_all(&self) -> usize {
        self.clear_chains();
        self.fresh.set(ptr::null_mut());
        self.fresh_end.set(ptr::null_mut());
        self.growth_size.set(0);
        self.capacity.set(0);
        let mut released = self.release_spare(0);
        while let Some(header) = NonNull::new(self.chunks.get()) {
            let chunk = self.chunk_at(header);
            // SAFETY: a chunk of this list, which is taken off the list here.
            unsafe {
                self.chunks.set(header.as_ref().next.get());
                released += self.release_chunks(core::iter::once(chunk));
            }
        }
        released
    }

    /// Releases spare chunks, except for at most `keep` bytes of them. Returns the bytes released.
    pub(super) fn release_spare(&self, mut keep: usize) -> usize {
        let mut released = 0;
        let mut next = self.spare_chunks.replace(ptr::null_mut());
        self.spare_capacity.set(0);
        while let Some(header) = NonNull::new(next) {
            let chunk = self.chunk_at(header);
            // SAFETY: a spare chunk of this list, which was taken off the list here.
            next = unsafe { header.as_ref() }.next.get();
            if chunk.size <= keep {
                keep -= chunk.size;
                self.push_spare_chunk(chunk);
            } else {
                // SAFETY: as above; the chunk holds no live objects.
                released += unsafe { self.release_chunks(core::iter::once(chunk)) };
            }
        }
        released
    }

    // ---- statistics ----

    /// Updates the statistics record.
    pub(super) fn update_record(&self) {
        let (record, size) = (&self.record, self.sizes.layout.size());
        let live = if self.forget_orphaned_chunks() { 0 } else { self.live() };
        let all = self.capacity.get() + self.spare_capacity.get();
        let free = if self.has_chunks() { all.saturating_sub(live) } else { 0 };
        record.live_objects.set(live as u64);
        record.live_bytes.set((live * size) as u64);
        record.free_bytes.set((free * size) as u64);
        let known = ((live + free) * size) as u64 + record.structure_bytes.get();
        record.wasted_bytes.set(record.held_bytes.get().saturating_sub(known));
    }

    fn has_chunks(&self) -> bool {
        !self.checks().is_some_and(ListChecks::has_no_chunks)
    }
}
