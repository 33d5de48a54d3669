//! How many bytes of empty pages a slab keeps, and when they are released.
//!
//! | policy | an empty page is kept | kept pages are released |
//! |---|---|---|
//! | `AtOnce` | never | |
//! | `EmptyPages(bytes)` | while all kept pages together have at most `bytes` | never |
//! | `Decay(time)` | always | when no thread needed them for `time` |
//! | `Adaptive` | within the allowance, or if no release is due | beyond it, when one is due |
//!
//! The adaptive allowance is at least one page. It grows by the size of each page taken from the
//! source within a second of a release, and halves each second. Beyond the allowance, three rules
//! say when an empty page is released:
//!
//! - If the thread that emptied it also allocates, the page is released at once: where objects come
//!   and go, empty pages are surplus.
//! - Each time a thread refills its cache, one more page may be released.
//! - If threads only free, releasing a page costs more than emptying it did, and the memory may be
//!   needed again. Releases then take at most an eighth of the time: after a release that took t
//!   nanoseconds, the next one may begin 7 t nanoseconds later.
//!
//! So the pages of a burst that ends all at once are released over the following milliseconds of
//! the slab's own work, and not all by the thread that ends the burst. All of this happens in calls
//! that empty a page. A slab that is not used keeps what it has until `trim`.
//!
//! The counters are relaxed: they are only numbers, and hand over no memory.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::memory::os;
use crate::memory::release::Release;

/// Releases take at most one part in this many of the time.
const PART: u64 = 8;
/// The time, in nanoseconds, for which unused release time can be saved up.
const SAVED: u64 = 4_000_000;
/// The most refills that can be saved up.
const MOST_REFILLS: u32 = 16;
/// The allowance halves after this many milliseconds.
const INTERVAL: u64 = 1000;

#[derive(Debug)]
pub(super) struct EmptyPages {
    policy: Release,
    /// Bytes of pages kept empty.
    kept: AtomicUsize,
    /// The minimum of `kept` after the last tick: bytes that no thread needed.
    idle: AtomicUsize,
    /// The bytes that the adaptive policy allows.
    allowance: AtomicUsize,
    /// Bytes that were reserved ahead and not used yet. They are kept under every policy.
    reserved: AtomicUsize,
    /// The refills of caches saved up. For each, one empty page may be released.
    refills: AtomicU32,
    /// The time in nanoseconds from which a page may be released without a refill.
    next_release: AtomicU64,
    ticked_at: AtomicU64,
    /// The time of the last release in milliseconds, plus one. 0 means never.
    released_at: AtomicU64,
}

impl EmptyPages {
    pub(super) fn new(policy: Release) -> Self {
        let now = os::coarse_millis();
        Self {
            policy,
            kept: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            allowance: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            refills: AtomicU32::new(0),
            next_release: AtomicU64::new(0),
            ticked_at: AtomicU64::new(now),
            released_at: AtomicU64::new(0),
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Whether an empty page of `bytes` is to be kept. If so, it is counted as kept.
    pub(super) fn wants(&self, bytes: usize, allocates: bool) -> bool {
        let kept = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let reserved = self.reserved.load(Ordering::Relaxed);
        let keep = kept <= reserved
            || match self.policy {
                Release::AtOnce => false,
                Release::Keep(most) => kept - reserved <= most,
                Release::Decay(_) => true,
                Release::Adaptive => {
                    kept - reserved <= self.allowance.load(Ordering::Relaxed).max(bytes)
                        || !(allocates || self.may_release())
                }
            };
        if !keep {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
        }
        keep
    }

    /// Counts a page as no longer kept: it is used again or released.
    pub(super) fn unkeep(&self, bytes: usize) {
        let kept = self.kept.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if kept < self.idle.load(Ordering::Relaxed) {
            self.idle.store(kept, Ordering::Relaxed);
        }
    }

    /// Counts a kept page as used again.
    pub(super) fn used(&self, bytes: usize) {
        self.unkeep(bytes);
        let less = |reserved: usize| Some(reserved.saturating_sub(bytes));
        if self.reserved.load(Ordering::Relaxed) > 0 {
            let _ = self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Reserves what is already kept, up to `most` bytes.
    pub(super) fn reserve_kept(&self, most: usize) {
        self.reserved.fetch_max(self.kept().min(most), Ordering::Relaxed);
    }

    /// Counts a page that was taken ahead as reserved and kept.
    pub(super) fn reserve(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Clears the allowance and the reservations. The caller releases what is kept.
    pub(super) fn forget(&self) {
        self.allowance.store(0, Ordering::Relaxed);
        self.reserved.store(0, Ordering::Relaxed);
    }

    /// Releases a page by calling `release`, and notes how long that took.
    pub(super) fn releasing(&self, release: impl FnOnce()) {
        if self.policy != Release::Adaptive {
            return release();
        }
        let before = os::nanos();
        release();
        let after = os::nanos();
        let from = self.next_release.load(Ordering::Relaxed).max(before.saturating_sub(SAVED));
        // Two threads that release at once may lose one of the two times; both pages are released
        // all the same.
        self.next_release.store(from + PART * after.saturating_sub(before), Ordering::Relaxed);
        self.released_at.store(os::coarse_millis() + 1, Ordering::Relaxed);
    }

    /// Notes that a thread has refilled its cache. Writes nothing once `MOST_REFILLS` are saved up.
    pub(super) fn refilled(&self) {
        let refills = self.refills.load(Ordering::Relaxed);
        if refills < MOST_REFILLS {
            self.refills.store(refills + 1, Ordering::Relaxed);
        }
    }

    fn may_release(&self) -> bool {
        let refills = self.refills.load(Ordering::Relaxed);
        if refills > 0 {
            self.refills.store(refills - 1, Ordering::Relaxed);
            return true;
        }
        os::nanos() >= self.next_release.load(Ordering::Relaxed)
    }

    /// Notes that a page came from the source. If a page was released shortly before, keeping it
    /// would have been better, so the allowance grows.
    pub(super) fn taken(&self, bytes: usize) {
        if self.policy != Release::Adaptive {
            return;
        }
        let released = self.released_at.load(Ordering::Relaxed);
        if released != 0 && os::coarse_millis() + 1 < released + INTERVAL {
            self.allowance.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The bytes of kept pages that should be released now, in addition to a page that is not kept.
    /// Called where a page is emptied; mostly 0.
    pub(super) fn due(&self, page: usize, allocates: bool) -> usize {
        match self.policy {
            Release::AtOnce | Release::Keep(_) => 0,
            Release::Decay(time) => {
                let half = (time.as_millis() as u64 / 2).max(1);
                if !self.tick(half) {
                    return 0;
                }
                // The bytes that were also idle throughout the previous half of the time.
                let idle = self.idle.swap(self.kept(), Ordering::Relaxed);
                idle.saturating_sub(self.reserved.load(Ordering::Relaxed))
            }
            Release::Adaptive => {
                if self.tick(INTERVAL) {
                    let halved = self.allowance.load(Ordering::Relaxed) / 2;
                    self.allowance.store(halved, Ordering::Relaxed);
                }
                let most = self.allowance.load(Ordering::Relaxed).max(page)
                    + self.reserved.load(Ordering::Relaxed);
                if self.kept() > most && (allocates || self.may_release()) { page } else { 0 }
            }
        }
    }

    fn tick(&self, interval: u64) -> bool {
        let now = os::coarse_millis();
        let last = self.ticked_at.load(Ordering::Relaxed);
        now >= last + interval
            && self
                .ticked_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}
