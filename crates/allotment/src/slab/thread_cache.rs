//! A thread's cache of a slab (`ThreadCache`): cached slots, and the page that it is refilled from. This
//! file has the fast paths; `flow.rs` has the slow paths.
//!
//! # Invariants
//!
//! 1. A cache in use belongs to one thread, its owner. Only the owner calls its functions, except
//!    those under "for others". Other threads read `room`, `full` and `outgoing`, which are
//!    atomics. A cache stays at its address until its core is dropped.
//! 2. Behind the `ThreadCache` lie `most_cached` entries and one more. The first `full` of them are in
//!    use, and the entry behind these is null. `room <= full <= most_cached`. The slots in the
//!    entries from `room` to `full` belong to the cache: they were taken from their pages and no
//!    caller uses them.
//! 3. `current` is a page that the cache has claimed.
//! 4. Behind those lie `most_outgoing` entries. The first `outgoing` of them hold slots that belong
//!    to the cache, were freed, and are on their way back to their pages. These are the slots of
//!    marked pages, which are not cached. If `near_start` and `near_bytes` name a granule, one of
//!    these slots lies in it. So the granule's page exists, and belongs to this slab.
//!
//! The static [`NOBODY`] is every thread's cache for the slabs that the thread has not used. It has
//! no entries, so it is always both empty and full. Both fast paths then fall through to the slow
//! paths, which detect it.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};

use super::geometry::{Geometry, Reciprocal};
use super::page_table::SlabPage;
use super::shared::Shared;
use crate::error::{AllocError, ErrorKind};

/// The number of its recent pages that a thread tries before it looks for others.
pub(super) const RECENT: usize = 16;

/// One cached slot.
pub(super) type Slot = NonNull<u8>;

/// A thread's cache of a slab.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ThreadCache {
    /// The number of free entries. The slots are in the entries from there on, the one freed last
    /// first.
    pub(super) room: AtomicUsize,
    /// The number of entries in use: the capacity. It grows if a thread takes and frees more than
    /// the cache has room for, and shrinks if a thread only frees.
    pub(super) full: AtomicUsize,
    /// The tag of the slab's pages.
    pub(super) tag: u32,
    pub(super) lifetime: u32,
    /// The entries behind the `ThreadCache`, for the slow paths. The fast paths compute their address.
    pub(super) places: *mut Slot,
    /// The number of slots on their way back, and their entries.
    pub(super) outgoing: AtomicUsize,
    pub(super) outgoing_places: *mut Slot,
    /// The granule of one of these slots: its start and its bytes, which are 0 if there is none.
    pub(super) near_start: Cell<usize>,
    pub(super) near_bytes: Cell<usize>,
    /// Upper bound on the number of further pages with slots in `outgoing`.
    pub(super) outgoing_pages: Cell<usize>,
    /// The value of `room` when the outgoing slots were last sent back.
    pub(super) room_then: Cell<usize>,
    pub(super) reciprocal: Reciprocal,
    pub(super) core: *const Shared,
    pub(super) current: Cell<Option<NonNull<SlabPage>>>,
    pub(super) next_word: Cell<usize>,
    /// The pages that were current before. `turn` counts all pages ever entered here.
    pub(super) recent: [Cell<Option<NonNull<SlabPage>>>; RECENT],
    pub(super) turn: Cell<usize>,
    /// The core's `recalls` when the cache was last flushed because of a recall.
    pub(super) recalls: Cell<u32>,
    /// The page that was current last. The search for another page starts near it.
    pub(super) near: Cell<u32>,
    /// How often the cache was full after the last refill.
    pub(super) spills: Cell<u32>,
    /// The number of slots taken from pages after the cache was last reset to its first capacity.
    pub(super) drawn: Cell<usize>,
    /// How often outgoing slots were sent back after the last refill.
    pub(super) sent: Cell<u32>,
    /// The number of handles to this cache. They keep it in use when its thread's table ends.
    pub(super) handles: Cell<u32>,
    pub(super) in_use: AtomicBool,
    pub(super) next: AtomicPtr<ThreadCache>,
}

/// The bytes of a `ThreadCache`. Its entries lie behind it.
pub(super) const FRONT_BYTES: usize = 384;

// Inline C code pops and pushes, too. These numbers are those of allotment.h, and change only with
// its ALLOT_ABI.
const _: () = {
    assert!(size_of::<ThreadCache>() == FRONT_BYTES);
    assert!(core::mem::offset_of!(ThreadCache, room) == 0);
    assert!(core::mem::offset_of!(ThreadCache, full) == 8);
    assert!(core::mem::offset_of!(ThreadCache, tag) == 16);
};

// SAFETY: what other threads access is atomic. The rest is the owner's, and passes from owner to
// owner with `in_use` (invariant 1).
unsafe impl Sync for ThreadCache {}

