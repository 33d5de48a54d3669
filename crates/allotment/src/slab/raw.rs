//! `RawSlab`: slots of one layout, by address.
//!
//! # Invariants
//!
//! 1. A `RawSlab` is a reference to its core, and the one that closes it.
//! 2. A slot that `alloc` returned is the caller's until he frees it: its page is registered, and a reference to
//!    the core too, so that the address alone leads to both.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use super::builder::{Settings, SlabBuilder};
use super::core::{Core, MARK, number_in};
use super::front::{Front, NOBODY};
use super::lifetime::Lifetime;
use super::page::WORD;
use super::supply::Got;
use super::{for_c, registry, threads};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::segments;
use crate::misuse::Misuse;
use crate::statistics::Statistics;

/// Slots of one layout that any thread allocates and any thread frees; whole pages of them go back when empty.
///
/// Each thread that uses the slab has a cache of slots (at most 4096, or 256 KiB of them if that is fewer, and at least 8) and
/// takes more a word of a page's bitmap at a time. Allocating and freeing at the cache touches nothing shared and
/// takes no locked instruction; what goes to or comes from a page costs one locked instruction for up to 64
/// neighbouring slots. The slab itself holds no lock; a [`File`](crate::File) does for its system calls, and hardened
/// mode and pass-through for their books.
///
/// A thread that does nothing more for ever keeps pages from being given back, whatever other threads free: for each
/// [`Lifetime`] that it used at most one for each slot that its cache has room for, sixteen for the slots on their way
/// back, and the one that it takes from. [`flush`](Self::flush) lets go of these, and so does the thread's end. See the page
/// on the protocol in the documentation.
///
/// After netdata's *Array Allocator*; the slab is Bonwick's (USENIX 1994), the bitmap beside the page and the
/// free by any thread are common to mimalloc, snmalloc and jemalloc, and put together here in another way.
///
/// ```
/// use allotment::RawSlab;
/// use core::alloc::Layout;
///
/// let slab = RawSlab::new(Layout::new::<[u64; 6]>());
/// let slot = slab.alloc();
/// std::thread::scope(|scope| {
///     let address = slot.addr();
///     scope.spawn(|| assert_eq!(slab.statistics().live_objects, 1));
///     assert_eq!(address.get() % 8, 0);
/// });
/// // SAFETY: allocated above, freed once, not used any more.
/// unsafe { slab.free(slot) };
/// ```
pub struct RawSlab {
    core: NonNull<Core>,
    /// What the fast paths look up: the slab's number, or [`UNKNOWN`].
    pub(super) number: u32,
}

/// The number of a watched slab for the fast paths: beyond every table, so that they ask nothing of the address that
/// they are given, which may be any at all.
const UNKNOWN: u32 = u32::MAX;

// SAFETY: the core is shared by threads by design: what changes there are atomics.
unsafe impl Send for RawSlab {}
// SAFETY: as above.
unsafe impl Sync for RawSlab {}

