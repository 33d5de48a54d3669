//! A thread's own part of a slab: slots at hand, and the page that it takes more from.
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
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};

use super::core::{Core, Got, MARK};
use super::geometry::{Geometry, Reciprocal};
use super::page::WORD;
use super::threads;
use super::yard::{SlabClaim, SlabPage};
use crate::error::{AllocError, ErrorKind};
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::segments;
use crate::misuse::Misuse;

/// So many slots ahead of the one that goes back, the line of its bit is fetched.
const AHEAD: usize = 6;
/// A cache that is full so many times without a refill is of a thread that only frees.
const ONLY_FREES: u32 = 8;
/// Slots of so many pages wait to go back together: enough to overtake each other's misses.
const MOST_OUTGOING_PAGES: usize = 16;
/// And no more than this part of the slab's pages, which they keep from going.
const OUTGOING_PART: usize = 32;
/// Pages that a thread comes back to before it looks for others.
const RECENT: usize = 16;
/// A refill looks for at least as many slots, or half a cache.
const WANTED: usize = 32;

/// Brings a word's line into the cache. What it is, it remains.
#[inline(always)]
fn prefetch(bits: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and can't fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(bits).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bits;
}

/// One slot at hand.
type Slot = NonNull<u8>;

/// A thread's part of a slab.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Front {
    /// The free places; the slots lie from there on, the one freed last first.
    room: AtomicUsize,
    /// The places in use. It grows where a thread takes and frees more than there is room for, and shrinks when a thread
    /// only frees.
    full: AtomicUsize,
    /// The tag of the slab's pages.
    tag: u32,
    lifetime: u32,
    /// The places behind the front, for the slow paths; the fast ones know where they are.
    places: *mut Slot,
    /// The slots on their way back, and where they lie.
    outgoing: AtomicUsize,
    outgoing_places: *mut Slot,
    /// The granule of one of them, and its bytes; none if there is none.
    near_start: Cell<usize>,
    near_bytes: Cell<usize>,
    /// Of so many more pages there may be some.
    outgoing_pages: Cell<usize>,
    /// The room when they were last sent.
    room_then: Cell<usize>,
    reciprocal: Reciprocal,
    core: *const Core,
    current: Cell<Option<NonNull<SlabPage>>>,
    next_word: Cell<usize>,
    /// The pages that were current before, and how many there were ever.
    recent: [Cell<Option<NonNull<SlabPage>>>; RECENT],
    turn: Cell<usize>,
    /// The core's recalls when everything was last given back for one.
    recalls: Cell<u32>,
    /// The page that was current last: its neighbours are looked at first.
    near: Cell<u32>,
    /// Full caches since the last refill.
    spills: Cell<u32>,
    /// Slots taken from pages since the cache was as large as at first.
    drawn: Cell<usize>,
    /// How often slots were sent back since the last refill.
    sent: Cell<u32>,
    /// Handles to this front, which keep it in use when its thread's table ends.
    handles: Cell<u32>,
    in_use: AtomicBool,
    next: AtomicPtr<Front>,
}

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

    // ---- the slow paths ----

    pub(super) fn core(&self) -> &Core {
        debug_assert!(!self.core.is_null());
        // SAFETY: a front in use is a reference to its core; `NOBODY` never comes here.
        unsafe { &*self.core }
    }

    fn full(&self) -> usize {
        self.full.load(Ordering::Relaxed)
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    fn take_one(&self) -> Option<Slot> {
        let room = self.room();
        if room == self.full() {
            return None;
        }
        self.room.store(room + 1, Ordering::Relaxed);
        // SAFETY: the places from `room` on held slots (invariant 2).
        Some(unsafe { *self.places.add(room) })
    }

    /// Puts a slot at hand; there is room.
    fn put_one(&self, slot: Slot) {
        let room = self.room() - 1;
        // SAFETY: a free place (invariant 2).
        unsafe { self.places.add(room).write(slot) };
        self.room.store(room, Ordering::Relaxed);
    }

    /// The slots at hand, the one freed last first.
    fn at_hand(&self) -> &[Slot] {
        let room = self.room();
        // SAFETY: the places from `room` on hold slots (invariant 2).
        unsafe { core::slice::from_raw_parts(self.places.add(room), self.full() - room) }
    }

    /// A slot, when none is at hand.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&self) -> Result<NonNull<u8>, AllocError> {
        self.spills.set(0);
        self.sent.set(0);
        let core = self.core();
        core.keep.refilled();
        if core.packing() {
            // Once: what is claimed below is to be used.
            self.put_current_back();
        }
        loop {
            if let Some(slot) = self.take_one() {
                return Ok(slot);
            }
            if self.current.get().is_some() {
                self.take_from_current();
                continue;
            }
            // What waits to go back may be what is needed.
            self.send();
            if let Some(claim) = self.claim_recent() {
                self.set_current(claim.keep());
                continue;
            }
            if let Some(claim) = core.claim(self.lifetime(), self.near.get()) {
                self.set_current(claim.keep());
                continue;
            }
            match core.grow(self.lifetime(), self.near.get()) {
                Ok(Got::Claim(claim)) => self.set_current(claim.keep()),
                Ok(Got::Slots(page, word, taken)) => self.add(page, word, taken),
                Err(error) => {
                    if !threads::flush_other(core.number, self.lifetime()) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn set_current(&self, page: &SlabPage) {
        self.near.set(page.beside.index());
        self.next_word.set(0);
        self.current.set(Some(NonNull::from(page)));
    }

    fn put_current_back(&self) {
        if let Some(page) = self.current.take() {
            // SAFETY: descriptors stay as long as the core; the claim is the front's (invariant 3), and no longer.
            let claim = super::page::Claim::resume(unsafe { page.as_ref() });
            self.core().put_back(claim);
            if !self.recent.iter().any(|recent| recent.get() == Some(page)) {
                let turn = self.turn.get();
                self.recent[turn % RECENT].set(Some(page));
                self.turn.set(turn.wrapping_add(1));
            }
        }
    }

    /// Claims a page that this thread put back not long ago. Threads that come back to their own pages don't meet at
    /// the hints, and find the objects' lines in their own cache.
    fn claim_recent(&self) -> Option<SlabClaim<'_>> {
        let core = self.core();
        if core.packing() {
            return None;
        }
        self.recent.iter().find_map(|recent| {
            // SAFETY: descriptors stay as long as the core.
            core.claim_again(unsafe { recent.get()?.as_ref() }, self.lifetime())
        })
    }

    /// Takes slots of the current page: those of the next words. With the last word the page is put back, so that
    /// a thread that sleeps holds no page whose slots it has all taken.
    fn take_from_current(&self) {
        let page = self.current.get().expect("asked by who has one");
        // SAFETY: descriptors stay as long as the core.
        let page = unsafe { page.as_ref() };
        let words = page.words();
        let wanted = WANTED.min(self.full() / 2);
        let mut word = self.next_word.get();
        let mut got = 0;
        while word < words && got < wanted {
            let taken = page.take(word, self.room());
            got += taken.count_ones() as usize;
            self.add(page, word, taken);
            word += 1;
        }
        self.next_word.set(word);
        if word == words {
            self.put_current_back();
        }
    }

    /// Puts taken slots at hand, so that the lowest is the next.
    fn add(&self, page: &SlabPage, word: usize, mut taken: u64) {
        let core = self.core();
        debug_assert!(self.room() >= taken.count_ones() as usize);
        let before = self.room();
        let size = core.geometry.slot;
        let first = core.slot_of(page, word * WORD);
        // SAFETY: the places before `room` are free (invariant 2).
        let mut place = unsafe { self.places.add(before) };
        if taken == !0 {
            // A whole word, from the highest down: no bit to look for.
            // SAFETY: there is room for what was taken (the callers ask for no more), and the slots are ours.
            unsafe {
                let mut slot = first.byte_add(WORD * size);
                while slot != first {
                    slot = slot.byte_sub(size);
                    place = place.sub(1);
                    place.write(slot);
                }
            }
            taken = 0;
        }
        while taken != 0 {
            let bit = WORD - 1 - taken.leading_zeros() as usize;
            taken ^= 1 << bit;
            // SAFETY: as above.
            unsafe {
                place = place.sub(1);
                place.write(first.byte_add(bit * size));
            }
        }
        // SAFETY: both are places of the front's, the second the first of them.
        let room = unsafe { place.offset_from(self.places) } as usize;
        self.drawn.set(self.drawn.get().wrapping_add(before - room));
        self.room.store(room, Ordering::Relaxed);
    }

    /// Frees a slot that the fast path did not take: its page is marked, there is no room, or the front is
    /// [`NOBODY`]; then it is not freed, and `false`.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn free_slowly(front: *const Self, slot: NonNull<u8>) -> bool {
        // SAFETY: passed on to the caller. The places are reached by the front's own pointer to them from here on.
        let front = unsafe { &*front };
        // Most such frees follow each other on one page, of which a slot is among the outgoing ones: so it is marked, and of
        // this slab.
        if slot.addr().get().wrapping_sub(front.near_start.get()) < front.near_bytes.get() {
            let core = front.core();
            if core.is_calm() && front.recalls.get() == core.recalls() {
                front.put_outgoing(slot, core.geometry.most_outgoing);
                return true;
            }
        }
        if front.full() == 0 {
            return false;
        }
        front.free_slowest(slot);
        true
    }

    /// Lets a slot of a sparse page wait for others, to go back with them: each costs a locked instruction, which
    /// nothing that follows it can overtake.
    #[inline(always)]
    fn put_outgoing(&self, slot: NonNull<u8>, most: usize) {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        // SAFETY: there is a free place after each call (invariant 4).
        unsafe { self.outgoing_places.add(outgoing).write(slot) };
        self.outgoing.store(outgoing + 1, Ordering::Relaxed);
        if outgoing + 1 == most {
            self.send();
        }
    }

    /// Frees a slot of another page than the last.
    #[inline(never)]
    fn free_slowest(&self, slot: NonNull<u8>) {
        let core = self.core();
        // SAFETY: the caller has the slot.
        let tag = unsafe { segments::tag_of_live(slot.addr().get()) };
        if tag != self.tag | MARK || !core.is_calm() {
            return self.free_otherwise(slot, tag);
        }
        self.put_outgoing_of_another(slot);
        self.heed_recalls();
    }

    /// Gives everything back if somebody was refused a slot since that was last done.
    pub(super) fn heed_recalls(&self) {
        let recalls = self.core().recalls();
        if self.recalls.replace(recalls) != recalls {
            self.flush();
        }
    }

    #[inline(always)]
    fn put_outgoing_of_another(&self, slot: NonNull<u8>) {
        if self.outgoing_pages.get() == 0 {
            self.send();
            let most = (self.core().pages() / OUTGOING_PART).clamp(1, MOST_OUTGOING_PAGES);
            self.outgoing_pages.set(most);
        }
        self.outgoing_pages.set(self.outgoing_pages.get() - 1);
        self.near_start.set(slot.addr().get() & !(SEGMENT_GRANULE - 1));
        self.near_bytes.set(SEGMENT_GRANULE);
        self.put_outgoing(slot, self.core().geometry.most_outgoing);
    }

    /// Gives back the slots that wait for it.
    #[inline(never)]
    fn send(&self) {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        if outgoing == 0 {
            return;
        }
        // A refill since the last time, or more room: slots were taken in between.
        let more_room = self.room() > self.room_then.replace(self.room());
        let allocates = more_room || self.sent.get() == 0;
        self.outgoing.store(0, Ordering::Relaxed);
        self.outgoing_pages.set(0);
        self.near_bytes.set(0);
        // SAFETY: the first places held slots (invariant 4), which are this call's now.
        let slots = unsafe { core::slice::from_raw_parts(self.outgoing_places, outgoing) };
        self.give_back_as(slots, allocates);
        // A cache that nobody draws on keeps its pages from becoming empty.
        let sent = self.sent.get() + 1;
        self.sent.set(sent);
        if sent >= ONLY_FREES {
            self.sent.set(0);
            self.spill_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn free_otherwise(&self, slot: NonNull<u8>, tag: u32) {
        let core = self.core();
        if tag & !MARK != self.tag {
            core.stop_at(Misuse::ForeignPointer, slot.addr().get());
        }
        if !core.is_calm() {
            // Somebody waits for slots, or the slab is closed: nothing is kept.
            self.give_back(&[slot]);
            return self.flush();
        }
        if tag & MARK != 0 {
            // Somebody was waited for when it was asked before, and is no more.
            self.put_outgoing_of_another(slot);
        } else {
            if self.room() == 0 {
                self.spill();
            }
            self.put_one(slot);
        }
        self.heed_recalls();
    }

    /// Makes room in a full cache. A thread that has taken as many slots as the cache holds gets a larger one, up to the
    /// most; beyond that the slots freed first go back. If none was taken for a while, all do, and the cache is as
    /// large as at first.
    fn spill(&self) {
        debug_assert_eq!(self.room(), 0);
        let spills = self.spills.get() + 1;
        self.spills.set(spills);
        if spills >= ONLY_FREES {
            return self.spill_all();
        }
        let full = self.full();
        let more = full.min(self.core().geometry.most_cached - full);
        if more > 0 && self.drawn.get() >= full {
            // SAFETY: there are as many places more (invariant 2); the slots move up, and the null behind them too.
            unsafe { ptr::copy(self.places, self.places.add(more), full + 1) };
            self.full.store(full + more, Ordering::Relaxed);
            self.room.store(more, Ordering::Relaxed);
            self.room_then.set(self.room_then.get() + more);
            return;
        }
        let half = full / 2;
        let stay = full - half;
        self.give_back(&self.at_hand()[stay..]);
        // SAFETY: the slots that stay move to the place of those that have gone.
        unsafe { ptr::copy(self.places, self.places.add(half), stay) };
        self.room.store(half, Ordering::Relaxed);
        self.room_then.set(half);
    }

    fn spill_all(&self) {
        self.give_back(self.at_hand());
        self.empty();
    }

    /// Makes the cache an empty one, as large as at first. What was in it is no longer the front's.
    fn empty(&self) {
        let full = self.core().geometry.first_cached;
        // SAFETY: a place of the front's (invariant 2).
        unsafe { self.places.add(full).cast::<*mut u8>().write(ptr::null_mut()) };
        self.full.store(full, Ordering::Relaxed);
        self.room.store(full, Ordering::Relaxed);
        self.room_then.set(full);
        self.drawn.set(0);
    }

    /// Gives everything that the front holds back to the pages: slots at hand, slots on their way, its page.
    pub(super) fn flush(&self) {
        self.spill_all();
        self.send();
        self.put_current_back();
        self.core().tell_waiters();
    }

    /// Frees slots that are the front's or its caller's. Neighbours in one word of a bitmap that follow each other
    /// go back by one instruction.
    pub(super) fn give_back(&self, slots: &[NonNull<u8>]) {
        // A cache that is full again without a refill is one of a thread that only frees.
        self.give_back_as(slots, self.spills.get() < 2);
    }

    fn give_back_as(&self, slots: &[NonNull<u8>], allocates: bool) {
        let core = self.core();
        let size = core.geometry.slot;
        let mut rest = slots;
        while let [first, more @ ..] = rest {
            // SAFETY: the slot is ours, of this slab.
            let spot = unsafe { core.spot_of(*first) };
            let within = spot.index % WORD;
            let start = first.addr().get() - within * size;
            let reach = core.reach_of(spot, start);
            let mut mask = 1u64 << within;
            let before = rest.len();
            rest = more;
            while let [next, more @ ..] = rest {
                let offset = next.addr().get().wrapping_sub(start);
                if offset >= reach {
                    break;
                }
                mask |= 1 << (self.reciprocal.index(offset) % WORD);
                rest = more;
            }
            let count = before - rest.len();
            if count > 1 {
                if count != mask.count_ones() as usize {
                    self.stop_at_second(first, more);
                }
            } else {
                // A lone one: its successors will be, too, and each in a line of its own.
                if let Some(later) = rest.get(AHEAD) {
                    // SAFETY: as above.
                    prefetch(unsafe { core.spot_of(*later) }.bits);
                }
            }
            // SAFETY: the slots are ours, and no longer; the front is a reference to the core.
            unsafe { core.free(spot, mask, allocates) };
        }
    }

    /// Names the first slot that is there twice.
    #[cold]
    fn stop_at_second(&self, first: &Slot, rest: &[Slot]) -> ! {
        let is_second =
            |(index, slot): &(usize, &Slot)| *slot == first || rest[..*index].contains(slot);
        let second = rest.iter().enumerate().find(is_second).map_or(first, |(_, slot)| slot);
        self.core().stop_at(Misuse::DoubleFree, second.addr().get())
    }

    /// Takes slots in one go: what is at hand, then whole words of pages.
    pub(super) fn take_many(
        &self,
        slots: &mut [core::mem::MaybeUninit<NonNull<u8>>],
    ) -> Result<(), (usize, AllocError)> {
        for (taken, place) in slots.iter_mut().enumerate() {
            let slot = match self.take_one() {
                Some(slot) => slot,
                None => self.refill().map_err(|error| (taken, error))?,
            };
            place.write(slot);
        }
        Ok(())
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
