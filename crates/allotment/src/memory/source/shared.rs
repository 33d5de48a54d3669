//! Any source, and how chunks are taken from it.
//!
//! The invariants are those of `source.rs`.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use super::custom::{CustomSource, acquire};
use super::mmap::{MmapPages, backing_of};
use super::{Malloc, Mmap, PagedSource, Source};
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::{AcquiredChunk, NO_MAPPING, SmallTouch, WarmChunk};
use crate::memory::layout::{CACHE_LINE, HUGE_PAGE, SEGMENT_GRANULE, checked_align_up, class_of};
use crate::memory::process_identity::ProcessIdentity;
use crate::memory::small_chunks::MAX_SMALL;
use crate::memory::{first_touch, os, process_cache, thread_chunks, tools};

/// Fewer bytes than this are taken without asking the system before.
const MIN_CHECKED_ROOM: usize = 64 << 20;

/// Any source, shared and cheap to clone. Builders take this type. It is made `from` [`Malloc`],
/// [`Mmap`], [`File`](crate::File) or an `Arc` of your own [`Source`].
#[derive(Clone)]
pub struct SharedSource(pub(super) SourceVariant);

#[derive(Clone)]
pub(super) enum SourceVariant {
    Mmap(Mmap),
    Malloc,
    /// With the process that has the memory, if its children made by fork do not.
    Custom(CustomSource, Option<ProcessIdentity>),
}

impl From<Mmap> for SharedSource {
    fn from(source: Mmap) -> Self {
        Self(SourceVariant::Mmap(source))
    }
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
        Self::custom(CustomSource::Arc(source))
    }
}

impl SharedSource {
    /// Shares a source. An `Arc` of it converts to a `SharedSource`, too, but ends the process if
    /// there is no memory for the `Arc`.
    ///
    /// # Errors
    /// If there is no memory for it. The source is dropped.
    pub fn try_new(source: impl Source + 'static) -> Result<Self, AllocError> {
        CustomSource::try_new(source).map(Self::custom)
    }

    /// The address of a source that was shared by [`try_new`](Self::try_new), for a caller who
    /// knows its type.
    #[doc(hidden)]
    #[must_use]
    pub fn address(&self) -> *const () {
        core::ptr::from_ref(self.as_source()).cast()
    }

    fn custom(source: CustomSource) -> Self {
        let owner = (!source.is_inherited()).then(|| {
            // If forks can't be counted yet, `check_owned` tries again before memory is taken.
            let _ = ProcessIdentity::count_forks();
            ProcessIdentity::current()
        });
        Self(SourceVariant::Custom(source, owner))
    }
}

