//! When a list sweeps for empty chunks: the level below which a sweep is due, and the watermark,
//! at which a free takes the slow path.
//!
//! A sweep takes a step for each free object. It is due when both of these hold:
//!
//! - Live objects have fallen to half of what they were when a chain or a chunk was last begun.
//! - As many objects were freed after that as were free then.
//!
//! So sweeps take at most two steps for each object freed. But a large list whose objects are freed
//! in random order has no empty chunk at half of its objects, and the next sweep of this kind would
//! be due at none. So there is another one:
//!
//! - Fewer objects are live than one for each 16 MiB of the list, or than four, and have been for as
//!   long as the sweep may take ([`SWEPT_PER_MILLI`]).
//!
//! Until then the list is *watched*: each free takes the slow path. Most lists that fall so low are
//! empty a moment later, which needs no sweep, or grow again.
//!
//! The cost of a step is to wait for memory if a large list was freed in random order. So the free
//! objects lie in several chains, which are followed side by side. When live objects have fallen by
//! a sixteenth after the last chain was begun, and a sweep is still to come, the objects freed next
//! begin another chain: the watermark lies above the level.
//!
//! The invariants are those of `raw.rs`; number 4 is about the watermark.

use super::chains::MAX_WAITING_CHAINS;
use super::raw::RawFreeList;
use crate::memory::os;

/// A chain has at least this many objects when another one begins.
pub(super) const MIN_CHAIN_LENGTH: usize = 256;
/// A list is watched while fewer objects are live than one for this many bytes: most of its chunks of
/// 2 MiB are then empty, in whatever order objects were freed.
const WATCHED_BYTES: usize = 16 << 20;
/// A list with fewer live objects than this is watched, however small it is.
const MIN_WATCHED: usize = 4;
/// A sweep takes about this many steps in a millisecond, if each waits for memory.
const SWEPT_PER_MILLI: usize = 8192;

/// The levels of live objects that `sweep_below` was set for.
#[derive(Clone, Copy)]
struct SweepLevels {
    /// Below this, the objects freed pay for a sweep.
    paid: usize,
    /// Below this, the list is watched.
    watched: usize,
}

impl RawFreeList {
    /// Sets the level for the next sweep, after a sweep that left `linked` objects on chains.
    /// (After a sweep that was skipped, `linked` is 0: the next one is then due when half of the
    /// live objects are freed.)
    pub(super) fn plan_sweep(&self, linked: usize) {
        let live = self.live();
        let SweepLevels { paid, watched } = self.levels(live, linked);
        self.paid_below.set(paid);
        self.set_sweep_level(if self.has_two_chunks() { paid.max(watched) } else { 0 });
    }

    /// The levels for the next sweep, with `linked` objects on chains, below `live` live objects.
    fn levels(&self, live: usize, linked: usize) -> SweepLevels {
        let half = live / 2;
        let least = usize::from(live > 0);
        let bytes = self.capacity.get() * self.sizes.stride;
        SweepLevels {
            paid: half.min(live.saturating_sub(linked)).max(least),
            watched: (bytes / WATCHED_BYTES).max(MIN_WATCHED).min(half),
        }
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
        let SweepLevels { paid, watched } = self.levels(after, linked);
        self.paid_below.set(paid.max(1).max(self.paid_below.get()));
        self.sweep_below.set(paid.max(1).max(watched).max(self.sweep_below.get()));
        self.watched_since.set(None);
        self.set_watermark(after);
    }

    /// Sets the level: the list sweeps when fewer objects than this are live, or watches.
    pub(super) fn set_sweep_level(&self, level: usize) {
        self.sweep_below.set(level);
        self.watched_since.set(None);
        self.set_watermark(self.live());
    }

    /// Whether a list with fewer live objects than its level waits before it sweeps.
    pub(super) fn watches(&self) -> bool {
        let live = self.live();
        if live == 0 || live < self.paid_below.get() {
            return false;
        }
        let now = os::coarse_millis();
        let since = *self.watched_since.get().get_or_insert(now);
        self.watched_since.set(Some(since));
        let linked = self.capacity.get() - live - self.fresh_objects();
        now <= since + (linked / SWEPT_PER_MILLI) as u64
    }

    /// Makes the next free take the slow path, too.
    pub(super) fn watch(&self) {
        self.watermark.set(self.live() + 1);
        self.count.set(-1);
    }

    /// Whether the list is watched. The watch ends when the list has grown to twice the level.
    pub(super) fn is_watched(&self) -> bool {
        self.watched_since.get().is_some() && self.live() < 2 * self.sweep_below.get()
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
