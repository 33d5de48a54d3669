//! The reuse of `PoolShared` values: where that of a new pool comes from, and what happens to it
//! when the pool ends.
//!
//! The invariants are those of shared.rs, and this one:
//!
//! 1. If the index of a `PoolShared` is on a stack, it is there once, on one of them all, and
//!    `on_stack` is true until a pool adopts the value. A parked value of a checked pool, or of one
//!    that reports its live blocks, is on no stack until it is empty: no other pool takes the
//!    blocks over.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::block_allocator::BlockAllocator;
use super::checked::BlockLedger;
use super::chunk_supply::ChunkGrowth;
#[cfg(feature = "places")]
use super::current::CurrentPoolGuard;
use super::current::{replace_current, thread_token};
use super::region_supply::RegionSupply;
use super::settings::BlockSettings;
use super::shared::{CheckedState, NO_INDEX, PoolMode, PoolShared};
use crate::error::{AllocError, ErrorKind, OnRefusal};
use crate::memory::budget::Budget;
use crate::memory::cache_padded::CachePadded;
use crate::memory::index_stack::{IndexStack, Links};
use crate::memory::{os, tools};
use crate::statistics::Record;

/// What a new pool asks of the `PoolShared` that it acquires.
pub(super) struct AcquireOptions {
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
    pub growth: ChunkGrowth,
    pub record: &'static Record,
    pub checked: Option<Box<BlockLedger>>,
    pub passthrough: bool,
    /// The pool reports its live blocks when it ends, so it takes over none from an ended pool.
    pub reports_live: bool,
}

/// In a child made by fork: no thread owns the pools of the threads that the child lacks. A new
/// thread may get the token of one of these, and their state may be half changed. Async-signal-safe;
/// a second call changes nothing. The child has one thread, so nothing pairs with these accesses.
extern "C" fn disown_in_child() {
    let count = POOL_COUNT.load(Ordering::Relaxed) as usize;
    for pool in &POOLS[..count] {
        // SAFETY: null, or a `PoolShared`, which is never unmapped.
        let Some(shared) = (unsafe { pool.load(Ordering::Relaxed).as_ref() }) else { continue };
        let owner = shared.owner_token.load(Ordering::Relaxed);
        // A write copies the page: an ended pool, which has no owner, is only read.
        if owner != 0 && owner != thread_token() {
            shared.owner_token.store(0, Ordering::Relaxed);
        }
    }
}

