//! What the first touch of small pages costs.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::kernel::{Kernel, at, sample_len};
use crate::memory::acquired_chunk::SmallTouch;
use crate::memory::layout::HUGE_PAGE;
use crate::memory::os;

/// A measurement is out of date after this many milliseconds.
const FORGET_MILLIS: u64 = 1000;
/// A sample is taken at most once in this many milliseconds.
const SAMPLE_MILLIS: u64 = 100;

/// What small pages cost.
pub(super) struct SmallCost {
    /// The average cost of 2 MiB in nanoseconds; 0 if not measured.
    nanos: AtomicU64,
    /// The time of the last measurement in milliseconds.
    measured_at: AtomicU64,
}

impl SmallCost {
    pub(super) const fn new() -> Self {
        Self { nanos: AtomicU64::new(0), measured_at: AtomicU64::new(0) }
    }

    /// The average; 0 if it was never measured.
    pub(super) fn known(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    /// The average. Takes a new sample first, unless the last measurement is recent.
    pub(super) fn current(&self, kernel: &impl Kernel, small: SmallTouch, now: u64) -> u64 {
        if !self.is_older(SAMPLE_MILLIS, now) {
            return self.known();
        }
        let Ok(scratch) = kernel.map_sample() else { return self.known() };
        // SAFETY: just mapped, and unmapped once.
        unsafe {
            let nanos = sample_small(kernel, scratch, small);
            kernel.unmap_sample(scratch);
            self.learn(nanos, now)
        }
    }

    /// Whether the last measurement was at least this many milliseconds ago, or there was none.
    fn is_older(&self, millis: u64, now: u64) -> bool {
        self.known() == 0 || now.saturating_sub(self.measured_at.load(Ordering::Relaxed)) >= millis
    }

    /// Adds a measurement. Returns the new average.
    pub(super) fn learn(&self, nanos: u64, now: u64) -> u64 {
        let is_first = self.is_older(FORGET_MILLIS, now);
        let average = if is_first { nanos } else { (3 * self.known() + nanos) / 4 };
        self.nanos.store(average.max(1), Ordering::Relaxed);
        self.measured_at.store(now, Ordering::Relaxed);
        average
    }
}

/// Touches the first small pages of a range. Returns what 2 MiB would cost, in nanoseconds.
///
/// # Safety
/// The range was just mapped, has at least [`sample_len`] bytes, and nothing uses it.
pub(super) unsafe fn sample_small(
    kernel: &impl Kernel,
    start: NonNull<u8>,
    small: SmallTouch,
) -> u64 {
    let before = kernel.thread_nanos();
    if small == SmallTouch::Faults || kernel.populate_sample(start).is_err() {
        for page in (0..sample_len()).step_by(os::page_size()) {
            // SAFETY: guaranteed by the caller.
            unsafe { kernel.touch(at(start, page)) };
        }
    }
    kernel.thread_nanos().saturating_sub(before) * (HUGE_PAGE / sample_len()) as u64
}
