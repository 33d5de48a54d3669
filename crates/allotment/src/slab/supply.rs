//! A slab's pages: how a thread that needs slots gets one, who waits, and where empty ones go.
//!
//! The invariants are those of `core.rs`.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use super::core::{CLOSED, Core, MARK, WAITERS};
use super::geometry::USUAL_PAGE;
use super::hints::EMPTY_LIST;
use super::page::BINS;
use super::registry;
use super::yard::{SlabClaim, SlabPage};
use crate::error::{AllocError, ErrorKind};
use crate::memory::spans::{Span, addresses_of};
use crate::memory::{os, segments};

/// A slab that holds as much, and is used by one thread, has new pages of the usual size faulted in as a whole. Threads
/// that do so at the same time wait for each other in the kernel, which their page faults don't.
const POPULATE_FROM: usize = 512 << 10;

/// The most slots that are taken from a page that another thread has claimed, at once.
const LEAST_STOLEN: usize = 8;

/// What a thread that needs slots got.
pub(super) enum Got<'c> {
    Claim(SlabClaim<'c>),
    /// Slots of a page that is another thread's claim.
    Slots(&'c SlabPage, usize, u64),
}

impl Core {
    /// A page and all of its slots are the caller's: it is kept or goes.
    pub(super) fn emptied(&self, claim: SlabClaim<'_>, allocates: bool) {
        let bytes = claim.page().beside.bytes();
        if !self.is_closed() && self.keep.wants(bytes, allocates) {
            self.list_empty(claim);
            self.tell_waiters();
            // Looked at after it was listed: who closes looks for listed pages after he has said so.
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

    /// Gives one of the pages that are kept empty back; its bytes.
    fn release_kept(&self, near: u32) -> Option<usize> {
        let (claim, kept) = self.yard.claim(&[EMPTY_LIST], near)?;
        let bytes = claim.page().beside.bytes();
        if kept {
            self.keep.unkeep(bytes);
            self.release(claim);
            Some(bytes)
        } else {
            // Used again in the meantime: its hint was an old one.
            self.put_back(claim);
            Some(0)
        }
    }

    /// Gives all pages that are kept empty back.
    pub(super) fn release_all_kept(&self) {
        self.keep.forget();
        while self.release_kept(0).is_some() {}
    }

    /// The same, and what their structures don't need any more.
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
        if let Some(watch) = &self.watch {
            watch.page_going(self, page, start, bytes);
        }
        segments::forget_page(start, addresses_of(bytes));
        segments::unregister(start, addresses_of(bytes));
        // The order: nobody may find the page, then its memory goes, then its addresses may serve again. The other
        // way round, another thread's new page would be discarded under it.
        claim.release();
        // SAFETY: taken with these bytes and this alignment; all slots were ours, so nothing refers to it (1).
        self.keep.releasing(|| unsafe { self.spans.give(span, bytes, self.layout.align()) });
        self.yard.give_vacant(page);
        self.pages.fetch_sub(1, Ordering::Relaxed);
        self.page_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.given_back.fetch_add(bytes, Ordering::Relaxed);
        self.credit(bytes);
        self.tell_waiters();
        // The page's reference. The caller has one of his own.
        registry::unrefer(self.number);
    }

    // ---- pages for threads that need slots ----

    /// Claims a page of this lifetime with free slots: the fullest listed, or an empty one.
    pub(super) fn claim(&self, lifetime: usize, near: u32) -> Option<SlabClaim<'_>> {
        self.check_parentage().ok()?;
        const LISTS: [[usize; BINS + 1]; 2] =
            [[7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST], [15, 14, 13, 12, 11, 10, 9, 8, EMPTY_LIST]];
        loop {
            let (claim, kept) = self.yard.claim(&LISTS[lifetime], near)?;
            if kept || claim.page().beside.lifetime.load(Ordering::Relaxed) == lifetime as u8 {
                return Some(self.claimed(claim, kept, lifetime));
            }
            // An old hint, of a page that was kept empty and serves the other lifetime now.
            self.put_back(claim);
        }
    }

    /// Claims a page that the thread had before, if it is worth it: it is kept empty, or has slots. Its hint stays and
    /// leads to nothing, or to the page when that is open again.
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
        // The descriptor may serve another page by now.
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
        // Its own thread's frees may be cached while it is claimed.
        self.set_mark(page, false);
        claim
    }

    /// A page with free slots, or slots of a page that another thread has claimed, or the reason why there are none.
    ///
    /// The caller has found nothing listed.
    #[cold]
    pub(super) fn grow(&self, lifetime: usize, near: u32) -> Result<Got<'_>, AllocError> {
        self.check_parentage()?;
        let taken = if self.spans.one_by_one() {
            self.grow_one_by_one(lifetime, near)
        } else {
            self.fresh(lifetime, false).map(Got::Claim)
        };
        taken.or_else(|error| {
            // Fronts give what they only cache back when their threads next come by.
            self.recalls.fetch_add(1, Ordering::Relaxed);
            self.mark_all();
            self.claim(lifetime, near).map(Got::Claim).or_else(|| self.steal()).ok_or(error)
        })
    }

    /// For sources whose calls may take long: one thread at a time asks for a page, and the others wait for it or
    /// for a slot that is freed, whichever comes first.
    fn grow_one_by_one(&self, lifetime: usize, near: u32) -> Result<Got<'_>, AllocError> {
        let process = std::process::id();
        if let Some(turn) = self.take_turn(process) {
            let fresh = self.fresh(lifetime, false).map(Got::Claim);
            drop(turn);
            return fresh;
        }
        // Counted before the pages are marked and looked at; a thread that frees looks at the count
        // after it has freed (store, then load, on both sides).
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
        // Nobody, or a thread of the process that this one was forked from, which is not here to end its turn.
        self.growing
            .compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Turn(self))
    }

    /// Tells threads that wait that something may be there for them.
    pub(super) fn tell_waiters(&self) {
        if self.attention.load(Ordering::SeqCst) & WAITERS != 0 {
            self.event.fetch_add(1, Ordering::SeqCst);
            os::wake_all(&self.event);
        }
    }

    /// Takes free slots of a page that another thread has claimed, so as not to wait for that thread.
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

    /// A new page from the source; faulted in as a whole if it is taken ahead.
    fn fresh(&self, lifetime: usize, ahead: bool) -> Result<SlabClaim<'_>, AllocError> {
        let bytes = self.geometry.next_page(self.page_bytes.load(Ordering::Relaxed));
        let smallest = self.geometry.page_min;
        match self.fresh_of(bytes, lifetime, ahead) {
            // What a large page could not be had for may do for the smallest.
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
            // SAFETY: taken above, used by nobody.
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
        segments::note_page(span.start, addresses, NonNull::from(page).cast(), bits, tag);
        registry::refer_more(self.number);
        self.pages.fetch_add(1, Ordering::Relaxed);
        let held = self.page_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.keep.taken(bytes);
        if let Some(watch) = &self.watch {
            watch.page_taken(self, span.start, bytes);
        } else if ahead || (held >= POPULATE_FROM && bytes <= USUAL_PAGE && self.has_one_front()) {
            self.spans.populate(span.start, bytes);
        }
        Ok(page.take_up(self.geometry.slots(bytes)))
    }

    /// Makes pages ahead until so many slots are free in empty pages, and faults them in.
    pub(super) fn reserve(&self, slots: usize) -> Result<(), AllocError> {
        self.check_parentage()?;
        // A slot's part of the smallest page: no page has more bytes for each of its slots.
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
                // Somebody who would have had to wait took some.
                self.put_back(claim);
            }
            self.tell_waiters();
        }
        Ok(())
    }
}

/// The turn of the one threadthat asks the source.
struct Turn<'c>(&'c Core);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.growing.store(0, Ordering::Release);
        self.0.tell_waiters();
    }
}