/// The cache of a thread that has none.
pub(super) const NOBODY: *const ThreadCache = (&raw const EMPTY).cast();

/// [`NOBODY`], and the null entry behind its zero entries.
#[repr(C)]
struct Empty {
    front: ThreadCache,
    end: AtomicPtr<u8>,
}

static EMPTY: Empty = Empty {
    end: AtomicPtr::new(ptr::null_mut()),
    front: ThreadCache {
        room: AtomicUsize::new(0),
        full: AtomicUsize::new(0),
        tag: 0,
        lifetime: 0,
        places: ptr::null_mut(),
        outgoing: AtomicUsize::new(0),
        outgoing_places: ptr::null_mut(),
        near_start: Cell::new(0),
        near_bytes: Cell::new(0),
        outgoing_pages: Cell::new(0),
        room_then: Cell::new(0),
        reciprocal: Reciprocal::of(1),
        core: ptr::null(),
        current: Cell::new(None),
        next_word: Cell::new(0),
        recent: [const { Cell::new(None) }; RECENT],
        turn: Cell::new(0),
        recalls: Cell::new(0),
        near: Cell::new(0),
        spills: Cell::new(0),
        drawn: Cell::new(0),
        sent: Cell::new(0),
        handles: Cell::new(0),
        in_use: AtomicBool::new(true),
        next: AtomicPtr::new(ptr::null_mut()),
    },
};

impl ThreadCache {
    fn layout(geometry: &Geometry) -> Layout {
        let bytes = size_of::<Self>()
            + (geometry.most_cached + 1 + geometry.most_outgoing) * size_of::<Slot>();
        Layout::from_size_align(bytes, align_of::<Self>()).expect("a few KiB")
    }

    /// The bytes of a cache with its entries.
    pub(super) fn bytes(geometry: &Geometry) -> usize {
        Self::layout(geometry).size()
    }

