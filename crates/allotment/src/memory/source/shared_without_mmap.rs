//! Any source, in a build without the system's mappings, and how chunks are taken and released.
//!
//! The invariants are those of `source.rs`.

use alloc::sync::Arc;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::custom::{CustomSource, acquire};
use super::{Malloc, Source};
use crate::error::AllocError;
use crate::memory::acquired_chunk::{AcquiredChunk, SmallTouch, WarmChunk};
use crate::memory::layout::CACHE_LINE;
use crate::memory::os;

/// Any source, shared and cheap to clone. Builders take this type. It is made `from` [`Malloc`] or
/// an `Arc` of your own [`Source`].
#[derive(Clone)]
pub struct SharedSource(SourceVariant);

#[derive(Clone)]
enum SourceVariant {
    Malloc,
    Custom(CustomSource),
}

impl From<Malloc> for SharedSource {
    fn from(_: Malloc) -> Self {
        Self(SourceVariant::Malloc)
    }
}

impl<S: Source + 'static> From<Arc<S>> for SharedSource {
    fn from(source: Arc<S>) -> Self {
        let source: Arc<dyn Source> = source;
        source.into()
    }
}

impl From<Arc<dyn Source>> for SharedSource {
    fn from(source: Arc<dyn Source>) -> Self {
        Self(SourceVariant::Custom(CustomSource::Arc(source)))
    }
}

impl SharedSource {
    /// Shares a source. An `Arc` of it converts to a `SharedSource`, too, but ends the process if
    /// there is no memory for the `Arc`.
    ///
    /// # Errors
    /// If there is no memory for it. The source is dropped.
    pub fn try_new(source: impl Source + 'static) -> Result<Self, AllocError> {
        CustomSource::try_new(source).map(|source| Self(SourceVariant::Custom(source)))
    }

    /// The kind of source, for reports.
    #[must_use]
    pub fn name(&self) -> &str {
        self.as_source().name()
    }

    /// The source itself.
    fn as_source(&self) -> &dyn Source {
        match &self.0 {
            SourceVariant::Malloc => &Malloc,
            SourceVariant::Custom(source) => &**source,
        }
    }
}

impl SharedSource {
    /// Malloc.
    pub(crate) const DEFAULT: Self = Self(SourceVariant::Malloc);
}

impl Default for SharedSource {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for SharedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedSource").field(&self.name()).finish()
    }
}

/// What an allocator asks of its source. The answers are those of a source without a recycler,
/// without huge pages, and whose memory each process has.
impl SharedSource {
    pub(crate) const fn is_orphaned(&self) -> bool {
        false
    }

    pub(crate) const fn chunk_align(&self) -> usize {
        CACHE_LINE
    }

    pub(crate) const fn grows_to_huge_pages(&self) -> bool {
        false
    }

    pub(crate) fn chunk_unit(&self) -> usize {
        os::page_size()
    }

    pub(crate) fn take(
        &self,
        size: usize,
        align: usize,
        _recycle: bool,
        _exact: bool,
        _small: SmallTouch,
    ) -> Result<AcquiredChunk, AllocError> {
        acquire(self.as_source(), size, align)
    }

    pub(crate) const fn take_thread_chunk(
        &self,
        _size: usize,
        _align: usize,
        _exact: bool,
    ) -> Option<(WarmChunk, usize)> {
        None
    }

    pub(crate) const fn take_if_cached(
        &self,
        _size: usize,
        _align: usize,
    ) -> Option<AcquiredChunk> {
        None
    }

    /// Starts a batch of chunks to release.
    pub(crate) fn release_batch(&self, _total: usize, _recycles: bool) -> ReleaseBatch<'_> {
        ReleaseBatch { source: self.as_source(), calls: 0 }
    }
}

/// Chunks that are being released to their source.
#[must_use = "`finish` counts the calls"]
pub(crate) struct ReleaseBatch<'s> {
    source: &'s dyn Source,
    calls: usize,
}

impl ReleaseBatch<'_> {
    /// Releases one chunk.
    ///
    /// # Safety
    /// The chunk was taken from this source with this size and alignment. Nothing refers to it any
    /// more.
    pub(crate) unsafe fn add(&mut self, start: NonNull<u8>, size: usize, align: usize, _: u32) {
        self.calls += 1;
        // SAFETY: `take` acquired the block with this layout, so the layout is valid.
        unsafe { self.source.release(start, Layout::from_size_align_unchecked(size, align)) };
    }

    /// Ends the batch. Returns the number of calls made to the source.
    pub(crate) fn finish(self) -> usize {
        self.calls
    }
}
