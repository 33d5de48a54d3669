//! Refill and flush: how slots move between a thread's cache and the pages. These are the slow
//! paths of [`ThreadCache`].
//!
//! The invariants are those of `front.rs`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use super::page::WORD;
use super::page_table::{SlabClaim, SlabPage};
use super::shared::MARK;
use super::supply::Got;
use super::thread_cache::{RECENT, Slot, ThreadCache};
use super::thread_table;
use crate::checked::Misuse;
use crate::error::AllocError;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::segments;

/// How many slots ahead of the current one the cache line of a slot's bit is prefetched.
const AHEAD: usize = 6;
/// A cache that is full this many times without a refill belongs to a thread that only frees.
const ONLY_FREES: u32 = 8;
/// The most pages whose slots wait to be sent back together. This is enough for their cache misses
/// to overlap.
const MOST_OUTGOING_PAGES: usize = 16;
/// The outgoing slots also keep at most this part of the slab's pages from being released.
const OUTGOING_PART: usize = 32;
/// A refill looks for at least this many slots, or for half of the cache's capacity if that is
/// less.
const WANTED: usize = 32;

/// Prefetches a word's cache line, without any other effect.
#[inline(always)]
fn prefetch(bits: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect on memory and can't fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(bits).cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = bits;
}

impl ThreadCache {
    /// Allocates a slot when the cache is empty.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&self) -> Result<NonNull<u8>, AllocError> {
        self.spills.set(0);
        self.sent.set(0);
        let core = self.core();
        core.keep.refilled();
        if core.packing() {
            // Once per refill: what is claimed below is to be used.
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
            // The slots that wait to be sent back may be the ones needed.
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
                    if !thread_table::flush_other(core.number, self.lifetime()) {
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
            // SAFETY: descriptors stay as long as the core. The claim is the cache's (invariant 3),
            // which gives it up here.
            let claim = super::page::Claim::resume(unsafe { page.as_ref() });
            self.core().put_back(claim);
            if !self.recent.iter().any(|recent| recent.get() == Some(page)) {
                let turn = self.turn.get();
                self.recent[turn % RECENT].set(Some(page));
                self.turn.set(turn.wrapping_add(1));
            }
        }
    }

    /// Claims a page that this thread put back recently. Threads that return to their own pages
    /// don't contend for the same hints, and find the objects' lines in their own CPU's cache.
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

    /// Takes the free slots of the current page's next words. After the last word the page is put
    /// back, so that a sleeping thread does not hold a page whose slots it has all taken.
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

    /// Caches slots that were taken, so that the lowest one is allocated next.
    fn add(&self, page: &SlabPage, word: usize, mut taken: u64) {
        let core = self.core();
        debug_assert!(self.room() >= taken.count_ones() as usize);
        let before = self.room();
        let size = core.geometry.slot;
        let first = core.slot_of(page, word * WORD);
        // SAFETY: the entries before `room` are free (invariant 2).
        let mut place = unsafe { self.places.add(before) };
        if taken == !0 {
            // A whole word, from the highest slot down: no bits to search.
            // SAFETY: there is room for what was taken (the callers take no more), and the slots
            // are ours.
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
        // SAFETY: both are entries of this cache, and the second is the first of them.
        let room = unsafe { place.offset_from(self.places) } as usize;
        self.drawn.set(self.drawn.get().wrapping_add(before - room));
        self.room.store(room, Ordering::Relaxed);
    }

    /// Frees a slot that the fast path did not cache. The reason is that its page is marked, that
    /// there is no room, or that the cache is [`NOBODY`]. In the last case the slot is not freed,
    /// and the function returns `false`.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn free_slowly(front: *const Self, slot: NonNull<u8>) -> bool {
        // SAFETY: the caller upholds the contract. From here on the entries are reached by the
        // cache's own pointer to them.
        let front = unsafe { &*front };
        // Most such frees follow each other on one page, which already has a slot among the
        // outgoing ones. So the page is marked, and belongs to this slab.
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

    /// Adds a slot of a marked page to the outgoing ones, to be sent back together. Each send costs
    /// a locked instruction, and no later instruction can overtake it.
    #[inline(always)]
    fn put_outgoing(&self, slot: NonNull<u8>, most: usize) {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        // SAFETY: there is a free entry after each call (invariant 4).
        unsafe { self.outgoing_places.add(outgoing).write(slot) };
        self.outgoing.store(outgoing + 1, Ordering::Relaxed);
        if outgoing + 1 == most {
            self.send();
        }
    }

    /// Frees a slot of another page than the last one.
    #[inline(never)]
    fn free_slowest(&self, slot: NonNull<u8>) {
        let core = self.core();
        // SAFETY: the caller holds the slot.
        let tag = unsafe { segments::tag_of_live(slot.addr().get()) };
        if tag != self.tag | MARK || !core.is_calm() {
            return self.free_otherwise(slot, tag);
        }
        self.put_outgoing_of_another(slot);
        self.heed_recalls();
    }

    /// Flushes the cache if a thread was refused a slot after this was last done.
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

    /// Sends the outgoing slots back to their pages.
    #[inline(never)]
    fn send(&self) {
        let outgoing = self.outgoing.load(Ordering::Relaxed);
        if outgoing == 0 {
            return;
        }
        // A refill after the last send, or more room, means that slots were allocated in between.
        let more_room = self.room() > self.room_then.replace(self.room());
        let allocates = more_room || self.sent.get() == 0;
        self.outgoing.store(0, Ordering::Relaxed);
        self.outgoing_pages.set(0);
        self.near_bytes.set(0);
        // SAFETY: the first entries hold slots (invariant 4), which belong to this call from here
        // on.
        let slots = unsafe { core::slice::from_raw_parts(self.outgoing_places, outgoing) };
        self.give_back_as(slots, allocates);
        // A cache that its thread does not allocate from keeps its pages from becoming empty.
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
            // A thread waits for slots, or the slab is closed: nothing is kept.
            self.give_back(&[slot]);
            return self.flush();
        }
        if tag & MARK != 0 {
            // The slab was not calm at the first check, and is calm at the second.
            self.put_outgoing_of_another(slot);
        } else {
            if self.room() == 0 {
                self.spill();
            }
            self.put_one(slot);
        }
        self.heed_recalls();
    }

