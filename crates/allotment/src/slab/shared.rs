//! What all threads share of one slab. `supply.rs` has how pages are taken and released.
//!
//! # Invariants
//!
//! 1. A page's memory is `place.bytes` bytes at `place.start`. It was taken from the spans when the
//!    descriptor was taken up, and is given back after the descriptor was released. In between, its
//!    granules are registered in the segment map with this descriptor, this slab's record and this
//!    slab's number. So the address of a slot leads here.
//! 2. The core lives while its number has references (registry.rs): one for the
//!    [`RawSlab`](super::RawSlab), one for each thread cache in use, one for each page.
//! 3. `held` is what the budget was charged: the bytes of pages and of structures.

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::block::Freed;
use std::io::Write;

use super::builder::Settings;
use super::empty_pages::EmptyPages;
use super::geometry::Geometry;
use super::page::{After, BINS, Fullness, SPARSE_BELOW, WORD, publish};
use super::page_table::{PageTable, SlabClaim, SlabPage};
use super::thread_cache::ThreadCache;
use super::{registry, thread_table};
use crate::checked::{Ledger, Misuse, guarded, stop};
use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::cache_padded::CachePadded;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::metadata::Metadata;
use crate::memory::spans::{Spans, addresses_of};
use crate::memory::{os, segments};
use crate::statistics::{AllocatorKind, Record, Statistics, printable};

/// A tag is a slab's number times this step. So two different tags differ by more than the number
/// of entries of a thread cache.
const TAG_STEP: u32 = 8192;
/// The bit of a tag that keeps frees out of the caches. It is set if the page is sparse or of
/// long-lived objects, if threads wait for slots, or if the slab is closed.
pub(super) const MARK: u32 = 1 << 31;
const _: () = assert!(TAG_STEP as usize > super::geometry::MOST_CACHED);

/// The slab number in a tag. For a marked tag, the result is above any number in use.
#[inline(always)]
pub(super) const fn number_in(tag: u32) -> u32 {
    tag / TAG_STEP
}

/// The numbers that exist are below this.
pub(super) const NUMBERS: u32 = MARK / TAG_STEP;
/// The bit of `attention` that says that the slab was dropped.
pub(super) const CLOSED: u32 = 1 << 31;
/// The bit of `attention` that says that this is a child made by fork, which does not have the
/// slab's memory.
const ORPHANED: u32 = 1 << 30;
pub(super) const WAITERS: u32 = ORPHANED - 1;
/// The part of a slab that all threads share.
///
/// The fields that every slow path reads lie apart from those that are written when pages are taken
/// and released.
#[repr(C)]
pub(crate) struct Shared {
    pub geometry: Geometry,
    pub layout: Layout,
    pub number: u32,
    pub(super) ledger: Option<Box<Ledger>>,
    pub(super) name: Option<Box<str>>,
    pub(super) reports_live: bool,
    pub(super) record: &'static Record,
    pub(super) budget: Option<Budget>,
    pub(super) fronts: AtomicPtr<ThreadCache>,
    pub(super) packing: AtomicBool,
    /// Why no free may be cached: the number of threads that wait for a slot, [`CLOSED`] and
    /// [`ORPHANED`].
    pub(super) attention: AtomicU32,
    /// Changes whenever something happens that a waiting thread should look at.
    pub(super) event: AtomicU32,
    /// Changes whenever threads should give back the slots that they only cache.
    pub(super) recalls: AtomicU32,
    /// The process id of the thread that is taking a page from the source, or 0.
    pub(super) growing: AtomicU32,
    pub(super) keep: CachePadded<EmptyPages>,
    pub(super) yard: CachePadded<PageTable>,
    pub(super) spans: CachePadded<Spans>,
    pub(super) pages: AtomicUsize,
    pub(super) page_bytes: AtomicUsize,
    /// The bytes of all pages released so far.
    pub(super) given_back: AtomicUsize,
    pub(super) held: AtomicUsize,
    pub(super) peak: AtomicUsize,
}

/// Where a slot lies.
#[derive(Clone, Copy)]
pub(super) struct Spot<'c> {
    pub page: &'c SlabPage,
    /// The bitmap word that holds the slot's bit.
    pub bits: &'c AtomicU64,
    /// The slot's number in its page.
    pub index: usize,
}

