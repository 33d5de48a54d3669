//! `PoolShared`: the part of a pool that outlives it and stays at one address. It holds the chunks,
//! the free lists and the ownership.
//!
//! # Invariants
//!
//! 1. A `PoolShared` is never unmapped: a `&'static PoolShared` found by a block, a reference or an
//!    index is always valid. Only that of a pool in pass-through mode is: it has no block, no
//!    reference and no index, and is never current.
//! 2. What is not atomic is accessed only by the thread to which the state of `ownership` gives it
//!    (ownership.rs); in checked mode `blocks` is accessed by any thread that holds `checked_lock`,
//!    until the pool has ended and is empty.
//! 3. `owner_token` is the token of the owning thread while a pool owns this value, else 0. So a
//!    thread that finds its own token there is the owner: it wrote the token itself, and clears it
//!    before it gives up the ownership. (A pool that was forgotten leaves its thread's token
//!    behind. A later thread may get the same token; the first thread has ended by then, so the
//!    later one has exclusive access. In a child made by fork, `parked.rs` clears the tokens of the
//!    threads that the child lacks.)
//! 4. The owner that the region notes for each granule of a pool's chunks is the pool's
//!    `PoolShared`.
//! 5. `reference` is the reference to the pool that owns this value, else 0. Each pool's reference
//!    is different, until 2^22 later pools have used the same `PoolShared`.
//! 6. The thread's current pool (current.rs) is null or a `PoolShared` that the thread owns.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::block_allocator::BlockAllocator;
use super::chunk_supply::ChunkGrowth;
use super::current::{CurrentPoolGuard, current_address, replace_current, thread_token};
use super::global_heap::{global_alloc, global_free, global_resize};
use super::outgoing::OutgoingBatch;
use super::ownership::Ownership;
use super::region_supply::RegionSupply;
use super::size_classes::SizeClass;
use super::sweep::Sweep;
use crate::error::{AllocError, ErrorKind, OnFailure, OnRefusal, ReturnError};
use crate::memory::cache_padded::CachePadded;
use crate::memory::fork_mutex::{ForkMutex, ForkMutexGuard};
use crate::memory::region;
use crate::memory::relaxed_access::relaxed_load_at;
use crate::statistics::Record;

/// The lowest bits of a reference hold the pool's generation, the others the address of its
/// `PoolShared` without the alignment bits.
const GENERATION_BITS: u32 = 22;
const ALIGN_BITS: u32 = align_of::<PoolShared>().ilog2();

/// The index of a value that is in no table: that of a pool in pass-through mode. It is unmapped when
/// the pool ends.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// How a pool serves its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PoolMode {
    /// From its chunks.
    Normal,
    /// From its chunks, with checks: each call takes the slow path, under the lock.
    Checked,
    /// Everything goes to the global heap, for debugging.
    Passthrough,
}

/// What the lock of checked mode says about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckedState {
    /// The pool has not ended, or it is not checked: its owner may use the blocks.
    Owned,
    /// The pool has ended, and blocks are live.
    Ended,
    /// The pool has ended, and no block is live. A thread that adopts it uses the blocks without
    /// the lock.
    Empty,
}

/// A search for empty chunks may look at this number of free blocks for each refused allocation.
const SEARCHED_PER_REFUSAL: usize = 16;

/// The part of a pool that outlives it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct PoolShared {
    pub(super) blocks: UnsafeCell<BlockAllocator<RegionSupply>>,
    pub(super) owner_token: AtomicUsize,
    /// The reference to the pool that owns this value, or 0.
    pub(super) reference: AtomicU64,
    generation: Cell<u64>,
    /// A `PoolMode`.
    mode: AtomicU8,
    pub(super) outgoing: OutgoingBatch<PoolShared>,
    pub(super) on_refusal: Cell<OnRefusal>,
    /// The bytes that the global heap served because the pool refused them.
    pub(super) refused_bytes: Cell<usize>,
    /// The number of refusals for which empty chunks are not searched for.
    pub(super) unsearched_refusals: Cell<usize>,
    /// This value's index is on one of the stacks of parked.rs.
    pub(super) on_stack: Cell<bool>,
    /// The bytes held after the last search for empty chunks.
    pub(super) held_after_sweep: Cell<usize>,
    /// The bytes that were live at the last search for empty chunks.
    pub(super) live_at_sweep: Cell<usize>,
    /// When the next search for empty chunks may begin, in milliseconds.
    pub(super) next_sweep: Cell<u64>,
    /// The number of live blocks, while no pool owns this value.
    pub(super) parked_blocks: Cell<usize>,
    /// The bytes of empty chunks that the pool keeps.
    pub(super) keep: Cell<usize>,
    /// How long it may hold more than that, in milliseconds.
    pub(super) delay_ms: Cell<u64>,
    /// Slow allocations since the release policy was applied inside the pool.
    pub(super) slow_allocs: Cell<u32>,
    /// When the pool was first found to hold more than it keeps, in milliseconds, or 0.
    pub(super) over_limit_since: Cell<u64>,
    checked_lock: ForkMutex<CheckedState>,
    /// The index in the table of parked.rs, or [`NO_INDEX`].
    pub(super) index: u32,
    pub(super) next_on_stack: AtomicU32,
    pub(super) ownership: CachePadded<Ownership>,
}

