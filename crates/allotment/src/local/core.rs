//! What stays of a pool wherever its blocks are: its chunks, its lists, its life.
//!
//! # Invariants
//!
//! 1. A core is never unmapped: a `&'static Core` found by a block, a reference or a number is always valid.
//! 2. `blocks`, `outgoing` and `stacked` are touched by the thread that the state of `life` gives them to (life.rs), or, of a
//!    watched core, by who holds `lock`.
//! 3. `thread` is the token of the owner's thread while a pool owns the core, else 0. So a thread that finds its own there
//!    is the owner: it wrote it itself, and takes it back before it lets go. (A pool that was forgotten leaves its thread's
//!    token to a thread that gets the same one later: the first has ended then, and the second has the core to itself.)
//! 4. Every granule of the region that a core's chunks lie in notes the core as its owner.
//! 5. `generation` changes whenever a pool ends: a reference of the one before is then one of no pool.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::blocks::{Blocks, Growth, Piece, Supply};
use super::classes::class_of;
use super::life::{Life, Remote};
use super::watch::Watch;
use crate::error::{AllocError, ErrorKind, OnFailure, Report};
use crate::memory::apart::Apart;
use crate::memory::budget::Budget;
use crate::memory::lifo::{Lifo, Links};
use crate::memory::{os, region};
use crate::statistics::Record;

/// Blocks of another pool wait for so many others before they go to it together.
const MOST_OUTGOING: usize = 32;
/// A pool that is left with blocks in use looks for empty chunks if it holds so many times their bytes.
const SPARSE: usize = 4;
/// A large block on a remote list.
const LARGE: usize = usize::MAX;

/// What a thread is known by: the address of this, while it lives.
#[inline(always)]
pub(super) fn token() -> usize {
    CURRENT.with(|current| ptr::from_ref(current).addr())
}

thread_local! {
    /// The core of the pool that this thread entered last, or null.
    pub(super) static CURRENT: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

/// A pool's supply: granules of the region, charged to a budget.
#[derive(Debug)]
pub(super) struct FromRegion {
    pub budget: Option<Budget>,
    core: Cell<*const Core>,
}

/// Blocks of another core that this one's thread freed, not pushed yet.
#[derive(Debug)]
struct Outgoing {
    to: Cell<*const Core>,
    first: Cell<*mut Remote>,
    last: Cell<*mut Remote>,
    count: Cell<usize>,
}

/// A pool's core.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Core {
    thread: AtomicUsize,
    generation: AtomicU32,
    watched: AtomicBool,
    blocks: UnsafeCell<Blocks<FromRegion>>,
    outgoing: Outgoing,
    stacked: Cell<bool>,
    /// What was held after the last look for chunks that hold nothing.
    swept: Cell<usize>,
    lock: Mutex<bool>,
    number: u32,
    next: AtomicU32,
    life: Apart<Life>,
}

// SAFETY: what is not atomic is touched by one thread at a time (invariant 2).
unsafe impl Sync for Core {}

/// What a pool is made with, as far as its core knows it.
pub(super) struct Making {
    pub budget: Option<Budget>,
    pub growth: Growth,
    pub record: &'static Record,
    pub watch: Option<Box<Watch>>,
}