impl SharedSource {
    /// Anonymous mappings with ordinary pages.
    pub(crate) const DEFAULT: Self = Self(SourceVariant::Mmap(Mmap::new()));
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

impl AcquiredChunk {
    #[inline]
    fn warm(start: NonNull<u8>, size: usize, align: usize, mapping: u32) -> Self {
        let [recycled, zeroed, untouched] = [true, false, false];
        Self { start, size, align, mapping, recycled, zeroed, untouched }
    }
}

impl SharedSource {
    /// The kind of source, for reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            SourceVariant::Mmap(Mmap { pages: MmapPages::Grown }) => "mmap",
            SourceVariant::Mmap(Mmap { pages: MmapPages::Small }) => "mmap with small pages",
            SourceVariant::Mmap(Mmap { pages: MmapPages::Huge }) => "mmap with huge pages",
            SourceVariant::Malloc => "malloc",
            SourceVariant::Custom(source, _) => source.name(),
        }
    }

    /// The source itself.
    pub(crate) fn as_source(&self) -> &dyn Source {
        match &self.0 {
            SourceVariant::Mmap(mmap) => mmap,
            SourceVariant::Malloc => &Malloc,
            SourceVariant::Custom(source, _) => &**source,
        }
    }

    /// Whether this process is a child made by fork that does not have the source's memory.
    pub(crate) fn is_orphaned(&self) -> bool {
        matches!(self.0, SourceVariant::Custom(_, Some(owner)) if !owner.is_current())
    }

    /// Returns an error if this process must not take `bytes` bytes: it does not have the source's
    /// memory, or its children could not tell that they do not have it.
    pub(crate) fn check_owned(&self, bytes: usize) -> Result<(), AllocError> {
        let SourceVariant::Custom(_, Some(owner)) = self.0 else { return Ok(()) };
        if !owner.is_current() {
            return Err(AllocError::new(ErrorKind::ForkedChild, bytes));
        }
        ProcessIdentity::count_forks()
    }

    /// Returns an error if the system would refuse this many bytes at once, for a caller that takes
    /// them in pieces. The system refuses no small piece: if each is touched at once, the process
    /// ends when there is no memory left. A custom source refuses by itself.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), AllocError> {
        match self.0 {
            SourceVariant::Mmap(_) | SourceVariant::Malloc if bytes >= MIN_CHECKED_ROOM => {
                let align = os::page_size();
                let overflow = AllocError::new(ErrorKind::SizeOverflow, bytes);
                let len = checked_align_up(bytes, align).ok_or(overflow)?;
                let start = os::map(len, align)?;
                // SAFETY: mapped above, and not used. If it stays, it takes addresses only.
                let _ = unsafe { os::unmap(start, len) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether its chunks are this library's own anonymous mappings.
    pub(crate) fn maps_anonymous(&self) -> bool {
        matches!(self.0, SourceVariant::Mmap(_))
    }

    /// Reserves a range of this source, which is paged. Returns it, and whether it begins with a
    /// huge page.
    pub(crate) fn reserve(
        &self,
        source: &dyn PagedSource,
        layout: Layout,
        small: SmallTouch,
    ) -> Result<(NonNull<u8>, bool), AllocError> {
        match self.0 {
            SourceVariant::Mmap(mmap) => mmap.map_fresh(layout.size(), layout.align(), small),
            _ => source.reserve(layout).map(|start| (start, false)),
        }
    }

    /// The alignment of every chunk from this source.
    pub(crate) fn chunk_align(&self) -> usize {
        match self.0 {
            SourceVariant::Mmap(mmap) => mmap.align(),
            SourceVariant::Malloc | SourceVariant::Custom(..) => CACHE_LINE,
        }
    }

    /// Whether an arena that has grown continues with chunks of huge pages, aligned to
    /// [`HUGE_PAGE`].
    pub(crate) fn grows_to_huge_pages(&self) -> bool {
        matches!(self.0, SourceVariant::Mmap(Mmap { pages: MmapPages::Grown }))
    }

    /// Every chunk size is a multiple of this.
    pub(crate) fn chunk_unit(&self) -> usize {
        match self.0 {
            SourceVariant::Mmap(mmap) => mmap.align(),
            SourceVariant::Malloc | SourceVariant::Custom(..) => os::page_size(),
        }
    }

    /// Takes a chunk of `size` bytes, a multiple of [`chunk_unit`](Self::chunk_unit), aligned to
    /// `align`, at least [`chunk_align`](Self::chunk_align). If `recycle` is true, the chunk may be
    /// warm. Unless `exact` is true, it may then also be larger. `small` is how the caller touches
    /// small pages.
    #[inline]
    pub(crate) fn take(
        &self,
        size: usize,
        align: usize,
        recycle: bool,
        exact: bool,
        small: SmallTouch,
    ) -> Result<AcquiredChunk, AllocError> {
        if recycle {
            let own = self.take_thread_chunk(size, align, exact);
            if let Some((WarmChunk { start, mapping }, size)) = own {
                return Ok(AcquiredChunk::warm(start, size, align, mapping));
            }
        }
        self.take_shared(size, align, recycle, small)
    }

    /// Takes a thread chunk of this shape, with its size; unless `exact` is true, it may be larger.
    #[inline]
    pub(crate) fn take_thread_chunk(
        &self,
        size: usize,
        align: usize,
        exact: bool,
    ) -> Option<(WarmChunk, usize)> {
        if self.has_thread_chunks(size, align) { thread_chunks::take(size, exact) } else { None }
    }

    /// Whether threads keep chunks of this size and alignment from this source.
    #[inline]
    pub(super) fn has_thread_chunks(&self, size: usize, align: usize) -> bool {
        size <= MAX_SMALL && self.maps_anonymous() && align <= os::page_size()
    }

    /// As [`take`](Self::take), without the thread chunks.
    #[inline(never)]
    fn take_shared(
        &self,
        size: usize,
        align: usize,
        recycle: bool,
        small: SmallTouch,
    ) -> Result<AcquiredChunk, AllocError> {
        let mmap = match &self.0 {
            SourceVariant::Mmap(mmap) => *mmap,
            SourceVariant::Malloc => return acquire(&Malloc, size, align),
            SourceVariant::Custom(source, _) => {
                self.check_owned(size)?;
                return acquire(&**source, size, align);
            }
        };
        // A warm chunk has exactly the alignment of its backing.
        let has_backing = align <= mmap.align() || align == HUGE_PAGE || align == SEGMENT_GRANULE;
        let recycle = recycle && has_backing;
        if recycle {
            let warm = process_cache::cache().take(backing_of(align), size);
            if let Some(WarmChunk { start, mapping }) = warm {
                return Ok(AcquiredChunk::warm(start, size, align, mapping));
            }
        }
        if let Some(chunk) = take_small(size, align) {
            return Ok(chunk);
        }
        let (start, is_huge) = mmap.map_fresh(size, align, small)?;
        let mapping =
            if recycle { process_cache::cache().add_mapping(start, size) } else { NO_MAPPING };
        let [recycled, zeroed, untouched] = [false, true, !is_huge];
        Ok(AcquiredChunk { start, size, align, mapping, recycled, zeroed, untouched })
    }

    /// A chunk of the recycler with this size and alignment, if it has one.
    pub(crate) fn take_if_cached(&self, size: usize, align: usize) -> Option<AcquiredChunk> {
        let SourceVariant::Mmap(mmap) = &self.0 else { return None };
        if align > mmap.align() && align != HUGE_PAGE {
            return None;
        }
        let warm = process_cache::cache().take_if_cached(backing_of(align), size)?;
        Some(AcquiredChunk::warm(warm.start, size, align, warm.mapping))
    }
}

/// Takes a small chunk. `None` if a chunk of this shape must be a mapping of its own, or if the
/// system has no memory for a range of chunks.
fn take_small(size: usize, align: usize) -> Option<AcquiredChunk> {
    // Chunks at the start of a granule are registered, and their protection may change.
    if size > MAX_SMALL || align > os::page_size() || align >= SEGMENT_GRANULE {
        return None;
    }
    let chunk = process_cache::small_chunks().take(class_of(size)?).ok()?;
    let WarmChunk { start, mapping } = chunk;
    first_touch::count_small(size);
    tools::allow_defined(start, size);
    let [recycled, zeroed, untouched] = [false, true, false];
    Some(AcquiredChunk { start, size, align, mapping, recycled, zeroed, untouched })
}
