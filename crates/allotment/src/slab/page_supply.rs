//! How a thread that needs slots gets a page, or slots of another thread's page.
//!
//! The invariants are those of `shared.rs` and `waiters.rs`.

use core::convert::Infallible;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};

use super::geometry::DEFAULT_PAGE;
use super::page::{BINS, SLOTS_PER_WORD};
use super::page_group::PageOrigin;
use super::page_hints::EMPTY_LIST;
use super::page_table::{SlabClaim, SlabPage};
use super::registry;
use super::shared::SlabShared;
use super::tags::TAG_MARK;
use crate::error::{AllocError, ErrorKind};
use crate::memory::span_allocator::addresses_of;
use crate::memory::{os, segment_map};

/// A slab that holds at least this many bytes and is used by one thread faults in each new page of
/// the usual size as a whole. Several threads that did so at the same time would wait for each
/// other in the kernel, which plain page faults don't.
const POPULATE_FROM: usize = 512 << 10;

/// The most slots taken at once from a page that another thread has claimed.
const MAX_STOLEN: usize = 8;

/// What a thread that needs slots gets.
pub(super) enum SlotGrant<'s> {
    /// The claim of a page with free slots.
    Page(SlabClaim<'s>),
    /// Slots of a page that another thread has claimed: the page, the word and the slots' bits.
    Slots(&'s SlabPage, usize, u64),
}

impl SlabShared {
    /// Claims a page of this lifetime with free slots: the fullest one listed, or one kept empty.
    /// The search starts at the descriptor `start`.
    pub(super) fn claim(&self, lifetime: usize, start: u32) -> Option<SlabClaim<'_>> {
        self.check_not_orphaned().ok()?;
        const LISTS: [[usize; BINS + 1]; 2] =
            [[7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST], [15, 14, 13, 12, 11, 10, 9, 8, EMPTY_LIST]];
        loop {
            let listed = || self.wake_waiters();
            let (claim, origin) = self.page_table.claim_listed(&LISTS[lifetime], start, listed)?;
            let fits = claim.page().info.lifetime.load(Ordering::Relaxed) == lifetime as u8;
            if fits || origin != PageOrigin::Open {
                return Some(self.prepare(claim, origin, lifetime));
            }
            // A stale hint: the page was kept empty in between, and serves the other lifetime now.
            self.put_back(claim);
        }
    }

    /// Claims a page that the thread had before, if the page is kept empty or listed. Its hint
    /// stays, and leads to nothing, or to the page when it is open again.
    pub(super) fn claim_again<'s>(
        &self,
        page: &'s SlabPage,
        lifetime: usize,
    ) -> Option<SlabClaim<'s>> {
        self.check_not_orphaned().ok()?;
        if !page.is_kept_empty() && !page.is_listed() {
            return None;
        }
        let (claim, was_empty) = page.claim()?;
        // The descriptor may serve another page by this time.
        if !was_empty && page.info.lifetime.load(Ordering::Relaxed) != lifetime as u8 {
            self.put_back(claim);
            return None;
        }
        let origin = if was_empty { PageOrigin::KeptEmpty } else { PageOrigin::Open };
        Some(self.prepare(claim, origin, lifetime))
    }

    /// Prepares a page that was just claimed for the thread that takes its slots.
    fn prepare<'s>(
        &self,
        claim: SlabClaim<'s>,
        origin: PageOrigin,
        lifetime: usize,
    ) -> SlabClaim<'s> {
        let page = claim.page();
        if origin == PageOrigin::KeptEmpty {
            self.empty_pages.reuse(page.info.bytes());
        }
        if origin != PageOrigin::Open {
            page.info.lifetime.store(lifetime as u8, Ordering::Relaxed);
            claim.free_all();
            // A thread that looked at the page before found no free slot.
            self.waiters.wake_after_stores(os::wake_all);
        }
        // The thread that claims the page may cache its own frees to it.
        self.update_mark(page, false);
        claim
    }

    /// Takes a page with free slots, or slots of a page that another thread has claimed, or returns
    /// the reason why there are none.
    ///
    /// The caller has found no listed page.
    #[cold]
    pub(super) fn grow(&self, lifetime: usize, start: u32) -> Result<SlotGrant<'_>, AllocError> {
        self.check_not_orphaned()?;
        let taken = if self.spans.needs_call_per_span() {
            self.grow_by_turns(lifetime, start)
        } else {
            self.new_page(lifetime, false).map(SlotGrant::Page)
        };
        taken.or_else(|error| {
            // Recall cached slots: each thread gives them back at its next free.
            self.recalls.fetch_add(1, Ordering::Relaxed);
            self.mark_all_pages();
            let listed = self.claim(lifetime, start).map(SlotGrant::Page);
            listed.or_else(|| self.steal()).ok_or(error)
        })
    }

    /// For sources whose calls may take long: one thread at a time takes a page. The others wait
    /// for it, or for a slot that is freed, whichever comes first.
    fn grow_by_turns(&self, lifetime: usize, start: u32) -> Result<SlotGrant<'_>, AllocError> {
        let process = std::process::id();
        if let Some(page) = self.new_page_in_turn(process, lifetime) {
            return page;
        }
        let mark_all = || self.mark_all_pages();
        let find = || {
            if let Some(claim) = self.claim(lifetime, start) {
                return Some(Ok(SlotGrant::Page(claim)));
            }
            self.steal().map(Ok).or_else(|| self.new_page_in_turn(process, lifetime))
        };
        let sleep = |event: &AtomicU32, value| {
            os::wait_on(event, value);
            Ok::<_, Infallible>(())
        };
        match self.waiters.wait(mark_all, find, sleep) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// Takes a new page if the source turn is free. Returns `None` if another thread has the turn.
    fn new_page_in_turn(
        &self,
        process: u32,
        lifetime: usize,
    ) -> Option<Result<SlotGrant<'_>, AllocError>> {
        if !self.waiters.try_take_turn(process) {
            return None;
        }
        // Ends when this call returns.
        let _turn = SourceTurn(self);
        Some(self.new_page(lifetime, false).map(SlotGrant::Page))
    }

    /// Takes free slots of a page that another thread has claimed, instead of waiting for that
    /// thread.
    fn steal(&self) -> Option<SlotGrant<'_>> {
        for page in self.pages() {
            for word in 0..page.words() {
                let taken = page.take(word, MAX_STOLEN);
                if taken != 0 {
                    return Some(SlotGrant::Slots(page, word, taken));
                }
            }
        }
        None
    }

    /// Takes a new page from the source. With `populate`, it is faulted in as a whole.
    fn new_page(&self, lifetime: usize, populate: bool) -> Result<SlabClaim<'_>, AllocError> {
        let bytes = self.geometry.next_page(self.page_bytes.load(Ordering::Relaxed));
        let smallest = self.geometry.min_page;
        match self.new_page_of(bytes, lifetime, populate) {
            // If there is no large page, there may still be a smallest one.
            Err(_) if bytes > smallest => self.new_page_of(smallest, lifetime, populate),
            result => result,
        }
    }

    fn new_page_of(
        &self,
        bytes: usize,
        lifetime: usize,
        populate: bool,
    ) -> Result<SlabClaim<'_>, AllocError> {
        self.charge(bytes)?;
        let undo = |error: AllocError| {
            self.credit(bytes);
            error
        };
        let page = self
            .page_table
            .take_vacant(|bytes| self.charge(bytes), |bytes| self.credit(bytes))
            .map_err(undo)?;
        let span = match self.spans.take(bytes, self.layout.align()) {
            Ok(span) => span,
            Err(error) => {
                self.page_table.return_vacant(page);
                return Err(undo(error));
            }
        };
        let addresses = addresses_of(bytes);
        let record = ptr::from_ref(self.record()).expose_provenance();
        let owner = NonZeroUsize::new(record).expect("a reference is not null");
        if let Err(error) = segment_map::register(span.start, addresses, owner) {
            // SAFETY: taken above, and not used.
            unsafe { self.spans.release(span, bytes, self.layout.align()) };
            self.page_table.return_vacant(page);
            return Err(undo(error));
        }
        page.info.start.store(span.start.as_ptr(), Ordering::Relaxed);
        page.info.set_bytes(bytes);
        page.info.range.store(span.range, Ordering::Relaxed);
        page.info.lifetime.store(lifetime as u8, Ordering::Relaxed);
        let tag = self.tag() | if lifetime != 0 { TAG_MARK } else { 0 };
        let bits = NonNull::from(page.bits()).cast();
        segment_map::enter_page(span.start, addresses, NonNull::from(page).cast(), bits, tag);
        registry::add_reference(self.number);
        self.page_count.fetch_add(1, Ordering::Relaxed);
        let held = self.page_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.empty_pages.count_new_page(bytes);
        if let Some(checks) = &self.checks {
            checks.page_taken(self, span.start, bytes);
        } else if populate
            || (held >= POPULATE_FROM && bytes <= DEFAULT_PAGE && self.has_one_cache())
        {
            self.spans.populate(span.start, bytes);
        }
        let claim = page.assign(self.geometry.slots(bytes));
        self.mark_new(page);
        Ok(claim)
    }

    /// Takes pages until this many slots are free in empty pages, and faults them in.
    pub(super) fn reserve(&self, slots: usize) -> Result<(), AllocError> {
        self.check_not_orphaned()?;
        // One slot's share of the smallest page: no page has more bytes per slot.
        let smallest = self.geometry.min_page;
        let bytes = slots
            .checked_mul(smallest / self.geometry.slots(smallest))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, slots))?;
        self.empty_pages.reserve_kept(bytes);
        let kept = self.page_table.descriptors().filter(|page| page.is_kept_empty());
        let mut missing = slots.saturating_sub(kept.map(SlabPage::slots).sum());
        while missing > 0 {
            let claim = self.new_page(0, true)?;
            let page = claim.page();
            let bytes = page.info.bytes();
            missing = missing.saturating_sub(page.slots());
            if claim.take_all() {
                self.empty_pages.add_reserved(bytes);
                self.list_empty(claim);
            } else {
                // A thread that would otherwise have waited took some slots.
                self.put_back(claim);
            }
            self.wake_waiters();
        }
        Ok(())
    }

    /// Allocates a slot without a thread cache.
    pub(super) fn alloc_uncached(&self, lifetime: usize) -> Result<NonNull<u8>, AllocError> {
        loop {
            let supply = match self.claim(lifetime, 0) {
                Some(claim) => SlotGrant::Page(claim),
                None => self.grow(lifetime, 0)?,
            };
            match supply {
                SlotGrant::Page(claim) => {
                    let page = claim.page();
                    let taken = (0..page.words()).find_map(|word| {
                        let bit = page.take(word, 1);
                        (bit != 0).then(|| word * SLOTS_PER_WORD + bit.trailing_zeros() as usize)
                    });
                    // The slot is taken before the page is opened: it keeps the page from being
                    // released in between.
                    let slot = taken.map(|index| self.slot_address(page, index));
                    self.put_back(claim);
                    if let Some(slot) = slot {
                        return Ok(slot);
                    }
                }
                SlotGrant::Slots(page, word, taken) => {
                    let first = taken & taken.wrapping_neg();
                    let index = word * SLOTS_PER_WORD + first.trailing_zeros() as usize;
                    let slot = self.slot_address(page, index);
                    if taken != first {
                        // SAFETY: taken just above and not used; the caller has a reference to the
                        // slab.
                        unsafe { self.free(self.locate(slot), taken ^ first, true) };
                    }
                    return Ok(slot);
                }
            }
        }
    }
}

/// The source turn of the one thread that takes a page from the source.
struct SourceTurn<'s>(&'s SlabShared);

impl Drop for SourceTurn<'_> {
    fn drop(&mut self) {
        self.0.waiters.end_turn(os::wake_all);
    }
}