// SAFETY: what is not atomic is accessed by one thread at a time (invariant 2).
unsafe impl Sync for PoolShared {}

impl PoolShared {
    /// Makes the value that will lie at `address`, with this index.
    pub(super) fn new(
        address: NonNull<Self>,
        index: u32,
        growth: ChunkGrowth,
        record: &'static Record,
    ) -> Self {
        let supply = RegionSupply::new(address.cast());
        Self {
            blocks: UnsafeCell::new(BlockAllocator::new(supply, growth, record, None)),
            owner_token: AtomicUsize::new(0),
            reference: AtomicU64::new(0),
            generation: Cell::new(0),
            mode: AtomicU8::new(PoolMode::Normal as u8),
            outgoing: OutgoingBatch::empty(),
            on_refusal: Cell::new(OnRefusal::ReturnError),
            refused_bytes: Cell::new(0),
            unsearched_refusals: Cell::new(0),
            on_stack: Cell::new(false),
            held_after_sweep: Cell::new(0),
            live_at_sweep: Cell::new(0),
            next_sweep: Cell::new(0),
            parked_blocks: Cell::new(0),
            keep: Cell::new(0),
            delay_ms: Cell::new(0),
            slow_allocs: Cell::new(0),
            over_limit_since: Cell::new(0),
            checked_lock: ForkMutex::new(CheckedState::Owned),
            index,
            next_on_stack: AtomicU32::new(0),
            ownership: CachePadded(Ownership::new()),
        }
    }

