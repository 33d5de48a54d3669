//! What all threads share of one slab: its pages and where they come from.
//!
//! # Invariants
//!
//! 1. A page's memory is `place.bytes` bytes at `place.start`, taken from the spans when the descriptor was taken up
//!    and given back after it was released. Between the two its granules are registered in the segment map with
//!    this descriptor, this slab's record and this slab's number; so the address of a slot leads here.
//! 2. The core lives while its number has references (registry.rs): one for the [`RawSlab`](super::RawSlab), one for
//!    each front in use, one for each page.
//! 3. `held` is what the budget was charged: the bytes of pages, and those of structures.

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::block::Freed;
use std::io::Write;

use super::builder::Settings;
use super::front::Front;
use super::geometry::{Geometry, USUAL_PAGE};
use super::hints::EMPTY_LIST;
use super::keep::Keep;
use super::page::{After, BINS, Fullness, SPARSE_BELOW, WORD, publish};
use super::watch::Watch;
use super::yard::{SlabClaim, SlabPage, Yard};
use super::{registry, threads};
use crate::error::{AllocError, ErrorKind};
use crate::memory::apart::Apart;
use crate::memory::budget::Budget;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::spans::{Span, Spans, addresses_of};
use crate::memory::structures::Structures;
use crate::memory::{os, segments};
use crate::misuse::{Misuse, stop};
use crate::statistics::{Kind, Record, Statistics, printable};

/// A tag is a slab's number times this, so that two different ones differ by more than a front has places.
const TAG_STEP: u32 = 8192;
/// The bit of a tag that keeps frees out of the caches: the page is sparse, or of long-lived objects, or its slots
/// are waited for.
pub(super) const MARK: u32 = 1 << 31;
const _: () = assert!(TAG_STEP as usize > super::geometry::MOST_CACHED);

/// The number in a tag; above any number that is in use if the tag has a mark.
#[inline(always)]
pub(super) const fn number_in(tag: u32) -> u32 {
    tag / TAG_STEP
}

/// The most numbers that there can be.
pub(super) const NUMBERS: u32 = MARK / TAG_STEP;
/// The bit of `attention` of a slab that was dropped.
const CLOSED: u32 = 1 << 31;
/// The bit of `attention` in a child made by fork that does not have the slab's memory.
const ORPHANED: u32 = 1 << 30;
const WAITERS: u32 = ORPHANED - 1;
/// A slab that holds as much has new pages of the usual size faulted in as a whole.
const POPULATE_FROM: usize = 512 << 10;

/// The shared part of a slab.
///
/// What every slow path reads lies apart from what the coming and going of pages writes.
#[repr(C)]
pub(crate) struct Core {
    pub geometry: Geometry,
    pub layout: Layout,
    pub number: u32,
    pub(super) watch: Option<Watch>,
    name: Option<Box<str>>,
    reports_live: bool,
    record: &'static Record,
    budget: Option<Budget>,
    fronts: AtomicPtr<Front>,
    packing: AtomicBool,
    /// Why no free may be cached: the number of threads that wait for a slot, [`CLOSED`] and [`ORPHANED`].
    attention: AtomicU32,
    /// Changes whenever something happens that a waiter should look at.
    event: AtomicU32,
    /// Changes whenever fronts shall give back what they only cache.
    recalls: AtomicU32,
    /// The process of the thread that is asking the source for a page, or 0.
    growing: AtomicU32,
    pub(super) keep: Apart<Keep>,
    yard: Apart<Yard>,
    spans: Apart<Spans>,
    pages: AtomicUsize,
    page_bytes: AtomicUsize,
    /// The bytes of all pages that ever went.
    given_back: AtomicUsize,
    held: AtomicUsize,
    peak: AtomicUsize,
}

/// Where a slot is.
#[derive(Clone, Copy)]
pub(super) struct Spot<'c> {
    pub page: &'c SlabPage,
    /// The word of its bit.
    pub bits: &'c AtomicU64,
    /// Its number in the page.
    pub index: usize,
}

