//! How many huge pages the kernel can give without moving other pages.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::kernel::Kernel;

/// The number of free blocks is out of date after this many milliseconds.
pub(super) const COUNT_MILLIS: u64 = 100;

/// The free blocks of 2 MiB, as they were last counted.
pub(super) struct FreeBlocks {
    /// How many of them may be used until they are counted again.
    blocks: AtomicU64,
    /// The time of the last count in milliseconds.
    counted_at: AtomicU64,
    /// Whether the last count found fewer blocks than were wanted, or could not be made.
    is_short: AtomicBool,
    /// Whether a count has ever succeeded.
    is_countable: AtomicBool,
}

impl FreeBlocks {
    pub(super) const fn new() -> Self {
        Self {
            blocks: AtomicU64::new(0),
            counted_at: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            is_countable: AtomicBool::new(false),
        }
    }

    /// Takes at most `wanted` free blocks off the count. Returns how many.
    pub(super) fn take(&self, kernel: &impl Kernel, wanted: u64, now: u64) -> u64 {
        let counted_at = self.counted_at.load(Ordering::Relaxed);
        let is_recent = now.saturating_sub(counted_at) < COUNT_MILLIS;
        let take_all = |blocks: u64| blocks.checked_sub(wanted);
        if is_recent
            && self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_all).is_ok()
        {
            return wanted;
        }
        // If blocks are short, or were counted at this tick of the clock, another count would find
        // no more.
        if !is_recent || (now != counted_at && !self.is_short.load(Ordering::Relaxed)) {
            self.count(kernel, wanted, now);
        }
        let take_some = |blocks: u64| Some(blocks.saturating_sub(wanted));
        let before = self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_some);
        before.map_or(0, |blocks| blocks.min(wanted))
    }

    fn count(&self, kernel: &impl Kernel, wanted: u64, now: u64) {
        self.counted_at.store(now, Ordering::Relaxed);
        let blocks = match kernel.free_blocks() {
            Some(blocks) => {
                self.is_countable.store(true, Ordering::Relaxed);
                // Other threads and processes take blocks too, so half of them may be used until
                // the next count.
                blocks / 2
            }
            // What is left of the last count stays.
            None if self.is_countable.load(Ordering::Relaxed) => {
                self.is_short.store(true, Ordering::Relaxed);
                return;
            }
            None => u64::from(u32::MAX),
        };
        self.is_short.store(blocks < wanted, Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Relaxed);
    }
}
