//! Sources of memory, and how a chunk is taken from a source and given back.
//!
//! # Invariants
//!
//! 1. A block that a source returned belongs to the taker alone. Its `size` bytes are valid and
//!    writable, at the requested alignment, until the block is given back to the same source with
//!    the same size.
//! 2. A chunk stores its mapping number ([`NIL`] for none). It goes back through the source
//!    that it came from. So a recycled chunk is always one of this library's own anonymous
//!    mappings.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::sync::Arc;

use super::chunk_cache::{Backing, RecycleBatch, WarmChunk};
use super::first_touch::SmallTouch;
use super::index_stack::NIL;
use super::layout::{CACHE_LINE, HUGE_PAGE, SEGMENT_GRANULE, checked_align_up, class_of};
use super::process_cache::{self, MappingTable, unmap_or_discard};
use super::process_identity::ProcessIdentity;
use super::small_chunks::MAX_SMALL;
use super::{first_touch, os, thread_chunks, tools};
use crate::error::{AllocError, ErrorKind};

/// A place that memory comes from, in pieces of one page or more. You can implement your own.
///
/// The library asks a source for whole chunks and ranges, never for single objects. It calls the
/// source from every thread that uses an allocator on it.
///
/// # Safety
/// - A block returned by [`acquire`](Source::acquire) is valid for reads and writes of
///   `layout.size()` bytes, is aligned to `layout.align()`, overlaps no other memory in use, and
///   stays so until it is released.
/// - The source's calls and its drop don't unwind. They use no allocator that is on this source,
///   and no global allocator that is built on one.
/// - [`paged`](Source::paged) and [`is_inherited`](Source::is_inherited) always return the same
///   answer. `is_inherited` returns `false` if a child made by fork does not have the memory. The
///   source then does in the child what is said there.
pub unsafe trait Source: Send + Sync {
    /// The kind of source in one word, for reports.
    fn name(&self) -> &str;

    /// Takes a block. Its bytes are zero if [`zeroed`](Source::zeroed) returns `true`; otherwise
    /// they can have any value.
    ///
    /// # Errors
    /// If the source has no such block. The source must then be as it was before the call.
    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Gives a block back.
    ///
    /// # Safety
    /// The block came from this source's `acquire` with this layout, is released once, and nothing
    /// refers to it.
    unsafe fn release(&self, block: NonNull<u8>, layout: Layout);

    /// Whether every acquired block is filled with zeros.
    fn zeroed(&self) -> bool {
        false
    }

    /// Whether a child made by fork has its own copy of the memory, as with private mappings. If
    /// not, an allocator on this source neither reads its chunks nor gives them back in the child,
    /// and takes no others ([`ErrorKind::ForkedChild`]). The same holds for allocators that the child
    /// makes on a [`SharedSource`] that it inherited.
    ///
    /// The source must ensure that an access to the memory faults in the child. It is not enough to
    /// exclude the memory from forks: the addresses must also be reserved in the child before
    /// anything else can be mapped there.
    ///
    /// A [`SharedSource`] belongs to the process that made it. If the child inherits an `Arc` of the
    /// source and makes a [`SharedSource`] from that, the library calls
    /// [`acquire`](Source::acquire) or [`reserve`](PagedSource::reserve) in the child. They must then
    /// return an error, such as [`ErrorKind::ForkedChild`], or memory of the child's own that
    /// satisfies the contract. They can't wait for locks that threads of the parent may hold at the
    /// fork. The library releases only blocks that were acquired in the same process.
    fn is_inherited(&self) -> bool {
        true
    }

    /// This source as a [`PagedSource`], if it can commit memory page by page. From a paged source,
    /// a slab reserves a few large ranges. From any other source, it acquires and releases each
    /// page by itself.
    fn paged(&self) -> Option<&dyn PagedSource> {
        None
    }
}

/// A source that lends addresses first, and commits and decommits the memory behind them page by
/// page.
///
/// # Safety
/// A reserved range overlaps no other memory in use until it is returned. Each part of it that was
/// committed, and not decommitted after that, is valid for reads and writes. The calls don't
/// unwind.
pub unsafe trait PagedSource: Source {
    /// Reserves a range of addresses: whole hardware pages, at `layout.align()`.
    ///
    /// # Errors
    /// If there is no such range. The source must then be as it was before the call.
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Commits memory behind whole hardware pages of a reserved range.
    ///
    /// # Errors
    /// If there is no memory. The range must then be as it was before the call.
    ///
    /// # Safety
    /// The pages lie in a range that was reserved and not returned, and are not committed.
    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError>;

    /// Decommits the memory of whole hardware pages. The addresses stay reserved.
    ///
    /// # Safety
    /// The pages were committed, and nothing refers to their bytes.
    unsafe fn decommit(&self, start: NonNull<u8>, len: usize);

    /// Returns a range.
    ///
    /// # Safety
    /// The range was reserved with this layout, is returned once, and none of it is committed.
    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout);
}

