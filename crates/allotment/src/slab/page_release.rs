//! How slots and pages go back: slots are freed to their page, and empty pages are kept or
//! released.
//!
//! The invariants are those of `shared.rs`.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::page::{BINS, FreeOutcome, Fullness, SLOTS_PER_WORD, SPARSE_BELOW_BIN, set_free};
use super::page_group::{PageChange, PageOrigin};
use super::page_hints::EMPTY_LIST;
use super::page_table::{PageInfo, SlabClaim, SlabPage};
use super::shared::{SlabShared, SlotLocation};
use super::tags::TAG_MARK;
use super::waiters::PageMark;
use crate::checked::Misuse;
use crate::memory::span_allocator::{Span, addresses_of};
use crate::memory::{os, segment_map};

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

impl SlabShared {
    /// Wakes the threads that wait for a slot, if there are any. The caller has made something
    /// available to them.
    pub(super) fn wake_waiters(&self) {
        self.waiters.wake(os::wake_all);
    }

    // ---- marks ----

    fn mark_of(&self, page: &SlabPage) -> TagMark {
        let start = page.info.start.load(Ordering::Relaxed);
        let start = NonNull::new(start).expect("a page has memory");
        TagMark { tag: self.tag(), start, bytes: page.info.bytes() }
    }

    /// Sets or clears the mark of a page. The caller holds a slot of the page, or its claim.
    pub(super) fn update_mark(&self, page: &SlabPage, sparse: bool) {
        let long_lived = page.info.lifetime.load(Ordering::Relaxed) != 0;
        self.waiters.update_mark(sparse || long_lived, &self.mark_of(page));
    }

    /// Marks a new page if threads wait for slots. The caller has its claim.
    pub(super) fn mark_new(&self, page: &SlabPage) {
        self.waiters.mark_new(&self.mark_of(page));
    }

    // ---- slots ----

    /// Frees slots of one word of a page, the word of `location`. `allocates` says whether the
    /// thread also allocates.
    ///
    /// # Safety
    /// The caller holds these slots and does not use them afterwards. The caller has a reference to
    /// the slab.
    #[inline(always)]
    pub(super) unsafe fn free(&self, location: SlotLocation<'_>, mask: u64, allocates: bool) {
        let page = location.page;
        let sampled = if self.geometry.samples(location.index / SLOTS_PER_WORD, mask) {
            self.sample(page)
        } else {
            None
        };
        match set_free(location.bits, mask) {
            FreeOutcome::Done if sampled.is_none() => {}
            FreeOutcome::Done | FreeOutcome::Examine => self.examine(page, sampled, allocates),
            FreeOutcome::DoubleFree => self.abort_on_double_free(location, mask),
        }
    }

