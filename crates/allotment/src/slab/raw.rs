//! `RawSlab`: slots of one layout, by address.
//!
//! # Invariants
//!
//! 1. A `RawSlab` holds one reference to its [`SlabShared`], and closes it when it is dropped.
//! 2. A slot that `alloc` returned belongs to the caller until the caller frees it. The slot keeps
//!    its page registered, and the page holds a reference to the slab. So the address alone leads
//!    to both.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use super::cache_steps::CacheSteps;
use super::checked;
use super::lifetime::Lifetime;
use super::page_steps::PageBackend;
use super::settings::SlabSettings;
use super::shared::SlabShared;
use super::slow_paths;
use super::tags::TAG_MARK;
use super::thread_cache::{NO_CACHE, ThreadCache};
use super::thread_table::{self, DirectIndex};
use crate::checked::{Misuse, guarded};
use crate::error::{AllocError, ErrorKind, OnFailure, PanicOrAbort, ReturnError, always, or_fail};
use crate::memory::segment_map;
use crate::options::new_calls;
use crate::statistics::Statistics;

/// Slots of one layout. Any thread allocates them, and any thread frees them. Empty pages are
/// released as a whole.
///
/// Each thread that uses the slab has a cache of slots. By default a cache holds at most 4096 slots
/// or 256 KiB of them, whichever is less, and at least 8 slots. The thread refills it one word of a
/// page's bitmap at a time. An allocation or a free that the cache serves touches nothing shared
/// and executes no locked instruction. Moving slots between the cache and a page costs one locked
/// instruction for up to 64 neighbouring slots. The slab itself has no lock. A
/// [`File`](crate::File) takes a lock for its system calls, and hardened mode and pass-through mode
/// take one for their records.
///
/// A thread that sleeps forever keeps some pages from being released, even if other threads free
/// everything. These are at most one page for each slot of its cache's capacity, sixteen pages for
/// freed slots on their way back, the page that the cache is refilled from, and one page for
/// [long-lived](Lifetime::Long) objects. The thread lets go of them when it calls
/// [`flush`](Self::flush) or ends. The documentation's page on the slab's protocol derives the
/// bound. A slab that is dropped after all of its objects leaves nothing behind with such threads.
///
/// The idea comes from netdata's *Array Allocator*. The slab is Bonwick's (USENIX 1994). A bitmap
/// beside the page and frees by any thread are common to mimalloc, snmalloc and jemalloc; here they
/// are combined in another way.
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
    shared: NonNull<SlabShared>,
    /// Where the fast paths find a thread's cache. A checked slab has no place.
    direct: DirectIndex,
    /// The slab's number, or [`NO_NUMBER`].
    number: u32,
}

/// The number of a checked slab. It lies beyond every thread's table, so no free looks up the
/// address that it is given, which may be any value.
const NO_NUMBER: u32 = u32::MAX;

// SAFETY: threads share a `SlabShared` by design: everything in it that changes is atomic.
unsafe impl Send for RawSlab {}
// SAFETY: as above.
unsafe impl Sync for RawSlab {}

/// Tells the compiler that the code beside this call runs rarely.
#[cold]
#[inline(always)]
fn rare() {}

/// # Create
impl RawSlab {
    new_calls! {
        "slab", layout: Layout;
        /// If the layout exceeds the address space, or malloc refuses memory for the slab's own
        /// structures or for the handler that adjusts slabs in children made by fork.
    }
}

impl RawSlab {
    pub(super) fn make(layout: Layout, settings: SlabSettings) -> Result<Self, AllocError> {
        thread_table::watch_forks()?;
        let checks = checked::new_if_checked(settings.common.hardened, settings.common.name())?;
        let overflow = AllocError::new(ErrorKind::SizeOverflow, layout.size());
        let slot = checks.as_ref().map_or(Some(layout), |_| guarded(layout)).ok_or(overflow)?;
        let shared = SlabShared::make(layout, slot, checks, settings)?;
        // SAFETY: made above, and its one reference is ours.
        let made = unsafe { shared.as_ref() };
        let number = if made.checks.is_none() { made.number } else { NO_NUMBER };
        Ok(Self { shared, direct: DirectIndex::of(number), number })
    }

