//! `allot known-calls`: a child that makes known numbers of calls, for the tracer's own test.

use super::filter::CALLS;
use super::marks::{Mark, set};
use std::sync::Barrier;
use std::thread;

/// Calls of each kind that each thread makes before its steady state.
const BEFORE: u64 = 3;
/// The same in it.
const STEADY: u64 = 2;

/// Lets the tracer in; then, on each of `threads` threads, makes each counted call five times, two
/// of them in the steady state. Before and after the measured part it makes some more.
pub fn make(threads: usize) {
    crate::runner::child_process::end_with_parent();
    super::let_tracer_in(super::TracedCalls::Memory);
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                calls(1);
                barrier.wait();
                barrier.wait();
                calls(BEFORE);
                set(Mark::Steady);
                calls(STEADY);
                set(Mark::Finished);
                barrier.wait();
                barrier.wait();
                calls(1);
            });
        }
        barrier.wait();
        set(Mark::Begin);
        barrier.wait();
        barrier.wait();
        set(Mark::End);
        barrier.wait();
    });
}

fn calls(count: u64) {
    for (_, number) in CALLS {
        for _ in 0..count {
            // SAFETY: at address 1 with length 0 each of these calls changes nothing: it is refused
            // as not aligned or empty, and a break at 1 is below the heap and so ignored.
            unsafe { libc::syscall(number, 1_usize, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) };
        }
    }
}
