//! Where bytes come from: the sources, and a chunk's way from one and back.
//!
//! # Invariants
//!
//! 1. A block that a source gave is the taker's alone, `size` bytes of it valid and writable at the asked
//!    alignment, until it is given back to the same source with the same size.
//! 2. A chunk knows its link in the recycler ([`NIL`] for none); it goes back through the source that it
//!    came from, so a recycled chunk is always one of our own anonymous mappings.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};
use std::sync::Arc;

use super::layout::{CACHE_LINE, HUGE_PAGE, SEGMENT_GRANULE, checked_align_up};
use super::lifo::NIL;
use super::process::{self, Table, unmap_or_discard};
use super::recycler::{Backing, Giving, Warm};
use super::{hot, os, tools};
use crate::error::{AllocError, ErrorKind};

/// A place that memory comes from, in pieces of a page and more; a user's own may be one.
///
/// The library asks for whole chunks and slabs, never for single objects, from whichever threads use the
/// allocators on it.
///
/// # Safety
/// A block returned by [`acquire`](Source::acquire) is valid for reads and writes of `layout.size()` bytes
/// at `layout.align()`, is nobody else's, and stays so until it is released. The calls, and the source's own drop,
/// don't unwind and use no allocator that is on this source, nor a global allocator that is built on one.
/// [`paged`](Source::paged) and [`is_inherited`](Source::is_inherited) always give the same answer, and the second is
/// `false` where a child made by fork does not have the memory.
pub unsafe trait Source: Send + Sync {
    /// What it is, in a word, for reports.
    fn name(&self) -> &str;

    /// Takes a block. Its bytes are zero if [`zeroed`](Source::zeroed) says so, else anything.
    ///
    /// # Errors
    /// When it has no such block; it must then be as it was before.
    fn acquire(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Gives a block back.
    ///
    /// # Safety
    /// The block came from this source's `acquire` with this layout, is released once, and nothing refers
    /// to it.
    unsafe fn release(&self, block: NonNull<u8>, layout: Layout);

    /// Whether every acquired block reads zeros.
    fn zeroed(&self) -> bool {
        false
    }

    /// Whether a child made by fork has the memory of its own, as with private mappings. Where it has not, a slab
    /// refuses to allocate in the child.
    fn is_inherited(&self) -> bool {
        true
    }

    /// The source as one that lends addresses first and memory page by page, if it can do that. A slab then
    /// takes few large segments of it; of any other source it acquires and releases each page by itself.
    fn paged(&self) -> Option<&dyn PagedSource> {
        None
    }
}

/// A source that lends addresses first and the memory behind them page by page.
///
/// # Safety
/// A reserved range is nobody else's until it is returned. Each part of it that was committed, and not
/// decommitted since, is valid for reads and writes. The calls don't unwind.
pub unsafe trait PagedSource: Source {
    /// Lends a range of addresses; whole hardware pages, at `layout.align()`.
    ///
    /// # Errors
    /// When there is none; the source must then be as it was before.
    fn reserve(&self, layout: Layout) -> Result<NonNull<u8>, AllocError>;

    /// Puts memory behind whole hardware pages of a reserved range.
    ///
    /// # Errors
    /// When there is none; the range must then be as it was before.
    ///
    /// # Safety
    /// The pages lie in a range that was reserved and not returned, and are not committed.
    unsafe fn commit(&self, start: NonNull<u8>, len: usize) -> Result<(), AllocError>;

    /// Takes the memory back and leaves the addresses lent.
    ///
    /// # Safety
    /// The pages were committed, and nothing refers to their bytes.
    unsafe fn decommit(&self, start: NonNull<u8>, len: usize);

    /// Returns a range.
    ///
    /// # Safety
    /// It was reserved with this layout, is returned once, and none of it is committed.
    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout);
}

/// The system's malloc (`malloc`, `posix_memalign`), beneath whatever global allocator the program has.
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
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block.as_ptr(), layout) }
    }
}

/// Anonymous private mappings: the default source. Its chunks are recycled process-wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmap {
    pages: Pages,
}

/// Which pages back a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pages {
    #[default]
    Grown,
    Small,
    Huge,
}

