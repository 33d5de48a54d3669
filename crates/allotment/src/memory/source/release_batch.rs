//! How chunks are released to the recycler or to their source.
//!
//! The invariants are those of `source.rs`.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::mmap::backing_of;
use super::shared::{SharedSource, SourceVariant};
use super::{Malloc, Source};
use crate::memory::chunk_cache::{RecycleBatch, WarmChunk};
use crate::memory::process_cache::{self, MappingTable};
use crate::memory::{thread_chunks, tools};

impl SharedSource {
    /// Starts a batch of chunks to release, `total` bytes together. If `recycles` is true, they go
    /// to the thread chunks and the recycler as far as these have room.
    pub(crate) fn release_batch(&self, total: usize, recycles: bool) -> ReleaseBatch<'_> {
        ReleaseBatch { source: self, recycles, left: total, target: None }
    }

    /// Makes a chunk a thread chunk, if it can be. Returns whether it did.
    #[inline]
    fn put_thread_chunk(&self, chunk: WarmChunk, size: usize, align: usize) -> bool {
        let kept = self.has_thread_chunks(size, align) && thread_chunks::put(chunk, size);
        if kept {
            tools::forbid(chunk.start, size);
        }
        kept
    }
}

/// Chunks that are being released to the recycler or to their source.
#[must_use = "`finish` hands the chunks over"]
pub(crate) struct ReleaseBatch<'s> {
    source: &'s SharedSource,
    recycles: bool,
    /// The bytes of the chunks that are still to be added.
    left: usize,
    /// `None` until a chunk is added that does not become a thread chunk.
    target: Option<ReleaseTarget<'s>>,
}

enum ReleaseTarget<'s> {
    Recycler(RecycleBatch<'static, MappingTable>),
    /// The number of calls is counted.
    Source(&'s dyn Source, usize),
}

impl<'s> ReleaseBatch<'s> {
    /// Releases one chunk.
    ///
    /// # Safety
    /// The chunk was taken from this source with this size, alignment and mapping number, by an
    /// allocator that recycles if this batch does. Nothing refers to it any more.
    #[inline]
    pub(crate) unsafe fn add(
        &mut self,
        start: NonNull<u8>,
        size: usize,
        align: usize,
        mapping: u32,
    ) {
        let chunk = WarmChunk { start, mapping };
        if !self.recycles || !self.source.put_thread_chunk(chunk, size, align) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.add_shared(chunk, size, align) };
        }
        self.left = self.left.saturating_sub(size);
    }

    /// Releases one chunk past the thread chunks.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    #[inline(never)]
    unsafe fn add_shared(&mut self, chunk: WarmChunk, size: usize, align: usize) {
        let chunk = thread_chunks::end_loan(chunk);
        let WarmChunk { start, .. } = chunk;
        let recycles = self.recycles;
        match self.target() {
            ReleaseTarget::Recycler(batch) => {
                tools::forbid(start, size);
                // SAFETY: guaranteed by the caller; a chunk from `Mmap` is a separate mapping or a
                // small chunk, whose number says so.
                unsafe {
                    if recycles {
                        batch.add(backing_of(align), chunk, size);
                    } else {
                        batch.bypass(chunk, size);
                    }
                }
            }
            ReleaseTarget::Source(source, calls) => {
                *calls += 1;
                tools::allow_defined(start, size);
                // SAFETY: `take` acquired the block with this layout, so the layout is valid.
                unsafe {
                    source.release(start, Layout::from_size_align_unchecked(size, align));
                }
            }
        }
    }

    fn target(&mut self) -> &mut ReleaseTarget<'s> {
        self.target.get_or_insert_with(|| match &self.source.0 {
            SourceVariant::Mmap(_) => {
                let reserved = if self.recycles { self.left } else { 0 };
                ReleaseTarget::Recycler(process_cache::cache().recycle(reserved))
            }
            SourceVariant::Malloc => ReleaseTarget::Source(&Malloc, 0),
            SourceVariant::Custom(source, _) => ReleaseTarget::Source(&**source, 0),
        })
    }

    /// Releases the last chunks. Returns the number of calls made to the system or the source.
    pub(crate) fn finish(self) -> usize {
        match self.target {
            Some(ReleaseTarget::Recycler(batch)) => batch.finish(),
            Some(ReleaseTarget::Source(_, calls)) => calls,
            None => 0,
        }
    }
}
