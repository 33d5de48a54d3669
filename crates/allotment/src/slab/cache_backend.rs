//! Refill and flush: how slots move between a thread's cache and the pages. These are the slow
//! paths of [`ThreadCache`]; `cache_steps.rs` has the order of their steps.
//!
//! The invariants are those of `thread_cache.rs`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering, compiler_fence};

use super::cache_steps::{CacheBackend, CacheSteps};
use super::page::SLOTS_PER_WORD;
use super::page_table::SlabPage;
use super::shared::SlabShared;
use super::tags::TAG_MARK;
use super::thread_cache::{RECENT_PAGES, ThreadCache};
use crate::checked::Misuse;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::{os, segment_map};

/// A cache that is full, or sends slots back, this many times without a refill belongs to a thread
/// that only frees.
const FREES_ONLY_AFTER: u32 = 8;
/// The most pages whose slots are sent back together. This is enough for their cache misses to
/// overlap.
const MAX_OUTGOING_PAGES: usize = 16;
/// The outgoing slots also keep at most the slab's pages divided by this from being released.
/// (This is for random replacements among few objects, as in `allot bench churn`.)
const OUTGOING_DIVISOR: usize = 32;
/// A refill takes at least this many slots if they are to be had, or half of the cache's capacity
/// if that is less.
const REFILL_SLOTS: usize = 32;

impl CacheBackend for ThreadCache {
    type Pages = SlabShared;
    type Slot = NonNull<u8>;

    #[inline]
    fn pages(&self) -> &SlabShared {
        self.shared()
    }

    #[inline]
    fn lifetime(&self) -> usize {
        self.header.lifetime as usize
    }

    /// From its address, which is a multiple of its alignment. Two caches with one number would
    /// only take each other's pages.
    fn number(&self) -> u32 {
        (ptr::from_ref(self).addr() / align_of::<Self>()) as u32 | 1
    }

    fn millis(&self) -> u16 {
        os::coarse_millis() as u16
    }

    fn packing(&self) -> bool {
        self.shared().packing()
    }

    fn begin_refill(&self) {
        self.returns.set(0);
        self.shared().empty_pages.count_refill();
    }