    /// Makes a cache in use, in its own block, with its entries behind it.
    pub(super) fn make(core: &Shared, lifetime: usize) -> Result<NonNull<Self>, AllocError> {
        let layout = Self::layout(&core.geometry);
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { System.alloc(layout) })
            .ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))?;
        let front = block.cast::<Self>();
        // SAFETY: the block has room for the `ThreadCache` and its entries.
        unsafe {
            let places = front.add(1).cast::<Slot>().as_ptr();
            let full = core.geometry.first_cached;
            places.add(full).cast::<*mut u8>().write(ptr::null_mut());
            front.write(Self {
                room: AtomicUsize::new(full),
                full: AtomicUsize::new(full),
                tag: core.tag(),
                lifetime: lifetime as u32,
                places,
                outgoing: AtomicUsize::new(0),
                outgoing_places: places.add(core.geometry.most_cached + 1),
                near_start: Cell::new(0),
                near_bytes: Cell::new(0),
                outgoing_pages: Cell::new(0),
                room_then: Cell::new(full),
                reciprocal: core.geometry.reciprocal,
                core,
                current: Cell::new(None),
                next_word: Cell::new(0),
                recent: [const { Cell::new(None) }; RECENT],
                turn: Cell::new(0),
                recalls: Cell::new(core.recalls()),
                near: Cell::new(0),
                spills: Cell::new(0),
                drawn: Cell::new(0),
                sent: Cell::new(0),
                handles: Cell::new(0),
                in_use: AtomicBool::new(true),
                next: AtomicPtr::new(ptr::null_mut()),
            });
        }
        Ok(front)
    }

    /// Frees the block.
    ///
    /// # Safety
    /// It was made with this geometry, no thread uses it, and it is destroyed once.
    pub(super) unsafe fn destroy(front: NonNull<Self>, geometry: &Geometry) {
        // SAFETY: the caller upholds the contract. No field of a `ThreadCache` needs drop.
        unsafe { System.dealloc(front.as_ptr().cast(), Self::layout(geometry)) }
    }

    // ---- for others ----

    /// Makes a cache that is not in use the calling thread's. Returns whether it succeeded.
    pub(super) fn enter(&self) -> bool {
        // Acquire pairs with the Release in `leave`: the previous owner's accesses happen before.
        !self.in_use.load(Ordering::Relaxed)
            && self
                .in_use
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn lifetime(&self) -> usize {
        self.lifetime as usize
    }

    pub(super) fn next(&self) -> *mut Self {
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn set_next(&self, next: *mut Self) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// The number of slots that the cache holds; a snapshot for other threads.
    pub(super) fn cached(&self) -> usize {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        // The two are read one after the other, and both may change in between.
        self.full().saturating_sub(self.room()) + outgoing
    }

    // ---- the fast paths ----

    /// Takes a cached slot.
    ///
    /// # Safety
    /// `front` is [`NOBODY`], or a cache of the calling thread, at the address that it was made at.
    /// (A reference would not reach the entries behind it.)
    #[inline(always)]
    pub(super) unsafe fn pop(front: *const Self) -> Option<NonNull<u8>> {
        // SAFETY: the caller upholds the contract. The entries from `room` on hold slots (invariant
        // 2).
        unsafe {
            let room = (*front).room.load(Ordering::Relaxed);
            let slot = NonNull::new(*front.add(1).cast::<*mut u8>().add(room))?;
            (*front).room.store(room + 1, Ordering::Relaxed);
            Some(slot)
        }
    }

    /// Caches a slot if there is room, and if its page's tag is that of the cache's slab, without a
    /// mark. The slot then belongs to the cache.
    ///
    /// # Safety
    /// As for [`pop`](Self::pop). The caller holds the slot, and `tag` returns its page's tag.
    #[inline(always)]
    pub(super) unsafe fn push(front: *const Self, slot: Slot, tag: impl FnOnce() -> u32) -> bool {
        // SAFETY: the caller upholds the contract. There are `full` entries (2).
        unsafe {
            let room = (*front).room.load(Ordering::Relaxed);
            // One comparison makes three checks: a full cache, another slab, a mark. Equal tags
            // give 0. Different tags give at least `TAG_STEP`, which is above any `room`.
            if room <= (tag() ^ (*front).tag) as usize {
                return false;
            }
            front.add(1).cast::<Slot>().cast_mut().add(room - 1).write(slot);
            // Loaded again, because that combines with the store into one instruction.
            (*front)
                .room
                .store((*front).room.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        }
        true
    }

    /// Caches a slot if there is room. For a caller that found the cache by the tag of the slot's
    /// page, so that nothing else needs to be checked.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn push_known(front: *const Self, slot: Slot) -> bool {
        // SAFETY: as in `push`.
        unsafe {
            let room = (*front).room.load(Ordering::Relaxed);
            if room == 0 {
                return false;
            }
            front.add(1).cast::<Slot>().cast_mut().add(room - 1).write(slot);
            (*front)
                .room
                .store((*front).room.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        }
        true
    }

    // ---- for the slow paths ----

    pub(super) fn core(&self) -> &Shared {
        debug_assert!(!self.core.is_null());
        // SAFETY: a cache in use holds a reference to its core. `NOBODY` never comes here.
        unsafe { &*self.core }
    }

    pub(super) fn full(&self) -> usize {
        self.full.load(Ordering::Relaxed)
    }

    pub(super) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    pub(super) fn take_one(&self) -> Option<Slot> {
        let room = self.room();
        if room == self.full() {
            return None;
        }
        self.room.store(room + 1, Ordering::Relaxed);
        // SAFETY: the entries from `room` on hold slots (invariant 2).
        Some(unsafe { *self.places.add(room) })
    }

    /// Caches a slot. The caller has checked that there is room.
    pub(super) fn put_one(&self, slot: Slot) {
        let room = self.room() - 1;
        // SAFETY: a free entry (invariant 2).
        unsafe { self.places.add(room).write(slot) };
        self.room.store(room, Ordering::Relaxed);
    }

    /// The cached slots, the one freed last first.
    pub(super) fn at_hand(&self) -> &[Slot] {
        let room = self.room();
        // SAFETY: the entries from `room` on hold slots (invariant 2).
        unsafe { core::slice::from_raw_parts(self.places.add(room), self.full() - room) }
    }

    // ---- coming and going ----

    pub(super) fn add_handle(&self) {
        // This many handles can only exist if they were forgotten. If the count wrapped to 0,
        // another thread could take the cache.
        let Some(handles) = self.handles.get().checked_add(1) else { std::process::abort() };
        self.handles.set(handles);
    }

    /// Ends a handle; returns the number of handles left.
    pub(super) fn drop_handle(&self) -> u32 {
        let left = self.handles.get() - 1;
        self.handles.set(left);
        left
    }

    pub(super) fn has_handles(&self) -> bool {
        self.handles.get() > 0
    }

    /// Leaves the cache to the next thread that needs one. The caller then gives up its reference
    /// to the core.
    pub(super) fn leave(&self) {
        self.flush();
        self.near.set(0);
        self.recent.iter().for_each(|recent| recent.set(None));
        // Release pairs with the Acquire in `enter`.
        self.in_use.store(false, Ordering::Release);
    }

    /// In a child made by fork: drops all slots of a slab whose memory the child does not have.
    pub(super) fn now_a_child(&self) {
        if self.core().check_parentage().is_err() {
            self.empty();
            self.outgoing.store(0, Ordering::Relaxed);
            self.outgoing_pages.set(0);
            self.near_bytes.set(0);
            self.current.set(None);
        }
    }

    /// Whether its slab was dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.core().is_closed()
    }
}