impl RawSlab {
    /// A slab with defaults.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::builder(layout).build()
    }

    /// A slab with defaults. Takes no page yet.
    ///
    /// # Errors
    /// A layout beyond the address space; structures that malloc refuses.
    pub fn try_new(layout: Layout) -> Result<Self, AllocError> {
        Self::builder(layout).try_build()
    }

    /// Begins a slab with options.
    pub const fn builder(layout: Layout) -> SlabBuilder<Self> {
        SlabBuilder::new(layout)
    }

    pub(super) fn make(layout: Layout, settings: Settings) -> Result<Self, AllocError> {
        let core = Core::make(layout, settings)?;
        // SAFETY: made just now; the reference is ours.
        let made = unsafe { core.as_ref() };
        Ok(Self { core, number: if made.watch.is_none() { made.number } else { UNKNOWN } })
    }

    pub(super) fn core(&self) -> &Core {
        // SAFETY: a reference to the core (invariant 1).
        unsafe { self.core.as_ref() }
    }

    /// The layout of a slot, as it was asked for.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.core().layout
    }

    /// The name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core().name()
    }

    /// A slot, uninitialised, aligned to its layout. Some fifteen instructions when one is
    /// at hand.
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<Abort>())
    }

    /// A slot, uninitialised.
    ///
    /// # Errors
    /// When no slot is free and no page is to be had from the budget or the source. Slots that other threads only
    /// cache are asked back then, and are there when those threads have next freed something.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<Report>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: this thread's front, used before the table changes.
        match threads::found(self.number).and_then(|front| unsafe { Front::pop(front) }) {
            Some(slot) => Ok(slot),
            None => self.alloc_slowly::<F>(),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        alloc_on(self.core(), Lifetime::Short).map_err(F::fail)
    }

    /// A slot for an object of this expected lifetime; [`alloc`](Self::alloc) is for [`Lifetime::Short`].
    ///
    /// # Panics
    /// Aborts where [`try_alloc_for`](Self::try_alloc_for) returns an error.
    #[must_use]
    pub fn alloc_for(&self, lifetime: Lifetime) -> NonNull<u8> {
        always(alloc_on(self.core(), lifetime).map_err(Abort::fail))
    }

    /// A slot for an object of this expected lifetime.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_for(&self, lifetime: Lifetime) -> Result<NonNull<u8>, AllocError> {
        alloc_on(self.core(), lifetime)
    }

    /// Frees a slot, on any thread. Twenty instructions when there is room at hand.
    ///
    /// A slot of another slab is found out, named and stopped by an abort in any mode, if it is one of this
    /// library's; so is a slot that is freed twice and goes back to its page twice.
    ///
    /// # Safety
    /// The slot came from this slab, was not freed since, and is not used any more.
    #[inline]
    pub unsafe fn free(&self, slot: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { self.free_or(slot, || self.free_slowest(slot)) }
    }

    /// Frees a slot as [`free`](Self::free) does, unless the thread has not used the slab yet, or the slab is watched: then
    /// the other way is taken. For the C interface.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_or(&self, slot: NonNull<u8>, otherwise: impl FnOnce()) {
        // SAFETY: a thread with a front has it for a slab that is not watched; there, a slot keeps its granule
        // registered (invariant 2).
        let tag = || unsafe { segments::tag_of_live(slot.addr().get()) };
        // SAFETY: this thread's front, used before the table changes; the rest is passed on to the caller.
        unsafe {
            match threads::found(self.number) {
                Some(front) if Front::push(front, slot, tag) => {}
                Some(front) => self.free_slowly(slot, front),
                None => otherwise(),
            }
        }
    }

    /// Not inlined, and the last call of `free`, so that this needs no stack.
    #[inline(never)]
    unsafe fn free_slowly(&self, slot: NonNull<u8>, front: *const Front) {
        // SAFETY: as in `free`.
        unsafe {
            if !Front::free_slowly(front, slot) {
                self.free_slowest(slot);
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_slowest(&self, slot: NonNull<u8>) {
        // SAFETY: passed on to the caller; this is a reference to the core.
        unsafe { free_on(self.core(), slot) }
    }

    /// Takes as many slots as there are places.
    ///
    /// # Panics
    /// Aborts where [`try_alloc_many`](Self::try_alloc_many) returns an error.
    pub fn alloc_many(&self, slots: &mut [MaybeUninit<NonNull<u8>>]) {
        always(self.try_alloc_many(slots).map_err(Abort::fail));
    }

    /// Takes as many slots as there are places, in one go: nothing is looked up again for each.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc). Slots that were taken before it failed are freed again: all or none.
    pub fn try_alloc_many(&self, slots: &mut [MaybeUninit<NonNull<u8>>]) -> Result<(), AllocError> {
        let core = self.core();
        let front = if core.watch.is_none() { threads::front_or_new(core, 0) } else { None };
        let taken = match front {
            // SAFETY: this thread's front, used before the table changes.
            Some(front) => unsafe { &*front }.take_many(slots),
            None => slots.iter_mut().enumerate().try_for_each(|(taken, place)| {
                place.write(alloc_on(core, Lifetime::Short).map_err(|error| (taken, error))?);
                Ok(())
            }),
        };
        taken.map_err(|(taken, error)| {
            for slot in &slots[..taken] {
                // SAFETY: the first `taken` places were written, with slots of this slab that nobody has seen.
                unsafe { self.free(slot.assume_init()) };
            }
            error
        })
    }

    /// Frees many slots in one go. Neighbours that follow each other go back to their page by one instruction.
    ///
    /// # Safety
    /// As for [`free`](Self::free), for each; none is there twice.
    pub unsafe fn free_many(&self, slots: &[NonNull<u8>]) {
        let core = self.core();
        let front = if core.watch.is_none() { threads::front_or_new(core, 0) } else { None };
        match front {
            Some(front) => {
                for slot in slots {
                    // SAFETY: a slot keeps its granule registered.
                    if unsafe { segments::tag_of_live(slot.addr().get()) } & !MARK != core.tag() {
                        core.stop_at(Misuse::ForeignPointer, slot.addr().get());
                    }
                }
                // SAFETY: as above.
                let front = unsafe { &*front };
                front.give_back(slots);
                front.heed_recalls();
                core.tell_waiters();
            }
            // SAFETY: passed on to the caller.
            None => slots.iter().for_each(|slot| unsafe { free_on(core, *slot) }),
        }
    }

    /// The calling thread's way to this slab without a look at its table: seven instructions to allocate, fourteen
    /// to free.
    #[must_use]
    pub fn handle(&self) -> RawSlabHandle<'_> {
        let core = self.core();
        let front = if core.watch.is_none() { threads::front_or_new(core, 0) } else { None };
        if let Some(front) = front {
            // SAFETY: this thread's front; counted at once, so that it stays in use.
            unsafe { &*front }.add_handle();
        }
        RawSlabHandle { front: front.unwrap_or(NOBODY), slab: self, not_send: PhantomData }
    }

    /// Takes pages ahead until at least so many slots are free in empty pages, and faults them in, so that a burst
    /// finds them warm. They are kept until they were used once, or [`trim`](Self::trim) is called.
    ///
    /// # Panics
    /// Aborts where [`try_reserve`](Self::try_reserve) returns an error.
    pub fn reserve(&self, slots: usize) {
        always(self.try_reserve(slots).map_err(Abort::fail));
    }

    /// The fallible twin of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// When a page is not to be had from the budget or the source, or so many slots have no address. Pages that were
    /// taken before stay.
    pub fn try_reserve(&self, slots: usize) -> Result<(), AllocError> {
        match &self.core().watch {
            Some(watch) if watch.has_no_pages() => Ok(()),
            _ => self.core().reserve(slots),
        }
    }

    /// Empties the calling thread's caches, and gives all empty pages back to the source. Returns the bytes given
    /// back meanwhile, by other threads too. Other threads' caches keep their pages; those threads call
    /// [`flush`](Self::flush).
    pub fn trim(&self) -> usize {
        let before = self.core().given_back();
        self.flush();
        if let Some(watch) = &self.core().watch {
            watch.end_rest(self.core());
        }
        self.core().trim();
        self.core().given_back().wrapping_sub(before)
    }

    /// Gives what the calling thread has at hand back to the pages: its cache, slots on their way, its page.
    pub fn flush(&self) {
        for lifetime in 0..2 {
            let front = threads::front(self.core().number + lifetime);
            if !ptr::eq(front, NOBODY) {
                // SAFETY: this thread's front, used before the table changes.
                unsafe { &*front }.flush();
            }
        }
    }

    /// Whether packing is on.
    #[must_use]
    pub fn packing(&self) -> bool {
        self.core().packing()
    }

    /// Switches packing on or off, while threads run. With it, each thread looks for the fullest page whenever its
    /// cache is empty; without, it first uses up the page that it has, then those that it had not long ago, and then takes
    /// the fullest that is listed. Either way slots of pages that are less than three quarters full are not used
    /// again before they went back.
    pub fn set_packing(&self, packing: bool) {
        self.core().set_packing(packing);
    }

    /// What the slab holds. Looks at every page: a few nanoseconds for each 64 slots.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core().statistics()
    }
}

