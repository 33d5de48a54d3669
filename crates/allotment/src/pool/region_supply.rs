//! A pool's chunk supply: granules of the address range that all pools share.

use core::ptr::NonNull;

use super::chunk_supply::{ChunkMemory, ChunkSupply};
use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::region;

/// Supplies a pool with granules of the region, charged to a budget.
#[derive(Debug)]
pub(super) struct RegionSupply {
    pub budget: Option<Budget>,
    /// What the region notes as the owner of the granules: the address of the pool's shared part.
    pub owner: NonNull<()>,
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
            Ok(ChunkMemory { start, size, align: region::GRANULE, mapping: 0, recycled: false })
        };
        take(wanted).or_else(|error| if least < wanted { take(least) } else { Err(error) })
    }

    unsafe fn release(&self, chunks: &mut dyn Iterator<Item = ChunkMemory>, total: usize) -> usize {
        let mut calls = 0;
        for chunk in chunks {
            // SAFETY: passed on to the caller.
            unsafe { region::release(chunk.start, chunk.size / region::GRANULE) };
            calls += 1;
        }
        self.credit(total);
        calls
    }

    /// The region is private memory.
    fn is_orphaned(&self) -> bool {
        false
    }

    fn is_limited(&self) -> bool {
        self.budget.is_some()
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
