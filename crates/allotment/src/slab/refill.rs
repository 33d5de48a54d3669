//! Refill and flush: how slots move between a thread's cache and the pages. These are the slow
//! paths of [`ThreadCache`].
//!
//! The invariants are those of `thread_cache.rs`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use super::page::{PageClaim, SLOTS_PER_WORD};
use super::page_supply::SlotGrant;
use super::page_table::{SlabClaim, SlabPage};
use super::tags::TAG_MARK;
use super::thread_cache::{RECENT_PAGES, ThreadCache};
use crate::checked::Misuse;
use crate::error::AllocError;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::segment_map;

/// How many slots ahead the cache line with a slot's bit is prefetched.
const PREFETCH_DISTANCE: usize = 6;
/// A cache that is full, or sends slots back, this many times without a refill belongs to a thread
/// that only frees.
const FREES_ONLY_AFTER: u32 = 8;
/// The most pages whose slots are sent back together. This is enough for their cache misses to
/// overlap.
const MAX_OUTGOING_PAGES: usize = 16;
/// The outgoing slots also keep at most the slab's pages divided by this from being released.
const OUTGOING_DIVISOR: usize = 32;
/// A refill takes at least this many slots if they are to be had, or half of the cache's capacity
/// if that is less.
const REFILL_SLOTS: usize = 32;

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
        self.overflows.set(0);
        self.sends.set(0);
        let shared = self.shared();
        shared.empty_pages.count_refill();
        if shared.packing() {
            // Once per refill: the pages claimed below are to be used.
            self.put_current_back();
        }
        loop {
            if let Some(slot) = self.pop_cached() {
                return Ok(slot);
            }
            if let Some(page) = self.current_page.get() {
                // SAFETY: descriptors stay as long as the slab.
                self.take_from_current(unsafe { page.as_ref() });
                continue;
            }
            // The outgoing slots may be the only free ones.
            self.send_outgoing();
            if let Some(claim) = self.claim_recent() {
                self.set_current(claim.into_page());
                continue;
            }
            if let Some(claim) = shared.claim(self.lifetime(), self.last_page.get()) {
                self.set_current(claim.into_page());
                continue;
            }
            match shared.grow(self.lifetime(), self.last_page.get())? {
                SlotGrant::Page(claim) => self.set_current(claim.into_page()),
                SlotGrant::Slots(page, word, taken) => self.add(page, word, taken),
            }
        }
    }

    fn set_current(&self, page: &SlabPage) {
        self.last_page.set(page.info.index());
        self.next_word.set(0);
        self.current_page.set(Some(NonNull::from(page)));
    }

    fn put_current_back(&self) {
        if let Some(page) = self.current_page.take() {
            // SAFETY: descriptors stay as long as the slab. The claim is the cache's (invariant 3),
            // which gives it up here.
            let claim = PageClaim::from_page(unsafe { page.as_ref() });
            self.shared().put_back(claim);
            if !self.recent_pages.iter().any(|recent| recent.get() == Some(page)) {
                let count = self.recent_count.get();
                self.recent_pages[count % RECENT_PAGES].set(Some(page));
                self.recent_count.set(count.wrapping_add(1));
            }
        }
    }

    /// Claims a page that this thread put back recently. Threads that return to their own pages
    /// don't contend for the same hints, and find the objects' lines in their own CPU's cache.
    fn claim_recent(&self) -> Option<SlabClaim<'_>> {
        let shared = self.shared();
        if shared.packing() {
            return None;
        }
        self.recent_pages.iter().find_map(|recent| {
            // SAFETY: descriptors stay as long as the slab.
            shared.claim_again(unsafe { recent.get()?.as_ref() }, self.lifetime())
        })
    }

    /// Takes the free slots of the next words of the current page. After the last word the page is
    /// put back, so that a sleeping thread does not hold a page whose slots it has all taken.
    fn take_from_current(&self, page: &SlabPage) {
        let words = page.words();
        let wanted = REFILL_SLOTS.min(self.capacity() / 2);
        let mut word = self.next_word.get();
        let mut count = 0;
        while word < words && count < wanted {
            let taken = page.take(word, self.top());
            count += taken.count_ones() as usize;
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
        let shared = self.shared();
        debug_assert!(self.top() >= taken.count_ones() as usize);
        let before = self.top();
        let size = shared.geometry.slot;
        let first = shared.slot_address(page, word * SLOTS_PER_WORD);
        // SAFETY: the entries below `top` are free (invariant 2).
        let mut entry = unsafe { self.entries.add(before) };
        if taken == !0 {
            // A whole word, from the highest slot down: no bits to search.
            // SAFETY: there is room for the slots (the callers take no more), and they are ours.
            unsafe {
                let mut slot = first.byte_add(SLOTS_PER_WORD * size);
                while slot != first {
                    slot = slot.byte_sub(size);
                    entry = entry.sub(1);
                    entry.write(slot);
                }
            }
            taken = 0;
        }
        while taken != 0 {
            let bit = SLOTS_PER_WORD - 1 - taken.leading_zeros() as usize;
            taken ^= 1 << bit;
            // SAFETY: as above.
            unsafe {
                entry = entry.sub(1);
                entry.write(first.byte_add(bit * size));
            }
        }
        // SAFETY: both are entries of this cache, and the second is the first of them.
        let top = unsafe { entry.offset_from(self.entries) } as usize;
        self.taken_slots.set(self.taken_slots.get().wrapping_add(before - top));
        self.set_top(top);
    }

    /// Frees a slot that the fast path did not cache. The reason is that its page is marked, that
    /// there is no room, or that the cache is [`NO_CACHE`](super::thread_cache::NO_CACHE). In the
    /// last case the slot is not freed, and the function returns `false`.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(super) unsafe fn free_slowly(cache: *const Self, slot: NonNull<u8>) -> bool {
        // SAFETY: the caller upholds the contract. From here on the entries are reached by the
        // cache's own pointer to them.
        let cache = unsafe { &*cache };
        // Most such frees follow each other on one page, which already has an outgoing slot. So the
        // page is marked, and belongs to this slab.
        let offset = slot.addr().get().wrapping_sub(cache.granule_start.get());
        if offset < cache.granule_bytes.get() {
            let shared = cache.shared();
            if shared.waiters.allow_caching() && cache.recalls_seen.get() == shared.recalls() {
                cache.add_outgoing(slot, shared.geometry.max_outgoing);
                return true;
            }
        }
        if cache.capacity() == 0 {
            return false;
        }
        cache.free_of_other_granule(slot);
        true
    }

    /// Adds a slot of a marked page to the outgoing ones, which are sent back together. Sent back
    /// one by one, each slot would cost a locked instruction that no later instruction can
    /// overtake.
    #[inline(always)]
    fn add_outgoing(&self, slot: NonNull<u8>, max: usize) {
        let outgoing = self.header.outgoing.load(Ordering::Relaxed);
        // SAFETY: there is a free entry after each call (invariant 4).
        unsafe { self.outgoing_entries.add(outgoing).write(slot) };
        self.header.outgoing.store(outgoing + 1, Ordering::Relaxed);
        if outgoing + 1 == max {
            self.send_outgoing();
        }
    }

    /// Frees a slot that lies in another granule than the last outgoing slot.
    #[inline(never)]
    fn free_of_other_granule(&self, slot: NonNull<u8>) {
        let shared = self.shared();
        // SAFETY: the caller holds the slot.
        let tag = unsafe { segment_map::tag_of_live(slot.addr().get()) };
        if tag != self.header.tag | TAG_MARK || !shared.waiters.allow_caching() {
            return self.free_other(slot, tag);
        }
        self.add_outgoing_of_other_granule(slot);
        self.flush_if_recalled();
    }

    /// Flushes the cache if a thread was refused a slot since the last call.
    pub(super) fn flush_if_recalled(&self) {
        let recalls = self.shared().recalls();
        if self.recalls_seen.replace(recalls) != recalls {
            self.flush();
        }
    }

    #[inline(always)]
    fn add_outgoing_of_other_granule(&self, slot: NonNull<u8>) {
        if self.outgoing_pages_left.get() == 0 {
            self.send_outgoing();
            let max = (self.shared().page_count() / OUTGOING_DIVISOR).clamp(1, MAX_OUTGOING_PAGES);
            self.outgoing_pages_left.set(max);
        }
        self.outgoing_pages_left.set(self.outgoing_pages_left.get() - 1);
        self.granule_start.set(slot.addr().get() & !(SEGMENT_GRANULE - 1));
        self.granule_bytes.set(SEGMENT_GRANULE);
        self.add_outgoing(slot, self.shared().geometry.max_outgoing);
    }

    /// Sends the outgoing slots back to their pages.
    #[inline(never)]
    fn send_outgoing(&self) {
        let outgoing = self.header.outgoing.load(Ordering::Relaxed);
        if outgoing == 0 {
            return;
        }
        // A refill after the last send, or a higher top, means that slots were allocated in
        // between.
        let popped = self.top() > self.top_at_send.replace(self.top());
        let allocates = popped || self.sends.get() == 0;
        self.header.outgoing.store(0, Ordering::Relaxed);
        self.outgoing_pages_left.set(0);
        self.granule_bytes.set(0);
        // SAFETY: the first entries hold slots (invariant 4), which belong to this call from here
        // on.
        let slots = unsafe { core::slice::from_raw_parts(self.outgoing_entries, outgoing) };
        self.return_slots_as(slots, allocates);
        // A cache that its thread does not allocate from keeps the slots' pages from becoming
        // empty.
        let sends = self.sends.get() + 1;
        self.sends.set(sends);
        if sends >= FREES_ONLY_AFTER {
            self.sends.set(0);
            self.return_cached();
        }
    }

    #[cold]
    #[inline(never)]
    fn free_other(&self, slot: NonNull<u8>, tag: u32) {
        let shared = self.shared();
        if tag & !TAG_MARK != self.header.tag {
            shared.abort_on_misuse(Misuse::ForeignPointer, slot.addr().get());
        }
        if !shared.waiters.allow_caching() {
            // A thread waits for slots, or the slab is closed: nothing is cached.
            self.return_slots(&[slot]);
            return self.flush();
        }
        if tag & TAG_MARK != 0 {
            // Caching was not allowed at the first check, and is allowed at the second.
            self.add_outgoing_of_other_granule(slot);
        } else {
            if self.top() == 0 {
                self.make_room();
            }
            self.push_cached(slot);
        }
        self.flush_if_recalled();
    }

    /// Makes room in a full cache.
    ///
    /// - If the cache was full [`FREES_ONLY_AFTER`] times without a refill, all slots are sent
    ///   back, and the capacity is reset.
    /// - If the thread has taken as many slots as the cache holds, the capacity doubles, up to the
    ///   maximum.
    /// - In all other cases, the half of the slots that was freed first is sent back.
    fn make_room(&self) {
        debug_assert_eq!(self.top(), 0);
        let overflows = self.overflows.get() + 1;
        self.overflows.set(overflows);
        if overflows >= FREES_ONLY_AFTER {
            return self.return_cached();
        }
        let capacity = self.capacity();
        let more = capacity.min(self.shared().geometry.max_cached - capacity);
        if more > 0 && self.taken_slots.get() >= capacity {
            // SAFETY: there are that many more entries (invariant 2). The slots move up, and the
            // null entry behind them, too.
            unsafe { ptr::copy(self.entries, self.entries.add(more), capacity + 1) };
            self.header.capacity.store(capacity + more, Ordering::Relaxed);
            self.set_top(more);
            self.top_at_send.set(self.top_at_send.get() + more);
            return;
        }
        let half = capacity / 2;
        let stay = capacity - half;
        self.return_slots(&self.cached_slots()[stay..]);
        // SAFETY: the slots that stay move to the entries of those that were sent back.
        unsafe { ptr::copy(self.entries, self.entries.add(half), stay) };
        self.set_top(half);
        self.top_at_send.set(half);
    }

    /// Returns the cached slots to their pages, and resets the cache.
    fn return_cached(&self) {
        self.return_slots(self.cached_slots());
        self.reset();
    }

    /// Resets the cache: it is empty and has its initial capacity. The slots that it held are not
    /// freed.
    fn reset(&self) {
        let capacity = self.shared().geometry.initial_cached;
        // SAFETY: an entry of this cache (invariant 2).
        unsafe { self.entries.add(capacity).cast::<*mut u8>().write(ptr::null_mut()) };
        self.header.capacity.store(capacity, Ordering::Relaxed);
        self.set_top(capacity);
        self.top_at_send.set(capacity);
        self.taken_slots.set(0);
    }

    /// Returns everything that the cache holds to the pages: cached slots, outgoing slots, the
    /// current page.
    pub(super) fn flush(&self) {
        self.return_cached();
        self.send_outgoing();
        self.put_current_back();
        self.shared().wake_waiters();
    }

    /// Frees slots to their pages. They belong to the cache or to its caller. Slots that follow
    /// each other and share a bitmap word go back by one instruction.
    pub(super) fn return_slots(&self, slots: &[NonNull<u8>]) {
        // A cache that is full again without a refill belongs to a thread that only frees.
        self.return_slots_as(slots, self.overflows.get() < 2);
    }

    /// Same as [`return_slots`](Self::return_slots). `allocates` says whether the thread also
    /// allocates.
    fn return_slots_as(&self, slots: &[NonNull<u8>], allocates: bool) {
        let shared = self.shared();
        let size = shared.geometry.slot;
        let mut rest = slots;
        while let [first, more @ ..] = rest {
            // SAFETY: the slot is ours, and of this slab.
            let location = unsafe { shared.locate(*first) };
            let bit = location.index % SLOTS_PER_WORD;
            // The addresses of the slots that share the word.
            let start = first.addr().get() - bit * size;
            let bytes = shared.word_bytes(location, start);
            let mut mask = 1u64 << bit;
            let before = rest.len();
            rest = more;
            while let [next, more @ ..] = rest {
                let offset = next.addr().get().wrapping_sub(start);
                if offset >= bytes {
                    break;
                }
                mask |= 1 << (self.reciprocal.index(offset) % SLOTS_PER_WORD);
                rest = more;
            }
            let count = before - rest.len();
            if count > 1 {
                if count != mask.count_ones() as usize {
                    self.abort_on_duplicate(first, more);
                }
            } else {
                // A slot without neighbours. The next slots probably have none either, and have
                // their bits in different cache lines.
                if let Some(later) = rest.get(PREFETCH_DISTANCE) {
                    // SAFETY: as above.
                    prefetch(unsafe { shared.locate(*later) }.bits);
                }
            }
            // SAFETY: the slots are ours, and are given up here. The cache holds a reference to the
            // slab.
            unsafe { shared.free(location, mask, allocates) };
        }
    }

    /// Reports the first slot that occurs twice.
    #[cold]
    fn abort_on_duplicate(&self, first: &NonNull<u8>, rest: &[NonNull<u8>]) -> ! {
        let is_second =
            |(index, slot): &(usize, &NonNull<u8>)| *slot == first || rest[..*index].contains(slot);
        let second = rest.iter().enumerate().find(is_second).map_or(first, |(_, slot)| slot);
        self.shared().abort_on_misuse(Misuse::DoubleFree, second.addr().get())
    }

    // ---- detach and fork ----

    /// Empties the cache and leaves it to the next thread that needs one. The caller then releases
    /// the cache's reference to the slab.
    pub(super) fn detach(&self) {
        self.flush();
        self.last_page.set(0);
        self.recent_pages.iter().for_each(|recent| recent.set(None));
        self.header.ownership.release();
    }

    /// In a child made by fork: drops all slots of a slab whose memory the child does not have.
    pub(super) fn after_fork(&self) {
        if self.shared().check_not_orphaned().is_err() {
            self.reset();
            self.header.outgoing.store(0, Ordering::Relaxed);
            self.outgoing_pages_left.set(0);
            self.granule_bytes.set(0);
            self.current_page.set(None);
        }
    }
}