impl Mmap {
    /// Ordinary pages, and huge ones for what an arena takes beyond its first 2 MiB: from there on its
    /// chunks are 2 MiB and more, and the kernel is asked to back them with huge pages. A large query then
    /// takes a hundredth of the page faults, and fewer misses of the address cache ever after; an arena
    /// that has filled 2 MiB holds at most as much again that it does not use.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: Pages::Grown }
    }

    /// Ordinary pages alone, whatever is taken.
    #[must_use]
    pub const fn small_pages() -> Self {
        Self { pages: Pages::Small }
    }

    /// Huge pages from the first chunk: all are multiples of 2 MiB, aligned to it. Advice only, here and in
    /// [`new`](Self::new): where the system has no huge pages, the chunks have ordinary ones.
    #[must_use]
    pub const fn huge_pages() -> Self {
        Self { pages: Pages::Huge }
    }

    fn align(self) -> usize {
        match self.pages {
            Pages::Grown | Pages::Small => os::page_size(),
            Pages::Huge => HUGE_PAGE,
        }
    }

    fn map(self, size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
        let align = align.max(self.align());
        let block = os::map(size, align)?;
        if backing_of(align) == Backing::HugePages && self.pages != Pages::Small {
            let _ = os::advise_huge(block, size);
        }
        tools::search(block, size);
        Ok(block)
    }
}

/// Chunks of one backing have one alignment, by which a chunk that goes back is told apart.
fn backing_of(align: usize) -> Backing {
    if align >= HUGE_PAGE {
        Backing::HugePages
    } else if align >= SEGMENT_GRANULE && align > os::page_size() {
        Backing::Granules
    } else {
        Backing::Pages
    }
}

// SAFETY: a fresh mapping is nobody else's until it is unmapped; `acquire` rounds up to whole pages, and
// `release` does the same sum.
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
        // SAFETY: passed on to the caller.
        unsafe { unmap_or_discard(block, size) };
    }

    fn zeroed(&self) -> bool {
        true
    }

    fn paged(&self) -> Option<&dyn PagedSource> {
        Some(self)
    }
}

// SAFETY: as for `Source`: a range is a mapping of its own, private and writable as a whole. Untouched or
// discarded pages have no memory, and get it, zeroed, when they are touched.
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
        // SAFETY: passed on to the caller. Advice can be refused only for ranges that are not mapped.
        let _ = unsafe { os::discard(start, len) };
    }

    unsafe fn unreserve(&self, start: NonNull<u8>, layout: Layout) {
        let size = checked_align_up(layout.size(), os::page_size()).unwrap_or(layout.size());
        // SAFETY: passed on to the caller.
        unsafe { unmap_or_discard(start, size) };
    }
}

/// Any source, shared and cheap to clone: what builders take. Made `from` [`Malloc`], [`Mmap`],
/// [`File`](crate::File) or an `Arc` of a user's own [`Source`].
#[derive(Clone)]
pub struct SharedSource(Kind);

#[derive(Clone)]
enum Kind {
    Mmap(Mmap),
    Malloc,
    Custom(Arc<dyn Source>),
}

impl From<Mmap> for SharedSource {
    fn from(source: Mmap) -> Self {
        Self(Kind::Mmap(source))
    }
}

impl From<Malloc> for SharedSource {
    fn from(_: Malloc) -> Self {
        Self(Kind::Malloc)
    }
}

impl<S: Source + 'static> From<Arc<S>> for SharedSource {
    fn from(source: Arc<S>) -> Self {
        Self(Kind::Custom(source))
    }
}

impl From<Arc<dyn Source>> for SharedSource {
    fn from(source: Arc<dyn Source>) -> Self {
        Self(Kind::Custom(source))
    }
}

impl SharedSource {
    /// Anonymous mappings with ordinary pages.
    pub(crate) const DEFAULT: Self = Self(Kind::Mmap(Mmap::new()));
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

/// A chunk as it comes from a source or the recycler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub start: NonNull<u8>,
    /// Its size, at least what was asked.
    pub size: usize,
    /// Its place in the recycler, or [`NIL`].
    pub link: u32,
    /// It came warm from the recycler: no call was made to the system.
    pub recycled: bool,
    /// Its bytes are known to be zero.
    pub zeroed: bool,
}

