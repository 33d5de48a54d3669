//! What an allocation and a free do when the fast path can't serve them.

use core::ptr::NonNull;

use super::cache_steps::{CacheBackend, CacheSteps};
use super::checked;
use super::lifetime::Lifetime;
use super::registry;
use super::shared::SlabShared;
use super::tags::{TAG_MARK, slab_number};
use super::thread_cache::ThreadCache;
use super::thread_table;
use crate::checked::Misuse;
use crate::error::AllocError;
use crate::memory::segment_map;

/// Allocates a slot for a thread whose fast path found none.
pub(super) fn alloc(shared: &SlabShared, lifetime: Lifetime) -> Result<NonNull<u8>, AllocError> {
    if let Some(checks) = &shared.checks {
        return checks.alloc(shared);
    }
    let lifetime = lifetime.number();
    match thread_table::cache_or_new(shared, lifetime) {
        // SAFETY: this thread's cache, used before the thread's table changes.
        Some(cache) => unsafe { ThreadCache::pop(cache).map_or_else(|| refill(&*cache), Ok) },
        None => retry_after_flush(shared, lifetime, || shared.alloc_uncached(lifetime)),
    }
}

/// Allocates a slot when the cache is empty.
pub(super) fn refill(cache: &ThreadCache) -> Result<NonNull<u8>, AllocError> {
    retry_after_flush(cache.shared(), cache.lifetime(), || cache.refill())
}

/// Calls `alloc` until it succeeds, or until the thread has nothing left to give back: before a
/// thread is refused a slot, the slots that it caches for the other lifetime go back.
fn retry_after_flush(
    shared: &SlabShared,
    lifetime: usize,
    alloc: impl Fn() -> Result<NonNull<u8>, AllocError>,
) -> Result<NonNull<u8>, AllocError> {
    loop {
        match alloc() {
            Err(_) if thread_table::flush_other(shared.number, lifetime) => {}
            result => return result,
        }
    }
}

/// Frees a slot that the fast path did not free.
///
/// # Safety
/// As for [`RawSlab::free`](super::RawSlab::free); the caller has a reference to the slab.
pub(super) unsafe fn free(shared: &SlabShared, slot: NonNull<u8>) {
    if let Some(checks) = &shared.checks {
        // SAFETY: the caller upholds the contract.
        return unsafe { checks.free(shared, slot) };
    }
    // SAFETY: the caller upholds the contract. The slot keeps its granule registered, whichever
    // slab it belongs to.
    unsafe {
        if segment_map::tag_of(slot.addr().get()) & !TAG_MARK != shared.tag() {
            shared.abort_on_misuse(Misuse::ForeignPointer, slot.addr().get());
        }
        match thread_table::cache_or_new(shared, 0) {
            Some(cache) => {
                let tag = || segment_map::tag_of_live(slot.addr().get());
                if !ThreadCache::push(cache, slot, tag) {
                    ThreadCache::free_slowly(cache, slot);
                }
            }
            None => shared.free_one(slot),
        }
    }
}

/// Frees a slot of any slab by its address alone. Returns whether the address was a slab's slot;
/// for any other address nothing happens.
///
/// # Safety
/// If the address lies in a slab's memory: the slot came from a slab, is freed once, and is not
/// used afterwards.
#[inline(never)]
pub(super) unsafe fn free_if_slot(slot: NonNull<u8>) -> bool {
    // SAFETY: if a page holds the address, it is a slot, which keeps its page, and the page holds a
    // reference to the slab. Freeing the slot may release the page, so if no thread cache holds a reference, one
    // is added before the free. The caller upholds the rest.
    unsafe {
        let mut number = slab_number(segment_map::tag_of_page_at(slot.addr().get()) & !TAG_MARK);
        if let Some(cache) = thread_table::lookup(number) {
            if ThreadCache::free_slowly(cache, slot) {
                return true;
            }
        }
        if number == 0 {
            let Some(owner) = checked::slab_of_malloc_block(slot) else { return false };
            number = owner;
        }
        registry::add_reference(number);
        free(SlabShared::of_number(number), slot);
        SlabShared::release_reference(number);
        true
    }
}

/// Frees a slot by its address alone, whichever slab it belongs to, open or closed.
///
/// # Safety
/// The slot came from a slab, is freed once, and is not used afterwards.
#[inline]
pub(super) unsafe fn free_by_address(slot: NonNull<u8>) {
    // A marked tag gives a number beyond every thread's table, and no thread has a cache for number
    // 0.
    // SAFETY: the slot keeps its granule registered. If it is a block of pass-through mode instead,
    // that mode has made sure that the map can be read for its address. The cache is this thread's,
    // and is used before the thread's table changes.
    unsafe {
        match thread_table::lookup(slab_number(segment_map::tag_of_live(slot.addr().get()))) {
            Some(cache) if ThreadCache::push_unchecked(cache, slot) => {}
            _ => free_by_address_slowly(slot),
        }
    }
}

#[inline(never)]
unsafe fn free_by_address_slowly(slot: NonNull<u8>) {
    // SAFETY: as in `free_by_address`.
    let freed = unsafe { free_if_slot(slot) };
    assert!(freed, "a slab's box is a slot or a block of pass-through mode");
}
