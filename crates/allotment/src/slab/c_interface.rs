//! What the C interface needs of slabs beyond the Rust interface: fast paths that leave the slow
//! path to the caller, and the data that its inline code reads. All of it is hidden and carries no
//! stability promise for other users.
//!
//! The invariants are those of `raw.rs` and `thread_cache.rs`.

use core::ptr::NonNull;

use super::cache_header::CACHE_BYTES;
use super::raw::{RawSlab, RawSlabHandle};
use super::slow_paths;
use super::tags::slab_number_if_whole;
use super::thread_cache::{NO_CACHE, ThreadCache};
use super::thread_table;
use crate::memory::segment_map;
use crate::statistics::Statistics;

impl RawSlab {
    /// Allocates a slot from the calling thread's cache. Returns `None` if the cache holds none;
    /// the slow path is the caller's.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_cached(&self) -> Option<NonNull<u8>> {
        self.alloc_fast()
    }

    /// The statistics of the pages alone, in constant time: `live_objects` and `live_bytes` are 0,
    /// and `free_bytes` counts every slot.
    #[doc(hidden)]
    #[must_use]
    pub fn page_statistics(&self) -> Statistics {
        self.shared().page_statistics()
    }

    /// Frees a slot of any slab by its address alone if this thread has a cache of that slab with
    /// room. Calls `otherwise` if not.
    ///
    /// # Safety
    /// As for [`free_if_slot`](Self::free_if_slot).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_cached_or(slot: NonNull<u8>, otherwise: impl FnOnce()) {
        // An address without a tag belongs to no slab, and no thread has a cache for number 0. If
        // only a part of the granule is a page's, the slow path finds out.
        // SAFETY: a cache of this thread, used before the thread's table changes. The caller
        // upholds the rest.
        unsafe {
            match thread_table::lookup(slab_number_if_whole(segment_map::tag_of(slot.addr().get())))
            {
                Some(cache) if ThreadCache::push_unchecked(cache, slot) => {}
                _ => otherwise(),
            }
        }
    }

    /// Frees a slot of any slab by its address alone. Returns whether the address was a slab's
    /// slot; for any other address nothing happens.
    ///
    /// # Safety
    /// If the address lies in a slab's memory: the slot came from a slab, is freed once, and is not
    /// used afterwards.
    #[doc(hidden)]
    pub unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
        // SAFETY: the caller upholds the contract.
        unsafe { slow_paths::free_if_slot(slot) }
    }
}

#[doc(hidden)]
impl RawSlabHandle<'_> {
    /// The bytes of a `ThreadCache`; its entries lie behind it.
    pub const CACHE_BYTES: usize = CACHE_BYTES;

    /// A cache that holds no slot and has no room, so that every call takes the slow path.
    #[must_use]
    pub fn empty_cache() -> *const () {
        NO_CACHE.cast()
    }

    /// The cache that this handle keeps in use. It stays valid as long as the handle.
    #[must_use]
    pub fn cache(&self) -> *const () {
        self.cache.cast()
    }

    /// The root of the map from granules to tags. It stays where it is.
    #[must_use]
    pub fn tags() -> *const () {
        segment_map::root()
    }
}

#[cfg(test)]
mod tests {
    use core::alloc::Layout;

    use super::*;

    #[test]
    fn the_statistics_of_pages_are_those_of_all_slots_and_follow_pages_that_go() {
        let slab = RawSlab::new(Layout::new::<[u64; 5]>());
        let slots: Vec<_> = (0..2000).map(|_| slab.alloc()).collect();
        let (all, pages) = (slab.statistics(), slab.page_statistics());
        assert_eq!((all.live_objects, pages.live_objects, pages.live_bytes), (2000, 0, 0));
        assert_eq!(pages.free_bytes, all.free_bytes + all.live_bytes);
        let same = |one: Statistics| (one.chunks, one.wasted_bytes, one.structure_bytes);
        assert_eq!(same(pages), same(all));
        for slot in slots {
            // SAFETY: a slot of this slab, freed once.
            unsafe { slab.free(slot) };
        }
        slab.trim();
        let pages = slab.page_statistics();
        assert_eq!((pages.chunks, pages.free_bytes, pages.wasted_bytes), (0, 0, 0));
    }
}
