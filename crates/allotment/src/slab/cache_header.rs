//! The part of a thread cache that other threads and the inline code of the C interface read.
//!
//! # Invariants
//!
//! 1. A header lies at the start of its cache's block (see `thread_cache.rs`). The block stays
//!    until the slab is destroyed.
//! 2. Other threads only read `top`, `capacity`, `outgoing`, `lifetime` and `next`, and acquire the
//!    ownership. Everything else is the owner's.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};

use super::cache_ownership::CacheOwnership;
use super::geometry::SlabGeometry;

/// The bytes of a `ThreadCache` with its header. The entries lie behind it.
pub(super) const CACHE_BYTES: usize = 384;
/// The alignment of a `ThreadCache`.
pub(super) const CACHE_ALIGN: usize = 128;

/// The header of a thread cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CacheHeader {
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
}

impl CacheHeader {
    /// The layout of a cache with its entries.
    pub(super) fn layout(geometry: &SlabGeometry) -> Layout {
        let entries = geometry.max_cached + 1 + geometry.max_outgoing;
        let bytes = CACHE_BYTES + entries * size_of::<NonNull<u8>>();
        Layout::from_size_align(bytes, CACHE_ALIGN).expect("a few KiB")
    }

    /// Frees the block of a cache.
    ///
    /// # Safety
    /// It was made with this geometry, no thread uses it, and it is destroyed once.
    pub(super) unsafe fn destroy(header: NonNull<Self>, geometry: &SlabGeometry) {
        // SAFETY: the caller upholds the contract. No field of a `ThreadCache` needs drop.
        unsafe { System.dealloc(header.as_ptr().cast(), Self::layout(geometry)) }
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
