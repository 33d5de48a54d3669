//! The reuse of cores: where a new pool's core comes from, and what happens to it when the pool
//! ends.
//!
//! The invariants are those of core.rs, and this one:
//!
//! 1. A core whose number is on a stack is there once, on one of the two, and `stacked` is true
//!    until a pool adopts it. A parked core with a budget is on no stack until it is empty, because
//!    its chunks are charged to the budget.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::current::{CURRENT, token};
use super::pieces::Growth;
use super::shared::{Making, PASSTHROUGH, Shared, WATCHED};
use crate::error::{AllocError, ErrorKind};
use crate::memory::lifo::{Lifo, Links};
use crate::memory::{os, tools};
use crate::statistics::Record;

impl Shared {
    /// Acquires a core for a pool of this thread: one that an ended pool left, or a new one.
    pub(super) fn acquire(making: Making) -> Result<&'static Self, AllocError> {
        let Making { budget, growth, record, ledger, passthrough, reports_live } = making;
        // A parked core's chunks are charged to no budget, and its blocks are in no ledger.
        let plain = budget.is_none() && ledger.is_none() && !passthrough;
        let core = match Self::pop(plain && !reports_live) {
            Some((core, was_parked)) => {
                // SAFETY: `pop` made this thread the owner, so no other thread accesses the blocks
                // (invariant 2 of core.rs).
                let blocks = unsafe { &mut *core.blocks.get() };
                if was_parked {
                    blocks.record.release();
                }
                blocks.account_under(record);
                if !plain {
                    // The chunks that the core kept are charged to no budget.
                    blocks.give_spare();
                    blocks.account_under(record);
                }
                core
            }
            None => Self::issue(growth, record)?,
        };
        // SAFETY: this thread owns the core, as above or because it is new.
        let blocks = unsafe { &mut *core.blocks.get() };
        let mode = match (&ledger, passthrough) {
            (_, true) => PASSTHROUGH,
            (Some(_), _) => WATCHED,
            _ => 0,
        };
        core.mode.store(mode, Ordering::Relaxed);
        blocks.supply.budget = budget;
        blocks.growth = growth;
        blocks.ledger = ledger;
        core.stacked.set(false);
        core.swept.set(0);
        core.over_since.set(0);
        *core.locked() = false;
        core.reference.store(core.next_reference(), Ordering::Relaxed);
        core.thread.store(token(), Ordering::Relaxed);
        Ok(core)
    }

    /// Ends the pool. If no block is live, keeps up to `keep` bytes of empty chunks for the next
    /// pool. Otherwise keeps the chunks in which live blocks lie.
    ///
    /// # Safety
    /// The calling thread owns the core, and does not use it again.
    pub(super) unsafe fn end(&self, keep: usize) {
        self.push_outgoing();
        // A process that exits inside the pool may end it there. Code that runs after that is in no
        // pool.
        CURRENT.with(|current| {
            if ptr::eq(current.get(), self) {
                current.set(ptr::null());
            }
        });
        self.thread.store(0, Ordering::Relaxed);
        self.reference.store(0, Ordering::Relaxed);
        if self.is_watched() {
            let empty = self.watched(|blocks, ended| {
                blocks.ledger.as_deref().expect("checked").empty_quarantine(blocks);
                *ended = true;
                Self::end_watched(blocks)
            });
            if empty {
                self.life.end(|_| true);
                self.stack_if_empty();
            }
            return;
        }
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        let has_budget = blocks.supply.budget.is_some();
        blocks.unreserve();
        // Without a budget, this call pushes the core on a stack below, so a thread that empties
        // the core before that must not. With a budget no pool may adopt the core before it is
        // empty, so it stays off the stacks until then.
        self.stacked.set(!has_budget);
        let (mut first, mut empty) = (true, false);
        self.life.end(|list| {
            // SAFETY: passed on to the caller; in later calls the state of `life` gives this thread
            // the core.
            unsafe {
                self.put_back(list);
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
            let stack = if empty { &EMPTY_ONES } else { &PARKED_ONES };
            stack.push(&Parked, self.number);
        }
    }

    /// Returns all cores that were ever issued.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        let issued = ISSUED.load(Ordering::Relaxed) as usize;
        // Acquire pairs with the Release in `issue`.
        let cores = CORES[..issued].iter().map(|core| core.load(Ordering::Acquire));
        // SAFETY: null, or a core, which is never unmapped.
        cores.filter_map(|core| unsafe { core.as_ref() })
    }

    /// Offers the core to the next pool if it is empty and on no stack.
    pub(super) fn stack_if_empty(&self) {
        if self.life.adopt_empty() {
            // This thread owns the core until `release_empty`.
            let stacked = self.stacked.replace(true);
            self.life.release_empty();
            if !stacked {
                EMPTY_ONES.push(&Parked, self.number);
            }
        }
    }

    /// Takes an ended pool's core from the stacks, and returns whether it was parked. Without
    /// `parked` only an empty core will do. With `parked` the cores with live blocks come first, so
    /// that their partly used chunks are filled.
    fn pop(parked: bool) -> Option<(&'static Self, bool)> {
        let stacks = if parked { [&PARKED_ONES, &EMPTY_ONES] } else { [&EMPTY_ONES, &PARKED_ONES] };
        stacks.into_iter().find_map(|stack| Self::pop_from(stack, parked))
    }

    fn pop_from(stack: &Lifo, parked: bool) -> Option<(&'static Self, bool)> {
        // Parked that do not fit go back on the stack at the end.
        let mut unfit: Option<&'static Self> = None;
        let found = loop {
            let Some(number) = stack.pop(&Parked) else { break None };
            let core = Parked::core(number);
            if core.life.adopt_empty() {
                break Some((core, false));
            }
            if parked && core.life.adopt_parked() {
                break Some((core, true));
            }
            if let Some(other) = unfit.replace(core) {
                stack.push(&Parked, other.number);
                break None;
            }
        };
        if let Some(core) = unfit {
            stack.push(&Parked, core.number);
        }
        found
    }

    fn issue(growth: Growth, record: &'static Record) -> Result<&'static Self, AllocError> {
        let refused = AllocError::new(ErrorKind::SourceRefused, size_of::<Self>());
        let next = |issued: u32| (issued < MAX_CORES as u32).then_some(issued + 1);
        let number = ISSUED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = number.map_err(|_| refused)?;
        let slot = &CORES[number as usize];
        let size = size_of::<Self>().next_multiple_of(os::page_size());
        // A failure here wastes the number, but no memory.
        let core = os::map(size, align_of::<Self>())?.cast::<Self>();
        // SAFETY: just mapped, large enough and aligned; it is never unmapped (invariant 1 of
        // core.rs).
        let core = unsafe {
            core.write(Self::new(core.as_ptr(), number, growth, record));
            core.as_ref()
        };
        tools::add_leak_root(NonNull::from(core).cast(), size);
        core.life.adopt_empty();
        // Release pairs with the Acquire in `Parked::core` and `all`.
        slot.store(ptr::from_ref(core).cast_mut(), Ordering::Release);
        Ok(core)
    }
}

/// Maximum number of cores, and so of pools at a time.
const MAX_CORES: usize = 1 << 16;
static CORES: [AtomicPtr<Shared>; MAX_CORES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CORES];
static ISSUED: AtomicU32 = AtomicU32::new(0);
/// Parked that ended pools left without live blocks.
static EMPTY_ONES: Lifo = Lifo::new();
/// Parked that ended pools left with live blocks. Some may have become empty.
static PARKED_ONES: Lifo = Lifo::new();

struct Parked;

impl Parked {
    fn core(number: u32) -> &'static Shared {
        // SAFETY: a number on a stack is a core's number, and cores are never unmapped. Acquire
        // pairs with the Release in `issue`.
        unsafe { &*CORES[number as usize].load(Ordering::Acquire) }
    }
}

impl Links for Parked {
    fn next(&self, index: u32) -> &AtomicU32 {
        &Self::core(index).next
    }
}