    pub(super) fn shared(&self) -> &SlabShared {
        // SAFETY: the slab holds a reference (invariant 1).
        unsafe { self.shared.as_ref() }
    }

    /// The calling thread's cache; takes one if the thread has none yet. Returns `None` if the
    /// thread can't have one, or the slab is checked.
    fn cache_or_new(&self) -> Option<*const ThreadCache> {
        let shared = self.shared();
        if shared.checks.is_none() { thread_table::cache_or_new(shared, 0) } else { None }
    }
}

/// # Allocate
impl RawSlab {
    /// Allocates an uninitialised slot, aligned to the slab's layout.
    ///
    /// It takes nine instructions on x86-64 if the calling thread's cache holds a slot, and the slab
    /// has one of the process's first 47 numbers; those of slabs that are gone are used again. For
    /// other slabs it looks the cache up in a longer table.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<PanicOrAbort>())
    }

    /// Allocates an uninitialised slot.
    ///
    /// # Errors
    /// If no slot is free and neither the budget nor the source grants a page. The slab then
    /// recalls the slots that other threads only cache. Each thread returns its slots the next time
    /// that it frees one, so a later call may succeed.
    #[inline]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<ReturnError>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        match self.alloc_fast() {
            Some(slot) => Ok(slot),
            None => self.alloc_slowly::<F>(),
        }
    }

    /// Takes a slot from the thread's cache, if that holds one.
    #[inline(always)]
    pub(super) fn alloc_fast(&self) -> Option<NonNull<u8>> {
        // SAFETY: this thread's cache, used before the thread's table changes.
        unsafe { ThreadCache::pop(thread_table::direct(self.direct)) }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        if self.direct.is_none() {
            // SAFETY: as in `alloc_fast`.
            let found = thread_table::lookup(self.number)
                .and_then(|cache| unsafe { ThreadCache::pop(cache) });
            if let Some(slot) = found {
                return Ok(slot);
            }
        }
        slow_paths::alloc(self.shared(), Lifetime::Short).map_err(F::fail)
    }

    /// Allocates a slot for an object of this expected lifetime. [`alloc`](Self::alloc) is for
    /// [`Lifetime::Short`].
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_for`](Self::try_alloc_for) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn alloc_for(&self, lifetime: Lifetime) -> NonNull<u8> {
        or_fail(self.try_alloc_for(lifetime))
    }

    /// Allocates a slot for an object of this expected lifetime.
    ///
    /// # Errors
    /// Same as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_for(&self, lifetime: Lifetime) -> Result<NonNull<u8>, AllocError> {
        slow_paths::alloc(self.shared(), lifetime)
    }

    /// Fills the slice with newly allocated slots.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_many`](Self::try_alloc_many) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[track_caller]
    pub fn alloc_many(&self, slots: &mut [MaybeUninit<NonNull<u8>>]) {
        or_fail(self.try_alloc_many(slots));
    }

    /// Fills the slice with newly allocated slots. The thread's cache is looked up once for the
    /// whole call.
    ///
    /// # Errors
    /// Same as [`try_alloc`](Self::try_alloc). The call allocates all slots or none: on an error it
    /// frees the slots that it already took.
    pub fn try_alloc_many(&self, slots: &mut [MaybeUninit<NonNull<u8>>]) -> Result<(), AllocError> {
        let cache = self.cache_or_new();
        let alloc_one = || match cache {
            Some(cache) => {
                // SAFETY: this thread's cache, used before the thread's table changes.
                let cache = unsafe { &*cache };
                cache.pop_cached().map_or_else(|| slow_paths::refill(cache), Ok)
            }
            None => slow_paths::alloc(self.shared(), Lifetime::Short),
        };
        for index in 0..slots.len() {
            match alloc_one() {
                Ok(slot) => slots[index].write(slot),
                Err(error) => {
                    for slot in &slots[..index] {
                        // SAFETY: the elements before `index` are initialised with slots of this
                        // slab that no other code has seen.
                        unsafe { self.free(slot.assume_init()) };
                    }
                    return Err(error);
                }
            };
        }
        Ok(())
    }

    /// Returns a handle to the calling thread's cache. Calls on the handle skip the lookup in the
    /// thread's table: allocating takes seven instructions, freeing takes fourteen (x86-64).
    #[must_use]
    pub fn handle(&self) -> RawSlabHandle<'_> {
        let cache = self.cache_or_new();
        if let Some(cache) = cache {
            // SAFETY: this thread's cache. The handle is counted at once, so the cache stays in
            // use.
            unsafe { &*cache }.add_handle();
        }
        RawSlabHandle { cache: cache.unwrap_or(NO_CACHE), slab: self, not_send: PhantomData }
    }

    /// Prepares for a burst: takes pages from the source until at least `slots` slots are free in
    /// empty pages, and faults these pages in.
    ///
    /// The slab keeps each of these pages until it has been used once, or until
    /// [`trim`](Self::trim) is called.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_reserve`](Self::try_reserve) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[track_caller]
    pub fn reserve(&self, slots: usize) {
        or_fail(self.try_reserve(slots));
    }

    /// Fallible version of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// If the budget or the source refuses a page, or the bytes of that many slots exceed the
    /// address space, or what the system would grant at once. The pages that were taken before the
    /// error go back.
    pub fn try_reserve(&self, slots: usize) -> Result<(), AllocError> {
        match &self.shared().checks {
            Some(checks) if checks.is_passthrough() => Ok(()),
            _ => self.shared().reserve(slots),
        }
    }
}

