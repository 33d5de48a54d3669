//! When a pool's empty memory goes back to the system.
//!
//! The invariants are those of shared.rs.

use super::shared::PoolMode;
use super::shared::PoolShared;
use crate::memory::os;

/// A pool with live blocks searches for empty chunks only if it holds more than this many times
/// their bytes.
const MIN_SWEEP_RATIO: usize = 4;
/// The release policy is applied inside the pool once in this number of slow allocations.
const SLOW_ALLOCS: u32 = 32;
/// A search may begin so long after the one before that it has looked at no more than this number
/// of free blocks for each millisecond. It looks at about 10,000 of them in a millisecond if they
/// are in no cache, so it takes about a hundredth of the time.
const SWEPT_PER_MILLI: usize = 128;

impl PoolShared {
    /// Releases chunks that hold no live block. Returns the number of bytes released.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn trim(&self) -> usize {
        if self.is_checked() {
            return self.with_checked(|blocks, _| blocks.sweep().released);
        }
        self.flush_outgoing();
        self.reclaim_remote();
        // What it sets free may be what the next refused allocation needs.
        self.unsearched_refusals.set(0);
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if blocks.live().0 > 0 {
            return blocks.sweep().released;
        }
        let held = blocks.held();
        // SAFETY: nothing is live.
        unsafe { blocks.clear(Some(0)) };
        held - blocks.held()
    }

    /// Applies the release policy inside the pool, for threads that leave it seldom or never: once
    /// in [`SLOW_ALLOCS`] calls, and only a policy that lets the pool hold more for a time.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn apply_release_policy_inside(&self) {
        let count = self.slow_allocs.get() + 1;
        self.slow_allocs.set(count % SLOW_ALLOCS);
        if count == SLOW_ALLOCS && self.delay_ms.get() > 0 {
            // SAFETY: passed on to the caller.
            unsafe { self.apply_release_policy() };
        }
    }

    /// Applies the release policy: releases empty chunks beyond `keep` bytes, once the pool has
    /// held more than that for `delay_ms` milliseconds.
    ///
    /// # Safety
    /// The calling thread owns this value.
    pub(super) unsafe fn apply_release_policy(&self) {
        if self.mode() != PoolMode::Normal {
            return;
        }
        let (keep, delay_ms) = (self.keep.get(), self.delay_ms.get());
        self.reclaim_remote();
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if blocks.held() <= keep {
            return self.over_limit_since.set(0);
        }
        if delay_ms > 0 {
            let now = os::coarse_millis().max(1);
            match self.over_limit_since.get() {
                0 => return self.over_limit_since.set(now),
                since if now.saturating_sub(since) < delay_ms => return,
                _ => self.over_limit_since.set(0),
            }
        }
        if blocks.live().0 == 0 {
            // SAFETY: nothing is live.
            unsafe { blocks.clear(Some(keep)) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.sweep_if_due() };
        }
    }

    /// Releases empty chunks if the search for them is worth its time: if the pool holds much more
    /// than what is live, and since the last search it has come to hold more than twice what that
    /// left, or half of what was live has been freed, or enough time has passed.
    ///
    /// # Safety
    /// The calling thread has exclusive access to this value.
    pub(super) unsafe fn sweep_if_due(&self) {
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if blocks.held() > 2 * self.held_after_sweep.get()
            || blocks.own_live().1 < self.live_at_sweep.get().div_ceil(2)
            || os::coarse_millis() >= self.next_sweep.get()
        {
            // SAFETY: passed on to the caller.
            unsafe { self.sweep_if_sparse() };
        }
    }

    /// As [`sweep_if_due`](Self::sweep_if_due), however short ago the last search was.
    ///
    /// # Safety
    /// The calling thread has exclusive access to this value.
    pub(super) unsafe fn sweep_if_sparse(&self) {
        // SAFETY: passed on to the caller.
        let blocks = unsafe { self.blocks() };
        if blocks.held() <= MIN_SWEEP_RATIO * blocks.live().1 {
            return;
        }
        let searched = blocks.sweep().free_blocks;
        self.held_after_sweep.set(blocks.held());
        self.live_at_sweep.set(blocks.own_live().1);
        let pause = 1 + (searched / SWEPT_PER_MILLI) as u64;
        self.next_sweep.set(os::coarse_millis() + pause);
    }
}
