//! What all threads share of one slab: its sizes, its pages, its thread caches and its counters.
//!
//! `page_steps.rs` has the steps between threads; `page_backend.rs` and `page_supply.rs` have what
//! these do with memory.
//!
//! # Invariants
//!
//! 1. A page's memory is `info.bytes()` bytes at `info.start`. It was taken from the spans when the
//!    descriptor was assigned, and is given back after the descriptor was released. In between, its
//!    granules are registered in the segment map with this descriptor, this slab's record and this
//!    slab's number. So the address of a slot leads here.
//! 2. A `SlabShared` lives while its number has references (`registry.rs`): one for the
//!    [`RawSlab`](super::RawSlab), one for each thread cache in use, one for each page.
//! 3. `held_bytes` is what the budget was charged: the bytes of pages and of structures.

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::cache_header::CacheHeader;
use super::empty_pages::EmptyPages;
use super::geometry::SlabGeometry;
use super::page::SLOTS_PER_WORD;
use super::page_steps::PageSteps;
use super::page_table::{PageTable, SlabPage};
use super::registry;
use super::settings::SlabSettings;
use super::tags::tag_of_slab;
use super::waiters::Waiters;
use crate::checked::{Misuse, abort_on_misuse};
use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::cache_padded::CachePadded;
use crate::memory::file_mappings::end_child;
use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::span_allocator::{SpanAllocator, takes_whole_granules};
use crate::memory::system_array::SystemArray;
use crate::memory::{os, segment_map};
use crate::standard_error;
use crate::statistics::{AllocatorKind, Record, Statistics, printable};

/// The part of a slab that all threads share.
///
/// The fields that every slow path reads lie apart from those that are written when pages are taken
/// and released.
#[repr(C)]
pub(crate) struct SlabShared {
    pub(super) geometry: SlabGeometry,
    /// The layout of an object, as the caller requested it.
    pub(super) layout: Layout,
    pub(super) number: u32,
    /// The tag of the slab's pages, without a mark.
    tag: u32,
    /// The checks of a checked slab, which then has no thread caches.
    pub(super) checks: Option<Box<dyn SlabChecks>>,
    name: Option<Box<str>>,
    reports_live: bool,
    record: &'static Record,
    budget: Option<Budget>,
    /// The list of all thread caches of this slab, in use or not.
    caches: AtomicPtr<CacheHeader>,
    packing: AtomicBool,
    pub(super) waiters: Waiters,
    /// Changes whenever threads should give back the slots that they only cache.
    pub(super) recalls: AtomicU32,
    /// The id of the process that made the slab. 0 in a child made by fork.
    process: AtomicU32,
    pub(super) empty_pages: CachePadded<EmptyPages>,
    pub(super) page_table: CachePadded<PageTable>,
    pub(super) spans: CachePadded<SpanAllocator>,
    pub(super) page_count: AtomicUsize,
    pub(super) page_bytes: AtomicUsize,
    /// The slots of all pages.
    pub(super) slot_count: AtomicUsize,
    /// The bytes of all pages released so far.
    pub(super) released_bytes: AtomicUsize,
    held_bytes: AtomicUsize,
    peak_held_bytes: AtomicUsize,
}

/// What a checked slab does in place of the fast paths: hardened mode, memory tools, pass-through
/// mode.
pub(super) trait SlabChecks: fmt::Debug + Send + Sync {
    /// Whether each object is a malloc block.
    fn is_passthrough(&self) -> bool;

    /// Allocates a slot.
    fn alloc(&self, slab: &SlabShared) -> Result<NonNull<u8>, AllocError>;

    /// Frees a slot.
    ///
    /// # Safety
    /// As for [`RawSlab::free`](super::RawSlab::free), except for the misuse that the mode detects.
    /// The caller has a reference to the slab.
    unsafe fn free(&self, slab: &SlabShared, slot: NonNull<u8>);

    /// Prepares a page that was just taken, and holds no objects.
    fn page_taken(&self, slab: &SlabShared, start: NonNull<u8>, bytes: usize);

    /// Checks a page that is about to be released. The caller has all of its slots.
    fn page_released(&self, slab: &SlabShared, page: &SlabPage, start: NonNull<u8>, bytes: usize);

    /// Empties the quarantine. Returns whether it held anything.
    fn empty_quarantine(&self, slab: &SlabShared) -> bool;

    fn statistics(&self, slab: &SlabShared) -> Statistics;
}

/// The page and the bit of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotLocation<'s> {
    pub page: &'s SlabPage,
    /// The bitmap word that holds the slot's bit.
    pub bits: &'s AtomicU64,
    /// The slot's number in its page.
    pub index: usize,
}

