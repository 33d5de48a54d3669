//! Anonymous mappings.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{PagedSource, Source};
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::SmallTouch;
use crate::memory::chunk_cache::Backing;
use crate::memory::layout::{HUGE_PAGE, SEGMENT_GRANULE, checked_align_up};
use crate::memory::process_cache::unmap_or_discard;
use crate::memory::{first_touch, os, tools};

/// Anonymous private mappings: the default source. The process-wide recycler keeps its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmap {
    pub(super) pages: MmapPages,
}

/// Which pages a mapping uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MmapPages {
    #[default]
    Grown,
    Small,
    Huge,
}

impl Mmap {
    /// Ordinary pages, and possibly huge pages for what an allocator takes beyond its first 2 MiB.
    /// From there on, an arena's chunks and a slab's ranges are 2 MiB and more. The library advises
    /// the kernel to use huge pages for them, if their first touch costs less than that of ordinary
    /// pages. It measures both as the program runs. (See
    /// [`FreshMemory`](crate::recycler::FreshMemory).) With huge pages, a large query causes far
    /// fewer page faults, and fewer misses of the address cache (TLB). An arena that has filled
    /// 2 MiB holds at most as much unused memory as used memory.
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

    pub(super) fn align(self) -> usize {
        match self.pages {
            MmapPages::Grown | MmapPages::Small => os::page_size(),
            MmapPages::Huge => HUGE_PAGE,
        }
    }

    pub(super) fn map(self, size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
        self.map_fresh(size, align, SmallTouch::Faults).map(|(block, _)| block)
    }

    /// Maps a block. Returns it, and whether it begins with a huge page.
    pub(super) fn map_fresh(
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
pub(super) fn backing_of(align: usize) -> Backing {
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