impl PoolShared {
    /// Acquires a `PoolShared` for a pool of this thread: one that an ended pool left, or a new
    /// one.
    pub(super) fn acquire(options: AcquireOptions) -> Result<&'static Self, AllocError> {
        let AcquireOptions {
            budget,
            on_refusal,
            growth,
            record,
            checked,
            passthrough,
            reports_live,
        } = options;
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        os::on_fork(disown_in_child, &REGISTERED)?;
        if passthrough {
            return Self::create_passthrough(record);
        }
        // No ledger has the blocks of a parked pool.
        let shared = match Self::pop(checked.is_none() && !reports_live) {
            Some((shared, was_parked)) => {
                // SAFETY: `pop` made this thread the owner, so no other thread accesses the blocks
                // (invariant 2 of shared.rs).
                let blocks = unsafe { &mut *shared.blocks.get() };
                if was_parked {
                    blocks.record.release();
                } else {
                    shared.held_after_sweep.set(0);
                    shared.live_at_sweep.set(0);
                    shared.next_sweep.set(0);
                }
                blocks.switch_record(record, None);
                if checked.is_some() {
                    blocks.release_spare();
                    blocks.supply.set_budget(budget);
                    blocks.switch_record(record, None);
                } else if let Some(budget) = budget {
                    // What the pool may take before it needs it: nothing that others could use.
                    let at_once = if budget.is_exclusive() { budget.limit() / 4 } else { 0 };
                    blocks.supply.set_budget(Some(budget));
                    let small = if was_parked { blocks.lists.inherit() } else { (0, 0) };
                    blocks.switch_record(record, Some(blocks.with_large(small)));
                    blocks.take_over_with_budget(at_once, small.1);
                } else {
                    blocks.supply.set_budget(None);
                    blocks.lists.merge_aside();
                    blocks.lists.disinherit();
                }
                shared
            }
            None => {
                let shared = Self::create(growth, record)?;
                // SAFETY: this thread owns the value, which is new.
                unsafe { &mut *shared.blocks.get() }.supply.set_budget(budget);
                shared
            }
        };
        // SAFETY: this thread owns the value, as above or because it is new.
        let blocks = unsafe { &mut *shared.blocks.get() };
        // In normal mode the lock is not used.
        if checked.is_some() {
            *shared.lock_checked() = CheckedState::Owned;
        }
        shared.set_mode(if checked.is_some() { PoolMode::Checked } else { PoolMode::Normal });
        blocks.growth = growth;
        blocks.spare_limit.set(growth.spare_large_bytes);
        blocks.checked = checked;
        shared.on_refusal.set(on_refusal);
        shared.refused_bytes.set(0);
        shared.unsearched_refusals.set(0);
        shared.on_stack.set(false);
        shared.over_limit_since.set(0);
        shared.reference.store(shared.next_reference(), Ordering::Relaxed);
        shared.owner_token.store(thread_token(), Ordering::Relaxed);
        Ok(shared)
    }

    /// Ends the pool. If no block is live, keeps up to `keep` bytes of empty chunks for the next
    /// pool. Otherwise keeps the chunks in which live blocks lie. The next pool may take them over,
    /// unless this pool `reports_live`. (Such pools take over only empty ones, and look at no more
    /// than two on a stack: those that they left with live blocks would hide the empty ones.)
    ///
    /// # Safety
    /// The calling thread owns this value, and does not use it again.
    pub(super) unsafe fn end(&self, keep: usize, reports_live: bool) {
        self.flush_outgoing();
        // A process that exits inside the pool may end it there. Code that runs after that is in no
        // pool.
        if self.is_current() {
            // SAFETY: null.
            unsafe { replace_current(ptr::null()) };
        }
        self.owner_token.store(0, Ordering::Relaxed);
        self.reference.store(0, Ordering::Relaxed);
        if self.is_checked() {
            // The budget is dropped after the lock, which a free of its memory may take.
            let end = |blocks: &mut BlockAllocator<RegionSupply>, state: &mut CheckedState| {
                let checked = blocks.checked.as_deref().expect("checked mode");
                checked.ledger.empty_quarantine(blocks);
                *state = CheckedState::Ended;
                let budget = blocks.supply.settle();
                (Self::end_checked(blocks, state), budget)
            };
            // SAFETY: passed on to the caller.
            let (empty, budget) = unsafe { self.with_checked_mut(end) };
            drop(budget);
            if empty {
                self.ownership.end(|_| true);
                self.stack_if_empty();
            }
            return;
        }
        // SAFETY: passed on to the caller; there is no other reference to the blocks.
        let blocks = unsafe { &mut *self.blocks.get() };
        blocks.unreserve();
        // What outlives the pool is the program's.
        let budget = blocks.supply.settle();
        if budget.is_some() {
            // Inherited blocks stay counted until a pool without a budget takes over.
            blocks.switch_record(blocks.record, None);
        }
        // Freed large blocks wait for nobody from now on.
        blocks.growth.spare_large_bytes = 0;
        // This call pushes the index on a stack below, so a thread that frees the last block before
        // that must not. If the pool reports, the thread that frees the last block does.
        self.on_stack.set(!reports_live);
        let mut empty = false;
        self.ownership.end(|list| {
            // SAFETY: passed on to the caller; in later calls the state of `ownership` gives this
            // thread exclusive access.
            unsafe {
                self.reclaim(list);
                let blocks = self.blocks();
                let live = blocks.lists.live_blocks() + blocks.large_blocks.get();
                self.parked_blocks.set(live);
                empty = live == 0;
                if empty {
                    blocks.clear(Some(keep));
                    blocks.record.release();
                } else {
                    blocks.release_spare_beyond(keep);
                    if self.delay_ms.get() == 0 && blocks.held() > self.keep.get() {
                        self.sweep_if_sparse();
                    } else {
                        self.sweep_if_due();
                    }
                }
                empty
            }
        });
        if reports_live {
            if empty {
                self.stack_if_empty();
            }
            return;
        }
        let EndedPools { parked, empty: without_live } = &*ENDED_POOLS[stack_number()];
        let stack = if empty { without_live } else { parked };
        stack.push(&PoolTable, self.index);
        drop(budget);
    }

    /// Calls `visit` with the blocks of each checked pool that has ended while blocks are live, one
    /// pool after the other, under the lock and outside every pool.
    #[cfg(feature = "places")]
    pub(super) fn visit_ended_checked(mut visit: impl FnMut(&BlockLedger)) {
        // Acquire pairs with the Release in `create`.
        let pools = POOLS.iter().map(|pool| pool.load(Ordering::Acquire));
        for pool in pools.take(POOL_COUNT.load(Ordering::Relaxed) as usize) {
            // SAFETY: null, or a `PoolShared`, which is never unmapped.
            let Some(shared) = (unsafe { pool.as_ref() }) else { continue };
            let _outside = CurrentPoolGuard::outside();
            let state = shared.lock_checked();
            if *state == CheckedState::Ended {
                // SAFETY: the pool is checked, has ended and is not empty, and this thread holds
                // the lock (invariant 2 of shared.rs).
                visit(unsafe { shared.blocks() }.checked.as_deref().expect("checked mode"));
            }
        }
    }

    /// Whether a number other than 0 could be a reference to a pool that exists or existed.
    /// Searches all of them.
    pub(super) fn is_reference(number: u64) -> bool {
        let count = POOL_COUNT.load(Ordering::Relaxed) as usize;
        // Acquire pairs with the Release in `create`.
        let mut pools = POOLS[..count].iter().map(|pool| pool.load(Ordering::Acquire));
        pools.any(|pool| !pool.is_null() && pool.addr() == Self::address_in(number))
    }

    /// Offers this value to the next pool if it is empty and on no stack.
    pub(super) fn stack_if_empty(&self) {
        if self.ownership.adopt_empty() {
            // This thread is the owner until `release_empty`.
            let was_on_stack = self.on_stack.replace(true);
            self.ownership.release_empty();
            if !was_on_stack {
                ENDED_POOLS[stack_number()].empty.push(&PoolTable, self.index);
            }
        }
    }

    /// Adopts what an ended pool left on the stacks. Returns it, and whether it was parked. Without
    /// `parked`, adopts only an empty one. What this thread left comes first: its memory is in this
    /// core's caches. With `parked`, those with live blocks come before the empty ones, so that
    /// their partly used chunks are filled.
    fn pop(parked: bool) -> Option<(&'static Self, bool)> {
        let own = stack_number();
        (own..STACKS).chain(0..own).find_map(|number| {
            let ended = &ENDED_POOLS[number];
            let first = if parked { &ended.parked } else { &ended.empty };
            let second = if parked { &ended.empty } else { &ended.parked };
            Self::pop_from(first, parked).or_else(|| Self::pop_from(second, parked))
        })
    }

    /// Adopts from one stack, as [`pop`](Self::pop) says. Looks at most at two values.
    fn pop_from(stack: &IndexStack, parked: bool) -> Option<(&'static Self, bool)> {
        // What can't be adopted goes back on the stack at the end.
        let mut refused: Option<&'static Self> = None;
        let found = loop {
            let Some(index) = stack.pop(&PoolTable) else { break None };
            let shared = PoolTable::get(index);
            if let Some(was_parked) = shared.ownership.adopt(parked) {
                break Some((shared, was_parked));
            }
            if let Some(other) = refused.replace(shared) {
                stack.push(&PoolTable, other.index);
                break None;
            }
        };
        if let Some(shared) = refused {
            stack.push(&PoolTable, shared.index);
        }
        found
    }

    /// Makes the value of a pool whose blocks are the global heap's. It is in no table.
    pub(super) fn create_passthrough(record: &'static Record) -> Result<&'static Self, AllocError> {
        let memory = os::map(Self::mapped_bytes(), align_of::<Self>())?.cast::<Self>();
        let growth = BlockSettings::DEFAULT.growth(0, 0);
        // SAFETY: just mapped, large enough and aligned; it is unmapped when its pool ends.
        let shared = unsafe {
            memory.write(Self::new(memory, NO_INDEX, growth, record));
            memory.as_ref()
        };
        shared.set_mode(PoolMode::Passthrough);
        Ok(shared)
    }

    /// Unmaps what [`create_passthrough`](Self::create_passthrough) made.
    ///
    /// # Safety
    /// `shared` came from that call, and is not used again.
    pub(super) unsafe fn unmap_passthrough(shared: NonNull<Self>) {
        // SAFETY: passed on to the caller: mapped with this size.
        let _ = unsafe { os::unmap(shared.cast(), Self::mapped_bytes()) };
    }

    fn mapped_bytes() -> usize {
        size_of::<Self>().next_multiple_of(os::page_size())
    }

    fn create(growth: ChunkGrowth, record: &'static Record) -> Result<&'static Self, AllocError> {
        let size = Self::mapped_bytes();
        let memory = os::map(size, align_of::<Self>())?;
        // After the memory: an index is not given back.
        let next = |count: u32| (count < MAX_POOLS as u32).then_some(count + 1);
        let index = POOL_COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let Ok(index) = index else {
            // SAFETY: just mapped, and nothing refers to it.
            let _ = unsafe { os::unmap(memory, size) };
            return Err(AllocError::new(ErrorKind::LimitReached, size_of::<Self>()));
        };
        let entry = &POOLS[index as usize];
        let address = memory.cast::<Self>();
        // SAFETY: just mapped, large enough and aligned; it is never unmapped (invariant 1 of
        // shared.rs).
        let shared = unsafe {
            address.write(Self::new(address, index, growth, record));
            address.as_ref()
        };
        tools::add_leak_root(NonNull::from(shared).cast(), size);
        shared.ownership.adopt_empty();
        // Release pairs with the Acquire in `PoolTable::get` and `is_reference`.
        entry.store(ptr::from_ref(shared).cast_mut(), Ordering::Release);
        Ok(shared)
    }
}

/// Maximum number of `PoolShared` values, and so of pools at a time.
const MAX_POOLS: usize = 1 << 16;
/// All values that were created, by index.
static POOLS: [AtomicPtr<PoolShared>; MAX_POOLS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_POOLS];
/// The number of indexes given out.
static POOL_COUNT: AtomicU32 = AtomicU32::new(0);
/// The values that pools of some of the threads have left.
struct EndedPools {
    /// Those with live blocks. Some may have become empty.
    parked: IndexStack,
    /// Those without live blocks.
    empty: IndexStack,
}

const STACKS: usize = 16;
/// What ended pools left, by the number of the thread that ended them.
static ENDED_POOLS: [CachePadded<EndedPools>; STACKS] =
    [const { CachePadded(EndedPools { parked: IndexStack::new(), empty: IndexStack::new() }) };
        STACKS];

/// Returns the index of the calling thread's stacks. Threads share them only if there have been
/// more than [`STACKS`] of them.
fn stack_number() -> usize {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        /// 0, or 1 plus the index.
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) % STACKS as u32 + 1);
        }
        number.get() as usize - 1
    })
}

/// [`POOLS`], as the table that the stacks link.
struct PoolTable;

impl PoolTable {
    /// Returns the value of an index that was on a stack.
    fn get(index: u32) -> &'static PoolShared {
        // SAFETY: only indexes of existing values are pushed, and those are never unmapped. Acquire
        // pairs with the Release in `create`.
        unsafe { &*POOLS[index as usize].load(Ordering::Acquire) }
    }
}

impl Links for PoolTable {
    fn next(&self, index: u32) -> &AtomicU32 {
        &Self::get(index).next_on_stack
    }
}