    /// Makes room in a full cache.
    ///
    /// - If the cache was full [`ONLY_FREES`] times without a refill, all slots are sent back, and
    ///   the capacity is reset.
    /// - If the thread has taken as many slots as the cache holds, the capacity doubles, up to the
    ///   maximum.
    /// - In all other cases, the half of the slots that was freed first is sent back.
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
            // SAFETY: there are that many more entries (invariant 2). The slots move up, and the
            // null entry behind them, too.
            unsafe { ptr::copy(self.places, self.places.add(more), full + 1) };
            self.full.store(full + more, Ordering::Relaxed);
            self.room.store(more, Ordering::Relaxed);
            self.room_then.set(self.room_then.get() + more);
            return;
        }
        let half = full / 2;
        let stay = full - half;
        self.give_back(&self.at_hand()[stay..]);
        // SAFETY: the slots that stay move to the entries of those that were sent back.
        unsafe { ptr::copy(self.places, self.places.add(half), stay) };
        self.room.store(half, Ordering::Relaxed);
        self.room_then.set(half);
    }

    fn spill_all(&self) {
        self.give_back(self.at_hand());
        self.empty();
    }

    /// Resets the cache: it is empty and has its first capacity. It gives up the slots that it
    /// held.
    pub(super) fn empty(&self) {
        let full = self.core().geometry.first_cached;
        // SAFETY: an entry of this cache (invariant 2).
        unsafe { self.places.add(full).cast::<*mut u8>().write(ptr::null_mut()) };
        self.full.store(full, Ordering::Relaxed);
        self.room.store(full, Ordering::Relaxed);
        self.room_then.set(full);
        self.drawn.set(0);
    }

    /// Returns everything that the cache holds to the pages: cached slots, outgoing slots, the
    /// current page.
    pub(super) fn flush(&self) {
        self.spill_all();
        self.send();
        self.put_current_back();
        self.core().tell_waiters();
    }

    /// Frees slots that belong to the cache or to its caller. Slots that follow each other and
    /// share a bitmap word go back by one instruction.
    pub(super) fn give_back(&self, slots: &[NonNull<u8>]) {
        // A cache that is full again without a refill belongs to a thread that only frees.
        self.give_back_as(slots, self.spills.get() < 2);
    }

    fn give_back_as(&self, slots: &[NonNull<u8>], allocates: bool) {
        let core = self.core();
        let size = core.geometry.slot;
        let mut rest = slots;
        while let [first, more @ ..] = rest {
            // SAFETY: the slot is ours, and of this slab.
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
                // A slot without neighbours. The next ones will likely have none either, and each
                // have their bit in a different cache line.
                if let Some(later) = rest.get(AHEAD) {
                    // SAFETY: as above.
                    prefetch(unsafe { core.spot_of(*later) }.bits);
                }
            }
            // SAFETY: the slots are ours, and are given up here. The cache holds a reference to the
            // core.
            unsafe { core.free(spot, mask, allocates) };
        }
    }

    /// Reports the first slot that occurs twice.
    #[cold]
    fn stop_at_second(&self, first: &Slot, rest: &[Slot]) -> ! {
        let is_second =
            |(index, slot): &(usize, &Slot)| *slot == first || rest[..*index].contains(slot);
        let second = rest.iter().enumerate().find(is_second).map_or(first, |(_, slot)| slot);
        self.core().stop_at(Misuse::DoubleFree, second.addr().get())
    }

    /// Allocates many slots: first the cached ones, then whole words of pages.
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
}
