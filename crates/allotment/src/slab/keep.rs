//! How many bytes of empty pages a slab keeps, and when they go.
//!
//! | policy | an empty page is kept | what is kept goes |
//! |---|---|---|
//! | `AtOnce` | never | |
//! | `Keep(bytes)` | while all kept together are at most `bytes` | never |
//! | `Decay(time)` | always | when nobody needed it for `time` |
//! | `Adaptive` | while all kept are at most the allowance, or it is too early for another release | when it is not |
//!
//! The adaptive allowance rises by a page for each page taken anew within a second of a release, and shrinks by
//! half each second. Beyond it, a page that is emptied by a thread that also allocates goes at once: where objects
//! come and go, empty pages are surplus. So does one for each time that any thread has filled its cache. Where
//! objects only go, giving a page back costs more than
//! emptying it did, and the memory may be wanted again: releases are then rationed by the time that they take, an
//! eighth of the whole, so after a release of so many nanoseconds the next comes after seven times as many. A
//! burst that ends all at once is thus given back over the next milliseconds of the slab's own work instead of by
//! the thread that ends it. All of this happens at calls that empty a page; a slab that is left alone keeps what
//! it has until `trim`.
//!
//! Counts are relaxed: they are numbers, and no memory is handed over by them.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::memory::os;
use crate::memory::release::Release;

/// The part of the time that releases may take.
const PART: u64 = 8;
/// Time of which that part may be saved up, in nanoseconds.
const SAVED: u64 = 4_000_000;
/// The refills that may be saved up.
const MOST_REFILLS: u32 = 16;
/// Milliseconds after which the allowance halves.
const INTERVAL: u64 = 1000;

#[derive(Debug)]
pub(super) struct Keep {
    policy: Release,
    /// Bytes of pages kept empty.
    kept: AtomicUsize,
    /// The least that `kept` was since the last tick: bytes that nobody needed.
    idle: AtomicUsize,
    /// What the adaptive policy allows.
    allowance: AtomicUsize,
    /// Bytes that were reserved ahead and not used yet; kept whatever the policy says.
    reserved: AtomicUsize,
    /// Refills of caches, for each of which an empty page may go.
    refills: AtomicU32,
    /// The nanosecond from which on a page may go besides.
    next_release: AtomicU64,
    ticked_at: AtomicU64,
    /// When a page last went, plus one; 0 is never.
    released_at: AtomicU64,
}

impl Keep {
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

    /// Whether an empty page of `bytes` shall be kept; it is then counted as kept.
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

    /// A page that was kept is no more: it is used, or it goes.
    pub(super) fn unkeep(&self, bytes: usize) {
        let kept = self.kept.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if kept < self.idle.load(Ordering::Relaxed) {
            self.idle.store(kept, Ordering::Relaxed);
        }
    }

    /// A kept page is used again.
    pub(super) fn used(&self, bytes: usize) {
        self.unkeep(bytes);
        let less = |reserved: usize| Some(reserved.saturating_sub(bytes));
        if self.reserved.load(Ordering::Relaxed) > 0 {
            let _ = self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Reserves what is kept already, up to `most` bytes.
    pub(super) fn reserve_kept(&self, most: usize) {
        self.reserved.fetch_max(self.kept().min(most), Ordering::Relaxed);
    }

    /// A page was made ahead, and is counted as kept.
    pub(super) fn reserve(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Nothing is allowed or reserved any more; what is kept is the caller's to give back.
    pub(super) fn forget(&self) {
        self.allowance.store(0, Ordering::Relaxed);
        self.reserved.store(0, Ordering::Relaxed);
    }

    /// Gives a page back by `release`, and notes what it took.
    pub(super) fn releasing(&self, release: impl FnOnce()) {
        if self.policy != Release::Adaptive {
            return release();
        }
        let before = os::nanos();
        release();
        let after = os::nanos();
        let from = self.next_release.load(Ordering::Relaxed).max(before.saturating_sub(SAVED));
        // Two threads that release at once may forget one of the two times; the page went all the same.
        self.next_release.store(from + PART * after.saturating_sub(before), Ordering::Relaxed);
        self.released_at.store(os::coarse_millis() + 1, Ordering::Relaxed);
    }

    /// A thread has filled its cache. Writes nothing where nothing was released meanwhile.
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

    /// A page came from the source. Soon after one went, it would have been better kept.
    pub(super) fn taken(&self, bytes: usize) {
        if self.policy != Release::Adaptive {
            return;
        }
        let released = self.released_at.load(Ordering::Relaxed);
        if released != 0 && os::coarse_millis() + 1 < released + INTERVAL {
            self.allowance.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The bytes of kept pages that should go now, besides one that is not wanted. Asked where a page is emptied;
    /// most times it is 0.
    pub(super) fn due(&self, page: usize, allocates: bool) -> usize {
        match self.policy {
            Release::AtOnce | Release::Keep(_) => 0,
            Release::Decay(time) => {
                let half = (time.as_millis() as u64 / 2).max(1);
                if !self.tick(half) {
                    return 0;
                }
                // What lay idle through half the time before this one too.
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