impl fmt::Debug for RawSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSlab")
            .field("name", &self.name())
            .field("layout", &self.layout())
            .field("statistics", &self.statistics())
            .finish()
    }
}

impl Drop for RawSlab {
    /// Closes the slab. Objects that live on stay valid, and free their pages when they go; the slab's memory goes
    /// with the last of them.
    fn drop(&mut self) {
        self.core().close();
        if let Some(watch) = &self.core().watch {
            // After it is closed: what is freed from then on does not rest.
            watch.end_rest(self.core());
        }
        threads::count_closed();
        let number = self.core().number;
        threads::leave(number);
        registry::unrefer(number);
    }
}

/// A slot for a thread whose fast path found none.
pub(super) fn alloc_on(core: &Core, lifetime: Lifetime) -> Result<NonNull<u8>, AllocError> {
    if let Some(watch) = &core.watch {
        return watch.alloc(core);
    }
    let lifetime = lifetime.number();
    match threads::front_or_new(core, lifetime) {
        // SAFETY: this thread's front, used before the table changes.
        Some(front) => unsafe { Front::pop(front).map_or_else(|| (*front).refill(), Ok) },
        None => alloc_alone(core, lifetime),
    }
}

/// A slot for a thread without a front.
pub(super) fn alloc_alone(core: &Core, lifetime: usize) -> Result<NonNull<u8>, AllocError> {
    loop {
        let got = match core.claim(lifetime, 0) {
            Some(claim) => Got::Claim(claim),
            None => match core.grow(lifetime, 0) {
                Err(_) if threads::flush_other(core.number, lifetime) => continue,
                got => got?,
            },
        };
        match got {
            Got::Claim(claim) => {
                let page = claim.page();
                let taken = (0..page.words()).find_map(|word| {
                    let bit = page.take(word, 1);
                    (bit != 0).then(|| word * WORD + bit.trailing_zeros() as usize)
                });
                // The slot before the page is opened: then it can't go in between.
                let slot = taken.map(|index| core.slot_of(page, index));
                core.put_back(claim);
                if let Some(slot) = slot {
                    return Ok(slot);
                }
            }
            Got::Slots(page, word, taken) => {
                let first = taken & taken.wrapping_neg();
                let slot = core.slot_of(page, word * WORD + first.trailing_zeros() as usize);
                if taken != first {
                    // SAFETY: taken just now, and not used; the caller has a reference to the core.
                    unsafe { core.free(core.spot_of(slot), taken ^ first, true) };
                }
                return Ok(slot);
            }
        }
    }
}