    /// Returns the shared part of the thread's current pool: the one entered last.
    #[inline(always)]
    pub(super) fn current() -> Option<&'static Self> {
        // SAFETY: null or a `PoolShared` (invariant 6), which is never unmapped (invariant 1).
        unsafe { current_address().cast::<Self>().as_ref() }
    }

    /// Whether this value's pool is the thread's current pool.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        ptr::eq(current_address().cast(), self)
    }

    /// Makes the pool current that was current before, unless it has ended since. (Coroutines with
    /// a stack of their own leave pools in any order.) In that case the thread is in no pool, or in
    /// the pool that the thread made from the same shared part.
    ///
    /// # Safety
    /// `previous` is what [`replace_current`] returned on this thread.
    #[inline(always)]
    pub(super) unsafe fn return_to(previous: *const ()) {
        // SAFETY: null or a `PoolShared` (invariant 6), which is never unmapped (invariant 1).
        let shared = unsafe { previous.cast::<Self>().as_ref() };
        let is_owned = shared.is_some_and(Self::is_owned_by_this_thread);
        // SAFETY: null, or a `PoolShared` that this thread owns. When it ends, it stops being the
        // current one.
        unsafe { replace_current(if is_owned { previous } else { ptr::null() }) };
    }

    /// Returns the shared part of the pool that owns a block, if a pool does.
    #[inline(always)]
    pub(super) fn of_block(block: NonNull<u8>) -> Option<&'static Self> {
        if !region::may_hold(block.addr().get()) {
            return None;
        }
        let owner = region::owner_of(block.addr().get()).cast::<Self>();
        // SAFETY: the region's owners are values of this type or null (invariant 4), and those are
        // never unmapped. A live block keeps its granule from being released.
        unsafe { owner.as_ref() }
    }

    /// Returns the reference to the pool that owns this value, or 0.
    #[inline(always)]
    pub(super) fn reference(&self) -> u64 {
        self.reference.load(Ordering::Relaxed)
    }

    /// As [`reference`](Self::reference), for the owner. Only the owner changes the reference, so
    /// this is an ordinary load (see memory/relaxed_access.rs).
    ///
    /// # Safety
    /// The calling thread owns this value.
    #[inline(always)]
    pub(super) unsafe fn own_reference(&self) -> u64 {
        // SAFETY: no other thread writes the reference, as the caller guarantees.
        unsafe { self.reference.as_ptr().read() }
    }

    /// Returns the shared part that a reference other than 0 leads to.
    #[inline(always)]
    pub(super) fn of_reference(reference: u64) -> &'static Self {
        // SAFETY: `next_reference` made it from the address of a `PoolShared`, which was exposed;
        // those are never unmapped (invariant 1).
        unsafe { &*ptr::with_exposed_provenance(Self::address_in(reference)) }
    }

    /// Returns the address that a reference contains.
    #[inline(always)]
    pub(super) fn address_in(reference: u64) -> usize {
        (reference >> GENERATION_BITS << ALIGN_BITS) as usize
    }

    /// Makes the reference for the next pool of this value.
    pub(super) fn next_reference(&self) -> u64 {
        let generation = (self.generation.get() + 1) % (1 << GENERATION_BITS);
        self.generation.set(generation);
        let address = ptr::from_ref(self).expose_provenance() as u64;
        (address >> ALIGN_BITS) << GENERATION_BITS | generation
    }

    /// Whether the calling thread owns this value.
    #[inline(always)]
    pub(super) fn is_owned_by_this_thread(&self) -> bool {
        // SAFETY: the field is an `AtomicUsize`.
        let owner = unsafe {
            relaxed_load_at::<{ offset_of!(Self, owner_token) }>(ptr::from_ref(self).cast())
        };
        owner as usize == thread_token()
    }

    /// Returns the blocks, for the owner.
    ///
    /// # Safety
    /// The calling thread owns this value, or the state of `ownership` gives it exclusive access.
    #[inline(always)]
    pub(super) unsafe fn blocks(&self) -> &BlockAllocator<RegionSupply> {
        // SAFETY: passed on to the caller (invariant 2). Mutable references exist only while a pool
        // is made.
        unsafe { &*self.blocks.get() }
    }

    pub(super) fn mode(&self) -> PoolMode {
        // Relaxed: written before the first block was handed out, and the reader found this value
        // by one of its blocks.
        match self.mode.load(Ordering::Relaxed) {
            mode if mode == PoolMode::Checked as u8 => PoolMode::Checked,
            mode if mode == PoolMode::Passthrough as u8 => PoolMode::Passthrough,
            _ => PoolMode::Normal,
        }
    }

    pub(super) fn set_mode(&self, mode: PoolMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(super) fn is_checked(&self) -> bool {
        self.mode() == PoolMode::Checked
    }

    /// Takes the lock of checked mode.
    pub(super) fn lock_checked(&self) -> ForkMutexGuard<'_, CheckedState> {
        self.checked_lock.lock()
    }

    /// Runs work on the blocks in checked mode: under the lock, and outside every pool, because it
    /// allocates.
    pub(super) fn with_checked<R>(
        &self,
        work: impl FnOnce(&BlockAllocator<RegionSupply>, &mut CheckedState) -> R,
    ) -> R {
        let _outside = CurrentPoolGuard::outside();
        let mut state = self.lock_checked();
        // SAFETY: this thread holds the lock (invariant 2).
        work(unsafe { self.blocks() }, &mut state)
    }

    /// The same with exclusive access, for the pool's end.
    ///
    /// # Safety
    /// The calling thread owns this value. (An owner's fast paths read the empty lists without the
    /// lock.)
    pub(super) unsafe fn with_checked_mut<R>(
        &self,
        work: impl FnOnce(&mut BlockAllocator<RegionSupply>, &mut CheckedState) -> R,
    ) -> R {
        let _outside = CurrentPoolGuard::outside();
        let mut state = self.lock_checked();
        // SAFETY: this thread holds the lock and is the owner, so no other thread has a reference.
        work(unsafe { &mut *self.blocks.get() }, &mut state)
    }

    // ---- calls of the owner ----

    /// Takes a block from a free list, for a layout of one of the most common classes.
    ///
    /// # Safety
    /// The calling thread owns this value.
    #[inline(always)]
    pub(super) unsafe fn alloc_from_list(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        let lists = &unsafe { self.blocks() }.lists;
        SizeClass::of_common(layout).and_then(|class| lists.alloc(class))
    }

    /// Allocates a block.
    ///
    /// # Safety
    /// The calling thread owns this value.
    #[inline(always)]
    pub(super) unsafe fn alloc<F: OnFailure>(
        &self,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        match SizeClass::of_common(layout) {
            // SAFETY: passed on to the caller.
            Some(class) => match unsafe { self.blocks() }.lists.alloc(class) {
                Some(block) => Ok(block),
                None => self.alloc_carved::<F>(class, layout),
            },
            None => self.alloc_slow_or::<F>(layout),
        }
    }

    /// Allocates a block or returns `None`, for a global allocator, whose caller gets no error.
    ///
    /// # Safety
    /// The calling thread owns this value.
    #[inline(never)]
    pub(super) unsafe fn alloc_or_none(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        unsafe { self.alloc::<ReturnError>(layout) }.ok()
    }

    /// Allocates a block that reads zeros, or returns `None`, for a global allocator. A large block
    /// of new memory is not written.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn alloc_zeroed_or_none(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (block, is_zeroed) =
            if SizeClass::of(layout).is_none() && self.mode() == PoolMode::Normal {
                self.reclaim_remote();
                self.flush_outgoing();
                let alloc = |blocks: &BlockAllocator<RegionSupply>| {
                    blocks.alloc_large_and_tell(layout, layout.size())
                };
                // SAFETY: passed on to the caller.
                unsafe { self.or_after_sweep(alloc) }.ok()?
            } else {
                // SAFETY: passed on to the caller.
                (unsafe { self.alloc::<ReturnError>(layout) }.ok()?, false)
            };
        if !is_zeroed {
            // SAFETY: the block has these bytes, and nothing refers to it yet.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        Some(block)
    }

    /// Counts bytes that the global heap serves because this pool refused them.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn count_refused(&self, bytes: usize) {
        self.refused_bytes.set(self.refused_bytes.get().saturating_add(bytes));
    }

    /// Counts a block that grows, if this pool refused that and the global heap served it.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn count_refused_growth(&self, fresh: NonNull<u8>, bytes: usize) {
        if Self::of_block(fresh).is_none() {
            // SAFETY: passed on to the caller.
            unsafe { self.count_refused(bytes) };
        }
    }

    /// Carves a new block, or takes the slow path.
    #[inline(never)]
    fn alloc_carved<F: OnFailure>(
        &self,
        class: SizeClass,
        layout: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        // Blocks that other threads freed, and those that an ended pool left, are used before new
        // ones are carved.
        // SAFETY: the caller is `alloc`, whose caller owns this value.
        let lists = &unsafe { self.blocks() }.lists;
        if !self.ownership.has_remote() && !lists.has_aside(class) {
            if let Some(block) = lists.carve_common(class) {
                return Ok(block);
            }
        }
        self.alloc_slow_or::<F>(layout)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.alloc_slow(layout).map_err(F::fail)
    }

    fn alloc_slow(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.mode() {
            PoolMode::Normal => {
                self.reclaim_remote();
                self.flush_outgoing();
                // SAFETY: as in `alloc_carved`: the caller of `alloc` owns this value.
                unsafe {
                    self.apply_release_policy_inside();
                    self.or_after_sweep(|blocks| blocks.alloc_slow(layout))
                }
            }
            PoolMode::Checked => self.with_checked(|blocks, _| blocks.alloc_slow(layout)),
            PoolMode::Passthrough => global_alloc(layout),
        }
    }

    /// Allocates. If the budget refuses, releases empty chunks, whose free blocks may all have other
    /// sizes, and takes the charge for free pieces back; then tries again. A search that finds none
    /// is not repeated for the next refusals, unless an eighth of the live bytes is freed: the more
    /// blocks it looked at, the more of them.
    ///
    /// # Safety
    /// The calling thread owns this value.
    unsafe fn or_after_sweep<T>(
        &self,
        alloc: impl Fn(&BlockAllocator<RegionSupply>) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let error = match alloc(blocks) {
            Err(error) if error.kind() == ErrorKind::BudgetExceeded => error,
            result => return result,
        };
        let (live, live_before) = (blocks.own_live().1, self.live_at_sweep.get());
        let has_freed = live < live_before - live_before / 8;
        let unsearched = self.unsearched_refusals.get().checked_sub(1);
        if let Some(less) = unsearched.filter(|_| !has_freed) {
            self.unsearched_refusals.set(less);
            return Err(error);
        }
        self.live_at_sweep.set(live);
        let Sweep { released, credited, free_blocks } = blocks.sweep();
        if released + credited == 0 {
            self.unsearched_refusals.set(free_blocks / SEARCHED_PER_REFUSAL);
            return Err(error);
        }
        self.unsearched_refusals.set(0);
        alloc(blocks)
    }

    /// Frees a block of this pool.
    ///
    /// # Safety
    /// The calling thread owns this value. The block belongs to it, was allocated with a layout of
    /// this size class, and has not been freed.
    #[inline(always)]
    pub(super) unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        let lists = &unsafe { self.blocks() }.lists;
        match SizeClass::of_common(layout) {
            // SAFETY: passed on to the caller.
            Some(class) if unsafe { lists.free(class, block) } => {}
            // SAFETY: passed on to the caller.
            _ => unsafe { Self::free_slow(block, layout.size(), layout.align(), self) },
        }
    }

    /// The parameters are those of a global allocator's free, in the same order, and then the
    /// shared part: the caller passes them on without moving registers.
    ///
    /// # Safety
    /// As for [`free`](Self::free), where no list took the block.
    #[inline(never)]
    unsafe fn free_slow(block: NonNull<u8>, size: usize, align: usize, shared: &Self) {
        // SAFETY: passed on to the caller.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            match shared.mode() {
                PoolMode::Normal => shared.blocks().free(block, layout),
                mode => {
                    shared.blocks().lists.undo_refused_free(layout);
                    if mode == PoolMode::Passthrough {
                        global_free(block, layout);
                    } else {
                        shared.free_checked(block, layout);
                    }
                }
            }
        }
    }

    /// Resizes a block of this pool, in place if possible. On an error the block is unchanged.
    ///
    /// # Safety
    /// As for [`BlockAllocator::resize`]; and the calling thread owns this value.
    pub(super) unsafe fn resize(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: the caller ensures that the new size is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        if let (Some(from), Some(to)) = (SizeClass::of_common(old), SizeClass::of_common(new)) {
            // Work that repeats itself finds a free block of the next class here. In the other
            // modes the lists are empty.
            // SAFETY: passed on to the caller.
            let lists = &unsafe { self.blocks() }.lists;
            if from != to {
                if let Some(fresh) = lists.alloc(to) {
                    // SAFETY: two different blocks of the caller's, both at least as long as the
                    // copy.
                    unsafe {
                        fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
                        self.free(block, old);
                    }
                    return Ok(fresh);
                }
            } else if self.mode() == PoolMode::Normal {
                return Ok(block);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.resize_slow(block, old, new_size) }
    }

    /// # Safety
    /// As for [`resize`](Self::resize).
    #[inline(never)]
    unsafe fn resize_slow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new_size: usize,
    ) -> Result<NonNull<u8>, AllocError> {
        if self.mode() == PoolMode::Passthrough {
            // SAFETY: passed on to the caller.
            return unsafe { global_resize(block, old, new_size) };
        }
        // SAFETY: passed on to the caller. In checked mode, where this thread may not have the
        // lock, this reads nothing but `checked` and returns `false`.
        if unsafe { self.blocks().resize_in_place(block, old, new_size) } {
            return Ok(block);
        }
        // SAFETY: passed on to the caller. Two different blocks of the caller's, both at least as
        // long as the copy.
        unsafe {
            let new = Layout::from_size_align_unchecked(new_size, old.align());
            let fresh = match SizeClass::of(new) {
                None if self.mode() == PoolMode::Normal => {
                    self.reclaim_remote();
                    self.flush_outgoing();
                    self.apply_release_policy_inside();
                    self.or_after_sweep(|blocks| blocks.alloc_grown(old, new))?
                }
                _ => self.alloc::<ReturnError>(new)?,
            };
            fresh.copy_from_nonoverlapping(block, old.size().min(new_size));
            self.free(block, old);
            Ok(fresh)
        }
    }

    /// Returns each size of live blocks and their number, the smallest size first. Blocks of a
    /// class count with its size, and under one size if two classes have it.
    ///
    /// # Safety
    /// The calling thread owns this value, which is not checked.
    pub(super) unsafe fn live_by_size(&self) -> Vec<(usize, usize)> {
        // The vector must not lie in this pool.
        let _outside = CurrentPoolGuard::outside();
        self.reclaim_remote();
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let large = blocks.live_large_sizes().map(|size| (size, 1));
        let mut sizes: Vec<_> = blocks.lists.live_by_size().chain(large).collect();
        sizes.sort_unstable();
        sizes.dedup_by(|(size, count), (kept_size, kept_count)| {
            let same = size == kept_size;
            *kept_count += if same { *count } else { 0 };
            same
        });
        sizes
    }

    /// Returns the number of live blocks and their bytes.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn live(&self) -> (usize, usize) {
        if self.is_checked() {
            return self.with_checked(|blocks, _| blocks.own_live());
        }
        self.reclaim_remote();
        // SAFETY: passed on to the caller.
        unsafe { self.blocks() }.own_live()
    }
}
