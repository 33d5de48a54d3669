//! A thread's cache of a slab: cached slots, and the page that it is refilled from. This file has
//! the fast paths; `cache_backend.rs` has the slow paths.
//!
//! # Invariants
//!
//! 1. A cache in use belongs to one thread, its owner. Only the owner calls the functions of
//!    `ThreadCache`. Other threads use its [`CacheHeader`] alone. A cache stays at its address
//!    until its slab is destroyed. The thread that ends the slab may take the cache over, by the
//!    rules of `cache_ownership.rs`.
//! 2. Behind the `ThreadCache` lie `max_cached` entries and one more. The first `capacity` of them
//!    are in use, and the entry behind these is null. `top <= capacity <= max_cached`. The slots in
//!    the entries from `top` to `capacity` belong to the cache: they were taken from their pages
//!    and no caller uses them. The entries below `top` are free.
//! 3. `current_page` is a page that the cache has claimed.
//! 4. Behind those lie `max_outgoing` entries. The first `outgoing` of them hold slots that belong
//!    to the cache, were freed, and are on their way back to their pages. These are the slots of
//!    marked pages, which are not cached. If `granule_start` and `granule_bytes` name a granule,
//!    one of these slots lies in it. So the granule's page exists, and belongs to this slab.
//!
//! The static [`NO_CACHE`] is every thread's cache for the slabs that the thread has not used. It
//! has no entries, so it is always both empty and full. Both fast paths then fall through to the
//! slow paths, which detect it.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use super::cache_header::{CACHE_ALIGN, CACHE_BYTES, CacheHeader, NO_CHUNK};
use super::cache_ownership::CacheOwnership;
use super::geometry::Reciprocal;
use super::page_table::SlabPage;
use super::registry;
use super::shared::SlabShared;
use crate::error::AllocError;
use crate::memory::relaxed_access::RelaxedAccess;

/// The number of its recent pages that a thread tries before it looks for others.
pub(super) const RECENT_PAGES: usize = 16;

/// A thread's cache of a slab.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ThreadCache {
    pub header: CacheHeader,
    /// The entries behind the `ThreadCache`, for the slow paths. The fast paths compute their
    /// address.
    pub entries: *mut NonNull<u8>,
    /// The entries of the slots on their way back.
    pub outgoing_entries: *mut NonNull<u8>,
    /// The granule of one of the outgoing slots: its start and its bytes, which are 0 if there is
    /// none.
    pub granule_start: Cell<usize>,
    pub granule_bytes: Cell<usize>,
    /// Upper bound on the number of further pages with outgoing slots.
    pub outgoing_pages_left: Cell<usize>,
    /// The value of `top` when the outgoing slots were last sent back. If it has risen since, slots
    /// were allocated. (A count of refills alone misses a thread that allocates from its cache:
    /// random replacements, as in `allot bench churn`, then leave more memory.)
    pub top_at_send: Cell<usize>,
    pub reciprocal: Reciprocal,
    shared: *const SlabShared,
    pub current_page: Cell<Option<NonNull<SlabPage>>>,
    /// The word of the current page to take next.
    pub next_word: Cell<usize>,
    /// The pages that were current before, as a ring.
    pub recent_pages: [Cell<Option<NonNull<SlabPage>>>; RECENT_PAGES],
    /// The number of pages ever entered in `recent_pages`.
    pub recent_count: Cell<usize>,
    /// The slab's `recalls` when the cache was last flushed because of a recall.
    pub recalls_seen: Cell<u32>,
    /// The index of the page that was current last. The search for another page starts there.
    pub last_page: Cell<u32>,
    /// The number of slots taken from pages after the cache was last reset to its initial capacity.
    pub taken_slots: Cell<usize>,
    /// How often the cache was full, or sent outgoing slots back, after the last refill. Counted
    /// anew after everything was returned.
    pub returns: Cell<u32>,
    /// The number of handles to this cache. They keep it in use when its thread's table ends.
    handles: Cell<u32>,
}

// Inline C code pops and pushes, too. These numbers are those of allotment.h, and change only with
// its ALLOT_ABI.
const _: () = {
    assert!(size_of::<ThreadCache>() == CACHE_BYTES);
    assert!(align_of::<ThreadCache>() == CACHE_ALIGN);
    assert!(core::mem::offset_of!(ThreadCache, header.top) == 0);
    assert!(core::mem::offset_of!(ThreadCache, header.capacity) == 8);
    assert!(core::mem::offset_of!(ThreadCache, header.tag) == 16);
};

// SAFETY: what other threads access is atomic. The rest is the owner's, and passes from owner to
// owner with the ownership (invariant 1).
unsafe impl Sync for ThreadCache {}

/// The cache of a thread that has none.
pub(super) const NO_CACHE: *const ThreadCache = (&raw const EMPTY_CACHE).cast();

/// [`NO_CACHE`], and the null entry behind its zero entries.
#[repr(C)]
struct EmptyCache {
    cache: ThreadCache,
    end: AtomicPtr<u8>,
}

