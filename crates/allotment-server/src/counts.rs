//! How many requests there have been, by outcome.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many requests there have been, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Accepted. Each of them is or will be one of `done`, `panicked` and `dropped`.
    pub accepted: u64,
    /// Not accepted.
    pub refused: u64,
    /// Handled to the end.
    pub done: u64,
    /// Ended by a panic of the handler.
    pub panicked: u64,
    /// Dropped at the stop.
    pub dropped: u64,
    /// Outcomes whose callback (or drop) panicked.
    pub failed_replies: u64,
}

/// One worker's counters. Only that worker writes them, and they share no cache line with those of
/// another worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounts {
    pub done: SingleWriterCounter,
    pub panicked: SingleWriterCounter,
    pub failed_replies: SingleWriterCounter,
}

/// A counter that one thread writes and any thread reads. `Relaxed` suffices: a reader gets a
/// count, and derives nothing else from it.
#[derive(Debug, Default)]
pub(crate) struct SingleWriterCounter(AtomicU64);

impl SingleWriterCounter {
    pub(crate) fn increment(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
