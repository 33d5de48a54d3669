//! How many bytes of empty pages a slab keeps, and when they are released.
//!
//! | policy | an empty page is kept | kept pages are released |
//! |---|---|---|
//! | `AtOnce` | never | |
//! | `Keep(bytes)` | while all kept pages together have at most `bytes` | never |
//! | `Decay(time)` | always | when no thread needed them for `time` |
//! | `Adaptive` | within the allowance, or if no release is due | if beyond it and a release is due |
//!
//! The adaptive allowance is at least one page. It grows by the size of each page taken from the
//! source within a second of a release, and halves each second. Beyond the allowance, three rules
//! say when an empty page is released:
//!
//! - If the thread that emptied it also allocates, the page is released at once: where objects come
//!   and go, empty pages are surplus.
//! - Each time a thread refills its cache, one more page may be released. (This is for threads that
//!   replace objects at random, as in `allot bench churn` with two threads.)
//! - If threads only free, releasing a page costs more than emptying it did, and the memory may be
//!   needed again. Releases then take at most an eighth of the time: after a release that took t
//!   nanoseconds, the next one may begin 7 t nanoseconds later. (This is for bursts that end, as in
//!   `allot bench burst-free`.)
//!
//! So the pages of a burst that ends all at once are released over the following milliseconds of
//! the slab's own work, and not all by the thread that ends the burst. All of this happens in calls
//! that empty a page. A slab that is not used keeps what it has until `trim`.
//!
//! The counters are relaxed: they are only numbers, and hand over no memory.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use crate::memory::os;
use crate::memory::release::Release;

/// Releases take at most the time divided by this.
const RELEASE_TIME_DIVISOR: u64 = 8;
/// The time, in nanoseconds, for which unused release time can be saved up.
const MAX_SAVED_NANOS: u64 = 4_000_000;
/// The most refills that can be saved up.
const MAX_REFILLS: u32 = 16;
/// The allowance halves after this many milliseconds.
const HALVING_MILLIS: u64 = 1000;

/// The pages of one slab that are kept empty.
#[derive(Debug)]
pub(super) struct EmptyPages {
    policy: Release,
    /// Bytes of pages kept empty.
    kept_bytes: AtomicUsize,
    /// The minimum of `kept_bytes` after the last tick: bytes that no thread needed.
    idle_bytes: AtomicUsize,
    /// The bytes that the adaptive policy keeps.
    allowance: AtomicUsize,
    /// Bytes that `reserve` took and that are not used yet. They are kept under every policy.
    reserved_bytes: AtomicUsize,
    /// Cache refills saved up. For each, one empty page may be released.
    saved_refills: AtomicU32,
    /// The time in nanoseconds from which a page may be released without a refill.
    next_release_at: AtomicU64,
    /// The time of the last tick in milliseconds.
    ticked_at: AtomicU64,
    /// The time of the last release in milliseconds, plus one. 0 means never.
    released_at: AtomicU64,
}

/// Half of a time in milliseconds, at least one.
fn half_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 2).unwrap_or(u64::MAX).max(1)
}

impl EmptyPages {
    pub(super) fn new(policy: Release) -> Self {
        let now = os::coarse_millis();
        Self {
            policy,
            kept_bytes: AtomicUsize::new(0),
            idle_bytes: AtomicUsize::new(0),
            allowance: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
            saved_refills: AtomicU32::new(0),
            next_release_at: AtomicU64::new(0),
            ticked_at: AtomicU64::new(now),
            released_at: AtomicU64::new(0),
        }
    }