static EMPTY_CACHE: EmptyCache = EmptyCache {
    end: AtomicPtr::new(ptr::null_mut()),
    cache: ThreadCache {
        header: CacheHeader {
            top: AtomicUsize::new(0),
            capacity: AtomicUsize::new(0),
            tag: 0,
            lifetime: 0,
            outgoing: AtomicUsize::new(0),
            ownership: CacheOwnership::owned(),
            next: AtomicPtr::new(ptr::null_mut()),
            chunk: NO_CHUNK,
        },
        entries: ptr::null_mut(),
        outgoing_entries: ptr::null_mut(),
        granule_start: Cell::new(0),
        granule_bytes: Cell::new(0),
        outgoing_pages_left: Cell::new(0),
        top_at_send: Cell::new(0),
        reciprocal: Reciprocal::of(1),
        shared: ptr::null(),
        current_page: Cell::new(None),
        next_word: Cell::new(0),
        recent_pages: [const { Cell::new(None) }; RECENT_PAGES],
        recent_count: Cell::new(0),
        recalls_seen: Cell::new(0),
        last_page: Cell::new(0),
        taken_slots: Cell::new(0),
        returns: Cell::new(0),
        handles: Cell::new(0),
    },
};

impl ThreadCache {
    /// Makes a cache for the calling thread, in its own block, with its entries behind it.
    fn make(shared: &SlabShared, lifetime: usize) -> Result<NonNull<Self>, AllocError> {
        let block = CacheHeader::take_block(&shared.geometry, shared.number)?;
        let cache = block.start.cast::<Self>();
        // SAFETY: the block has room for the `ThreadCache` and its entries.
        unsafe {
            let entries = cache.add(1).cast::<NonNull<u8>>().as_ptr();
            let capacity = shared.geometry.initial_cached;
            entries.add(capacity).cast::<*mut u8>().write(ptr::null_mut());
            cache.write(Self {
                header: CacheHeader {
                    top: AtomicUsize::new(capacity),
                    capacity: AtomicUsize::new(capacity),
                    tag: shared.tag(),
                    lifetime: lifetime as u32,
                    outgoing: AtomicUsize::new(0),
                    ownership: CacheOwnership::owned(),
                    next: AtomicPtr::new(ptr::null_mut()),
                    chunk: block.chunk,
                },
                entries,
                outgoing_entries: entries.add(shared.geometry.max_cached + 1),
                granule_start: Cell::new(0),
                granule_bytes: Cell::new(0),
                outgoing_pages_left: Cell::new(0),
                top_at_send: Cell::new(capacity),
                reciprocal: shared.geometry.reciprocal,
                shared,
                current_page: Cell::new(None),
                next_word: Cell::new(0),
                recent_pages: [const { Cell::new(None) }; RECENT_PAGES],
                recent_count: Cell::new(0),
                recalls_seen: Cell::new(shared.recalls()),
                last_page: Cell::new(0),
                taken_slots: Cell::new(0),
                returns: Cell::new(0),
                handles: Cell::new(0),
            });
        }
        Ok(cache)
    }

    /// Takes a cache for the calling thread: one that another thread has left, or a new one. The
    /// cache holds a reference to the slab.
    pub(super) fn attach(
        shared: &SlabShared,
        lifetime: usize,
    ) -> Result<NonNull<Self>, AllocError> {
        let left = shared.caches().find(|cache| {
            // SAFETY: caches stay until the slab is destroyed. Only what other threads may access
            // is accessed.
            let cache = unsafe { cache.as_ref() };
            cache.lifetime as usize == lifetime && cache.ownership.try_acquire()
        });
        let cache = match left {
            // A header lies at the start of its cache.
            Some(header) => header.cast(),
            None => {
                let bytes = CacheHeader::layout(&shared.geometry).size();
                shared.charge(bytes)?;
                let made = Self::make(shared, lifetime).inspect_err(|_| shared.credit(bytes))?;
                shared.add_cache(made.cast());
                made
            }
        };
        registry::add_reference(shared.number);
        Ok(cache)
    }

    // ---- the fast paths ----

    /// Takes a cached slot.
    ///
    /// # Safety
    /// `cache` is [`NO_CACHE`], or a cache of the calling thread, at the address that it was made
    /// at. (A reference would not reach the entries behind it.)
    #[inline(always)]
    pub(super) unsafe fn pop(cache: *const Self) -> Option<NonNull<u8>> {
        // SAFETY: the caller upholds the contract. The entries from `top` on hold slots (invariant
        // 2).
        unsafe {
            let top = (*cache).header.top.relaxed_load();
            let slot = NonNull::new(*cache.add(1).cast::<*mut u8>().add(top))?;
            (*cache).header.top.relaxed_store(top + 1);
            Some(slot)
        }
    }

