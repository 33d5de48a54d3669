//! The part of a thread cache that other threads and the inline code of the C interface read.
//!
//! # Invariants
//!
//! 1. A header lies at the start of its cache's block (see `thread_cache.rs`). The block stays
//!    until the slab is destroyed. It lies in a chunk of the recycler, in the chunk's first page; a
//!    short one is a block of malloc.
//! 2. Other threads only read `top`, `capacity`, `outgoing`, `lifetime` and `next`, and acquire or
//!    seize the ownership. Everything else is the owner's.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};

use super::cache_ownership::CacheOwnership;
use super::geometry::SlabGeometry;
use crate::error::{AllocError, ErrorKind};
use crate::memory::chunk_cache::{Backing, WarmChunk};
use crate::memory::index_stack::NIL;
use crate::memory::layout::{class_of, class_size};
use crate::memory::{os, process_cache};

/// The bytes of a `ThreadCache` with its header. The entries lie behind it.
pub(super) const CACHE_BYTES: usize = 384;
/// The alignment of a `ThreadCache`.
pub(super) const CACHE_ALIGN: usize = 128;

/// The number of a block that is no chunk. (0 is a chunk's.)
pub(super) const NO_CHUNK: u32 = NIL;
/// Blocks of consecutive slabs begin at this many different offsets in their chunks (cache
/// colouring), so that they do not compete for the same sets of a processor's cache.
const COLOURS: usize = 16;

/// The header of a thread cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CacheHeader {
    /// The index of the entry with the slot freed last: the number of free entries below it.
    pub top: AtomicUsize,
    /// The number of entries in use. It grows if a thread takes and frees more slots than the cache
    /// can hold, and shrinks if a thread only frees.
    pub capacity: AtomicUsize,
    /// The tag of the slab's pages.
    pub tag: u32,
    /// A [`Lifetime`](super::Lifetime) as a number.
    pub lifetime: u32,
    /// The number of slots on their way back to their pages.
    pub outgoing: AtomicUsize,
    pub ownership: CacheOwnership,
    /// The next cache of the slab.
    pub next: AtomicPtr<CacheHeader>,
    /// The number of the chunk that holds the block, or [`NO_CHUNK`].
    pub chunk: u32,
}

/// The memory of a cache.
#[derive(Debug)]
pub(super) struct CacheBlock {
    pub start: NonNull<u8>,
    /// The number for [`CacheHeader::chunk`].
    pub chunk: u32,
}

impl CacheHeader {
    /// The layout of a cache with its entries.
    pub(super) fn layout(geometry: &SlabGeometry) -> Layout {
        let entries = geometry.max_cached + 1 + geometry.max_outgoing;
        let bytes = CACHE_BYTES + entries * size_of::<NonNull<u8>>();
        Layout::from_size_align(bytes, CACHE_ALIGN).expect("a few KiB")
    }

    /// The size class of the chunk that holds a block.
    fn chunk_class(geometry: &SlabGeometry) -> usize {
        class_of(Self::layout(geometry).size().max(os::page_size())).expect("a few KiB")
    }

    /// Takes the block of a cache, of the slab with this number.
    pub(super) fn take_block(
        geometry: &SlabGeometry,
        number: u32,
    ) -> Result<CacheBlock, AllocError> {
        let layout = Self::layout(geometry);
        // A chunk would waste more than half of its memory.
        if layout.size() < os::page_size() / 2 {
            // SAFETY: the size is not zero.
            let start = NonNull::new(unsafe { System.alloc(layout) })
                .ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))?;
            return Ok(CacheBlock { start, chunk: NO_CHUNK });
        }
        let class = Self::chunk_class(geometry);
        let warm = process_cache::cache().take(Backing::Pages, class_size(class));
        let chunk = warm.map_or_else(|| process_cache::small_chunks().take(class), Ok)?;
        let colour = number as usize / 2 % COLOURS * CACHE_ALIGN;
        let offset = if colour + layout.size() <= class_size(class) { colour } else { 0 };
        // SAFETY: in the chunk, which has that many more bytes than the layout.
        let start = unsafe { chunk.start.add(offset) };
        Ok(CacheBlock { start, chunk: chunk.mapping })
    }

    /// Frees the block of a cache.
    ///
    /// # Safety
    /// It was made with this geometry, no thread uses it, and it is destroyed once.
    pub(super) unsafe fn destroy(header: NonNull<Self>, geometry: &SlabGeometry) {
        // SAFETY: the caller upholds the contract. No field of a `ThreadCache` needs drop.
        unsafe {
            let mapping = header.as_ref().chunk;
            if mapping == NO_CHUNK {
                return System.dealloc(header.as_ptr().cast(), Self::layout(geometry));
            }
            // The block begins in the chunk's first page.
            let offset = header.addr().get() % os::page_size();
            let start = header.cast::<u8>().sub(offset);
            let size = class_size(Self::chunk_class(geometry));
            let mut batch = process_cache::cache().recycle(size);
            batch.add(Backing::Pages, WarmChunk { start, mapping }, size);
            batch.finish();
        }
    }

    pub(super) fn next(&self) -> *mut Self {
        self.next.load(Ordering::Relaxed)
    }

    /// The number of slots that the cache holds; a snapshot for other threads.
    pub(super) fn held_slots(&self) -> usize {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed);
        // The words are read one after the other, and may change in between.
        capacity.saturating_sub(top) + self.outgoing.load(Ordering::Relaxed)
    }
}
