//! A thread's own part of a slab: slots at hand, and the page that it takes more from. The fast paths; `flow.rs` has
//! the slow ones.
//!
//! # Invariants
//!
//! 1. A front that is in use belongs to one thread, its owner, and only that one calls what is not said to be
//!    for others. Others read `room`, `full` and `outgoing`, which are atomics. A front stays where it is until its core is
//!    dropped.
//! 2. Behind the front lie `most_cached` places and one more, of which the first `full` are in use, and the one behind
//!    these is null. `room <= full <= most_cached`, and the slots in the places from `room` to `full` are the front's:
//!    taken from their pages, in nobody's use.
//! 3. `current` is a claim of the front's.
//! 4. Behind those lie `most_outgoing` places, of which the first `outgoing` hold slots of the front's that were freed and
//!    are on their way back to their pages: those of sparse pages, which are not cached. Of each granule that
//!    `near_start` and `near_bytes` say there is one among them, so that its page is there, and is this slab's.
//!
//! The static [`NOBODY`] is every thread's front for slabs that it has not used: it has no place, so its cache is
//! always empty and always full, and both fast paths go on to the slow ones, which find out.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};

use super::core::Core;
use super::geometry::{Geometry, Reciprocal};
use super::yard::SlabPage;
use crate::error::{AllocError, ErrorKind};

/// Pages that a thread comes back to before it looks for others.
pub(super) const RECENT: usize = 16;

/// One slot at hand.
pub(super) type Slot = NonNull<u8>;

/// A thread's part of a slab.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Front {
    /// The free places; the slots lie from there on, the one freed last first.
    pub(super) room: AtomicUsize,
    /// The places in use. It grows where a thread takes and frees more than there is room for, and shrinks when a thread
    /// only frees.
    pub(super) full: AtomicUsize,
    /// The tag of the slab's pages.
    pub(super) tag: u32,
    pub(super) lifetime: u32,
    /// The places behind the front, for the slow paths; the fast ones know where they are.
    pub(super) places: *mut Slot,
    /// The slots on their way back, and where they lie.
    pub(super) outgoing: AtomicUsize,
    pub(super) outgoing_places: *mut Slot,
    /// The granule of one of them, and its bytes; none if there is none.
    pub(super) near_start: Cell<usize>,
    pub(super) near_bytes: Cell<usize>,
    /// Of so many more pages there may be some.
    pub(super) outgoing_pages: Cell<usize>,
    /// The room when they were last sent.
    pub(super) room_then: Cell<usize>,
    pub(super) reciprocal: Reciprocal,
    pub(super) core: *const Core,
    pub(super) current: Cell<Option<NonNull<SlabPage>>>,
    pub(super) next_word: Cell<usize>,
    /// The pages that were current before, and how many there were ever.
    pub(super) recent: [Cell<Option<NonNull<SlabPage>>>; RECENT],
    pub(super) turn: Cell<usize>,
    /// The core's recalls when everything was last given back for one.
    pub(super) recalls: Cell<u32>,
    /// The page that was current last: its neighbours are looked at first.
    pub(super) near: Cell<u32>,
    /// Full caches since the last refill.
    pub(super) spills: Cell<u32>,
    /// Slots taken from pages since the cache was as large as at first.
    pub(super) drawn: Cell<usize>,
    /// How often slots were sent back since the last refill.
    pub(super) sent: Cell<u32>,
    /// Handles to this front, which keep it in use when its thread's table ends.
    pub(super) handles: Cell<u32>,
    pub(super) in_use: AtomicBool,
    pub(super) next: AtomicPtr<Front>,
}

/// The bytes of a front, behind which its places lie.
pub(super) const FRONT_BYTES: usize = 384;

// Inline C code pops and pushes, too: these numbers are those of allotment.h, and change only with its ALLOT_ABI.
const _: () = {
    assert!(size_of::<Front>() == FRONT_BYTES);
    assert!(core::mem::offset_of!(Front, room) == 0);
    assert!(core::mem::offset_of!(Front, full) == 8);
    assert!(core::mem::offset_of!(Front, tag) == 16);
};

// SAFETY: what others touch are atomics; the rest is the owner's, and passes from owner to owner with `in_use`
// (invariant 1).
unsafe impl Sync for Front {}

/// The front of a thread that has none.
pub(super) const NOBODY: *const Front = (&raw const EMPTY).cast();

/// [`NOBODY`], and the place behind its none.
#[repr(C)]
struct Empty {
    front: Front,
    end: AtomicPtr<u8>,
}