impl SlabShared {
    /// Makes a slab with one reference, which belongs to the caller. `layout` is that of an object,
    /// and `slot` that of the slot that holds it.
    pub(super) fn make(
        layout: Layout,
        slot: Layout,
        checks: Option<Box<dyn SlabChecks>>,
        settings: SlabSettings,
    ) -> Result<NonNull<Self>, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let SlabSettings { common, max_page_bytes, max_cached_bytes, packing } = settings;
        let geometry = SlabGeometry::new(slot, max_page_bytes, os::page_size()).ok_or(overflow)?;
        let geometry = match (max_cached_bytes, &common.budget) {
            (Some(bytes), _) => geometry.with_cache_bytes(bytes),
            (None, Some(budget)) => geometry.with_budget(budget.limit()),
            (None, None) => geometry,
        };
        let bytes = size_of::<Self>();
        common.charge(bytes)?;
        let number = registry::take_number().inspect_err(|_| common.credit(bytes))?;
        let record = match Record::acquire(AllocatorKind::Slab, common.name()) {
            Ok(record) => record,
            Err(error) => {
                registry::return_number(number);
                common.credit(bytes);
                return Err(error);
            }
        };
        let mixed = !takes_whole_granules(&common.source, geometry.max_page, layout.align());
        let mut shared = Some(Self {
            page_table: CachePadded(PageTable::new(geometry.words())),
            geometry,
            layout,
            number,
            tag: tag_of_slab(number, mixed),
            empty_pages: CachePadded(EmptyPages::new(common.release)),
            checks,
            reports_live: common.reports_live(),
            name: common.name,
            record,
            budget: common.budget,
            spans: CachePadded(SpanAllocator::new(common.source)),
            caches: AtomicPtr::new(ptr::null_mut()),
            packing: AtomicBool::new(packing),
            waiters: Waiters::none(),
            recalls: AtomicU32::new(0),
            process: AtomicU32::new(std::process::id()),
            page_count: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            slot_count: AtomicUsize::new(0),
            released_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(bytes),
            peak_held_bytes: AtomicUsize::new(bytes),
        });
        match SystemArray::new(1, |_| shared.take().expect("one value is made")) {
            Ok(made) => {
                let start = made.leak();
                registry::register(number, start.cast());
                Ok(start)
            }
            Err(error) => {
                // This drop releases the record and credits the budget.
                drop(shared);
                registry::return_number(number);
                Err(error)
            }
        }
    }

    // ---- references ----

    /// The slab of a number.
    ///
    /// # Safety
    /// The caller has a reference to the slab, or holds one of its slots. The result is used only
    /// as long as that lasts.
    pub(super) unsafe fn of_number<'s>(number: u32) -> &'s Self {
        // SAFETY: `make` registered the slab with this type, and a slab with a reference is alive
        // (invariant 2).
        unsafe { &*registry::slab_of(number).cast() }
    }

    /// Releases a reference to the slab of a number. The last one destroys the slab.
    pub(super) fn release_reference(number: u32) {
        registry::release_reference(number, |slab| {
            // SAFETY: this was the last reference, so no thread uses the slab (invariant 2). `make`
            // made it as one value in its own block.
            drop(unsafe { SystemArray::adopt(slab.cast::<Self>(), 1) });
        });
    }

    /// Calls `visit` on each live slab, one after the other.
    pub(crate) fn visit_live(mut visit: impl FnMut(&Self)) {
        registry::visit_live(|number, slab| {
            // SAFETY: as in `of_number`, by the reference that this call got.
            visit(unsafe { slab.cast().as_ref() });
            Self::release_reference(number);
        });
    }

    // ---- properties ----

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

    /// The tag of the slab's pages, without a mark.
    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    /// The number of pages; a snapshot.
    pub(super) fn page_count(&self) -> usize {
        self.page_count.load(Ordering::Relaxed)
    }

    /// The bytes of all pages released so far.
    pub(super) fn released_bytes(&self) -> usize {
        self.released_bytes.load(Ordering::Relaxed)
    }

    /// A counter that changes when threads should give back the slots that they only cache.
    pub(super) fn recalls(&self) -> u32 {
        self.recalls.load(Ordering::Relaxed)
    }

    /// Reports a misuse of a slot on standard error, and aborts the process.
    pub(super) fn abort_on_misuse(&self, misuse: Misuse, address: usize) -> ! {
        abort_on_misuse(misuse, "slab", self.name(), address, self.layout.size())
    }

    // ---- the budget ----

    pub(super) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))?;
        let held = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > self.peak_held_bytes.load(Ordering::Relaxed) {
            self.peak_held_bytes.fetch_max(held, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn credit(&self, bytes: usize) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.credit(bytes);
        }
    }

    // ---- fork ----

    /// Returns an error if this is a child made by fork that does not have the slab's memory.
    pub(super) fn check_not_orphaned(&self) -> Result<(), AllocError> {
        if !self.waiters.is_orphaned() {
            return Ok(());
        }
        Err(AllocError::new(ErrorKind::ForkedChild, self.layout.size()))
    }

    /// In a child made by fork, before anything else: drops the state of threads that the child
    /// does not have.
    pub(super) fn after_fork(&self) {
        // Relaxed: the child has one thread, and starts the others after this.
        self.process.store(0, Ordering::Relaxed);
        self.waiters.after_fork();
        self.page_table.after_fork();
        // A child of an orphan inherits the reservations.
        if !self.spans.is_inherited() && !self.waiters.is_orphaned() {
            self.waiters.orphan();
            self.mark_all_pages();
            self.reserve_addresses();
        }
    }

    /// Whether this is the process that made the slab. In any other, some of the caches may be as
    /// threads left them that this process does not have. The id is compared, because a child made by
    /// a bare `clone` calls no handlers.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// Reserves the addresses of the pages, which the child has registered but not mapped.
    /// Otherwise another slab's page could be mapped there, and registered over them, while objects
    /// still lead to these pages.
    ///
    /// A source whose memory the child does not have ensures by itself that nothing can be accessed
    /// there ([`Source::is_inherited`](crate::Source::is_inherited)). This is for sources that only
    /// exclude their memory from forks. Where something is mapped, the source has reserved the
    /// addresses: `File` does so, or ends the child.
    fn reserve_addresses(&self) {
        for page in self.pages() {
            let Some(start) = NonNull::new(page.info.start.load(Ordering::Relaxed)) else {
                continue;
            };
            // The bytes of the page, and not all addresses that are registered: the source did not
            // lend the rest of the last granule. No other page begins there.
            match os::reserve_addresses_at(start, page.info.bytes()) {
                Err(error) if error.kind() != os::ADDRESSES_IN_USE => end_child(error),
                _ => {}
            }
        }
    }

    // ---- pages and slots ----

    /// Finds a slot's page, word and number.
    ///
    /// # Safety
    /// The caller holds this slot of this slab.
    #[inline(always)]
    pub(super) unsafe fn locate(&self, slot: NonNull<u8>) -> SlotLocation<'_> {
        let address = slot.addr().get();
        // SAFETY: the slot keeps its page registered with its descriptor, which lives as long as
        // the slab (1).
        let (page, bits) = unsafe {
            let (page, bits) = segment_map::page_of_live(address);
            (&*page.cast::<SlabPage>(), bits)
        };
        let offset = if self.geometry.fits_granule() {
            // The descriptor is not read here, because it is often not in the CPU's cache.
            address & (SEGMENT_GRANULE - 1)
        } else {
            address - page.info.start.load(Ordering::Relaxed).addr()
        };
        let index = self.geometry.index(offset);
        // SAFETY: `bits` are the page's words, and one of them holds the slot's bit.
        let bits = unsafe { &*bits.add(index / SLOTS_PER_WORD) };
        SlotLocation { page, bits, index }
    }

    /// The bytes from `start`, the first slot of a location's word, to the end of that word's
    /// slots, or to the end of the page if that comes first. What lies beyond belongs to another
    /// page.
    #[inline(always)]
    pub(super) fn word_bytes(&self, location: SlotLocation<'_>, start: usize) -> usize {
        let end = if self.geometry.fits_granule() {
            (start | (SEGMENT_GRANULE - 1)) + 1
        } else {
            let info = &location.page.info;
            info.start.load(Ordering::Relaxed).addr() + info.bytes()
        };
        self.geometry.slot.saturating_mul(SLOTS_PER_WORD).min(end - start)
    }

    /// The address of a slot of a page.
    #[inline(always)]
    pub(super) fn slot_address(&self, page: &SlabPage, index: usize) -> NonNull<u8> {
        let start = page.info.start.load(Ordering::Relaxed);
        // SAFETY: the caller took slots of this word of the page. So the page exists, and the
        // address lies in it (1).
        unsafe { NonNull::new_unchecked(start.add(index * self.geometry.slot)) }
    }

    /// Whether an arbitrary address lies in one of the pages. The result is a snapshot, unless
    /// something keeps the page.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.pages().any(|page| {
            let start = page.info.start.load(Ordering::Relaxed).addr();
            address.wrapping_sub(start) < page.info.bytes()
        })
    }

    // ---- thread caches ----

    /// The headers of all thread caches, in use or not.
    pub(super) fn caches(&self) -> impl Iterator<Item = NonNull<CacheHeader>> {
        let first = NonNull::new(self.caches.load(Ordering::Acquire));
        // SAFETY: caches stay until the slab is destroyed. Only their atomics are read.
        core::iter::successors(first, |cache| NonNull::new(unsafe { cache.as_ref() }.next()))
    }

    /// Adds a new cache to the list.
    pub(super) fn add_cache(&self, cache: NonNull<CacheHeader>) {
        let mut head = self.caches.load(Ordering::Relaxed);
        loop {
            // SAFETY: a new cache; no other thread has its address before the exchange.
            unsafe { cache.as_ref() }.next.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire in `caches`.
            match self.caches.compare_exchange_weak(
                head,
                cache.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether a thread has attached to a cache and not left it.
    pub(super) fn has_cache_in_use(&self) -> bool {
        // SAFETY: caches stay until the slab is destroyed. Only atomics are read.
        self.caches().any(|cache| unsafe { cache.as_ref() }.ownership.is_in_use())
    }

    /// Whether exactly one thread cache was ever made.
    pub(super) fn has_one_cache(&self) -> bool {
        self.caches().take(2).count() == 1
    }

    // ---- statistics ----

    /// Reports live objects on standard error, if there are any and the slab was made to do so.
    /// Slots in thread caches don't count.
    pub(super) fn report_live(&self) {
        if !self.reports_live {
            return;
        }
        let live = self.statistics();
        if live.live_objects > 0 {
            let name =
                printable(self.name().filter(|name| !name.is_empty()).unwrap_or("(no name)"));
            standard_error::print(format_args!(
                "allotment: slab '{name}' dropped with {} live objects of {} bytes each\n",
                live.live_objects,
                self.layout.size()
            ));
        }
    }

    /// The number of all slots, and of those not in use: free in their pages, in pages kept empty,
    /// or in a thread cache. A snapshot.
    pub(super) fn count_slots(&self) -> (usize, usize) {
        let (mut all, mut free) = (0, 0);
        for page in self.pages() {
            all += page.slots();
            free += if page.is_kept_empty() { page.slots() } else { page.free_slots() };
        }
        for cache in self.caches() {
            // SAFETY: caches stay until the slab is destroyed. Only atomics are read.
            free += unsafe { cache.as_ref() }.held_slots();
        }
        (all, free.min(all))
    }

    pub(crate) fn statistics(&self) -> Statistics {
        match &self.checks {
            Some(checks) => checks.statistics(self),
            None => self.slot_statistics(0),
        }
    }

    /// Statistics of the pages, structures and slots. `set_aside` is the number of slots that were
    /// freed and are not back in their pages.
    pub(super) fn slot_statistics(&self, set_aside: usize) -> Statistics {
        let (all, free) = self.count_slots();
        let live = (all - free).saturating_sub(set_aside);
        let live_bytes = live * self.layout.size();
        Statistics {
            live_objects: live as u64,
            live_bytes: live_bytes as u64,
            free_bytes: ((all - live) * self.layout.size()) as u64,
            ..self.statistics_of(all)
        }
    }

    /// Statistics of the pages and structures alone; all slots count as free. Visits no page.
    pub(super) fn page_statistics(&self) -> Statistics {
        self.statistics_of(self.slot_count.load(Ordering::Relaxed))
    }

    /// Statistics of pages with this many slots, which count as free.
    fn statistics_of(&self, slots: usize) -> Statistics {
        let page_bytes = self.page_bytes.load(Ordering::Relaxed);
        let held = self.held_bytes.load(Ordering::Relaxed);
        let slot_bytes = slots * self.layout.size();
        Statistics {
            live_objects: 0,
            live_bytes: 0,
            held_bytes: held as u64,
            peak_held_bytes: self.peak_held_bytes.load(Ordering::Relaxed) as u64,
            wasted_bytes: page_bytes.saturating_sub(slot_bytes) as u64,
            free_bytes: slot_bytes as u64,
            structure_bytes: held.saturating_sub(page_bytes) as u64,
            chunks: self.page_count() as u64,
            recycled_chunks: 0,
            source_calls: self.spans.calls(),
        }
    }
}

impl Drop for SlabShared {
    fn drop(&mut self) {
        let mut next = NonNull::new(*self.caches.get_mut());
        while let Some(cache) = next {
            // SAFETY: the last reference is gone, so no thread uses a cache. `ThreadCache::make`
            // made each one with this geometry, and it is destroyed once.
            unsafe {
                next = NonNull::new(cache.as_ref().next());
                CacheHeader::destroy(cache, &self.geometry);
            }
        }
        if let Some(budget) = &self.budget {
            budget.credit(*self.held_bytes.get_mut());
        }
        self.record.release();
    }
}