impl SharedSource {
    /// What it is, in a word.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            Kind::Mmap(Mmap { pages: Pages::Grown }) => "mmap",
            Kind::Mmap(Mmap { pages: Pages::Small }) => "mmap with small pages",
            Kind::Mmap(Mmap { pages: Pages::Huge }) => "mmap with huge pages",
            Kind::Malloc => "malloc",
            Kind::Custom(source) => source.name(),
        }
    }

    /// The source itself.
    pub(crate) fn as_source(&self) -> &dyn Source {
        match &self.0 {
            Kind::Mmap(mmap) => mmap,
            Kind::Malloc => &Malloc,
            Kind::Custom(source) => &**source,
        }
    }

    /// Whether its chunks are our own anonymous mappings.
    pub(crate) fn maps_anonymous(&self) -> bool {
        matches!(self.0, Kind::Mmap(_))
    }

    /// The alignment that every chunk of it has.
    pub(crate) fn chunk_align(&self) -> usize {
        match self.0 {
            Kind::Mmap(mmap) => mmap.align(),
            Kind::Malloc | Kind::Custom(_) => CACHE_LINE,
        }
    }

    /// Whether an arena that has grown goes on with chunks of huge pages, aligned to [`HUGE_PAGE`].
    pub(crate) fn grows_to_huge_pages(&self) -> bool {
        matches!(self.0, Kind::Mmap(Mmap { pages: Pages::Grown }))
    }

    /// The size that chunks are multiples of.
    pub(crate) fn chunk_unit(&self) -> usize {
        match self.0 {
            Kind::Mmap(mmap) => mmap.align(),
            Kind::Malloc | Kind::Custom(_) => os::page_size(),
        }
    }

    /// Takes a chunk of `size` bytes, a multiple of [`chunk_unit`](Self::chunk_unit), at `align`, at least
    /// [`chunk_align`](Self::chunk_align); warm where `recycle` allows it, and larger where `exact` does not
    /// forbid it.
    pub(crate) fn take(
        &self,
        size: usize,
        align: usize,
        recycle: bool,
        exact: bool,
    ) -> Result<Taken, AllocError> {
        let mmap = match &self.0 {
            Kind::Mmap(mmap) => *mmap,
            Kind::Malloc => return from_source(&Malloc, size, align),
            Kind::Custom(source) => return from_source(&**source, size, align),
        };
        // What is kept warm has the alignment of its backing, no more.
        let backing = backing_of(align);
        let has_backing = align <= mmap.align() || align == HUGE_PAGE || align == SEGMENT_GRANULE;
        let recycle = recycle && has_backing;
        if recycle {
            let at_hand = match backing {
                Backing::Pages if !exact => hot::take(size),
                _ => None,
            };
            if let Some((Warm { start, link }, size)) = at_hand {
                return Ok(Taken { start, size, link, recycled: true, zeroed: false });
            }
            if let Some(Warm { start, link }) = process::cache().take(backing, size) {
                return Ok(Taken { start, size, link, recycled: true, zeroed: false });
            }
        }
        let start = mmap.map(size, align)?;
        let link = if recycle { process::cache().link(start, size) } else { NIL };
        Ok(Taken { start, size, link, recycled: false, zeroed: true })
    }

    /// Keeps a chunk of this source at hand for its thread, if it can; whether it was taken over.
    ///
    /// # Safety
    /// The chunk was taken from this source with this size, alignment and link, by an arena that recycles, and
    /// nothing refers to it any more.
    pub(crate) unsafe fn keep_at_hand(
        &self,
        start: NonNull<u8>,
        size: usize,
        align: usize,
        link: u32,
    ) -> bool {
        if !self.maps_anonymous() || backing_of(align) != Backing::Pages {
            return false;
        }
        let kept = hot::put(Warm { start, link }, size);
        if kept {
            tools::forbid(start, size);
        }
        kept
    }

    /// Begins to give chunks back, `total` bytes in all.
    pub(crate) fn give(&self, total: usize) -> GivingBack<'_> {
        match &self.0 {
            Kind::Mmap(_) => GivingBack::Recycler(process::cache().give(total)),
            Kind::Malloc => GivingBack::Source(&Malloc, 0),
            Kind::Custom(source) => GivingBack::Source(&**source, 0),
        }
    }
}

fn from_source(source: &dyn Source, size: usize, align: usize) -> Result<Taken, AllocError> {
    let layout = Layout::from_size_align(size, align)
        .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, size))?;
    let start = source.acquire(layout)?;
    Ok(Taken { start, size, link: NIL, recycled: false, zeroed: source.zeroed() })
}

/// Chunks on their way back to where they came from.
#[must_use = "`finish` hands the chunks over"]
pub(crate) enum GivingBack<'s> {
    Recycler(Giving<'static, Table>),
    Source(&'s dyn Source, usize),
}

impl GivingBack<'_> {
    /// Gives one chunk back.
    ///
    /// # Safety
    /// The chunk was taken from this source with this size and alignment and link, and nothing refers to
    /// it any more.
    pub(crate) unsafe fn add(&mut self, start: NonNull<u8>, size: usize, align: usize, link: u32) {
        match self {
            Self::Recycler(giving) => {
                tools::forbid(start, size);
                // SAFETY: passed on to the caller; a chunk from `Mmap` is its own mapping.
                unsafe { giving.add(backing_of(align), Warm { start, link }, size) };
            }
            Self::Source(source, calls) => {
                *calls += 1;
                tools::allow_defined(start, size);
                // SAFETY: `take` acquired the block with this layout, which was thus a valid one.
                unsafe {
                    source.release(start, Layout::from_size_align_unchecked(size, align));
                }
            }
        }
    }

    /// Hands the last ones over. Returns the number of calls made to the system or the source.
    pub(crate) fn finish(self) -> usize {
        match self {
            Self::Recycler(giving) => giving.finish(),
            Self::Source(_, calls) => calls,
        }
    }
}