static EMPTY: Empty = Empty {
    end: AtomicPtr::new(ptr::null_mut()),
    front: Front {
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

impl Front {
    fn layout(geometry: &Geometry) -> Layout {
        let bytes = size_of::<Self>()
            + (geometry.most_cached + 1 + geometry.most_outgoing) * size_of::<Slot>();
        Layout::from_size_align(bytes, align_of::<Self>()).expect("a few KiB")
    }

    /// The bytes of one.
    pub(super) fn bytes(geometry: &Geometry) -> usize {
        Self::layout(geometry).size()
    }

    /// A front in use, in a block of its own with the slots' places behind it.
    pub(super) fn make(core: &Core, lifetime: usize) -> Result<NonNull<Self>, AllocError> {
        let layout = Self::layout(&core.geometry);
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { System.alloc(layout) })
            .ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))?;
        let front = block.cast::<Self>();
        // SAFETY: the block has room for the front and `cached` places.
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
    /// It was made with this geometry, nobody uses it, and it is destroyed once.
    pub(super) unsafe fn destroy(front: NonNull<Self>, geometry: &Geometry) {
        // SAFETY: passed on to the caller; nothing in a front needs drop.
        unsafe { System.dealloc(front.as_ptr().cast(), Self::layout(geometry)) }
    }

    // ---- for others ----

    /// Makes an unused front the calling thread's.
    pub(super) fn enter(&self) -> bool {
        // Acquire pairs with the Release in `leave`: the owner before has done.
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

    /// The slots at hand; a snapshot for others.
    pub(super) fn cached(&self) -> usize {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        // Read one after the other, while both may change.
        self.full().saturating_sub(self.room()) + outgoing
    }

    // ---- the fast paths ----

    /// A slot at hand.
    ///
    /// # Safety
    /// `front` is [`NOBODY`], or a front of the calling thread's with the address that it was made at (a reference
    /// does not reach the places behind it).
    #[inline(always)]
    pub(super) unsafe fn pop(front: *const Self) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller; the places from `room` on hold slots (invariant 2).
        unsafe {
            let room = (*front).room.load(Ordering::Relaxed);
            let slot = NonNull::new(*front.add(1).cast::<*mut u8>().add(room))?;
            (*front).room.store(room + 1, Ordering::Relaxed);
            Some(slot)
        }
    }

    /// Puts a slot at hand, if there is room, and its page's tag is that of the front's slab, without a mark. It is
    /// then the front's.
    ///
    /// # Safety
    /// As for [`pop`](Self::pop). The slot is the caller's, and `tag` its page's.
    #[inline(always)]
    pub(super) unsafe fn push(front: *const Self, slot: Slot, tag: impl FnOnce() -> u32) -> bool {
        // SAFETY: passed on to the caller; there are `full` places (2).
        unsafe {
            let room = (*front).room.load(Ordering::Relaxed);
            // Three questions at once: equal tags give 0, others at least `TAG_STEP`, which is above any room.
            if room <= (tag() ^ (*front).tag) as usize {
                return false;
            }
            front.add(1).cast::<Slot>().cast_mut().add(room - 1).write(slot);
            // Loaded again: it is one instruction with the store.
            (*front)
                .room
                .store((*front).room.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        }
        true
    }

    /// Puts a slot at hand, if there is room; for who found the front by the tag of the slot's page, so that there
    /// is nothing else to ask.
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

    pub(super) fn core(&self) -> &Core {
        debug_assert!(!self.core.is_null());
        // SAFETY: a front in use is a reference to its core; `NOBODY` never comes here.
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
        // SAFETY: the places from `room` on held slots (invariant 2).
        Some(unsafe { *self.places.add(room) })
    }

    /// Puts a slot at hand; there is room.
    pub(super) fn put_one(&self, slot: Slot) {
        let room = self.room() - 1;
        // SAFETY: a free place (invariant 2).
        unsafe { self.places.add(room).write(slot) };
        self.room.store(room, Ordering::Relaxed);
    }

    /// The slots at hand, the one freed last first.
    pub(super) fn at_hand(&self) -> &[Slot] {
        let room = self.room();
        // SAFETY: the places from `room` on hold slots (invariant 2).
        unsafe { core::slice::from_raw_parts(self.places.add(room), self.full() - room) }
    }

    // ---- coming and going ----

    pub(super) fn add_handle(&self) {
        // As many handles can only have been forgotten; one more would let another thread have the front.
        let Some(handles) = self.handles.get().checked_add(1) else { std::process::abort() };
        self.handles.set(handles);
    }

    /// The handles that are left.
    pub(super) fn drop_handle(&self) -> u32 {
        let left = self.handles.get() - 1;
        self.handles.set(left);
        left
    }

    pub(super) fn has_handles(&self) -> bool {
        self.handles.get() > 0
    }

    /// Leaves the front to the next thread that wants one. The caller then gives up its reference to the core.
    pub(super) fn leave(&self) {
        self.flush();
        self.near.set(0);
        self.recent.iter().for_each(|recent| recent.set(None));
        // Release pairs with the Acquire in `enter`.
        self.in_use.store(false, Ordering::Release);
    }

    /// In a child made by fork: nothing of a slab whose memory the child does not have may be at hand.
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