/// What a thread that needs slots got.
pub(super) enum Got<'c> {
    Claim(SlabClaim<'c>),
    /// Slots of a page that is another thread's claim.
    Slots(&'c SlabPage, usize, u64),
}

impl Core {
    /// Makes a core, with one reference for the caller.
    pub(super) fn make(layout: Layout, settings: Settings) -> Result<NonNull<Self>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let watch = Watch::wanted(settings.hardened);
        let slot = watch.as_ref().map_or(Ok(layout), |watch| watch.slot_layout(layout))?;
        let geometry =
            Geometry::new(slot, settings.max_page_bytes, os::page_size()).ok_or(overflow)?;
        let geometry = match (settings.max_cached_bytes, &settings.budget) {
            (Some(bytes), _) => geometry.with_caches_of(bytes),
            (None, Some(budget)) => geometry.within(budget.cap()),
            (None, None) => geometry,
        };
        let bytes = size_of::<Self>();
        settings.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))?;
        let budget = settings.budget.clone();
        let credit = || budget.iter().for_each(|budget| budget.credit(bytes));
        let number = registry::take_number().inspect_err(|_| credit())?;
        threads::watch_forks();
        let record = match Record::acquire(Kind::Slab, settings.name.as_deref()) {
            Ok(record) => record,
            Err(error) => {
                registry::give_number(number);
                credit();
                return Err(error);
            }
        };
        let mut core = Some(Self {
            yard: Apart(Yard::new(geometry.words())),
            geometry,
            layout,
            number,
            keep: Apart(Keep::new(settings.release)),
            watch,
            name: settings.name,
            reports_live: settings.report_live.unwrap_or(settings.hardened),
            record,
            budget: settings.budget,
            spans: Apart(Spans::new(settings.source)),
            fronts: AtomicPtr::new(ptr::null_mut()),
            packing: AtomicBool::new(settings.packing),
            attention: AtomicU32::new(0),
            event: AtomicU32::new(0),
            recalls: AtomicU32::new(0),
            growing: AtomicU32::new(0),
            pages: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            given_back: AtomicUsize::new(0),
            held: AtomicUsize::new(bytes),
            peak: AtomicUsize::new(bytes),
        });
        match Structures::new(1, |_| core.take().expect("one value is made")) {
            Ok(made) => {
                let start = made.as_ptr();
                core::mem::forget(made);
                registry::enter(number, start);
                Ok(start)
            }
            Err(error) => {
                // Dropped here, which gives the record and the budget's bytes back.
                drop(core);
                registry::give_number(number);
                Err(error)
            }
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn record(&self) -> &'static Record {
        self.record
    }

    pub(super) fn packing(&self) -> bool {
        self.packing.load(Ordering::Relaxed)
    }

    pub(super) fn set_packing(&self, packing: bool) {
        self.packing.store(packing, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// The tag of its pages, without a mark.
    pub(super) fn tag(&self) -> u32 {
        self.number * TAG_STEP
    }

    /// Whether this is a child made by fork that does not have the slab's memory.
    pub(super) fn check_parentage(&self) -> Result<(), AllocError> {
        if self.attention.load(Ordering::Relaxed) & ORPHANED == 0 {
            return Ok(());
        }
        Err(AllocError::new(ErrorKind::ForkedChild, self.layout.size()))
    }

    /// The pages that there are; a snapshot.
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// A number that changes when fronts shall give back what they only cache.
    pub(super) fn recalls(&self) -> u32 {
        self.recalls.load(Ordering::Relaxed)
    }

    /// In a child made by fork, before anything else: the threads that waited are not here.
    pub(super) fn now_a_child(&self) {
        self.attention.fetch_and(!WAITERS, Ordering::SeqCst);
        self.yard.now_a_child();
        if !self.spans.is_inherited() {
            self.attention.fetch_or(ORPHANED, Ordering::SeqCst);
            self.mark_all();
            self.hold_addresses();
        }
    }

    /// The pages are registered and not mapped: another slab's would be registered over them.
    fn hold_addresses(&self) {
        for page in self.yard.all().filter(|page| page.has_page()) {
            if let Some(start) = NonNull::new(page.beside.start.load(Ordering::Relaxed)) {
                let addresses = addresses_of(page.beside.bytes());
                if !os::hold_addresses(start, addresses) {
                    segments::forget_page(start, addresses);
                    segments::unregister(start, addresses);
                }
            }
        }
    }

    /// Whether frees may be cached.
    pub(super) fn is_calm(&self) -> bool {
        self.attention.load(Ordering::SeqCst) == 0
    }

    pub(super) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))?;
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(held, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn credit(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.credit(bytes);
        }
    }

    // ---- from a slot to its page ----

    /// Where a slot is.
    ///
    /// # Safety
    /// The caller has this slot of this slab.
    #[inline(always)]
    pub(super) unsafe fn spot_of(&self, slot: NonNull<u8>) -> Spot<'_> {
        let address = slot.addr().get();
        // SAFETY: the slot keeps its page registered, with its descriptor, which lives as long as the core (1).
        let (page, bits) = unsafe {
            let (page, bits) = segments::page_of_live(address);
            (&*page.cast::<SlabPage>(), bits)
        };
        let offset = if self.geometry.fits_a_granule() {
            // The descriptor is not touched: it is often not in the cache.
            address & (SEGMENT_GRANULE - 1)
        } else {
            address - page.beside.start.load(Ordering::Relaxed).addr()
        };
        let index = self.geometry.index(offset);
        // SAFETY: the bits are the page's words, of which the slot has one.
        let bits = unsafe { &*bits.add(index / WORD) };
        Spot { page, bits, index }
    }

    /// The bytes from `start`, the first slot of a spot's word, to the end of that word's slots. Where those would go on
    /// beyond the page they end with it: what lies there is another page's.
    #[inline(always)]
    pub(super) fn reach_of(&self, spot: Spot<'_>, start: usize) -> usize {
        let end = if self.geometry.fits_a_granule() {
            (start | (SEGMENT_GRANULE - 1)) + 1
        } else {
            let place = &spot.page.beside;
            place.start.load(Ordering::Relaxed).addr() + place.bytes()
        };
        self.geometry.slot.saturating_mul(WORD).min(end - start)
    }

    /// The address of a page's slot.
    #[inline(always)]
    pub(super) fn slot_of(&self, page: &SlabPage, index: usize) -> NonNull<u8> {
        let start = page.beside.start.load(Ordering::Relaxed);
        // SAFETY: the caller took this slot of the page, so that the page is there with that many slots (1).
        unsafe { NonNull::new_unchecked(start.add(index * self.geometry.slot)) }
    }

    // ---- free ----

    /// Frees slots of one word of a page: that of the spot. `allocates` says whether the thread takes slots, too.
    ///
    /// # Safety
    /// The caller has these slots, and uses them no more. He holds a reference to the core.
    #[inline(always)]
    pub(super) unsafe fn free(&self, spot: Spot<'_>, mask: u64, allocates: bool) {
        let page = spot.page;
        let sampled =
            if self.geometry.samples(spot.index / WORD, mask) { self.sample(page) } else { None };
        match publish(spot.bits, mask) {
            After::Nothing if sampled.is_none() => {}
            After::Nothing | After::Look => self.look(page, sampled, allocates),
            After::DoubleFree => self.stop(Misuse::DoubleFree, page, spot.index / WORD, mask),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, page: &SlabPage, sampled: Option<usize>, allocates: bool) {
        let (block, index) = self.yard.find(page);
        self.settle(block.look(index, sampled), allocates);
    }

    /// Tells the fast path whether the page is sparse; its bin. The caller has a slot of the page, so that its granules
    /// are this page's.
    #[cold]
    #[inline(never)]
    fn sample(&self, page: &SlabPage) -> Option<usize> {
        if page.is_claimed() {
            return None;
        }
        let bin = match page.fullness() {
            // The slots about to be freed are the first.
            Fullness::Full => BINS - 1,
            Fullness::Bin(bin) => bin,
            Fullness::Empty => 0,
        };
        self.set_mark(page, bin < SPARSE_BELOW);
        Some(bin)
    }

    /// Sets the mark of a page that the caller has a slot or the claim of.
    fn set_mark(&self, page: &SlabPage, sparse: bool) {
        let place = &page.beside;
        let marked = sparse || place.lifetime.load(Ordering::Relaxed) != 0 || !self.is_calm();
        let start = NonNull::new(place.start.load(Ordering::Relaxed)).expect("a page has memory");
        let tag = self.tag() | if marked { MARK } else { 0 };
        if segments::tag_of(start.addr().get()) == tag {
            return;
        }
        let addresses = addresses_of(place.bytes());
        segments::set_tag(start, addresses, tag);
        // Looked at after the store: whoever waits since then is seen here, or has marked the page again.
        if !marked && !self.is_calm() {
            segments::mark_tag(start, addresses, MARK);
        }
    }

    /// Marks all pages, so that no free is cached until they are claimed or freed from again. Callers have noted
    /// before why.
    fn mark_all(&self) {
        for page in self.yard.all().filter(|page| page.has_page()) {
            if let Some(start) = NonNull::new(page.beside.start.load(Ordering::Relaxed)) {
                // A page that goes meanwhile: its granules may become another slab's, whose fast path is then slow
                // until it sets its mark anew.
                segments::mark_tag(start, addresses_of(page.beside.bytes()), MARK);
            }
        }
    }

    /// Does what setting bits or putting a page back has led to.
    #[cold]
    fn settle(&self, freed: Freed<'_, super::yard::Place>, allocates: bool) {
        match freed {
            // Quiet for the lists: the slots may be of a page that is claimed, and can be taken all the same.
            Freed::Quiet => self.tell_waiters(),
            Freed::Listed => self.tell_waiters(),
            Freed::Emptied(claim) => self.emptied(claim, allocates),
        }
    }

    #[cold]
    fn stop(&self, misuse: Misuse, page: &SlabPage, word: usize, mask: u64) -> ! {
        let index = word * WORD + mask.trailing_zeros() as usize % WORD;
        let start = page.beside.start.load(Ordering::Relaxed).addr();
        self.stop_at(misuse, start + index * self.geometry.slot)
    }

    pub(super) fn stop_at(&self, misuse: Misuse, address: usize) -> ! {
        stop(misuse, "slab", self.name(), address, self.layout.size())
    }

    /// Opens a claimed page to all.
    pub(super) fn put_back(&self, claim: SlabClaim<'_>) {
        let page = claim.page();
        if let Fullness::Bin(bin) = page.fullness() {
            self.set_mark(page, bin < SPARSE_BELOW);
        }
        let (block, index) = self.yard.find(page);
        self.settle(block.put_back(index, claim), true);
    }

    /// A page and all of its slots are the caller's: it is kept or goes.
    fn emptied(&self, claim: SlabClaim<'_>, allocates: bool) {
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

    /// The bytes of all pages that ever went.
    pub(super) fn given_back(&self) -> usize {
        self.given_back.load(Ordering::Relaxed)
    }

    /// Whether an address, any at all, lies in one of the pages; a snapshot, unless something keeps its page.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.yard.all().filter(|page| page.has_page()).any(|page| {
            let start = page.beside.start.load(Ordering::Relaxed).addr();
            address.wrapping_sub(start) < page.beside.bytes()
        })
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
        } else if ahead || (held >= POPULATE_FROM && bytes <= USUAL_PAGE) {
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

    // ---- fronts ----

    /// A front for the calling thread: one that another thread has left, or a new one. It counts as a reference.
    pub(super) fn take_front(&self, lifetime: usize) -> Result<NonNull<Front>, AllocError> {
        let mut next = self.fronts.load(Ordering::Acquire);
        while let Some(front) = NonNull::new(next) {
            // SAFETY: fronts stay until the core is dropped.
            let left = unsafe { front.as_ref() };
            if left.lifetime() == lifetime && left.enter() {
                registry::refer_more(self.number);
                return Ok(front);
            }
            next = left.next();
        }
        let bytes = Front::bytes(&self.geometry);
        self.charge(bytes)?;
        let fresh = Front::make(self, lifetime).inspect_err(|_| self.credit(bytes))?;
        let mut head = self.fronts.load(Ordering::Relaxed);
        loop {
            // SAFETY: made just now; nobody else knows it before the exchange.
            unsafe { fresh.as_ref() }.set_next(head);
            // Release pairs with the Acquire above.
            match self.fronts.compare_exchange_weak(
                head,
                fresh.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        registry::refer_more(self.number);
        Ok(fresh)
    }

    /// The slab is dropped: frees bypass the caches from now on, and empty pages go.
    pub(super) fn close(&self) {
        if self.reports_live {
            self.report_live();
        }
        self.attention.fetch_or(CLOSED, Ordering::SeqCst);
        self.mark_all();
        self.release_all_kept();
    }

    /// Says on standard error what is left, if anything is. The slots that threads have at hand are not.
    #[cold]
    fn report_live(&self) {
        let live = self.statistics();
        if live.live_objects > 0 {
            let name =
                printable(self.name().filter(|name| !name.is_empty()).unwrap_or("(no name)"));
            // A closed standard error is no reason to panic.
            let _ = writeln!(
                std::io::stderr(),
                "allotment: slab '{name}' dropped with {} live objects of {} bytes each",
                live.live_objects,
                self.layout.size()
            );
        }
    }

    // ---- what there is ----

    /// Slots in nobody's use: free in their pages, kept empty, or in a front's cache. A snapshot.
    fn free_slots(&self) -> (usize, usize) {
        let (mut all, mut free) = (0, 0);
        for page in self.yard.all().filter(|page| page.has_page()) {
            all += page.slots();
            free += if page.is_kept_empty() { page.slots() } else { page.free_slots() };
        }
        let mut front = self.fronts.load(Ordering::Acquire);
        // SAFETY: fronts stay until the core is dropped; only their atomics are read.
        while let Some(shared) = unsafe { front.as_ref() } {
            free += shared.cached();
            front = shared.next();
        }
        (all, free.min(all))
    }

    pub(crate) fn statistics(&self) -> Statistics {
        match &self.watch {
            Some(watch) => watch.statistics(self),
            None => self.page_statistics(0),
        }
    }

    /// What the pages and the structures say. So many slots are freed and not back in their pages.
    pub(super) fn page_statistics(&self, set_aside: usize) -> Statistics {
        let (all, free) = self.free_slots();
        let live = (all - free).saturating_sub(set_aside);
        let page_bytes = self.page_bytes.load(Ordering::Relaxed);
        let held = self.held.load(Ordering::Relaxed);
        let live_bytes = live * self.layout.size();
        let free_bytes = (all - live) * self.layout.size();
        Statistics {
            live_objects: live as u64,
            live_bytes: live_bytes as u64,
            held_bytes: held as u64,
            peak_held_bytes: self.peak.load(Ordering::Relaxed) as u64,
            wasted_bytes: page_bytes.saturating_sub(live_bytes + free_bytes) as u64,
            free_bytes: free_bytes as u64,
            structure_bytes: held.saturating_sub(page_bytes) as u64,
            chunks: self.pages.load(Ordering::Relaxed) as u64,
            recycled_chunks: 0,
            source_calls: self.spans.calls(),
        }
    }
}

/// The most slots that are taken from a page that another thread has claimed, at once.
const LEAST_STOLEN: usize = 8;

/// The turn of the one thread that asks the source.
struct Turn<'c>(&'c Core);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.growing.store(0, Ordering::Release);
        self.0.tell_waiters();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut front = *self.fronts.get_mut();
        while let Some(left) = NonNull::new(front) {
            // SAFETY: the last reference is gone, so no thread has a front; each was made by `Front::make` and is
            // destroyed once.
            unsafe {
                front = left.as_ref().next();
                Front::destroy(left, &self.geometry);
            }
        }
        if let Some(budget) = &self.budget {
            budget.credit(*self.held.get_mut());
        }
        self.record.release();
    }
}