    /// Caches a slot if there is room, and if its page's tag is that of the cache's slab, without a
    /// mark. The slot then belongs to the cache.
    ///
    /// # Safety
    /// As for [`pop`](Self::pop). The caller holds the slot, and `tag` returns its page's tag.
    #[inline(always)]
    pub(super) unsafe fn push(
        cache: *const Self,
        slot: NonNull<u8>,
        tag: impl FnOnce() -> u32,
    ) -> bool {
        // SAFETY: the caller upholds the contract. There are `capacity` entries (2).
        unsafe {
            let top = (*cache).header.top.load(Ordering::Relaxed);
            // One comparison makes three checks: a full cache, another slab, a mark. Equal tags
            // give 0. Different tags give at least `TAG_STEP`, which is above any `top`.
            if top <= (tag() ^ (*cache).header.tag) as usize {
                return false;
            }
            cache.add(1).cast::<NonNull<u8>>().cast_mut().add(top - 1).write(slot);
            compiler_fence(Ordering::Release);
            Self::lower_top(cache);
        }
        true
    }

    /// Caches a slot if there is room. For a caller that found the cache by the tag of the slot's
    /// page, so that nothing else needs to be checked.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn push_unchecked(cache: *const Self, slot: NonNull<u8>) -> bool {
        // SAFETY: as in `push`.
        unsafe {
            let top = (*cache).header.top.load(Ordering::Relaxed);
            if top == 0 {
                return false;
            }
            cache.add(1).cast::<NonNull<u8>>().cast_mut().add(top - 1).write(slot);
            compiler_fence(Ordering::Release);
            Self::lower_top(cache);
        }
        true
    }

    /// Counts the entry below the top as in use. Callers put a compiler's fence before it: this must
    /// be the last step of a free (see `cache_ownership.rs`).
    ///
    /// # Safety
    /// As for [`pop`](Self::pop). The entry holds a slot, and `top` is not 0.
    #[inline(always)]
    unsafe fn lower_top(cache: *const Self) {
        // SAFETY: the caller upholds the contract.
        let top = unsafe { &(*cache).header.top };
        // Loaded again, because that combines with the store into one instruction.
        top.store(top.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    // ---- for the slow paths ----

    #[inline]
    pub(super) fn shared(&self) -> &SlabShared {
        debug_assert!(!self.shared.is_null());
        // SAFETY: a cache in use holds a reference to its slab. `NO_CACHE` never comes here.
        unsafe { &*self.shared }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.header.capacity.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn top(&self) -> usize {
        self.header.top.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_top(&self, top: usize) {
        self.header.top.store(top, Ordering::Relaxed);
    }

    /// Takes a cached slot, for a caller that has a reference to the cache.
    #[inline]
    pub(super) fn pop_cached(&self) -> Option<NonNull<u8>> {
        let top = self.top();
        if top == self.capacity() {
            return None;
        }
        self.set_top(top + 1);
        // SAFETY: the entries from `top` on hold slots (invariant 2).
        Some(unsafe { *self.entries.add(top) })
    }

    /// Caches a slot. The caller has checked that there is room.
    #[inline]
    pub(super) fn push_cached(&self, slot: NonNull<u8>) {
        let top = self.top() - 1;
        // SAFETY: a free entry (invariant 2).
        unsafe { self.entries.add(top).write(slot) };
        self.set_top(top);
    }

    /// The cached slots, the one freed last first.
    pub(super) fn cached_slots(&self) -> &[NonNull<u8>] {
        let top = self.top();
        // SAFETY: the entries from `top` on hold slots (invariant 2).
        unsafe { core::slice::from_raw_parts(self.entries.add(top), self.capacity() - top) }
    }

    // ---- handles ----

    pub(super) fn add_handle(&self) {
        // This many handles can only exist if they were forgotten. If the count wrapped to 0,
        // another thread could take the cache. So a count that reaches its maximum stays there, and
        // the cache stays in use.
        self.handles.set(self.handles.get().saturating_add(1));
    }

    /// Ends a handle; returns the number of handles left.
    pub(super) fn drop_handle(&self) -> u32 {
        let left = match self.handles.get() {
            u32::MAX => u32::MAX,
            handles => handles - 1,
        };
        self.handles.set(left);
        left
    }

    pub(super) fn has_handles(&self) -> bool {
        self.handles.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use core::alloc::Layout;

    use super::*;
    use crate::slab::RawSlab;

    #[test]
    fn as_many_handles_as_can_be_counted_keep_a_cache_in_use_for_good() {
        let slab = RawSlab::new(Layout::new::<u64>());
        let handle = slab.handle();
        if handle.cache().cast() == NO_CACHE {
            return println!("skipped: under a memory tool a slab has no caches");
        }
        // SAFETY: the handle keeps the cache in use, and both are this thread's.
        let cache = unsafe { &*handle.cache().cast::<ThreadCache>() };
        cache.handles.set(u32::MAX - 1);
        for _ in 0..3 {
            drop([slab.handle(), slab.handle()]);
            assert_eq!(cache.handles.get(), u32::MAX);
        }
        cache.handles.set(1);
        drop(handle);
        assert!(!cache.has_handles());
    }
}