/// Frees a slot for a thread whose fast path did not.
///
/// # Safety
/// As for [`RawSlab::free`]; the caller has a reference to the core.
pub(super) unsafe fn free_on(core: &Core, slot: NonNull<u8>) {
    if let Some(watch) = &core.watch {
        // SAFETY: passed on to the caller.
        return unsafe { watch.free(core, slot) };
    }
    // SAFETY: passed on to the caller; the slot, whosever it is, keeps its granule registered.
    unsafe {
        if segments::tag_of(slot.addr().get()) & !MARK != core.tag() {
            core.stop_at(Misuse::ForeignPointer, slot.addr().get());
        }
        match threads::front_or_new(core, 0) {
            Some(front) => {
                let tag = || segments::tag_of_live(slot.addr().get());
                if !Front::push(front, slot, tag) {
                    Front::free_slowly(front, slot);
                }
            }
            None => {
                let spot = core.spot_of(slot);
                core.free(spot, 1 << (spot.index % WORD), true);
                core.tell_waiters();
            }
        }
    }
}

/// Frees a slot by its address alone, whichever slab it is of, whether that is closed or not.
///
/// # Safety
/// The slot came from a slab, was not freed since, and is not used any more.
#[inline]
pub(super) unsafe fn free_anywhere(slot: NonNull<u8>) {
    // The number in a marked tag is beyond every table, and nobody has a front for the number 0.
    // SAFETY: the slot keeps its granule registered, or is a block of pass-through mode, which saw to it that the
    // map can be asked. The front is this thread's, used before the table changes.
    unsafe {
        match threads::found(number_in(segments::tag_of_live(slot.addr().get()))) {
            Some(front) if Front::push_known(front, slot) => {}
            _ => free_anywhere_slowly(slot),
        }
    }
}

#[inline(never)]
unsafe fn free_anywhere_slowly(slot: NonNull<u8>) {
    // SAFETY: as in `free_anywhere`.
    let freed = unsafe { for_c::free_if_slot(slot) };
    assert!(freed, "a slab's box is a slot or a block of pass-through mode");
}

/// One thread's way to a [`RawSlab`], without a look at its table.
///
/// It stays on its thread. A handle in a thread-local variable may outlive the thread's other parts of the slab.
#[derive(Debug)]
pub struct RawSlabHandle<'s> {
    pub(super) front: *const Front,
    slab: &'s RawSlab,
    not_send: PhantomData<*mut ()>,
}

impl RawSlabHandle<'_> {
    /// The slab.
    #[must_use]
    pub fn slab(&self) -> &RawSlab {
        self.slab
    }

    /// A slot, uninitialised: [`RawSlab::alloc`] in seven instructions.
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline(always)]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        // SAFETY: `NOBODY`, or a front of this thread's that the handle keeps in use, of a core that the borrowed slab
        // keeps alive.
        match unsafe { Front::pop(self.front) } {
            Some(slot) => slot,
            None => always(self.slab.alloc_slowly::<Abort>()),
        }
    }

    /// A slot, uninitialised.
    ///
    /// # Errors
    /// As [`RawSlab::try_alloc`].
    #[inline(always)]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: as in `alloc`.
        match unsafe { Front::pop(self.front) } {
            Some(slot) => Ok(slot),
            None => self.slab.alloc_slowly::<Report>(),
        }
    }

    /// Frees a slot: [`RawSlab::free`] in fourteen instructions.
    ///
    /// In hardened mode an address that no process can have (2^48 and more) may fault here instead of being named.
    ///
    /// # Safety
    /// As for [`RawSlab::free`].
    #[inline(always)]
    pub unsafe fn free(&self, slot: NonNull<u8>) {
        // SAFETY: as in `RawSlab::free`. (`NOBODY` is asked here too, where a watched slab has no other front.)
        let tag = || unsafe { segments::tag_of_live(slot.addr().get()) };
        // SAFETY: as in `alloc`; the rest is passed on to the caller.
        unsafe {
            if !Front::push(self.front, slot, tag) {
                self.slab.free_slowly(slot, self.front);
            }
        }
    }
}

impl Drop for RawSlabHandle<'_> {
    fn drop(&mut self) {
        if !ptr::eq(self.front, NOBODY) {
            // SAFETY: as in `alloc`.
            threads::drop_handle(unsafe { &*self.front });
        }
    }
}
