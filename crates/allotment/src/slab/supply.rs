//! A slab's pages: how a thread that needs slots gets one, which threads wait, and how empty pages
//! are kept or released.
//!
//! The invariants are those of `core.rs`.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use super::geometry::USUAL_PAGE;
use super::hints::EMPTY_LIST;
use super::page::BINS;
use super::page_table::{SlabClaim, SlabPage};
use super::registry;
use super::shared::{CLOSED, MARK, Shared, WAITERS};
use crate::error::{AllocError, ErrorKind};
use crate::memory::spans::{Span, addresses_of};
use crate::memory::{os, segments};

/// A slab that holds at least this many bytes and is used by one thread faults in each new page of
/// the usual size as a whole. Several threads that did so at the same time would wait for each
/// other in the kernel, which plain page faults don't.
const POPULATE_FROM: usize = 512 << 10;

/// The most slots taken at once from a page that another thread has claimed.
const LEAST_STOLEN: usize = 8;

/// What a thread that needs slots gets.
pub(super) enum Got<'c> {
    Claim(SlabClaim<'c>),
    /// Slots of a page that another thread has claimed: the page, the word and the slots' bits.
    Slots(&'c SlabPage, usize, u64),
}

impl Shared {
    /// Keeps or releases a page. The caller has its claim and all of its slots.
    pub(super) fn emptied(&self, claim: SlabClaim<'_>, allocates: bool) {
        let bytes = claim.page().beside.bytes();
        if !self.is_closed() && self.keep.wants(bytes, allocates) {
            self.list_empty(claim);
            self.tell_waiters();
            // Read after the page was listed: a thread that closes the slab looks for listed pages
            // after it has set `CLOSED`.
            if self.attention.load(Ordering::SeqCst) & CLOSED != 0 {
                self.release_all_kept();
            }
        } else {
            self.release(claim);
        }
        let mut due = self.keep.due(bytes, allocates);
        while due > 0 {
            let Some(went) = self.release_kept(0) else { break };
            due = due.saturating_sub(went);
        }
    }

    fn list_empty(&self, claim: SlabClaim<'_>) {
        let (block, index) = self.yard.find(claim.page());
        claim.keep_empty();
        block.hints.set(EMPTY_LIST, index);
    }

    /// Releases one of the pages that are kept empty; returns its bytes.
    fn release_kept(&self, near: u32) -> Option<usize> {
        let (claim, kept) = self.yard.claim(&[EMPTY_LIST], near)?;
        let bytes = claim.page().beside.bytes();
        if kept {
            self.keep.unkeep(bytes);
            self.release(claim);
            Some(bytes)
        } else {
            // Its hint was stale: the page was used again in the meantime.
            self.put_back(claim);
            Some(0)
        }
    }

    /// Releases all pages that are kept empty.
    pub(super) fn release_all_kept(&self) {
        self.keep.forget();
        while self.release_kept(0).is_some() {}
    }

    /// Releases all pages that are kept empty, and the memory that their structures no longer need.
    pub(super) fn trim(&self) {
        self.release_all_kept();
        self.yard.discard_vacant();
    }

    fn release(&self, claim: SlabClaim<'_>) {
        let page = claim.page();
        let place = &page.beside;
        let bytes = place.bytes();
        let start = NonNull::new(place.start.load(Ordering::Relaxed)).expect("a page has memory");
        let span = Span { start, segment: place.segment.load(Ordering::Relaxed) };
        if let Some(ledger) = &self.ledger {
            self.checked_page_released(ledger, page, start, bytes);
        }
        segments::remove_page(start, addresses_of(bytes));
        segments::unregister(start, addresses_of(bytes));
        // The order matters: first no thread can find the page, then its memory is given back, and
        // then its addresses can be reused. In another order, the release could discard the memory
        // of another thread's new page.
        claim.release();
        // SAFETY: taken with these bytes and this alignment. The caller held all slots, so nothing
        // refers to the memory (1).
        self.keep.releasing(|| unsafe { self.spans.give(span, bytes, self.layout.align()) });
        self.yard.give_vacant(page);
        self.pages.fetch_sub(1, Ordering::Relaxed);
        self.page_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.given_back.fetch_add(bytes, Ordering::Relaxed);
        self.credit(bytes);
        self.tell_waiters();
        // The page's reference. The caller has its own.
        registry::unrefer(self.number);
    }

    // ---- pages for threads that need slots ----

    /// Claims a page of this lifetime with free slots: the fullest one listed, or one kept empty.
    pub(super) fn claim(&self, lifetime: usize, near: u32) -> Option<SlabClaim<'_>> {
        self.check_parentage().ok()?;
        const LISTS: [[usize; BINS + 1]; 2] =
            [[7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST], [15, 14, 13, 12, 11, 10, 9, 8, EMPTY_LIST]];
        loop {
            let (claim, kept) = self.yard.claim(&LISTS[lifetime], near)?;
            if kept || claim.page().beside.lifetime.load(Ordering::Relaxed) == lifetime as u8 {
                return Some(self.claimed(claim, kept, lifetime));
            }
            // A stale hint: the page was kept empty in between, and serves the other lifetime now.
            self.put_back(claim);
        }
    }

    /// Claims a page that the thread had before, if it is worthwhile: the page is kept empty, or is
    /// listed. Its hint stays, and leads to nothing, or to the page when it is open again.
    pub(super) fn claim_again<'c>(
        &self,
        page: &'c SlabPage,
        lifetime: usize,
    ) -> Option<SlabClaim<'c>> {
        self.check_parentage().ok()?;
        if !page.is_kept_empty() && !page.is_listed() {
            return None;
        }
        let (claim, kept) = page.claim()?;
        // The descriptor may serve another page by this time.
        if !kept && page.beside.lifetime.load(Ordering::Relaxed) != lifetime as u8 {
            self.put_back(claim);
            return None;
        }
        Some(self.claimed(claim, kept, lifetime))
    }

    fn claimed<'c>(&self, claim: SlabClaim<'c>, kept: bool, lifetime: usize) -> SlabClaim<'c> {
        let page = claim.page();
        if kept {
            self.keep.used(page.beside.bytes());
            page.beside.lifetime.store(lifetime as u8, Ordering::Relaxed);
            claim.free_all();
        }
        // The thread that claims the page may cache its own frees to it.
        self.set_mark(page, false);
        claim
    }

    /// Takes a page with free slots, or slots of a page that another thread has claimed, or returns
    /// the reason why there are none.
    ///
    /// The caller has found no listed page.
    #[cold]
    pub(super) fn grow(&self, lifetime: usize, near: u32) -> Result<Got<'_>, AllocError> {
        self.check_parentage()?;
        let taken = if self.spans.one_by_one() {
            self.grow_one_by_one(lifetime, near)
        } else {
            self.fresh(lifetime, false).map(Got::Claim)
        };
        taken.or_else(|error| {
            // Recall cached slots: each thread gives them back at its next free.
            self.recalls.fetch_add(1, Ordering::Relaxed);
            self.mark_all();
            self.claim(lifetime, near).map(Got::Claim).or_else(|| self.steal()).ok_or(error)
        })
    }

    /// For sources whose calls may take long: one thread at a time takes a page. The others wait
    /// for it, or for a slot that is freed, whichever comes first.
    fn grow_one_by_one(&self, lifetime: usize, near: u32) -> Result<Got<'_>, AllocError> {
        let process = std::process::id();
        if let Some(turn) = self.take_turn(process) {
            let fresh = self.fresh(lifetime, false).map(Got::Claim);
            drop(turn);
            return fresh;
        }
        // The waiting thread is counted before it marks the pages and looks at them. A thread that
        // frees reads the count after it has freed (store, then load, on both sides).
        self.attention.fetch_add(1, Ordering::SeqCst);
        self.mark_all();
        let got = loop {
            let event = self.event.load(Ordering::SeqCst);
            if let Some(claim) = self.claim(lifetime, near) {
                break Ok(Got::Claim(claim));
            }
            if let Some(slots) = self.steal() {
                break Ok(slots);
            }
            if let Some(turn) = self.take_turn(process) {
                let fresh = self.fresh(lifetime, false).map(Got::Claim);
                drop(turn);
                break fresh;
            }
            os::wait_on(&self.event, event);
        };
        self.attention.fetch_sub(1, Ordering::SeqCst);
        got
    }

    fn take_turn(&self, process: u32) -> Option<Turn<'_>> {
        let holder = self.growing.load(Ordering::Relaxed);
        if holder == process {
            return None;
        }
        // The holder is 0, or a thread of the process that this one was forked from, which can't
        // end its turn here.
        self.growing
            .compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Turn(self))
    }

    /// Wakes the waiting threads: there may be something for them.
    pub(super) fn tell_waiters(&self) {
        if self.attention.load(Ordering::SeqCst) & WAITERS != 0 {
            self.event.fetch_add(1, Ordering::SeqCst);
            os::wake_all(&self.event);
        }
    }

    /// Takes free slots of a page that another thread has claimed, instead of waiting for that
    /// thread.
    fn steal(&self) -> Option<Got<'_>> {
        for page in self.yard.all().filter(|page| page.has_page()) {
            for word in 0..page.words() {
                let taken = page.take(word, LEAST_STOLEN);
                if taken != 0 {
                    return Some(Got::Slots(page, word, taken));
                }
            }
        }
        None
    }

    /// Takes a new page from the source. With `ahead`, it is faulted in as a whole.
    fn fresh(&self, lifetime: usize, ahead: bool) -> Result<SlabClaim<'_>, AllocError> {
        let bytes = self.geometry.next_page(self.page_bytes.load(Ordering::Relaxed));
        let smallest = self.geometry.page_min;
        match self.fresh_of(bytes, lifetime, ahead) {
            // If there is no large page, there may still be a smallest one.
            Err(_) if bytes > smallest => self.fresh_of(smallest, lifetime, ahead),
            result => result,
        }
    }

    fn fresh_of(
        &self,
        bytes: usize,
        lifetime: usize,
        ahead: bool,
    ) -> Result<SlabClaim<'_>, AllocError> {
        self.charge(bytes)?;
        let undo = |error: AllocError| {
            self.credit(bytes);
            error
        };
        let page = self
            .yard
            .take_vacant(|bytes| self.charge(bytes), |bytes| self.credit(bytes))
            .map_err(undo)?;
        let span = match self.spans.take(bytes, self.layout.align()) {
            Ok(span) => span,
            Err(error) => {
                self.yard.give_vacant(page);
                return Err(undo(error));
            }
        };
        let addresses = addresses_of(bytes);
        let record = ptr::from_ref(self.record).expose_provenance();
        let owner = NonZeroUsize::new(record).expect("a reference is not null");
        if let Err(error) = segments::register(span.start, addresses, owner) {
            // SAFETY: taken above, and not used.
            unsafe { self.spans.give(span, bytes, self.layout.align()) };
            self.yard.give_vacant(page);
            return Err(undo(error));
        }
        let place = &page.beside;
        place.start.store(span.start.as_ptr(), Ordering::Relaxed);
        place.set_bytes(bytes);
        place.segment.store(span.segment, Ordering::Relaxed);
        place.lifetime.store(lifetime as u8, Ordering::Relaxed);
        let tag = self.tag() | if lifetime != 0 { MARK } else { 0 };
        let bits = NonNull::from(page.bits()).cast();
        segments::enter_page(span.start, addresses, NonNull::from(page).cast(), bits, tag);
        registry::refer_more(self.number);
        self.pages.fetch_add(1, Ordering::Relaxed);
        let held = self.page_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.keep.taken(bytes);
        if let Some(ledger) = &self.ledger {
            self.checked_page_taken(ledger, span.start, bytes);
        } else if ahead || (held >= POPULATE_FROM && bytes <= USUAL_PAGE && self.has_one_front()) {
            self.spans.populate(span.start, bytes);
        }
        Ok(page.take_up(self.geometry.slots(bytes)))
    }

    /// Takes pages until this many slots are free in empty pages, and faults them in.
    pub(super) fn reserve(&self, slots: usize) -> Result<(), AllocError> {
        self.check_parentage()?;
        // One slot's share of the smallest page: no page has more bytes per slot.
        let smallest = self.geometry.page_min;
        let bytes = slots
            .checked_mul(smallest / self.geometry.slots(smallest))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or(AllocError::new(ErrorKind::SizeOverflow, slots))?;
        self.keep.reserve_kept(bytes);
        let kept = self.yard.all().filter(|page| page.is_kept_empty());
        let mut missing = slots.saturating_sub(kept.map(SlabPage::slots).sum());
        while missing > 0 {
            let claim = self.fresh(0, true)?;
            let page = claim.page();
            let bytes = page.beside.bytes();
            missing = missing.saturating_sub(page.slots());
            if claim.take_all() {
                self.keep.reserve(bytes);
                self.list_empty(claim);
            } else {
                // A thread that would otherwise have waited took some slots.
                self.put_back(claim);
            }
            self.tell_waiters();
        }
        Ok(())
    }
}

/// The turn of the one thread that takes a page from the source.
struct Turn<'c>(&'c Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.growing.store(0, Ordering::Release);
        self.0.tell_waiters();
    }
}