impl Core {
    /// A core for a pool of this thread: one that an ended pool left, or a new one.
    pub(super) fn acquire(making: Making) -> Result<&'static Self, AllocError> {
        let Making { budget, growth, record, watch } = making;
        // A parked core's chunks are charged to no budget, and known to no watch.
        let plain = budget.is_none() && watch.is_none();
        let core = match Self::pop(plain) {
            Some((core, was_parked)) => {
                // SAFETY: `pop` made it ours, and nobody else looks at its blocks (invariant 2).
                let blocks = unsafe { &mut *core.blocks.get() };
                if was_parked {
                    blocks.record.release();
                }
                blocks.account_under(record);
                if !plain {
                    // What was kept is charged to no budget.
                    blocks.give_spare();
                }
                core
            }
            None => Self::issue(Making { budget: None, growth, record, watch: None })?,
        };
        // SAFETY: ours, as above.
        let blocks = unsafe { &mut *core.blocks.get() };
        core.watched.store(watch.is_some(), Ordering::Relaxed);
        blocks.supply.budget = budget;
        blocks.growth = growth;
        blocks.watch = watch;
        core.stacked.set(false);
        core.swept.set(0);
        *core.locked() = false;
        core.thread.store(token(), Ordering::Relaxed);
        Ok(core)
    }

    /// The core at an address that was found in a reference or in the region.
    ///
    /// # Safety
    /// It is that of a core.
    #[inline(always)]
    pub(super) unsafe fn at(address: *const Self) -> &'static Self {
        // SAFETY: passed on to the caller; it stays (invariant 1).
        unsafe { &*address }
    }

    /// The core that owns an address in the region.
    #[inline(always)]
    pub(super) fn of(block: NonNull<u8>) -> &'static Self {
        let owner = region::owner_of(block.addr().get()).cast::<Self>();
        debug_assert!(!owner.is_null(), "a block lies in granules that are handed out");
        // SAFETY: granules note cores (invariant 4), and the block keeps its granule from going back.
        unsafe { Self::at(owner) }
    }

    #[inline(always)]
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether the calling thread owns it.
    #[inline(always)]
    pub(super) fn is_mine(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == token()
    }

    /// The blocks, for the owner.
    ///
    /// # Safety
    /// The calling thread owns the core, or has it by the state of its life.
    #[inline(always)]
    pub(super) unsafe fn blocks(&self) -> &Blocks<FromRegion> {
        // SAFETY: passed on to the caller (invariant 2); mutable references exist only while a pool is made.
        unsafe { &*self.blocks.get() }
    }

    fn is_watched(&self) -> bool {
        // Relaxed: written before the first block was handed out, by which the reader knows the core.
        self.watched.load(Ordering::Relaxed)
    }

    /// Of a watched core: whether its pool has ended.
    fn locked(&self) -> MutexGuard<'_, bool> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs watched work: under the lock, and outside of every pool, since it allocates.
    fn watched<R>(&self, work: impl FnOnce(&Blocks<FromRegion>, &mut bool) -> R) -> R {
        let _outside = Entered::new(ptr::null());
        let mut ended = self.locked();
        // SAFETY: we hold the lock (invariant 2).
        work(unsafe { self.blocks() }, &mut ended)
    }

    // ---- the owner ----

    /// A block.
    ///
    /// # Safety
    /// The calling thread owns the core.
    #[inline(always)]
    pub(super) unsafe fn alloc<F: OnFailure>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if let Some(class) = class_of(layout) {
            if let Some(block) = blocks.lists.take(class) {
                return Ok(block);
            }
        }
        self.alloc_new::<F>(layout)
    }

    #[inline(never)]
    fn alloc_new<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: the caller is `alloc`.
        let blocks = unsafe { self.blocks() };
        if let Some(class) = class_of(layout) {
            if self.life.has_remote() {
                self.take_remote();
                if let Some(block) = blocks.lists.take(class) {
                    return Ok(block);
                }
            }
            // A watched core carves for its watch alone, under its lock.
            if !self.is_watched() {
                if let Some(block) = blocks.lists.carve(class) {
                    return Ok(block);
                }
            }
        }
        self.alloc_slowly(layout).map_err(F::fail)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if self.is_watched() {
            return self.watched(|blocks, _| blocks.alloc_slowly(layout));
        }
        self.push_outgoing();
        // SAFETY: the caller is `alloc`.
        unsafe { self.blocks() }.alloc_slowly(layout)
    }

    /// Frees a block of this core.
    ///
    /// # Safety
    /// The calling thread owns the core; the block is its, of a layout of this size class, live until now.
    #[inline(always)]
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if let Some(class) = class_of(layout) {
            // SAFETY: passed on to the caller.
            if unsafe { blocks.lists.put(class, block) } {
                return;
            }
            blocks.lists.unput(class);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.free_slowly(block, layout) };
    }

    /// # Safety
    /// As for [`free`](Self::free), of a large block or of a watched core.
    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(&self, block: NonNull<u8>, layout: Layout) {
        if self.is_watched() {
            return self.free_watched(block, layout);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.blocks().free_large(block) };
    }

    /// # Safety
    /// The calling thread owns the core; as for [`Blocks::resize`].
    pub(super) unsafe fn resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller; a watched core's blocks say no before they look at anything.
        if unsafe { self.blocks().resize_in_place(block, old, new_size) } {
            return Ok(block);
        }
        // SAFETY: passed on to the caller; both blocks are the caller's, apart, and so long.
        unsafe {
            let new = Layout::from_size_align_unchecked(new_size, old.align());
            let fresh = self.alloc::<Report>(new)?;
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
            Ok(fresh)
        }
    }

    /// Puts back what other threads freed.
    pub(super) fn take_remote(&self) {
        if self.life.has_remote() {
            // SAFETY: the caller owns the core; the list is its blocks.
            unsafe { self.put_back(self.life.take()) };
        }
    }

    /// # Safety
    /// The caller has the core; the list holds blocks of it that were freed.
    unsafe fn put_back(&self, mut list: *mut Remote) {
        // SAFETY: passed on to the caller.
        unsafe {
            let blocks = self.blocks();
            while let Some(block) = NonNull::new(list) {
                let Remote { next, class } = block.read();
                list = next;
                if class == LARGE {
                    blocks.free_large(block.cast());
                } else {
                    blocks.lists.put(class, block.cast());
                }
            }
        }
    }

    /// Gives memory back that holds nothing; how many bytes.
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
        unsafe { blocks.clear(None) };
        held
    }

    /// The thread has left the pool: gives memory back that holds nothing, beyond so many bytes.
    ///
    /// # Safety
    /// The calling thread owns the core.
    pub(super) unsafe fn settle(&self, kept: usize) {
        if self.is_watched() {
            return;
        }
        self.take_remote();
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let held = blocks.held();
        if held <= kept {
            return;
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

    /// Blocks in use, and their bytes.
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

    // ---- other threads ----

    /// Frees a block of this core, on a thread that does not own it.
    ///
    /// # Safety
    /// The block is this core's, of a layout of this size class, live until now.
    #[inline(never)]
    pub(super) unsafe fn free_remote(&self, block: NonNull<u8>, layout: Layout) {
        if self.is_watched() {
            return self.free_watched(block, layout);
        }
        let remote = block.cast::<Remote>();
        let class = class_of(layout).unwrap_or(LARGE);
        // SAFETY: the caller's block, of at least a step.
        unsafe { remote.write(Remote { next: ptr::null_mut(), class }) };
        let mine = CURRENT.with(Cell::get);
        if mine.is_null() {
            // SAFETY: as written above.
            return unsafe { self.push_remote(remote.as_ptr(), remote.as_ptr()) };
        }
        // SAFETY: a thread that has entered a pool owns its core.
        unsafe { Self::at(mine) }.send(self, remote.as_ptr());
    }

    /// Lets a block of another core wait for others.
    fn send(&self, to: &Self, block: *mut Remote) {
        let out = &self.outgoing;
        if !ptr::eq(out.to.get(), to) {
            self.push_outgoing();
            out.to.set(to);
        }
        if out.count.get() == 0 {
            out.last.set(block);
        }
        // SAFETY: the caller's block, which holds a `Remote`.
        unsafe { (*block).next = out.first.replace(block) };
        out.count.set(out.count.get() + 1);
        if out.count.get() >= MOST_OUTGOING {
            self.push_outgoing();
        }
    }

    /// Sends what waits to other pools.
    pub(super) fn push_outgoing(&self) {
        let out = &self.outgoing;
        if out.count.replace(0) > 0 {
            let first = out.first.replace(ptr::null_mut());
            // SAFETY: blocks of that core, which the thread freed.
            unsafe { Self::at(out.to.replace(ptr::null())).push_remote(first, out.last.get()) };
        }
    }

    /// # Safety
    /// As for [`Life::push`].
    unsafe fn push_remote(&self, first: *mut Remote, last: *mut Remote) {
        // SAFETY: passed on to the caller.
        if unsafe { self.life.push(first, last) } {
            self.life.collect(|list| {
                // SAFETY: `collect` gives us the core, and its list.
                unsafe { self.put_back_parked(list) }
            });
            self.stack_if_empty();
        }
    }

    /// Puts blocks back for a parked core; whether nothing lives any more. Then its memory has gone.
    ///
    /// # Safety
    /// The caller has the core by the state of its life; the list is its.
    unsafe fn put_back_parked(&self, list: *mut Remote) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            self.put_back(list);
            let blocks = self.blocks();
            let empty = blocks.live().0 == 0;
            if empty {
                blocks.clear(None);
                blocks.record.release();
            } else {
                blocks.note_live();
            }
            empty
        }
    }

    fn free_watched(&self, block: NonNull<u8>, layout: Layout) {
        let last = self.watched(|blocks, ended| {
            // A pool that ended let nothing rest: what is freed now is not handed out again.
            blocks.watch.as_deref().expect("watched").free(blocks, block, layout);
            let last = *ended && blocks.live().0 == 0;
            if last {
                // SAFETY: nothing is live.
                unsafe { blocks.clear(None) };
                blocks.record.release();
            }
            last
        });
        if last {
            self.life.end(|_| true);
            self.stack_if_empty();
        }
    }

    // ---- the pool's end, and the next one's beginning ----

    /// The pool ends. Keeps so many bytes of empty chunks for the next one if nothing lives, else what lives lies in.
    ///
    /// # Safety
    /// The calling thread owns the core, and doesn't use it any more.
    pub(super) unsafe fn end(&self, keep: usize) {
        self.push_outgoing();
        self.thread.store(0, Ordering::Relaxed);
        self.generation.store(self.generation().wrapping_add(1), Ordering::Relaxed);
        if self.is_watched() {
            let empty = self.watched(|blocks, ended| {
                blocks.watch.as_deref().expect("watched").end_rest(blocks);
                *ended = true;
                let empty = blocks.live().0 == 0;
                if empty {
                    // SAFETY: nothing is live.
                    unsafe { blocks.clear(None) };
                    blocks.record.release();
                }
                empty
            });
            if empty {
                self.life.end(|_| true);
                self.stack_if_empty();
            }
            return;
        }
        // SAFETY: passed on to the caller.
        let has_budget = unsafe { self.blocks() }.supply.budget.is_some();
        // Whoever empties it later leaves it to us to stack it, unless it has a budget: then nobody may adopt it before.
        self.stacked.set(!has_budget);
        let mut first = true;
        self.life.end(|list| {
            // SAFETY: passed on to the caller; later the state of its life gives us the core.
            unsafe {
                self.put_back(list);
                let blocks = self.blocks();
                let empty = blocks.live().0 == 0;
                if empty {
                    blocks.clear((!has_budget).then_some(keep));
                    blocks.unreserve();
                    blocks.record.release();
                } else if first {
                    blocks.sweep();
                }
                first = false;
                empty
            }
        });
        if has_budget {
            self.stack_if_empty();
        } else {
            STACK.push(&Cores, self.number);
        }
    }

    /// Offers the core to the next pool, if it is empty and not offered.
    fn stack_if_empty(&self) {
        if self.life.adopt_empty() {
            // Ours for the moment.
            let stacked = self.stacked.replace(true);
            self.life.release_empty();
            if !stacked {
                STACK.push(&Cores, self.number);
            }
        }
    }

    /// An ended pool's core, and whether it was parked; only an empty one unless `parked` will do.
    fn pop(parked: bool) -> Option<(&'static Self, bool)> {
        // Cores that won't do go back in the end.
        let mut unfit: Option<&'static Self> = None;
        let found = loop {
            let Some(number) = STACK.pop(&Cores) else { break None };
            let core = Cores::core(number);
            if core.life.adopt_empty() {
                break Some((core, false));
            }
            if parked && core.life.adopt_parked() {
                break Some((core, true));
            }
            if let Some(other) = unfit.replace(core) {
                STACK.push(&Cores, other.number);
                break None;
            }
        };
        if let Some(core) = unfit {
            STACK.push(&Cores, core.number);
        }
        found
    }

    fn issue(making: Making) -> Result<&'static Self, AllocError> {
        let number = ISSUED.fetch_add(1, Ordering::Relaxed);
        let refused = AllocError::new(ErrorKind::SourceRefused, size_of::<Self>());
        let slot = CORES.get(number as usize).ok_or(refused)?;
        let size = size_of::<Self>().next_multiple_of(os::page_size());
        // The number is lost when this fails: a number, and no memory.
        let core = os::map(size, align_of::<Self>())?.cast::<Self>();
        let supply = FromRegion { budget: making.budget, core: Cell::new(core.as_ptr()) };
        let blocks = Blocks::new(supply, making.growth, making.record, making.watch);
        let outgoing = Outgoing {
            to: Cell::new(ptr::null()),
            first: Cell::new(ptr::null_mut()),
            last: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
        };
        let fresh = Self {
            thread: AtomicUsize::new(0),
            generation: AtomicU32::new(1),
            watched: AtomicBool::new(false),
            blocks: UnsafeCell::new(blocks),
            outgoing,
            stacked: Cell::new(false),
            swept: Cell::new(0),
            lock: Mutex::new(false),
            number,
            next: AtomicU32::new(0),
            life: Apart(Life::new()),
        };
        // SAFETY: mapped just now, large enough and aligned; it stays (invariant 1).
        let core = unsafe {
            core.write(fresh);
            core.as_ref()
        };
        core.life.adopt_empty();
        let _ = ptr::from_ref(core).expose_provenance();
        // Release pairs with the Acquire in `Cores::core`.
        slot.store(ptr::from_ref(core).cast_mut(), Ordering::Release);
        Ok(core)
    }
}

