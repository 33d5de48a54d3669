//! `Shared`: the part of a pool that outlives it and stays at one address. It holds the chunks, the
//! free lists and the ownership.
//!
//! # Invariants
//!
//! 1. A core is never unmapped: a `&'static Shared` found by a block, a reference or a number is
//!    always valid.
//! 2. `blocks`, `outgoing` and `stacked` are accessed only by the thread that the state of `life`
//!    gives them to (life.rs), or, in a watched core, by the thread that holds `lock`.
//! 3. `thread` is the token of the owning thread while a pool owns the core, else 0. So a thread
//!    that finds its own token there is the owner: it wrote the token itself, and clears it before
//!    it gives up the core. (A pool that was forgotten leaves its thread's token behind. A later
//!    thread may get the same token; the first thread has ended by then, and the later one has the
//!    core to itself.)
//! 4. The owner that the region notes for each granule of a core's chunks is that core.
//! 5. `reference` is the reference to the pool that owns the core, else 0. Each pool's reference is
//!    different, until 2^22 later pools have had the core.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::blocks::Blocks;
use super::classes::{Class, class_of, common_class_of};
use super::current::{CURRENT, Entered, token};
use super::from_region::FromRegion;
use super::heap::{global_alloc, global_free, global_resize};
use super::ownership::Ownership;
use super::pieces::Growth;
use super::remote::Outgoing;
use crate::checked::Ledger;
use crate::error::{AllocError, OnFailure, Report};
use crate::memory::budget::Budget;
use crate::memory::cache_padded::CachePadded;
use crate::memory::{os, region};
use crate::statistics::Record;

/// The lowest bits of a reference hold the pool's generation, the others the core's address without
/// its alignment bits.
const GENERATION_BITS: u32 = 22;
const ALIGN_BITS: u32 = align_of::<Shared>().ilog2();
/// A pool with live blocks searches for empty chunks only if it holds more than this many times
/// their bytes.
const SPARSE: usize = 4;

/// How a pool serves its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Normally.
    Plain,
    /// Checked blocks: each call takes the slow path, under the lock.
    Watched,
    /// Everything goes to the global heap, for debugging.
    Passthrough,
}

pub(super) const WATCHED: u8 = 1;
pub(super) const PASSTHROUGH: u8 = 2;

/// The part of a pool that outlives it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Shared {
    pub(super) blocks: UnsafeCell<Blocks<FromRegion>>,
    pub(super) thread: AtomicUsize,
    /// The reference to the pool that owns the core, or 0.
    pub(super) reference: AtomicU64,
    pub(super) generation: Cell<u64>,
    pub(super) mode: AtomicU8,
    pub(super) outgoing: Outgoing,
    pub(super) stacked: Cell<bool>,
    /// The bytes held after the last search for empty chunks.
    pub(super) swept: Cell<usize>,
    /// When the pool was first found to hold more than it keeps, in milliseconds, or 0.
    pub(super) over_since: Cell<u64>,
    lock: Mutex<bool>,
    pub(super) number: u32,
    pub(super) next: AtomicU32,
    pub(super) life: CachePadded<Ownership>,
}

// SAFETY: what is not atomic is accessed by one thread at a time (invariant 2).
unsafe impl Sync for Shared {}

/// A new pool's options, as far as its core needs them.
pub(super) struct Making {
    pub budget: Option<Budget>,
    pub growth: Growth,
    pub record: &'static Record,
    pub ledger: Option<Box<Ledger>>,
    pub passthrough: bool,
    /// The pool reports its live blocks when it ends, so it takes over none from an ended pool.
    pub reports_live: bool,
}

impl Shared {
    pub(super) fn new(
        at: *const Self,
        number: u32,
        growth: Growth,
        record: &'static Record,
    ) -> Self {
        let supply = FromRegion { budget: None, core: Cell::new(at) };
        Self {
            blocks: UnsafeCell::new(Blocks::new(supply, growth, record, None)),
            thread: AtomicUsize::new(0),
            reference: AtomicU64::new(0),
            generation: Cell::new(0),
            mode: AtomicU8::new(0),
            outgoing: Outgoing::none(),
            stacked: Cell::new(false),
            swept: Cell::new(0),
            over_since: Cell::new(0),
            lock: Mutex::new(false),
            number,
            next: AtomicU32::new(0),
            life: CachePadded(Ownership::new()),
        }
    }

