//! The part of a run's time that is spent in the allocator.
//!
//! [`Timed`] wraps an allocator and reads the time stamp counter around each call. This slows the
//! run, so the share comes from a separate run, never from the timed one, and the cost of the
//! readings is subtracted.

use crate::peers::{Allocator, Task};
use crate::workloads::clock::{Overhead, ticks};
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

/// Ticks spent in calls, and the number of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallTicks {
    /// Between the two readings of each call.
    pub ticks: u64,
    /// Calls timed.
    pub calls: u64,
}

impl CallTicks {
    /// The calls' part of `whole` ticks, from 0 to 1. The cost of the readings is subtracted from
    /// both.
    pub fn share_of(self, whole: u64, overhead: Overhead) -> f64 {
        let calls = self.calls as f64;
        let inside = (self.ticks as f64 - calls * overhead.inside).max(0.0);
        let rest = (whole as f64 - calls * overhead.whole).max(1.0);
        (inside / rest).min(1.0)
    }
}

thread_local! {
    static CALL_TICKS: Cell<CallTicks> = const { Cell::new(CallTicks { ticks: 0, calls: 0 }) };
}

/// The ticks and calls of this thread's ended [`Timed`] tasks since the last call of this function.
pub fn take_call_ticks() -> CallTicks {
    CALL_TICKS.take()
}

/// An allocator whose calls are timed.
#[derive(Debug)]
pub struct Timed<A>(A);

impl<A: Allocator> Allocator for Timed<A> {
    type Task<'t> = TimedTask<A::Task<'t>>;

    fn start() -> Self {
        Self(A::start())
    }

    fn begin(&mut self) -> Self::Task<'_> {
        let before = ticks();
        let task = self.0.begin();
        let spent = CallTicks { ticks: ticks().wrapping_sub(before), calls: 1 };
        TimedTask { task: Some(task), spent: Cell::new(spent) }
    }
}

/// A task whose calls are timed; its beginning and its end are calls too.
#[derive(Debug)]
pub struct TimedTask<T> {
    /// `None` only while it is dropped.
    task: Option<T>,
    spent: Cell<CallTicks>,
}

impl<T> TimedTask<T> {
    #[inline(always)]
    fn timed<R>(&self, call: impl FnOnce(&T) -> R) -> R {
        let task = self.task.as_ref().expect("the task lives until it is dropped");
        let before = ticks();
        let result = call(task);
        self.add(ticks().wrapping_sub(before));
        result
    }

    #[inline(always)]
    fn add(&self, ticks: u64) {
        let spent = self.spent.get();
        self.spent.set(CallTicks { ticks: spent.ticks + ticks, calls: spent.calls + 1 });
    }
}

impl<T: Task> Task for TimedTask<T> {
    const FREED_TOGETHER: bool = T::FREED_TOGETHER;

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.timed(|task| task.alloc(layout))
    }

    #[inline(always)]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise, passed on unchanged: `alloc` and `grow` are the inner
        // task's.
        self.timed(|task| unsafe { task.free(ptr, layout) });
    }

    #[inline(always)]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: as for `free`.
        self.timed(|task| unsafe { task.grow(ptr, old, new_size) })
    }
}

impl<T> Drop for TimedTask<T> {
    fn drop(&mut self) {
        let before = ticks();
        drop(self.task.take());
        self.add(ticks().wrapping_sub(before));
        let own = self.spent.get();
        let all = CALL_TICKS.get();
        CALL_TICKS.set(CallTicks { ticks: all.ticks + own.ticks, calls: all.calls + own.calls });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::System;

    #[test]
    fn every_call_is_counted_and_the_count_is_taken_once() {
        take_call_ticks();
        let mut allocator = Timed::<System>::start();
        let layout = Layout::new::<u64>();
        {
            let task = allocator.begin();
            let ptr = task.alloc(layout);
            // SAFETY: `ptr` is live and of this layout; after growing it, of the larger one.
            unsafe {
                let ptr = task.grow(ptr, layout, 16);
                task.free(ptr, Layout::from_size_align(16, 8).unwrap());
            }
        }
        let spent = take_call_ticks();
        assert_eq!(spent.calls, 5, "begin, alloc, grow, free, end");
        assert_eq!(take_call_ticks(), CallTicks::default());
    }

    #[test]
    fn the_share_leaves_out_what_the_readings_cost() {
        let overhead = Overhead { inside: 10.0, whole: 30.0 };
        let spent = CallTicks { ticks: 1_500, calls: 100 };
        // The calls took 500 ticks. The run took 10,000 ticks, and the readings 3,000 of them.
        assert!((spent.share_of(10_000, overhead) - 500.0 / 7_000.0).abs() < 1e-12);
        assert_eq!(CallTicks { ticks: 900, calls: 100 }.share_of(10_000, overhead), 0.0);
    }
}