/// At most so many pools at a time.
const MAX_CORES: usize = 1 << 16;
static CORES: [AtomicPtr<Core>; MAX_CORES] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CORES];
static ISSUED: AtomicU32 = AtomicU32::new(0);
/// Cores that ended pools left.
static STACK: Lifo = Lifo::new();

struct Cores;

impl Cores {
    fn core(number: u32) -> &'static Core {
        // SAFETY: a number on the stack is one of a core, which stays.
        unsafe { &*CORES[number as usize].load(Ordering::Acquire) }
    }
}

impl Links for Cores {
    fn next(&self, index: u32) -> &AtomicU32 {
        &Self::core(index).next
    }
}

/// While it lives, another pool, or none, is the current one.
pub(super) struct Entered(*const Core);

impl Entered {
    pub(super) fn new(core: *const Core) -> Self {
        Self(CURRENT.with(|current| current.replace(core)))
    }

    /// The pool that was current before.
    pub(super) fn before(&self) -> *const Core {
        self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

impl Supply for FromRegion {
    fn align(&self) -> usize {
        region::GRANULE
    }

    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, need);
        let least = need.checked_next_multiple_of(region::GRANULE).ok_or(overflow)?;
        let wanted = least.max((grown * 2).min(crate::memory::layout::MAX_GROWTH));
        let owner = NonNull::new(self.core.get().cast_mut().cast()).expect("a core's own supply");
        let take = |size: usize| {
            self.charge(size)?;
            let start =
                region::take(size / region::GRANULE, owner).inspect_err(|_| self.credit(size))?;
            Ok(Piece { start, size, align: region::GRANULE, link: 0, recycled: false })
        };
        take(wanted).or_else(|error| if least < wanted { take(least) } else { Err(error) })
    }

    unsafe fn give(&self, pieces: &mut dyn Iterator<Item = Piece>, total: usize) -> usize {
        let mut calls = 0;
        for piece in pieces {
            // SAFETY: passed on to the caller.
            unsafe { region::give(piece.start, piece.size / region::GRANULE) };
            calls += 1;
        }
        self.credit(total);
        calls
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        self.budget.as_ref().map_or(Ok(()), |budget| budget.charge(bytes))
    }

    fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.credit(bytes);
        }
    }
}