impl Shared {
    /// Makes a core with one reference, which belongs to the caller.
    pub(super) fn make(layout: Layout, settings: Settings) -> Result<NonNull<Self>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let ledger = Self::wanted_ledger(settings.hardened, settings.name.as_deref());
        let slot = if ledger.is_some() { guarded(layout) } else { Some(layout) };
        let slot = slot.ok_or(overflow)?;
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
        thread_table::watch_forks();
        let record = match Record::acquire(AllocatorKind::Slab, settings.name.as_deref()) {
            Ok(record) => record,
            Err(error) => {
                registry::give_number(number);
                credit();
                return Err(error);
            }
        };
        let mut core = Some(Self {
            yard: CachePadded(PageTable::new(geometry.words())),
            geometry,
            layout,
            number,
            keep: CachePadded(EmptyPages::new(settings.release)),
            ledger,
            name: settings.name,
            reports_live: settings.report_live.unwrap_or(settings.hardened),
            record,
            budget: settings.budget,
            spans: CachePadded(Spans::new(settings.source)),
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
        match Metadata::new(1, |_| core.take().expect("one value is made")) {
            Ok(made) => {
                let start = made.as_ptr();
                core::mem::forget(made);
                registry::enter(number, start);
                Ok(start)
            }
            Err(error) => {
                // This drop releases the record and credits the budget.
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

    /// The tag of the slab's pages, without a mark.
    pub(super) fn tag(&self) -> u32 {
        self.number * TAG_STEP
    }

    /// Returns an error if this is a child made by fork that does not have the slab's memory.
    pub(super) fn check_parentage(&self) -> Result<(), AllocError> {
        if self.attention.load(Ordering::Relaxed) & ORPHANED == 0 {
            return Ok(());
        }
        Err(AllocError::new(ErrorKind::ForkedChild, self.layout.size()))
    }

    /// The number of pages; a snapshot.
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// A counter that changes when threads should give back the slots that they only cache.
    pub(super) fn recalls(&self) -> u32 {
        self.recalls.load(Ordering::Relaxed)
    }

    /// In a child made by fork, before anything else: the child does not have the threads that
    /// waited.
    pub(super) fn now_a_child(&self) {
        self.attention.fetch_and(!WAITERS, Ordering::SeqCst);
        self.yard.now_a_child();
        if !self.spans.is_inherited() {
            self.attention.fetch_or(ORPHANED, Ordering::SeqCst);
            self.mark_all();
            self.hold_addresses();
        }
    }

    /// Reserves the addresses of the pages, which the child has registered but not mapped.
    /// Otherwise another slab's page could be mapped there, and registered over them.
    fn hold_addresses(&self) {
        for page in self.yard.all().filter(|page| page.has_page()) {
            if let Some(start) = NonNull::new(page.beside.start.load(Ordering::Relaxed)) {
                let addresses = addresses_of(page.beside.bytes());
                if !os::hold_addresses(start, addresses) {
                    segments::remove_page(start, addresses);
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

    /// Finds a slot's page, word and number.
    ///
    /// # Safety
    /// The caller holds this slot of this slab.
    #[inline(always)]
    pub(super) unsafe fn spot_of(&self, slot: NonNull<u8>) -> Spot<'_> {
        let address = slot.addr().get();
        // SAFETY: the slot keeps its page registered with its descriptor, which lives as long as
        // the core (1).
        let (page, bits) = unsafe {
            let (page, bits) = segments::page_of_live(address);
            (&*page.cast::<SlabPage>(), bits)
        };
        let offset = if self.geometry.fits_a_granule() {
            // The descriptor is not read here, because it is often not in the cache.
            address & (SEGMENT_GRANULE - 1)
        } else {
            address - page.beside.start.load(Ordering::Relaxed).addr()
        };
        let index = self.geometry.index(offset);
        // SAFETY: `bits` are the page's words, and one of them holds the slot's bit.
        let bits = unsafe { &*bits.add(index / WORD) };
        Spot { page, bits, index }
    }

    /// The bytes from `start`, the first slot of a spot's word, to the end of that word's slots, or
    /// to the end of the page if that comes first. What lies beyond belongs to another page.
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

    /// The address of a slot of a page.
    #[inline(always)]
    pub(super) fn slot_of(&self, page: &SlabPage, index: usize) -> NonNull<u8> {
        let start = page.beside.start.load(Ordering::Relaxed);
        // SAFETY: the caller took slots of this word of the page. So the page exists, and the
        // address lies in it (1).
        unsafe { NonNull::new_unchecked(start.add(index * self.geometry.slot)) }
    }

    // ---- free ----

    /// Frees slots of one word of a page, the word of `spot`. `allocates` says whether the thread
    /// also allocates.
    ///
    /// # Safety
    /// The caller holds these slots and does not use them afterwards. The caller has a reference to
    /// the core.
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
        self.set_mark(page, bin < SPARSE_BELOW);
        Some(bin)
    }

    /// Sets or clears the mark of a page. The caller holds a slot of the page, or its claim.
    pub(super) fn set_mark(&self, page: &SlabPage, sparse: bool) {
        let place = &page.beside;
        let marked = sparse || place.lifetime.load(Ordering::Relaxed) != 0 || !self.is_calm();
        let start = NonNull::new(place.start.load(Ordering::Relaxed)).expect("a page has memory");
        let tag = self.tag() | if marked { MARK } else { 0 };
        if segments::tag_of(start.addr().get()) == tag {
            return;
        }
        let addresses = addresses_of(place.bytes());
        segments::set_tag(start, addresses, tag);
        // Read after the store: a thread that has begun to wait after the first check is seen here,
        // or has marked the page again itself.
        if !marked && !self.is_calm() {
            segments::mark_tag(start, addresses, MARK);
        }
    }

    /// Marks all pages, so that no free is cached until the pages are claimed or freed to again.
    /// The caller has first stored the reason.
    pub(super) fn mark_all(&self) {
        for page in self.yard.all().filter(|page| page.has_page()) {
            if let Some(start) = NonNull::new(page.beside.start.load(Ordering::Relaxed)) {
                // If the page is released in between, its granules may already belong to another
                // slab. That slab's fast path is then slow until it sets the mark anew.
                segments::mark_tag(start, addresses_of(page.beside.bytes()), MARK);
            }
        }
    }

    /// Completes what setting bits or putting a page back has led to.
    #[cold]
    pub(super) fn settle(&self, freed: Freed<'_, super::page_table::Place>, allocates: bool) {
        match freed {
            // Nothing changed for the lists, but waiting threads can also take slots of a claimed
            // page.
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

    /// Opens a claimed page to all threads.
    pub(super) fn put_back(&self, claim: SlabClaim<'_>) {
        let page = claim.page();
        if let Fullness::Bin(bin) = page.fullness() {
            self.set_mark(page, bin < SPARSE_BELOW);
        }
        let (block, index) = self.yard.find(page);
        self.settle(block.put_back(index, claim), true);
    }

    /// The bytes of all pages released so far.
    pub(super) fn given_back(&self) -> usize {
        self.given_back.load(Ordering::Relaxed)
    }

    /// Whether an arbitrary address lies in one of the pages. The result is a snapshot, unless
    /// something keeps the page.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.yard.all().filter(|page| page.has_page()).any(|page| {
            let start = page.beside.start.load(Ordering::Relaxed).addr();
            address.wrapping_sub(start) < page.beside.bytes()
        })
    }

    // ---- fronts ----

    /// Takes a cache for the calling thread: one that another thread has left, or a new one. It
    /// holds a reference to the core.
    pub(super) fn take_front(&self, lifetime: usize) -> Result<NonNull<ThreadCache>, AllocError> {
        let mut next = self.fronts.load(Ordering::Acquire);
        while let Some(front) = NonNull::new(next) {
            // SAFETY: caches stay until the core is dropped.
            let left = unsafe { front.as_ref() };
            if left.lifetime() == lifetime && left.enter() {
                registry::refer_more(self.number);
                return Ok(front);
            }
            next = left.next();
        }
        let bytes = ThreadCache::bytes(&self.geometry);
        self.charge(bytes)?;
        let fresh = ThreadCache::make(self, lifetime).inspect_err(|_| self.credit(bytes))?;
        let mut head = self.fronts.load(Ordering::Relaxed);
        loop {
            // SAFETY: made above, and no other thread has its address before the exchange.
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

    /// Whether only one thread cache was ever made.
    pub(super) fn has_one_front(&self) -> bool {
        // SAFETY: caches stay until the core is dropped.
        let first = unsafe { self.fronts.load(Ordering::Acquire).as_ref() };
        first.is_some_and(|front| front.next().is_null())
    }

    /// Closes the dropped slab: from here on frees bypass the caches, and empty pages are released.
    pub(super) fn close(&self) {
        if self.reports_live {
            self.report_live();
        }
        self.attention.fetch_or(CLOSED, Ordering::SeqCst);
        self.mark_all();
        self.release_all_kept();
    }

    /// Reports live objects on standard error, if there are any. Slots in thread caches don't
    /// count.
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

    /// The number of all slots, and of those not in use: free in their pages, in pages kept empty,
    /// or in a thread cache. A snapshot.
    fn free_slots(&self) -> (usize, usize) {
        let (mut all, mut free) = (0, 0);
        for page in self.yard.all().filter(|page| page.has_page()) {
            all += page.slots();
            free += if page.is_kept_empty() { page.slots() } else { page.free_slots() };
        }
        let mut front = self.fronts.load(Ordering::Acquire);
        // SAFETY: caches stay until the core is dropped. Only their atomics are read.
        while let Some(shared) = unsafe { front.as_ref() } {
            free += shared.cached();
            front = shared.next();
        }
        (all, free.min(all))
    }

    pub(crate) fn statistics(&self) -> Statistics {
        match &self.ledger {
            Some(ledger) => self.checked_statistics(ledger),
            None => self.page_statistics(0),
        }
    }

    /// Statistics of the pages and structures. `set_aside` is the number of slots that were freed
    /// and are not back in their pages.
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

impl Drop for Shared {
    fn drop(&mut self) {
        let mut front = *self.fronts.get_mut();
        while let Some(left) = NonNull::new(front) {
            // SAFETY: the last reference is gone, so no thread has a cache. `ThreadCache::make` made each
            // one, and it is destroyed once.
            unsafe {
                front = left.as_ref().next();
                ThreadCache::destroy(left, &self.geometry);
            }
        }
        if let Some(budget) = &self.budget {
            budget.credit(*self.held.get_mut());
        }
        self.record.release();
    }
}
