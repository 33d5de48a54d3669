//! The reuse of `PoolShared` values: where that of a new pool comes from, and what happens to it
//! when the pool ends.
//!
//! The invariants are those of shared.rs, and this one:
//!
//! 1. If the index of a `PoolShared` is on a stack, it is there once, on one of the two, and
//!    `on_stack` is true until a pool adopts the value. A parked value with a budget is on no stack
//!    until it is empty, because its chunks are charged to the budget.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::checked::BlockLedger;
use super::chunk_supply::ChunkGrowth;
use super::current::{replace_current, thread_token};
use super::shared::{PoolMode, PoolShared};
use crate::error::{AllocError, ErrorKind, OnRefusal};
use crate::memory::budget::Budget;
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
        // The chunks of a parked pool are charged to no budget, and no ledger has its blocks.
        let plain = budget.is_none() && checked.is_none() && !passthrough;
        let shared = match Self::pop(plain && !reports_live) {
            Some((shared, was_parked)) => {
                // SAFETY: `pop` made this thread the owner, so no other thread accesses the blocks
                // (invariant 2 of shared.rs).
                let blocks = unsafe { &mut *shared.blocks.get() };
                if was_parked {
                    blocks.record.release();
                }
                blocks.switch_record(record);
                if !plain {
                    // The chunks that the ended pool left are charged to no budget.
                    blocks.release_spare();
                    blocks.switch_record(record);
                }
                shared
            }
            None => Self::create(growth, record)?,
        };
        // SAFETY: this thread owns the value, as above or because it is new.
        let blocks = unsafe { &mut *shared.blocks.get() };
        shared.set_mode(match (&checked, passthrough) {
            (_, true) => PoolMode::Passthrough,
            (Some(_), _) => PoolMode::Checked,
            _ => PoolMode::Normal,
        });
        blocks.supply.budget = budget;
        blocks.growth = growth;
        blocks.checked = checked;
        shared.on_refusal.set(on_refusal);
        shared.on_stack.set(false);
        shared.held_after_sweep.set(0);
        shared.over_limit_since.set(0);
        *shared.lock_checked() = false;
        shared.reference.store(shared.next_reference(), Ordering::Relaxed);
        shared.owner_token.store(thread_token(), Ordering::Relaxed);
        Ok(shared)
    }

    /// Ends the pool. If no block is live, keeps up to `keep` bytes of empty chunks for the next
    /// pool. Otherwise keeps the chunks in which live blocks lie.
    ///
    /// # Safety
    /// The calling thread owns this value, and does not use it again.
    pub(super) unsafe fn end(&self, keep: usize) {
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
            let empty = self.with_checked(|blocks, ended| {
                let checked = blocks.checked.as_deref().expect("checked mode");
                checked.ledger.empty_quarantine(blocks);
                *ended = true;
                Self::end_checked(blocks)
            });
            if empty {
                self.ownership.end(|_| true);
                self.stack_if_empty();
            }
            return;
        }
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let has_budget = blocks.supply.budget.is_some();
        blocks.unreserve();
        // Without a budget, this call pushes the index on a stack below, so a thread that frees the
        // last block before that must not. With a budget no pool may adopt this value before it is
        // empty, so it stays off the stacks until then.
        self.on_stack.set(!has_budget);
        let (mut first, mut empty) = (true, false);
        self.ownership.end(|list| {
            // SAFETY: passed on to the caller; in later calls the state of `ownership` gives this
            // thread exclusive access.
            unsafe {
                self.reclaim(list);
                let blocks = self.blocks();
                empty = blocks.live().0 == 0;
                if empty {
                    blocks.clear((!has_budget).then_some(keep));
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
            let stack = if empty { &EMPTY_POOLS } else { &PARKED_POOLS };
            stack.push(&PoolTable, self.index);
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
                EMPTY_POOLS.push(&PoolTable, self.index);
            }
        }
    }

    /// Adopts what an ended pool left on the stacks. Returns it, and whether it was parked. Without
    /// `parked`, adopts only an empty one. With `parked`, those with live blocks come first, so
    /// that their partly used chunks are filled.
    fn pop(parked: bool) -> Option<(&'static Self, bool)> {
        let stacks =
            if parked { [&PARKED_POOLS, &EMPTY_POOLS] } else { [&EMPTY_POOLS, &PARKED_POOLS] };
        stacks.into_iter().find_map(|stack| Self::pop_from(stack, parked))
    }

    /// Adopts from one stack, as [`pop`](Self::pop) says. Looks at most at two values.
    fn pop_from(stack: &IndexStack, parked: bool) -> Option<(&'static Self, bool)> {
        // What can't be adopted goes back on the stack at the end.
        let mut refused: Option<&'static Self> = None;
        let found = loop {
            let Some(index) = stack.pop(&PoolTable) else { break None };
            let shared = PoolTable::get(index);
            if shared.ownership.adopt_empty() {
                break Some((shared, false));
            }
            if parked && shared.ownership.adopt_parked() {
                break Some((shared, true));
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

    fn create(growth: ChunkGrowth, record: &'static Record) -> Result<&'static Self, AllocError> {
        let size = size_of::<Self>().next_multiple_of(os::page_size());
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
/// Those that ended pools left without live blocks.
static EMPTY_POOLS: IndexStack = IndexStack::new();
/// Those that ended pools left with live blocks. Some may have become empty.
static PARKED_POOLS: IndexStack = IndexStack::new();

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
