//! The part of a thread's time that is spent in calls of a few nanoseconds: a timer samples,
//! thousands of times a second, whether the thread is in such a call.
//!
//! Reading a clock twice would take several times as long as such a call. Here each call sets a
//! flag of its thread and clears it. A system timer interrupts the thread, and the signal handler
//! reads the flag. A sample for about every hundred calls costs a few per cent of the time, and
//! finds the thread inside a call in proportion to the time spent there.
//!
//! # Invariants
//!
//! 1. The handler uses only atomics, and thread-locals that need neither initialisation nor
//!    destructor. It may interrupt its thread anywhere, in the allocator too.
//! 2. Once installed, the handler stays, so a late signal finds it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::{
    sys::signal::{
        SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
    },
    sys::time::TimeSpec,
    sys::timer::{Expiration, Timer, TimerSetTimeFlags},
    time::ClockId,
    unistd::gettid,
};

/// Nanoseconds between two samples: not a multiple of any usual period of a machine.
const INTERVAL: i64 = 49_999;

thread_local! {
    /// Whether the thread is in a call.
    static INSIDE: AtomicBool = const { AtomicBool::new(false) };
    /// Samples that found the thread in a call.
    static IN_CALLS: AtomicU64 = const { AtomicU64::new(0) };
    /// All samples.
    static ALL: AtomicU64 = const { AtomicU64::new(0) };
}

/// Marks the thread as inside a call.
#[inline(always)]
pub(crate) fn enter() {
    INSIDE.with(|inside| inside.store(true, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// Marks the thread as outside calls.
#[inline(always)]
pub(crate) fn leave() {
    compiler_fence(Ordering::SeqCst);
    INSIDE.with(|inside| inside.store(false, Ordering::Relaxed));
}

/// The signal handler. While it runs, no other code writes this thread's counters.
extern "C" fn sample(_: c_int) {
    let count = |counter: &AtomicU64| {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    };
    ALL.with(count);
    if INSIDE.with(|inside| inside.load(Ordering::Relaxed)) {
        IN_CALLS.with(count);
    }
}

/// The samples of one thread or of several.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Samples {
    inside: u64,
    all: u64,
}

impl Samples {
    pub fn and(self, other: Self) -> Self {
        Self { inside: self.inside + other.inside, all: self.all + other.all }
    }

    /// The part of the time inside calls, from 0 to 1; `None` if there was no sample.
    pub fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.inside as f64 / self.all as f64)
    }
}

/// Samples the calling thread during `work`. There are no samples if the system has no such timers.
pub(crate) fn while_sampling(work: impl FnOnce()) -> Samples {
    let now = || Samples {
        inside: IN_CALLS.with(|found| found.load(Ordering::Relaxed)),
        all: ALL.with(|all| all.load(Ordering::Relaxed)),
    };
    let before = now();
    let timer = timer();
    work();
    drop(timer);
    let after = now();
    Samples { inside: after.inside - before.inside, all: after.all - before.all }
}

/// A timer that interrupts the calling thread, until it is dropped.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn timer() -> Option<Timer> {
    let signal = Signal::SIGPROF;
    let handler = SigHandler::Handler(sample);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler may be called at any time (invariant 1).
    unsafe { sigaction(signal, &action) }.ok()?;
    let notify = SigevNotify::SigevThreadId { signal, thread_id: gettid().as_raw(), si_value: 0 };
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify)).ok()?;
    let interval = Expiration::Interval(TimeSpec::new(0, INTERVAL));
    timer.set(interval, TimerSetTimeFlags::empty()).ok()?;
    Some(timer)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn timer() {
    let _ = (INTERVAL, sample);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    fn busy(steps: u64) {
        for step in 0..steps {
            black_box(step);
        }
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn the_share_is_the_part_of_the_work() {
        let began = Instant::now();
        let found = while_sampling(|| {
            while began.elapsed() < Duration::from_millis(600) {
                busy(3_000);
                enter();
                busy(1_000);
                leave();
            }
        });
        let share = found.share().unwrap();
        // About a quarter: the two loops need not run at the same speed.
        assert!((0.1..0.4).contains(&share), "{share} of {found:?}");
        // This thread is not sampled any more.
        let before = ALL.with(|all| all.load(Ordering::Relaxed));
        let elsewhere = std::thread::spawn(|| while_sampling(|| busy(10_000_000)));
        busy(10_000_000);
        assert!(elsewhere.join().unwrap().inside == 0);
        assert_eq!(ALL.with(|all| all.load(Ordering::Relaxed)), before);
    }

    #[test]
    fn without_a_sample_there_is_no_share() {
        assert_eq!(Samples::default().share(), None);
        let both = Samples { inside: 1, all: 3 }.and(Samples { inside: 2, all: 9 });
        assert_eq!(both.share(), Some(0.25));
    }
}