/// The system's malloc (`malloc`, `posix_memalign`), independent of the program's global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc;

// SAFETY: `System` is the standard library's malloc and keeps this contract.
unsafe impl Source for Malloc {
    fn name(&self) -> &str {
        "malloc"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Err(AllocError::new(ErrorKind::SourceRefused, 0));
        }
        // SAFETY: the size is not zero.
        let block = unsafe { System.alloc(layout) };
        NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(block.as_ptr(), layout) }
    }
}

/// Anonymous private mappings: the default source. The process-wide recycler keeps its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmap {
    pages: MmapPages,
}

/// Which pages a mapping uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MmapPages {
    #[default]
    Grown,
    Small,
    Huge,
}

impl Mmap {
    /// Ordinary pages, and possibly huge pages for what an allocator takes beyond its first 2 MiB.
    /// From there on, an arena's chunks and a slab's ranges are 2 MiB and more. The library advises
    /// the kernel to use huge pages for them, if their first touch costs less than that of ordinary
    /// pages. It measures both as the program runs. (See [`FreshMemory`](crate::FreshMemory).) With
    /// huge pages, a large query takes far fewer page faults and has fewer misses of the address
    /// cache (TLB).
    /// An arena that has filled 2 MiB holds at most as much unused memory as used memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: MmapPages::Grown }
    }

    /// Only ordinary pages, for chunks of every size. If the system uses huge pages without being
    /// asked, each new mapping takes one more system call, which refuses them.
    #[must_use]
    pub const fn small_pages() -> Self {
        Self { pages: MmapPages::Small }
    }

    /// Huge pages from the first chunk on, whatever their first touch costs. All chunks are
    /// multiples of 2 MiB, and aligned to 2 MiB. This is advice only, here and in
    /// [`new`](Self::new): if the system has no huge pages, the chunks use ordinary ones.
    #[must_use]
    pub const fn huge_pages() -> Self {
        Self { pages: MmapPages::Huge }
    }

    fn align(self) -> usize {
        match self.pages {
            MmapPages::Grown | MmapPages::Small => os::page_size(),
            MmapPages::Huge => HUGE_PAGE,
        }
    }

    fn map(self, size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
        self.map_fresh(size, align, SmallTouch::Faults).map(|(block, _)| block)
    }

    /// Maps a block. Returns it, and whether it begins with a huge page.
    fn map_fresh(
        self,
        size: usize,
        align: usize,
        small: SmallTouch,
    ) -> Result<(NonNull<u8>, bool), AllocError> {
        let align = align.max(self.align());
        let block = os::map(size, align)?;
        tools::add_leak_root(block, size);
        let is_huge = match self.pages {
            // SAFETY: just mapped at a multiple of a huge page.
            MmapPages::Grown if align >= HUGE_PAGE => unsafe {
                first_touch::touch(block, size, small)
            },
            // SAFETY: as above.
            MmapPages::Huge => unsafe { first_touch::touch_huge(block, size) },
            MmapPages::Grown | MmapPages::Small => {
                first_touch::use_small(block, size);
                false
            }
        };
        Ok((block, is_huge))
    }
}

/// All chunks of one backing have one alignment. So the alignment tells the backing of a chunk that
/// is given back.
fn backing_of(align: usize) -> Backing {
    if align >= HUGE_PAGE {
        Backing::HugePages
    } else if align >= SEGMENT_GRANULE && align > os::page_size() {
        Backing::Granules
    } else {
        Backing::Pages
    }
}

// SAFETY: a fresh mapping overlaps no other memory until it is unmapped. `acquire` rounds the size
// up to whole pages, and `release` computes the same size.
unsafe impl Source for Mmap {
    fn name(&self) -> &str {
        "mmap"
    }

    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let size = checked_align_up(layout.size(), self.align())
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        self.map(size, layout.align())
    }

    unsafe fn release(&self, block: NonNull<u8>, layout: Layout) {
        let size = checked_align_up(layout.size(), self.align()).unwrap_or(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { unmap_or_discard(block, size) };
    }

    fn zeroed(&self) -> bool {
        true
    }

    fn paged(&self) -> Option<&dyn PagedSource> {
        Some(self)
    }
}

// SAFETY: as for `Source`. A range is a separate private mapping, writable as a whole. Pages that
// were never accessed, or were discarded, have no memory; they get zeroed memory on the next
// access.
unsafe impl PagedSource for Mmap {
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let size = checked_align_up(layout.size(), os::page_size())
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, layout.size()))?;
        self.map(size, layout.align())
    }

    unsafe fn commit(&self, _: NonNull<u8>, _: usize) -> Result<(), AllocError> {
        Ok(())
    }

    unsafe fn decommit(&self, start: NonNull<u8>, len: usize) {
        // SAFETY: guaranteed by the caller. It can fail only for ranges that are not mapped.
        let _ = unsafe { os::discard(start, len) };
    }

    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout) {
        let size = checked_align_up(layout.size(), os::page_size()).unwrap_or(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { unmap_or_discard(start, size) };
    }
}