/// # Free
impl RawSlab {
    /// Frees a slot, on any thread.
    ///
    /// It takes eighteen instructions on x86-64 if the calling thread's cache has room, and the slab
    /// has one of the process's first 47 numbers; those of slabs that are gone are used again. For
    /// other slabs it looks the cache up in a longer table.
    ///
    /// Every mode detects two kinds of misuse, names them on standard error and aborts: a slot of
    /// another slab of this library, and a slot that is freed twice and returns to its page twice.
    ///
    /// # Safety
    /// The slot came from this slab, is freed once, and is not used afterwards.
    #[inline]
    pub unsafe fn free(&self, slot: NonNull<u8>) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.free_or(slot, || self.free_without_cache(slot)) }
    }

    /// Frees a slot as [`free`](Self::free) does. Calls `otherwise` instead if the thread has no
    /// cache of this slab yet, or the slab is checked. For the C interface.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_or(&self, slot: NonNull<u8>, otherwise: impl FnOnce()) {
        // SAFETY: the caller upholds the contract. The cache is this thread's, and is used before
        // the thread's table changes.
        unsafe {
            if self.direct.is_none() {
                rare();
                match thread_table::lookup(self.number) {
                    Some(cache) => self.free_to(slot, cache),
                    None => otherwise(),
                }
            } else {
                self.free_to(slot, thread_table::direct(self.direct));
            }
        }
    }

    /// Frees a slot of an unchecked slab: one with a place in the direct table, or one whose number
    /// is in the thread's table.
    ///
    /// # Safety
    /// As for [`free`](Self::free). `cache` is the calling thread's for this slab, or [`NO_CACHE`].
    #[inline(always)]
    unsafe fn free_to(&self, slot: NonNull<u8>, cache: *const ThreadCache) {
        // SAFETY: a slot of an unchecked slab keeps its granule registered (invariant 2).
        let tag = || unsafe { segment_map::tag_of_live(slot.addr().get()) };
        // SAFETY: the caller upholds the contract of `free`, and `cache` is this thread's.
        unsafe {
            if !ThreadCache::push(cache, slot, tag) {
                self.free_slowly(slot, cache);
            }
        }
    }

    /// The slow path of `free`. It is not inlined and is the last call of `free`, so that `free`
    /// needs no stack frame.
    #[inline(never)]
    unsafe fn free_slowly(&self, slot: NonNull<u8>, cache: *const ThreadCache) {
        // SAFETY: as in `free`.
        unsafe {
            if !ThreadCache::free_slowly(cache, slot) {
                self.free_without_cache(slot);
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_without_cache(&self, slot: NonNull<u8>) {
        // SAFETY: the caller upholds the contract, and `self` holds a reference to the slab.
        unsafe { slow_paths::free(self.shared(), slot) }
    }

    /// Frees many slots in one call. Slots that follow each other in the slice and share a bitmap
    /// word return to their page by one instruction.
    ///
    /// # Safety
    /// As for [`free`](Self::free), for each slot. No slot occurs twice.
    pub unsafe fn free_many(&self, slots: &[NonNull<u8>]) {
        let shared = self.shared();
        match self.cache_or_new() {
            Some(cache) => {
                for slot in slots {
                    // SAFETY: a slot keeps its granule registered.
                    let tag = unsafe { segment_map::tag_of_live(slot.addr().get()) };
                    if tag & !TAG_MARK != shared.tag() {
                        shared.abort_on_misuse(Misuse::ForeignPointer, slot.addr().get());
                    }
                }
                // SAFETY: this thread's cache, used before the thread's table changes.
                let cache = unsafe { &*cache };
                cache.return_slots(slots);
                cache.flush_if_recalled();
                shared.wake_waiters();
            }
            // SAFETY: the caller upholds the contract.
            None => slots.iter().for_each(|slot| unsafe { slow_paths::free(shared, *slot) }),
        }
    }
}

/// # Release memory
impl RawSlab {
    /// Flushes the calling thread's cache and returns all empty pages to the source.
    ///
    /// Returns the number of bytes of pages released during the call, including those that other
    /// threads released. The caches of other threads keep their pages; those threads call
    /// [`flush`](Self::flush) themselves.
    pub fn trim(&self) -> usize {
        let shared = self.shared();
        let before = shared.released_bytes();
        self.flush();
        if let Some(checks) = &shared.checks {
            checks.empty_quarantine(shared);
        }
        shared.trim();
        shared.released_bytes().wrapping_sub(before)
    }

    /// Returns everything that the calling thread holds of this slab to the pages: its cached
    /// slots, its freed slots on their way back, and the page that its cache is refilled from.
    pub fn flush(&self) {
        for lifetime in 0..2 {
            let cache = thread_table::cache(self.shared().number + lifetime);
            if !ptr::eq(cache, NO_CACHE) {
                // SAFETY: this thread's cache, used before the thread's table changes.
                unsafe { &*cache }.flush();
            }
        }
    }

    /// Whether packing is on.
    #[must_use]
    pub fn packing(&self) -> bool {
        self.shared().packing()
    }

    /// Switches packing on or off, also while threads use the slab.
    ///
    /// With packing, a thread looks for the fullest page each time its cache is empty. Without it,
    /// a thread first uses up its current page, then the pages that it used recently, and then
    /// takes the fullest listed page. In both cases, slots freed in pages less than three quarters
    /// full go back to their pages instead of into a cache.
    pub fn set_packing(&self, packing: bool) {
        self.shared().set_packing(packing);
    }
}

/// # Layout, name and statistics
impl RawSlab {
    /// The layout of a slot, as the caller requested it.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.shared().layout
    }

    /// The slab's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.shared().name()
    }

    /// What the slab holds. The call reads the whole bitmap of every page, one word for 64 slots.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared().statistics()
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
    /// Closes the slab. Its live objects stay valid, and their pages are released as the objects
    /// are freed. The slab's own memory is freed with the last of them.
    ///
    /// If no object is left, what other threads cache is given back too. That takes about 10 us for
    /// each of their caches. The first time in a process it takes up to some 30 ms, if other threads
    /// run. It needs the kernel's `membarrier`, and is skipped if one of these threads is just
    /// freeing an object of the slab or ending. If it is skipped, or objects are left, what a thread
    /// caches stays until that thread frees an object of the slab, first uses another slab, or ends.
    fn drop(&mut self) {
        let shared = self.shared();
        let number = shared.number;
        shared.close();
        if let Some(checks) = &shared.checks {
            // After `close`: slots freed from then on skip the quarantine.
            checks.empty_quarantine(shared);
        }
        thread_table::count_closed();
        thread_table::detach(number);
        shared.seize_caches();
        SlabShared::release_reference(number);
    }
}