    // ---- slots ----

    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        self.pop_cached()
    }

    fn free_entries(&self) -> usize {
        self.top()
    }

    fn refill_slots(&self) -> usize {
        REFILL_SLOTS.min(self.capacity() / 2)
    }

    /// The lowest slot is allocated next.
    fn add(&self, page: &SlabPage, word: usize, mut taken: u64) {
        let shared = self.shared();
        debug_assert!(self.top() >= taken.count_ones() as usize);
        let before = self.top();
        let size = shared.geometry.slot;
        let first = shared.slot_address(page, word * SLOTS_PER_WORD);
        // SAFETY: the entries below `top` are free (invariant 2).
        let mut entry = unsafe { self.entries.add(before) };
        if taken == !0 {
            // A whole word, from the highest slot down: no bits to search. This is for
            // `allot bench exchange-1000`, whose pages are freed whole.
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

    /// Also resets the cache.
    fn return_cached(&self) {
        self.return_slots(self.cached_slots());
        self.reset();
    }

    #[inline(never)]
    fn send_outgoing(&self) {
        let outgoing = self.header.outgoing.load(Ordering::Relaxed);
        if outgoing == 0 {
            return;
        }
        // A refill after the last send, or a higher top, means that slots were allocated in
        // between.
        let popped = self.top() > self.top_at_send.replace(self.top());
        let allocates = popped || self.returns.get() == 0;
        self.header.outgoing.store(0, Ordering::Relaxed);
        self.outgoing_pages_left.set(0);
        self.granule_bytes.set(0);
        // SAFETY: the first entries hold slots (invariant 4), which belong to this call from here
        // on.
        let slots = unsafe { core::slice::from_raw_parts(self.outgoing_entries, outgoing) };
        self.return_slots_as(slots, allocates);
        // A cache that its thread does not allocate from keeps the slots' pages from becoming
        // empty.
        self.return_cached_if_unused();
    }

    // ---- pages ----

    fn current(&self) -> Option<(&SlabPage, usize)> {
        // SAFETY: descriptors stay as long as the slab.
        self.current_page.get().map(|page| (unsafe { page.as_ref() }, self.next_word.get()))
    }

    fn set_current(&self, page: &SlabPage, word: usize) {
        self.last_page.set(page.info.index());
        self.next_word.set(word);
        self.current_page.set(Some(NonNull::from(page)));
    }

    fn take_current(&self) -> Option<&SlabPage> {
        // SAFETY: as above.
        self.current_page.take().map(|page| unsafe { page.as_ref() })
    }

    fn search_start(&self) -> u32 {
        self.last_page.get()
    }

    fn recent(&self) -> impl Iterator<Item = &SlabPage> {
        // SAFETY: as above.
        self.recent_pages.iter().filter_map(|page| Some(unsafe { page.get()?.as_ref() }))
    }

    fn add_recent(&self, page: &SlabPage) {
        let page = Some(NonNull::from(page));
        if !self.recent_pages.iter().any(|recent| recent.get() == page) {
            let count = self.recent_count.get();
            self.recent_pages[count % RECENT_PAGES].set(page);
            self.recent_count.set(count.wrapping_add(1));
        }
    }

    fn forget_pages(&self) {
        self.last_page.set(0);
        self.recent_pages.iter().for_each(|recent| recent.set(None));
    }

    fn release_ownership(&self) {
        self.header.ownership.release();
    }
}

impl ThreadCache {
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
        // page is marked, and belongs to this slab. This is for `allot bench exchange-1000`.
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
        if outgoing + 1 < max {
            // The last step of the free.
            compiler_fence(Ordering::Release);
            self.header.outgoing.store(outgoing + 1, Ordering::Relaxed);
        } else {
            // Before the slot counts as free.
            let _visit = self.header.ownership.visit();
            self.header.outgoing.store(outgoing + 1, Ordering::Relaxed);
            self.send_outgoing();
        }
    }

    /// Frees a slot that lies in another granule than the last outgoing slot.
    #[inline(never)]
    fn free_of_other_granule(&self, slot: NonNull<u8>) {
        let shared = self.shared();
        // SAFETY: the caller holds the slot.
        let tag = unsafe { segment_map::tag_of_live(slot.addr().get()) };
        let is_usual = tag == self.header.tag | TAG_MARK
            && shared.waiters.allow_caching()
            && self.recalls_seen.get() == shared.recalls();
        if is_usual {
            self.add_outgoing_of_other_granule(slot);
        } else {
            self.free_other(slot, tag);
        }
    }

    /// Flushes the cache if a thread was refused a slot since the last call.
    pub(super) fn flush_if_recalled(&self) {
        let recalls = self.shared().recalls();
        if self.recalls_seen.replace(recalls) != recalls {
            self.flush();
        }
    }

    /// Adds a slot that is the first outgoing one of its page. Its last step puts the slot where it
    /// counts as free.
    #[inline(always)]
    fn add_outgoing_of_other_granule(&self, slot: NonNull<u8>) {
        if self.outgoing_pages_left.get() == 0 {
            // Slots may count twice while they return.
            let _visit = self.header.ownership.visit();
            self.send_outgoing();
            let max = (self.shared().page_count() / OUTGOING_DIVISOR).clamp(1, MAX_OUTGOING_PAGES);
            self.outgoing_pages_left.set(max);
        }
        self.outgoing_pages_left.set(self.outgoing_pages_left.get() - 1);
        self.granule_start.set(slot.addr().get() & !(SEGMENT_GRANULE - 1));
        self.granule_bytes.set(SEGMENT_GRANULE);
        self.add_outgoing(slot, self.shared().geometry.max_outgoing);
    }

    #[cold]
    #[inline(never)]
    fn free_other(&self, slot: NonNull<u8>, tag: u32) {
        let _visit = self.header.ownership.visit();
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
            self.add_outgoing_of_other_granule(slot);
        } else {
            if self.top() == 0 {
                self.make_room();
            }
            self.push_cached(slot);
        }
        self.flush_if_recalled();
    }

    /// Counts that the cache is full, or has sent slots back. If that happened
    /// [`FREES_ONLY_AFTER`] times without a refill, returns the cached slots. Returns whether it
    /// did.
    fn return_cached_if_unused(&self) -> bool {
        let returns = self.returns.get() + 1;
        if returns < FREES_ONLY_AFTER {
            self.returns.set(returns);
            return false;
        }
        // First, so that the pages which this empties are released at once: the thread does not
        // need them.
        self.returns.set(0);
        self.return_cached();
        true
    }

    /// Makes room in a full cache.
    ///
    /// - If the cache was full, or sent slots back, [`FREES_ONLY_AFTER`] times without a refill,
    ///   all slots are sent back, and the capacity is reset.
    /// - If the thread has taken as many slots as the cache holds, the capacity doubles, up to the
    ///   maximum.
    /// - In all other cases, the half of the slots that was freed first is sent back.
    fn make_room(&self) {
        debug_assert_eq!(self.top(), 0);
        if self.return_cached_if_unused() {
            return;
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

    /// Frees slots to their pages. They belong to the cache or to its caller. Slots that follow
    /// each other and share a bitmap word go back by one instruction.
    pub(super) fn return_slots(&self, slots: &[NonNull<u8>]) {
        // A cache that is full again without a refill belongs to a thread that only frees.
        self.return_slots_as(slots, self.returns.get() < 2);
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
            if count > 1 && count != mask.count_ones() as usize {
                self.abort_on_duplicate(first, more);
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

    // ---- fork ----

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