/// Any source, shared and cheap to clone. Builders take this type. It is made `from` [`Malloc`],
/// [`Mmap`], [`File`](crate::File) or an `Arc` of your own [`Source`].
#[derive(Clone)]
pub struct SharedSource(SourceVariant);

#[derive(Clone)]
enum SourceVariant {
    Mmap(Mmap),
    Malloc,
    /// With the process that has the memory, if its children made by fork do not.
    Custom(Arc<dyn Source>, Option<ProcessIdentity>),
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

/// A chunk that was taken from a source or the recycler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquiredChunk {
    pub start: NonNull<u8>,
    /// Its size, at least the size asked for.
    pub size: usize,
    /// The alignment that it was asked for with.
    pub align: usize,
    /// Its mapping number in the chunk cache, or [`NIL`].
    pub mapping: u32,
    /// Whether it came warm from the recycler, without a system call.
    pub recycled: bool,
    /// Whether its bytes are known to be zero.
    pub zeroed: bool,
}

impl AcquiredChunk {
    #[inline]
    fn warm(start: NonNull<u8>, size: usize, align: usize, mapping: u32) -> Self {
        Self { start, size, align, mapping, recycled: true, zeroed: false }
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
    /// warm. Unless `exact` is true, it may then also be larger.
    #[inline]
    pub(crate) fn take(
        &self,
        size: usize,
        align: usize,
        recycle: bool,
        exact: bool,
    ) -> Result<AcquiredChunk, AllocError> {
        if recycle {
            let own = self.take_thread_chunk(size, align, exact);
            if let Some((WarmChunk { start, mapping }, size)) = own {
                return Ok(AcquiredChunk::warm(start, size, align, mapping));
            }
        }
        self.take_shared(size, align, recycle)
    }

    /// Takes a thread chunk of this shape, with its size; unless `exact` is true, it may be larger.
    #[inline]
    pub(crate) fn take_thread_chunk(
        &self,
        size: usize,
        align: usize,
        exact: bool,
    ) -> Option<(WarmChunk, usize)> {
        if size > MAX_SMALL || !self.maps_anonymous() || align > os::page_size() {
            return None;
        }
        thread_chunks::take(size, exact)
    }

    /// As [`take`](Self::take), without the thread chunks.
    #[inline(never)]
    fn take_shared(
        &self,
        size: usize,
        align: usize,
        recycle: bool,
    ) -> Result<AcquiredChunk, AllocError> {
        let mmap = match &self.0 {
            SourceVariant::Mmap(mmap) => *mmap,
            SourceVariant::Malloc => return from_source(&Malloc, size, align),
            SourceVariant::Custom(source, _) => {
                self.check_owned(size)?;
                return from_source(&**source, size, align);
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
        let start = mmap.map(size, align)?;
        let mapping = if recycle { process_cache::cache().add_mapping(start, size) } else { NIL };
        Ok(AcquiredChunk { start, size, align, mapping, recycled: false, zeroed: true })
    }

    /// A chunk of the recycler with this size and alignment, if it has one.
    pub(crate) fn take_if_cached(&self, size: usize, align: usize) -> Option<AcquiredChunk> {
        let SourceVariant::Mmap(mmap) = &self.0 else { return None };
        if align > mmap.align() && align != HUGE_PAGE {
            return None;
        }
        let warm = process_cache::cache().take_if_cached(backing_of(align), size)?;
        let WarmChunk { start, mapping } = warm;
        Some(AcquiredChunk { start, size, align, mapping, recycled: true, zeroed: false })
    }

    /// Starts a batch of chunks to release, `total` bytes together. If `recycles` is true, they go
    /// to the thread chunks and the recycler as far as these have room.
    pub(crate) fn release_batch(&self, total: usize, recycles: bool) -> ReleaseBatch<'_> {
        ReleaseBatch { source: self, recycles, left: total, target: None }
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
    Some(AcquiredChunk { start, size, align, mapping, recycled: false, zeroed: true })
}

fn from_source(
    source: &dyn Source,
    size: usize,
    align: usize,
) -> Result<AcquiredChunk, AllocError> {
    let layout = Layout::from_size_align(size, align)
        .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, size))?;
    let start = source.acquire(layout)?;
    let zeroed = source.zeroed();
    Ok(AcquiredChunk { start, size, align, mapping: NIL, recycled: false, zeroed })
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

impl SharedSource {
    /// Makes a chunk a thread chunk, if it can be. Returns whether it did.
    #[inline]
    fn put_thread_chunk(&self, chunk: WarmChunk, size: usize, align: usize) -> bool {
        if size > MAX_SMALL || !self.maps_anonymous() || align > os::page_size() {
            return false;
        }
        let kept = thread_chunks::put(chunk, size);
        if kept {
            tools::forbid(chunk.start, size);
        }
        kept
    }
}
