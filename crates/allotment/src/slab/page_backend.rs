//! What the steps of `page_steps.rs` do with memory, with the segment map and with counters; and
//! how a slot is freed without a thread cache.
//!
//! The invariants are those of `shared.rs`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use super::cache_header::CacheHeader;
use super::cache_ownership::CacheOwnership;
use super::cache_seizure::{self, EndedSlab};
use super::cache_steps::CacheSteps;
use super::page::SLOTS_PER_WORD;
use super::page_group::{OwnPages, PageGroup, PageOrigin};
use super::page_steps::{PageBackend, PageSteps};
use super::page_table::{PageInfo, SlabClaim, SlabPage};
use super::shared::{SlabShared, SlotLocation};
use super::tags::TAG_MARK;
use super::thread_cache::ThreadCache;
use super::thread_table;
use super::waiters::{PageMark, Waiters};
use crate::checked::Misuse;
use crate::error::AllocError;
use crate::memory::span_allocator::{Span, addresses_of};
use crate::memory::{fences, os, segment_map, tools};

/// The mark of a page, in the tags of its granules.
struct TagMark {
    /// The tag without the mark.
    tag: u32,
    start: NonNull<u8>,
    /// The bytes of the page.
    bytes: usize,
}

impl TagMark {
    fn tag(&self, marked: bool) -> u32 {
        if marked { self.tag | TAG_MARK } else { self.tag }
    }
}

impl PageMark for TagMark {
    #[inline(always)]
    fn is(&self, marked: bool) -> bool {
        segment_map::tag_of(self.start.addr().get()) == self.tag(marked)
    }

    fn store(&self, marked: bool) {
        segment_map::set_tag(self.start, addresses_of(self.bytes), self.tag(marked));
    }

    fn set(&self) {
        segment_map::mark_tag(self.start, addresses_of(self.bytes), TAG_MARK);
    }
}

/// The memory of a page, to be given back to the spans.
pub(crate) struct PageMemory {
    span: Span,
    bytes: usize,
}

impl PageBackend for SlabShared {
    type Info = PageInfo;
    type Memory = PageMemory;
    type Error = AllocError;

    #[inline(always)]
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn group_of(&self, page: &SlabPage) -> (PageGroup<'_, PageInfo>, usize) {
        self.page_table.group_of(page)
    }

    fn descriptors(&self) -> impl Iterator<Item = &SlabPage> {
        self.page_table.descriptors()
    }

    fn claim_listed(
        &self,
        lists: &[usize],
        start: u32,
        own: Option<&OwnPages>,
        listed: impl Fn(),
    ) -> Option<(SlabClaim<'_>, PageOrigin)> {
        self.page_table.claim_listed(lists, start, own, listed)
    }

    fn mark_of(&self, page: &SlabPage) -> impl PageMark {
        TagMark { tag: self.tag(), start: start_of(page), bytes: page.info.bytes() }
    }

    fn bytes(&self, page: &SlabPage) -> usize {
        page.info.bytes()
    }

    fn check_not_orphaned(&self) -> Result<(), AllocError> {
        SlabShared::check_not_orphaned(self)
    }

    // ---- empty pages ----

    fn try_keep(&self, bytes: usize, allocates: bool) -> bool {
        self.empty_pages.try_keep(bytes, allocates)
    }

    fn reuse_kept(&self, bytes: usize) {
        self.empty_pages.reuse(bytes);
    }

    fn remove_kept(&self, bytes: usize) {
        self.empty_pages.remove(bytes);
    }

    fn excess(&self, page: usize, allocates: bool) -> usize {
        self.empty_pages.excess(page, allocates)
    }

    fn clear_limits(&self) {
        self.empty_pages.clear_limits();
    }

    // ---- memory ----

    fn new_page<'b>(
        &'b self,
        lifetime: usize,
        instead: impl FnOnce() -> Option<SlabClaim<'b>>,
    ) -> Result<SlabClaim<'b>, AllocError> {
        self.take_page(lifetime, false, instead)
    }

    fn remove_page(&self, page: &SlabPage) -> PageMemory {
        let (start, bytes) = (start_of(page), page.info.bytes());
        if let Some(checks) = &self.checks {
            checks.page_released(self, page, start, bytes);
        }
        segment_map::remove_page(start, addresses_of(bytes));
        segment_map::unregister(start, addresses_of(bytes));
        let span = Span { start, range: page.info.range.load(Ordering::Relaxed) };
        PageMemory { span, bytes }
    }

    fn give_back(&self, PageMemory { span, bytes }: PageMemory) {
        // SAFETY: taken with these bytes and this alignment. The caller held all slots, so nothing
        // refers to the memory (1).
        let give_back = || unsafe { self.spans.release(span, bytes, self.layout.align()) };
        self.empty_pages.time_release(give_back);
    }

    fn return_vacant(&self, page: &SlabPage) {
        self.page_table.return_vacant(page);
    }

    fn count_released(&self, bytes: usize) {
        self.page_count.fetch_sub(1, Ordering::Relaxed);
        self.page_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.slot_count.fetch_sub(self.geometry.slots(bytes), Ordering::Relaxed);
        self.released_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.credit(bytes);
        // The page's reference. The caller has its own.
        Self::release_reference(self.number);
    }

    // ---- waiting ----

    fn one_by_one(&self) -> bool {
        self.spans.needs_call_per_span()
    }

    fn flush_other(&self, lifetime: usize) {
        thread_table::flush_other(self.number, lifetime);
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    fn sleep(&self, event: &AtomicU32, value: u32) -> Result<(), AllocError> {
        os::wait_on(event, value);
        Ok(())
    }

    fn wake_all(event: &AtomicU32) {
        os::wake_all(event);
    }

    fn recall(&self) {
        self.recalls.fetch_add(1, Ordering::Relaxed);
    }
}