    /// Returns the core at an address that was found in a reference or in the region.
    ///
    /// # Safety
    /// The address is that of a core.
    #[inline(always)]
    pub(super) unsafe fn at(address: *const Self) -> &'static Self {
        // SAFETY: passed on to the caller; cores are never unmapped (invariant 1).
        unsafe { &*address }
    }

    /// Returns the core that owns a block, if a pool does.
    #[inline(always)]
    pub(super) fn of(block: NonNull<u8>) -> Option<&'static Self> {
        if !region::may_hold(block.addr().get()) {
            return None;
        }
        let owner = region::owner_of(block.addr().get()).cast::<Self>();
        // SAFETY: the region's owners are cores or null (invariant 4), and cores are never
        // unmapped. A live block keeps its granule from being given back.
        unsafe { owner.as_ref() }
    }

    /// Returns the reference to the pool that owns the core, or 0.
    #[inline(always)]
    pub(super) fn reference(&self) -> u64 {
        self.reference.load(Ordering::Relaxed)
    }

    /// Returns the core of a reference that is not 0.
    #[inline(always)]
    pub(super) fn of_reference(reference: u64) -> &'static Self {
        let address = (reference >> GENERATION_BITS << ALIGN_BITS) as usize;
        // SAFETY: `next_reference` made it from a core's address, which was exposed; cores are
        // never unmapped (invariant 1).
        unsafe { &*ptr::with_exposed_provenance(address) }
    }

    /// Whether the number could be a reference to a pool of some core.
    pub(super) fn is_known(reference: u64) -> bool {
        let address = (reference >> GENERATION_BITS << ALIGN_BITS) as usize;
        Self::all().any(|core| ptr::from_ref(core).addr() == address)
    }

    /// Makes the reference for the next pool of this core.
    pub(super) fn next_reference(&self) -> u64 {
        let generation = (self.generation.get() + 1) % (1 << GENERATION_BITS);
        self.generation.set(generation);
        let address = ptr::from_ref(self).expose_provenance() as u64;
        (address >> ALIGN_BITS) << GENERATION_BITS | generation
    }

    /// Whether the calling thread owns the core.
    #[inline(always)]
    pub(super) fn is_mine(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == token()
    }

    /// Whether this core's pool is the thread's current pool: the one entered last.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        ptr::eq(CURRENT.with(Cell::get), self)
    }

    /// Returns the blocks, for the owner.
    ///
    /// # Safety
    /// The calling thread owns the core, or the state of `life` gives it the core.
    #[inline(always)]
    pub(super) unsafe fn blocks(&self) -> &Blocks<FromRegion> {
        // SAFETY: passed on to the caller (invariant 2). Mutable references exist only while a pool
        // is made.
        unsafe { &*self.blocks.get() }
    }

    pub(super) fn mode(&self) -> Mode {
        // Relaxed: written before the first block was handed out, and the reader found the core by
        // one of its blocks.
        match self.mode.load(Ordering::Relaxed) {
            WATCHED => Mode::Watched,
            PASSTHROUGH => Mode::Passthrough,
            _ => Mode::Plain,
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.mode() == Mode::Watched
    }

    /// Locks a watched core. The value is whether its pool has ended.
    pub(super) fn locked(&self) -> MutexGuard<'_, bool> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work on a watched core's blocks: under the lock, and outside every pool, because it
    /// allocates.
    pub(super) fn watched<R>(&self, work: impl FnOnce(&Blocks<FromRegion>, &mut bool) -> R) -> R {
        let _outside = Entered::new(ptr::null());
        let mut ended = self.locked();
        // SAFETY: we hold the lock (invariant 2).
        work(unsafe { self.blocks() }, &mut ended)
    }

    // ---- the owner ----

    /// Takes a block from a free list, for a layout of one of the most common classes.
    ///
    /// # Safety
    /// The calling thread owns the core.
    #[inline(always)]
    pub(super) unsafe fn alloc_free(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        let lists = &unsafe { self.blocks() }.lists;
        common_class_of(layout).and_then(|class| lists.take(class))
    }

    /// Allocates a block.
    ///
    /// # Safety
    /// The calling thread owns the core.
    #[inline(always)]
    pub(super) unsafe fn alloc<F: OnFailure>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        match common_class_of(layout) {
            // SAFETY: passed on to the caller.
            Some(class) => match unsafe { self.blocks() }.lists.take(class) {
                Some(block) => Ok(block),
                None => self.alloc_new::<F>(class, layout),
            },
            None => self.alloc_others::<F>(layout),
        }
    }

    /// Allocates a block or returns `None`, for a global allocator, whose caller gets no error.
    ///
    /// # Safety
    /// The calling thread owns the core.
    #[inline(never)]
    pub(super) unsafe fn alloc_or_none(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        unsafe { self.alloc::<Report>(layout) }.ok()
    }

    #[inline(never)]
    fn alloc_new<F: OnFailure>(
        &self,
        class: Class,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        // Blocks that other threads freed are used before new ones are carved.
        if !self.life.has_remote() {
            // SAFETY: the caller is `alloc`, whose caller owns the core.
            if let Some(block) = unsafe { self.blocks() }.lists.carve_common(class) {
                return Ok(block);
            }
        }
        self.alloc_others::<F>(layout)
    }

    #[cold]
    #[inline(never)]
    fn alloc_others<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.alloc_slowly(layout).map_err(F::fail)
    }

    fn alloc_slowly(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.mode() {
            Mode::Plain => {
                self.take_remote();
                self.push_outgoing();
                // SAFETY: as in `alloc_new`: the caller of `alloc` owns the core.
                unsafe { self.blocks() }.alloc_slowly(layout)
            }
            Mode::Watched => self.watched(|blocks, _| blocks.alloc_slowly(layout)),
            Mode::Passthrough => global_alloc(layout),
        }
    }

    /// Frees a block of this core.
    ///
    /// # Safety
    /// The calling thread owns the core. The block belongs to it, was allocated with a layout of
    /// this size class, and has not been freed.
    #[inline(always)]
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        let lists = &unsafe { self.blocks() }.lists;
        match common_class_of(layout) {
            // SAFETY: passed on to the caller.
            Some(class) if unsafe { lists.put(class, block) } => {}
            // SAFETY: passed on to the caller.
            _ => unsafe { Self::free_others(block, layout.size(), layout.align(), self) },
        }
    }

    /// The parameters are those of a global allocator's free, in the same order, and the core: the
    /// caller passes them on without moving registers.
    ///
    /// # Safety
    /// As for [`free`](Self::free), where no list took the block.
    #[inline(never)]
    unsafe fn free_others(block: NonNull<u8>, size: usize, align: usize, core: &Self) {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            match core.mode() {
                Mode::Plain => core.blocks().free(block, layout),
                mode => {
                    core.blocks().lists.unput(layout);
                    if mode == Mode::Passthrough {
                        global_free(block, layout);
                    } else {
                        core.free_watched(block, layout);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As for [`Blocks::resize`]; and the calling thread owns the core.
    pub(super) unsafe fn resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: the caller ensures that the new size is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        if let (Some(from), Some(to)) = (common_class_of(old), common_class_of(new)) {
            // Work that repeats itself finds a free block of the next class here. In the other
            // modes the lists are empty.
            // SAFETY: passed on to the caller.
            let lists = &unsafe { self.blocks() }.lists;
            if from != to {
                if let Some(fresh) = lists.take(to) {
                    // SAFETY: two different blocks of the caller's, both at least as long as the
                    // copy; the old one is of class `from`.
                    unsafe {
                        fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
                        lists.put(from, block);
                    }
                    return Ok(fresh);
                }
            } else if self.mode() == Mode::Plain {
                return Ok(block);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.resize_slowly(block, old, new_size) }
    }

    /// # Safety
    /// As for [`resize`](Self::resize).
    #[inline(never)]
    unsafe fn resize_slowly(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        if self.mode() == Mode::Passthrough {
            // SAFETY: passed on to the caller.
            return unsafe { global_resize(block, old, new_size) };
        }
        // SAFETY: passed on to the caller. The blocks of a watched core return `false` before they
        // read anything.
        if unsafe { self.blocks().resize_in_place(block, old, new_size) } {
            return Ok(block);
        }
        // SAFETY: passed on to the caller. Two different blocks of the caller's, both at least as
        // long as the copy.
        unsafe {
            let new = Layout::from_size_align_unchecked(new_size, old.align());
            let fresh = match class_of(new) {
                None if self.mode() == Mode::Plain => self.blocks().alloc_grown(old, new)?,
                _ => self.alloc::<Report>(new)?,
            };
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
            Ok(fresh)
        }
    }

    /// Gives back chunks that hold no live block. Returns the number of bytes given back.
    ///
    /// # Safety
    /// The calling thread owns the core.
    pub(super) unsafe fn trim(&self) -> usize {
        if self.is_watched() {
            return self.watched(|blocks, _| blocks.sweep());
        }
        self.push_outgoing();
        self.take_remote();
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if blocks.live().0 > 0 {
            return blocks.sweep();
        }
        let held = blocks.held();
        // SAFETY: nothing is live.
        unsafe { blocks.clear(Some(0)) };
        held - blocks.held()
    }

    /// Applies the release policy after the thread has left its outermost pool: gives back empty
    /// chunks beyond `kept` bytes, once the pool has held more than that for `patience`
    /// milliseconds.
    ///
    /// # Safety
    /// The calling thread owns the core.
    pub(super) unsafe fn settle(&self, kept: usize, patience: u64) {
        if self.mode() != Mode::Plain {
            return;
        }
        self.take_remote();
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let held = blocks.held();
        if held <= kept {
            return self.over_since.set(0);
        }
        if patience > 0 {
            let now = os::coarse_millis().max(1);
            match self.over_since.get() {
                0 => return self.over_since.set(now),
                since if now.saturating_sub(since) < patience => return,
                _ => self.over_since.set(0),
            }
        }
        let (live, bytes) = blocks.live();
        if live == 0 {
            // SAFETY: nothing is live.
            unsafe { blocks.clear(Some(kept)) };
        } else if held > SPARSE * bytes && held > 2 * self.swept.get() {
            blocks.sweep();
            self.swept.set(blocks.held());
        }
    }

    /// Returns the number of live blocks and their bytes.
    ///
    /// # Safety
    /// The calling thread owns the core.
    pub(super) unsafe fn live(&self) -> (usize, usize) {
        if self.is_watched() {
            return self.watched(|blocks, _| blocks.live());
        }
        self.take_remote();
        // SAFETY: passed on to the caller.
        unsafe { self.blocks() }.live()
    }
}