    fn kept_bytes(&self) -> usize {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Counts an empty page of `bytes` as kept, if the policy keeps it. Returns whether it does.
    /// `allocates` says whether the thread that emptied the page also allocates.
    pub(super) fn try_keep(&self, bytes: usize, allocates: bool) -> bool {
        let kept = self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        let keep = kept <= reserved
            || match self.policy {
                Release::AtOnce => false,
                Release::Keep(max) => kept - reserved <= max,
                Release::Decay(_) => true,
                Release::Adaptive => {
                    kept - reserved <= self.allowance.load(Ordering::Relaxed).max(bytes)
                        || !(allocates || self.take_release_permit())
                }
            };
        if !keep {
            self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        keep
    }

    /// Counts a page as no longer kept: it is used again or released.
    pub(super) fn remove(&self, bytes: usize) {
        let kept = self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if kept < self.idle_bytes.load(Ordering::Relaxed) {
            self.idle_bytes.store(kept, Ordering::Relaxed);
        }
    }

    /// Counts a kept page as used again.
    pub(super) fn reuse(&self, bytes: usize) {
        self.remove(bytes);
        let reduced = |reserved: usize| Some(reserved.saturating_sub(bytes));
        if self.reserved_bytes.load(Ordering::Relaxed) > 0 {
            let _ = self.reserved_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reduced);
        }
    }

    /// Reserves what is already kept, up to `max` bytes.
    pub(super) fn reserve_kept(&self, max: usize) {
        self.reserved_bytes.fetch_max(self.kept_bytes().min(max), Ordering::Relaxed);
    }

    /// Counts a new page as reserved and kept.
    pub(super) fn add_reserved(&self, bytes: usize) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Clears the allowance and the reservations. The caller releases what is kept.
    pub(super) fn clear_limits(&self) {
        self.allowance.store(0, Ordering::Relaxed);
        self.reserved_bytes.store(0, Ordering::Relaxed);
    }

    /// Releases a page by calling `release`, and records how long that took.
    pub(super) fn time_release(&self, release: impl FnOnce()) {
        if self.policy != Release::Adaptive {
            return release();
        }
        let before = os::nanos();
        release();
        let after = os::nanos();
        let from = self
            .next_release_at
            .load(Ordering::Relaxed)
            .max(before.saturating_sub(MAX_SAVED_NANOS));
        // If two threads release at the same time, one of the two times may be lost. Both pages are
        // released.
        self.next_release_at
            .store(from + RELEASE_TIME_DIVISOR * after.saturating_sub(before), Ordering::Relaxed);
        self.released_at.store(os::coarse_millis() + 1, Ordering::Relaxed);
    }

    /// Records that a thread has refilled its cache. Writes nothing once `MAX_REFILLS` are saved
    /// up.
    pub(super) fn count_refill(&self) {
        let refills = self.saved_refills.load(Ordering::Relaxed);
        if refills < MAX_REFILLS {
            self.saved_refills.store(refills + 1, Ordering::Relaxed);
        }
    }

    fn take_release_permit(&self) -> bool {
        let refills = self.saved_refills.load(Ordering::Relaxed);
        if refills > 0 {
            self.saved_refills.store(refills - 1, Ordering::Relaxed);
            return true;
        }
        os::nanos() >= self.next_release_at.load(Ordering::Relaxed)
    }

    /// Records that a page came from the source. If a page was released shortly before, keeping it
    /// would have been better, so the allowance grows.
    pub(super) fn count_new_page(&self, bytes: usize) {
        if self.policy != Release::Adaptive {
            return;
        }
        let released = self.released_at.load(Ordering::Relaxed);
        if released != 0 && os::coarse_millis() + 1 < released + HALVING_MILLIS {
            self.allowance.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The bytes of kept pages that should be released now, in addition to a page that is not kept.
    /// Called where a page is emptied; mostly 0. `page` is that page's bytes.
    pub(super) fn excess(&self, page: usize, allocates: bool) -> usize {
        match self.policy {
            Release::AtOnce | Release::Keep(_) => 0,
            Release::Decay(time) => {
                if !self.tick(half_millis(time)) {
                    return 0;
                }
                // The bytes that were also idle throughout the previous half of the time.
                let idle = self.idle_bytes.swap(self.kept_bytes(), Ordering::Relaxed);
                idle.saturating_sub(self.reserved_bytes.load(Ordering::Relaxed))
            }
            Release::Adaptive => {
                if self.tick(HALVING_MILLIS) {
                    let halved = self.allowance.load(Ordering::Relaxed) / 2;
                    self.allowance.store(halved, Ordering::Relaxed);
                }
                let max = self.allowance.load(Ordering::Relaxed).max(page)
                    + self.reserved_bytes.load(Ordering::Relaxed);
                let exceeds = self.kept_bytes() > max;
                if exceeds && (allocates || self.take_release_permit()) { page } else { 0 }
            }
        }
    }

    /// Begins a new interval if the last one is over. Returns `true` to one thread per interval.
    fn tick(&self, interval: u64) -> bool {
        let now = os::coarse_millis();
        let last = self.ticked_at.load(Ordering::Relaxed);
        now >= last.saturating_add(interval)
            && self
                .ticked_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_any_length_is_halved_and_nothing_is_cut_off() {
        assert_eq!(half_millis(Duration::ZERO), 1);
        assert_eq!(half_millis(Duration::from_micros(999)), 1);
        assert_eq!(half_millis(Duration::from_millis(100)), 50);
        // 2^64 milliseconds and two more.
        let long = Duration::new(u64::MAX / 1000, 615_000_000) + Duration::from_millis(3);
        assert_eq!(half_millis(long), 1 << 63 | 1);
        assert_eq!(half_millis(Duration::MAX), u64::MAX);
        let pages = EmptyPages::new(Release::Decay(Duration::MAX));
        assert!(pages.try_keep(4096, false));
        assert_eq!(pages.excess(4096, false), 0);
    }
}