    /// Frees one slot to its page, and wakes the threads that wait for one.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub(super) unsafe fn free_one(&self, slot: NonNull<u8>) {
        // SAFETY: the caller upholds the contract.
        unsafe {
            let location = self.locate(slot);
            self.free(location, 1 << (location.index % SLOTS_PER_WORD), true);
        }
        self.wake_waiters();
    }

    #[cold]
    #[inline(never)]
    fn examine(&self, page: &SlabPage, sampled: Option<usize>, allocates: bool) {
        let (group, position) = self.page_table.group_of(page);
        self.complete(group.examine(position, sampled), allocates);
    }

    /// Updates the page's mark by how full the page is, and returns its bin; `None` if it is
    /// claimed. The caller holds a slot of the page, so the granules still belong to this page.
    #[cold]
    #[inline(never)]
    fn sample(&self, page: &SlabPage) -> Option<usize> {
        if page.is_claimed() {
            return None;
        }
        let bin = match page.fullness() {
            // The slots about to be freed are the first free ones.
            Fullness::Full => BINS - 1,
            Fullness::Bin(bin) => bin,
            Fullness::Empty => 0,
        };
        self.update_mark(page, bin < SPARSE_BELOW_BIN);
        Some(bin)
    }

    #[cold]
    fn abort_on_double_free(&self, location: SlotLocation<'_>, mask: u64) -> ! {
        let first = location.index / SLOTS_PER_WORD * SLOTS_PER_WORD;
        let index = first + mask.trailing_zeros() as usize % SLOTS_PER_WORD;
        let start = location.page.info.start.load(Ordering::Relaxed).addr();
        self.abort_on_misuse(Misuse::DoubleFree, start + index * self.geometry.slot)
    }

    // ---- pages ----

    /// Opens a claimed page to all threads.
    pub(super) fn put_back(&self, claim: SlabClaim<'_>) {
        let page = claim.page();
        if let Fullness::Bin(bin) = page.fullness() {
            self.update_mark(page, bin < SPARSE_BELOW_BIN);
        }
        let (group, position) = self.page_table.group_of(page);
        self.complete(group.put_back(position, claim), true);
    }

    /// Completes what examining a page or putting it back has led to.
    #[cold]
    fn complete(&self, change: PageChange<'_, PageInfo>, allocates: bool) {
        match change {
            // An unlisted page matters, too: waiting threads also take slots of a claimed page.
            PageChange::Unlisted | PageChange::Listed => self.wake_waiters(),
            PageChange::Emptied(claim) => self.keep_or_release(claim, allocates),
        }
    }

    /// Keeps or releases a page. The caller has its claim and all of its slots.
    fn keep_or_release(&self, claim: SlabClaim<'_>, allocates: bool) {
        let bytes = claim.page().info.bytes();
        if !self.waiters.is_closed() && self.empty_pages.try_keep(bytes, allocates) {
            self.list_empty(claim);
            self.wake_waiters();
            // Read after the page was listed: a thread that closes the slab looks for listed pages
            // after it has set the closed flag.
            if self.waiters.is_closed() {
                self.release_all_kept();
            }
        } else {
            self.release(claim);
        }
        let mut excess = self.empty_pages.excess(bytes, allocates);
        while excess > 0 {
            let Some(released) = self.release_kept() else { break };
            excess = excess.saturating_sub(released);
        }
    }

    /// Marks a page as kept empty, and lists it. The caller has all of its slots.
    pub(super) fn list_empty(&self, claim: SlabClaim<'_>) {
        let (group, position) = self.page_table.group_of(claim.page());
        claim.keep_empty();
        group.hints.set(EMPTY_LIST, position);
    }

    /// Releases one of the pages that are kept empty; returns its bytes.
    fn release_kept(&self) -> Option<usize> {
        let (claim, origin) =
            self.page_table.claim_listed(&[EMPTY_LIST], 0, || self.wake_waiters())?;
        let bytes = claim.page().info.bytes();
        if origin == PageOrigin::Open {
            // The hint was stale: the page was used again in the meantime.
            self.put_back(claim);
            return Some(0);
        }
        if origin == PageOrigin::KeptEmpty {
            self.empty_pages.remove(bytes);
        }
        self.release(claim);
        Some(bytes)
    }

    /// Releases all pages that are kept empty.
    fn release_all_kept(&self) {
        self.empty_pages.clear_limits();
        while self.release_kept().is_some() {}
    }

    /// Releases all pages that are kept empty, and the memory that their structures no longer need.
    pub(super) fn trim(&self) {
        self.release_all_kept();
        self.page_table.discard_vacant();
    }

    /// Closes the dropped slab: from here on frees bypass the caches, and empty pages are released.
    pub(super) fn close(&self) {
        self.report_live();
        self.waiters.close();
        self.mark_all_pages();
        self.release_all_kept();
    }

    fn release(&self, claim: SlabClaim<'_>) {
        let page = claim.page();
        let bytes = page.info.bytes();
        let start = page.info.start.load(Ordering::Relaxed);
        let start = NonNull::new(start).expect("a page has memory");
        let span = Span { start, range: page.info.range.load(Ordering::Relaxed) };
        if let Some(checks) = &self.checks {
            checks.page_released(self, page, start, bytes);
        }
        segment_map::remove_page(start, addresses_of(bytes));
        segment_map::unregister(start, addresses_of(bytes));
        // The order matters: first no thread can find the page, then its memory is given back, and
        // then its addresses can be reused. In another order, the release could discard the memory
        // of another thread's new page.
        claim.release();
        // SAFETY: taken with these bytes and this alignment. The caller held all slots, so nothing
        // refers to the memory (1).
        let give_back = || unsafe { self.spans.release(span, bytes, self.layout.align()) };
        self.empty_pages.time_release(give_back);
        self.page_table.return_vacant(page);
        self.page_count.fetch_sub(1, Ordering::Relaxed);
        self.page_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.released_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.credit(bytes);
        self.wake_waiters();
        // The page's reference. The caller has its own.
        Self::release_reference(self.number);
    }
}
