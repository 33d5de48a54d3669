//! When a list sweeps for empty chunks: the level below which a sweep is due, and the watermark,
//! at which a free takes the slow path.
//!
//! A sweep takes a step for each free object. It is due when both of these hold:
//!
//! - Live objects have fallen to half of what they were when a chain or a chunk was last begun.
//! - As many objects were freed after that as were free then.
//!
//! So sweeps take at most two steps for each object freed.
//!
//! The cost of a step is to wait for memory if a large list was freed in random order. So the free
//! objects lie in several chains, which are followed side by side. When live objects have fallen by
//! a sixteenth after the last chain was begun, and a sweep is still to come, the objects freed next
//! begin another chain: the watermark lies above the level.
//!
//! The invariants are those of `raw.rs`; number 4 is about the watermark.

use super::chains::MAX_WAITING_CHAINS;
use super::raw::RawFreeList;

/// A chain has at least this many objects when another one begins.
pub(super) const MIN_CHAIN_LENGTH: usize = 256;

impl RawFreeList {
    /// Sets the level for the next sweep, after a sweep that left `linked` objects on chains.
    /// (After a sweep that was skipped, `linked` is 0: the next one is then due when half of the
    /// live objects are freed.)
    pub(super) fn plan_sweep(&self, linked: usize) {
        let live = self.live();
        let least = usize::from(live > 0);
        let level = (live / 2).min(live.saturating_sub(linked)).max(least);
        self.set_sweep_level(if self.has_two_chunks() { level } else { 0 });
    }

    /// Whether two or more chunks are in use. A sweep of one chunk releases nothing.
    fn has_two_chunks(&self) -> bool {
        self.each_chunk().nth(1).is_some()
    }

    /// Raises the level for the next sweep with the number of live objects, which has risen.
    /// `objects` more are about to be counted.
    pub(super) fn raise_sweep_level(&self, objects: usize) {
        if !self.has_two_chunks() {
            return;
        }
        let live = self.live();
        let linked = self.capacity.get() - live - self.fresh_objects();
        let after = live + objects;
        let level = (after / 2).min(after.saturating_sub(linked)).max(1);
        self.sweep_below.set(level.max(self.sweep_below.get()));
        self.set_watermark(after);
    }

    /// Sets the level: the list sweeps when fewer objects than this are live.
    pub(super) fn set_sweep_level(&self, level: usize) {
        self.sweep_below.set(level);
        self.set_watermark(self.live());
    }

    /// Sets the watermark to where the next chain begins. If the next sweep follows no chain, or no
    /// more chains can wait, sets it to the level of the sweep. `after` objects are live, or will
    /// be.
    pub(super) fn set_watermark(&self, after: usize) {
        let live = self.live();
        let level = self.sweep_below.get();
        let watermark = if level < 2 || self.waiting_chains.is_full() {
            level
        } else {
            after.saturating_sub((after / MAX_WAITING_CHAINS).max(MIN_CHAIN_LENGTH)).max(level)
        };
        self.watermark.set(watermark);
        self.count.set(live as isize - watermark as isize);
    }
}
