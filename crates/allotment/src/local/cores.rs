//! Cores between pools: where a pool's core comes from, and what becomes of it when the pool ends.
//!
//! The invariants are those of core.rs, and this one:
//!
//! 1. A core whose number is on a stack is there once, on one of the two, and `stacked` says so until a pool adopts it. One that
//!    is parked under a budget is on none before it is empty: its chunks are charged.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::core::{Core, Making, PASSTHROUGH, WATCHED};
use super::current::{CURRENT, token};
use super::pieces::Growth;
use crate::error::{AllocError, ErrorKind};
use crate::memory::lifo::{Lifo, Links};
use crate::memory::{os, tools};
use crate::statistics::Record;

impl Core {
    /// A core for a pool of this thread: one that an ended pool left, or a new one.
    pub(super) fn acquire(making: Making) -> Result<&'static Self, AllocError> {
        let Making { budget, growth, record, watch, passthrough, reports_live } = making;
        // A parked core's chunks are charged to no budget, and known to no watch.
        let plain = budget.is_none() && watch.is_none() && !passthrough;
        let core = match Self::pop(plain && !reports_live) {
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
                    blocks.account_under(record);
                }
                core
            }
            None => Self::issue(growth, record)?,
        };
        // SAFETY: ours, as above.
        let blocks = unsafe { &mut *core.blocks.get() };
        let mode = match (&watch, passthrough) {
            (_, true) => PASSTHROUGH,
            (Some(_), _) => WATCHED,
            _ => 0,
        };
        core.mode.store(mode, Ordering::Relaxed);
        blocks.supply.budget = budget;
        blocks.growth = growth;
        blocks.watch = watch;
        core.stacked.set(false);
        core.swept.set(0);
        core.over_since.set(0);
        *core.locked() = false;
        core.reference.store(core.next_reference(), Ordering::Relaxed);
        core.thread.store(token(), Ordering::Relaxed);
        Ok(core)
    }

    /// The pool ends. Keeps so many bytes of empty chunks for the next one if nothing lives, else what lives lies in.
    ///
    /// # Safety
    /// The calling thread owns the core, and doesn't use it any more.
    pub(super) unsafe fn end(&self, keep: usize) {
        self.push_outgoing();
        // A process that exits inside of the pool may end it there; what runs after that is in none.
        CURRENT.with(|current| {
            if ptr::eq(current.get(), self) {
                current.set(ptr::null());
            }
        });
        self.thread.store(0, Ordering::Relaxed);
        self.reference.store(0, Ordering::Relaxed);
        if self.is_watched() {
            let empty = self.watched(|blocks, ended| {
                blocks.watch.as_deref().expect("watched").end_rest(blocks);
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
        // Whoever empties it later leaves it to us to stack it, unless it has a budget: then nobody may adopt it before.
        self.stacked.set(!has_budget);
        let (mut first, mut empty) = (true, false);
        self.life.end(|list| {
            // SAFETY: passed on to the caller; later the state of its life gives us the core.
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
            stack.push(&Cores, self.number);
        }
    }

    /// All that were ever issued.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        let issued = ISSUED.load(Ordering::Relaxed) as usize;
        // Acquire pairs with the Release in `issue`.
        let cores = CORES[..issued].iter().map(|core| core.load(Ordering::Acquire));
        // SAFETY: null, or a core, which stays.
        cores.filter_map(|core| unsafe { core.as_ref() })
    }

    /// Offers the core to the next pool, if it is empty and not offered.
    pub(super) fn stack_if_empty(&self) {
        if self.life.adopt_empty() {
            // Ours for the moment.
            let stacked = self.stacked.replace(true);
            self.life.release_empty();
            if !stacked {
                EMPTY_ONES.push(&Cores, self.number);
            }
        }
    }

    /// An ended pool's core, and whether it was parked; only an empty one unless `parked` will do. Then those in which
    /// something lived come first, so that it gets company.
    fn pop(parked: bool) -> Option<(&'static Self, bool)> {
        let stacks = if parked { [&PARKED_ONES, &EMPTY_ONES] } else { [&EMPTY_ONES, &PARKED_ONES] };
        stacks.into_iter().find_map(|stack| Self::pop_from(stack, parked))
    }

    fn pop_from(stack: &Lifo, parked: bool) -> Option<(&'static Self, bool)> {
        // Cores that won't do go back in the end.
        let mut unfit: Option<&'static Self> = None;
        let found = loop {
            let Some(number) = stack.pop(&Cores) else { break None };
            let core = Cores::core(number);
            if core.life.adopt_empty() {
                break Some((core, false));
            }
            if parked && core.life.adopt_parked() {
                break Some((core, true));
            }
            if let Some(other) = unfit.replace(core) {
                stack.push(&Cores, other.number);
                break None;
            }
        };
        if let Some(core) = unfit {
            stack.push(&Cores, core.number);
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
        // The number is lost when this fails: a number, and no memory.
        let core = os::map(size, align_of::<Self>())?.cast::<Self>();
        // SAFETY: mapped just now, large enough and aligned; it stays (invariant 1).
        let core = unsafe {
            core.write(Self::new(core.as_ptr(), number, growth, record));
            core.as_ref()
        };
        tools::search(NonNull::from(core).cast(), size);
        core.life.adopt_empty();
        // Release pairs with the Acquire in `Cores::core`.
        slot.store(ptr::from_ref(core).cast_mut(), Ordering::Release);
        Ok(core)
    }
}

/// At most so many pools at a time.
const MAX_CORES: usize = 1 << 16;
static CORES: [AtomicPtr<Core>; MAX_CORES] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CORES];
static ISSUED: AtomicU32 = AtomicU32::new(0);
/// Cores that ended pools left with nothing that lived.
static EMPTY_ONES: Lifo = Lifo::new();
/// Cores that ended pools left parked; some may be empty meanwhile.
static PARKED_ONES: Lifo = Lifo::new();

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
