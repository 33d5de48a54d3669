//! A pool's supply: granules of the address range that all pools share.

use core::cell::Cell;
use core::ptr::NonNull;

use super::pieces::{Piece, Supply};
use super::shared::Shared;
use crate::error::{AllocError, ErrorKind};
use crate::memory::budget::Budget;
use crate::memory::layout::MAX_GROWTH;
use crate::memory::region;

/// Supplies a pool with granules of the region, charged to a budget.
#[derive(Debug)]
pub(super) struct FromRegion {
    pub budget: Option<Budget>,
    pub core: Cell<*const Shared>,
}

impl Supply for FromRegion {
    fn align(&self) -> usize {
        region::GRANULE
    }

    fn take(&self, need: usize, grown: usize) -> Result<Piece, AllocError> {
        let overflow = AllocError::new(ErrorKind::SizeOverflow, need);
        let least = need.checked_next_multiple_of(region::GRANULE).ok_or(overflow)?;
        let wanted = least.max((grown * 2).min(MAX_GROWTH));
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