fn start_of(page: &SlabPage) -> NonNull<u8> {
    NonNull::new(page.info.start.load(Ordering::Relaxed)).expect("a page has memory")
}

impl EndedSlab for SlabShared {
    type Cache = NonNull<CacheHeader>;

    fn caches(&self) -> impl Iterator<Item = NonNull<CacheHeader>> {
        SlabShared::caches(self)
    }

    fn ownership(&self, cache: NonNull<CacheHeader>) -> &CacheOwnership {
        // SAFETY: caches stay until the slab is destroyed. Other threads only use its atomics.
        &unsafe { cache.as_ref() }.ownership
    }

    fn all_slots_are_free(&self) -> bool {
        let (all, free) = self.count_slots();
        all == free
    }

    fn empty(&self, cache: NonNull<CacheHeader>) {
        // A header lies at the start of its cache.
        // SAFETY: this thread is the cache's owner from now on (invariant 1 of cache_ownership.rs).
        // It sees what the cache's thread has stored: by the kernel's fence after the count, or by
        // the Release with which that thread abandoned the cache.
        unsafe { cache.cast::<ThreadCache>().as_ref() }.detach();
        Self::release_reference(self.number);
    }

    fn wait(&self) {
        std::thread::yield_now();
    }
}

impl SlabShared {
    /// Frees slots of one word of a page, the word of `location`. `allocates` says whether the
    /// thread also allocates.
    ///
    /// # Safety
    /// The caller holds these slots and does not use them afterwards. The caller has a reference to
    /// the slab.
    #[inline(always)]
    pub(super) unsafe fn free(&self, location: SlotLocation<'_>, mask: u64, allocates: bool) {
        let SlotLocation { page, bits, index } = location;
        let sampled = self.geometry.samples(index / SLOTS_PER_WORD, mask);
        if !self.free_slots(page, bits, mask, sampled, allocates) {
            self.abort_on_double_free(location, mask);
        }
    }

    /// Frees one slot to its page, and wakes the threads that wait for one.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub(super) unsafe fn free_one(&self, slot: NonNull<u8>) {
        // SAFETY: the caller upholds the contract.
        let location = unsafe { self.locate(slot) };
        let SlotLocation { page, bits, index } = location;
        let mask = 1 << (index % SLOTS_PER_WORD);
        let sampled = self.geometry.samples(index / SLOTS_PER_WORD, mask);
        if !self.free_uncached(page, bits, mask, sampled) {
            self.abort_on_double_free(location, mask);
        }
    }

    #[cold]
    fn abort_on_double_free(&self, location: SlotLocation<'_>, mask: u64) -> ! {
        let first = location.index / SLOTS_PER_WORD * SLOTS_PER_WORD;
        let index = first + mask.trailing_zeros() as usize % SLOTS_PER_WORD;
        let start = location.page.info.start.load(Ordering::Relaxed).addr();
        self.abort_on_misuse(Misuse::DoubleFree, start + index * self.geometry.slot)
    }

    /// Releases all pages that are kept empty, and the memory that their structures no longer need.
    pub(super) fn trim(&self) {
        self.release_all_kept();
        self.page_table.discard_vacant();
    }

    /// Closes the dropped slab.
    pub(super) fn close(&self) {
        self.report_live();
        self.close_pages();
    }

    /// Empties the caches of threads that sleep, if no object is left. The slab is closed, and the
    /// caller has a reference to it.
    pub(super) fn seize_caches(&self) {
        // In a child made by fork, the caches of threads that it lacks may be half flushed for good.
        let is_wanted = self.checks.is_none() && self.has_cache_in_use();
        if is_wanted && self.is_of_this_process() && !tools::has_thread_sanitizer() {
            // The first call of a process takes long where other threads run: the kernel waits for
            // all of them.
            fences::decide();
            cache_seizure::seize_caches(self);
        }
    }
}
