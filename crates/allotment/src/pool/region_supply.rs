//! A pool's chunk supply: granules of the address range that all pools share.

use core::cell::Cell;
use core::ptr::NonNull;

use super::chunk_supply::{ChunkMemory, ChunkSupply, PoolChunkHeader};
use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::region;

/// Supplies a pool with granules of the region, charged to a budget.
#[derive(Debug)]
pub(super) struct RegionSupply {
    budget: Option<Budget>,
    /// The bytes charged to the budget.
    charged: Cell<usize>,
    /// Identifies the pool that takes from this supply. Rises when a pool begins and when it ends.
    user: Cell<u64>,
    /// What the region notes as the owner of the granules: the address of the pool's shared part.
    owner: NonNull<()>,
}

impl RegionSupply {
    /// Granules for this owner, without a budget.
    pub fn new(owner: NonNull<()>) -> Self {
        Self { budget: None, charged: Cell::new(0), user: Cell::new(1), owner }
    }

    /// Begins to count for a pool.
    pub fn set_budget(&mut self, budget: Option<Budget>) {
        self.budget = budget;
        self.charged.set(0);
        self.user.set(self.user.get() + 1);
    }

    /// Takes back all charges. From now on nothing is charged, and no chunk is. Returns the budget:
    /// its memory may lie in any pool, this one too, so the caller drops it when it has left this
    /// value.
    #[must_use]
    pub fn settle(&mut self) -> Option<Budget> {
        self.credit(self.charged.get());
        self.user.set(self.user.get() + 1);
        self.budget.take()
    }
}

impl ChunkSupply for RegionSupply {
    fn align(&self) -> usize {
        region::GRANULE
    }

    fn take(&self, need: usize, last: usize) -> Result<ChunkMemory, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, need);
        let least = need.checked_next_multiple_of(region::GRANULE).ok_or(overflow)?;
        let wanted = least.max((last * 2).min(MAX_GROWTH));
        let take = |size: usize| {
            self.charge(size)?;
            let start = region::take(size / region::GRANULE, self.owner)
                .inspect_err(|_| self.credit(size))?;
            let (align, charged) = (region::GRANULE, self.is_limited());
            Ok(ChunkMemory { start, size, align, mapping: 0, recycled: false, charged })
        };
        take(wanted).or_else(|error| if least < wanted { take(least) } else { Err(error) })
    }

    unsafe fn release(&self, chunks: &mut dyn Iterator<Item = ChunkMemory>, _: usize) -> usize {
        let (mut calls, mut charged) = (0, 0);
        for chunk in chunks {
            // SAFETY: passed on to the caller.
            unsafe { region::release(chunk.start, chunk.size / region::GRANULE) };
            calls += 1;
            charged += if chunk.charged { chunk.size } else { 0 };
        }
        self.credit(charged);
        calls
    }

    fn extend(&self, chunk: &PoolChunkHeader, more: usize) -> bool {
        let size = chunk.size.get();
        // A chunk that an ended pool left is charged to no budget, and not as a whole.
        if self.is_limited() && !chunk.is_charged(self) || self.charge(more).is_err() {
            return false;
        }
        let (granules, more_granules) = (size / region::GRANULE, more / region::GRANULE);
        // SAFETY: the chunk's granules are this pool's.
        let extended = unsafe { region::extend(chunk.start, granules, more_granules, self.owner) };
        if extended {
            chunk.size.set(size + more);
        } else {
            self.credit(more);
        }
        extended
    }

    unsafe fn shorten(&self, chunk: &PoolChunkHeader, most: usize) -> usize {
        let less = most / region::GRANULE * region::GRANULE;
        if less > 0 {
            let size = chunk.size.get() - less;
            chunk.size.set(size);
            // SAFETY: whole granules at the end of the chunk; the caller guarantees that nothing
            // refers to them.
            unsafe { region::release(chunk.start.add(size), less / region::GRANULE) };
            if chunk.is_charged(self) {
                self.credit(less);
            }
        }
        less
    }

    fn is_zeroed(&self) -> bool {
        region::is_zeroed()
    }

    /// The region is private memory.
    fn is_orphaned(&self) -> bool {
        false
    }

    fn is_limited(&self) -> bool {
        self.budget.is_some()
    }

    fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.charge(bytes)?;
        self.charged.set(self.charged.get() + bytes);
        Ok(())
    }

    fn user(&self) -> u64 {
        self.user.get()
    }

    fn charged(&self) -> usize {
        self.charged.get()
    }

    fn credit(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.credit(bytes);
            self.charged.set(self.charged.get() - bytes);
        }
    }
}