/// One thread's direct access to a [`RawSlab`], which skips the lookup in the thread's table.
///
/// A handle stays on its thread. A handle in a thread-local variable may outlive the thread's table
/// of caches.
pub struct RawSlabHandle<'s> {
    pub(super) cache: *const ThreadCache,
    slab: &'s RawSlab,
    not_send: PhantomData<*mut ()>,
}

impl fmt::Debug for RawSlabHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSlabHandle").field("slab", self.slab).finish()
    }
}

impl RawSlabHandle<'_> {
    /// The slab that this handle belongs to.
    #[must_use]
    pub fn slab(&self) -> &RawSlab {
        self.slab
    }

    /// Allocates an uninitialised slot: [`RawSlab::alloc`] in seven instructions on x86-64.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc`](Self::try_alloc) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[inline(always)]
    #[must_use]
    pub fn alloc(&self) -> NonNull<u8> {
        always(self.alloc_or::<PanicOrAbort>())
    }

    /// Allocates an uninitialised slot.
    ///
    /// # Errors
    /// Same as [`RawSlab::try_alloc`].
    #[inline(always)]
    pub fn try_alloc(&self) -> Result<NonNull<u8>, AllocError> {
        self.alloc_or::<ReturnError>()
    }

    #[inline(always)]
    pub(super) fn alloc_or<F: OnFailure>(&self) -> Result<NonNull<u8>, F::Error> {
        match self.alloc_fast() {
            Some(slot) => Ok(slot),
            None => self.slab.alloc_slowly::<F>(),
        }
    }

    /// Takes a slot from the cache, if that holds one.
    #[inline(always)]
    pub(super) fn alloc_fast(&self) -> Option<NonNull<u8>> {
        // SAFETY: `NO_CACHE`, or a cache of this thread that the handle keeps in use. The borrowed
        // slab keeps the cache's memory.
        unsafe { ThreadCache::pop(self.cache) }
    }

    /// Frees a slot: [`RawSlab::free`] in fourteen instructions on x86-64.
    ///
    /// In hardened mode, an address that no process can have (2^48 or more) may fault here instead
    /// of being reported.
    ///
    /// # Safety
    /// As for [`RawSlab::free`].
    #[inline(always)]
    pub unsafe fn free(&self, slot: NonNull<u8>) {
        // SAFETY: as in `RawSlab::free`. (The tag is also read for `NO_CACHE`, the only cache that
        // a checked slab has.)
        let tag = || unsafe { segment_map::tag_of_live(slot.addr().get()) };
        // SAFETY: as in `alloc_or`. The caller upholds the rest.
        unsafe {
            if !ThreadCache::push(self.cache, slot, tag) {
                self.slab.free_slowly(slot, self.cache);
            }
        }
    }
}

impl Drop for RawSlabHandle<'_> {
    fn drop(&mut self) {
        if !ptr::eq(self.cache, NO_CACHE) {
            // SAFETY: as in `alloc_or`.
            unsafe { thread_table::drop_handle(self.cache) };
        }
    }
}
