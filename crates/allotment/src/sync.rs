//! The one switch between the standard library's atomics and loom's.
//!
//! Every protocol between threads takes its atomics from here, so that the code that ships is the code
//! that loom explores (`--cfg loom`). Statistics are counters, not a protocol; they use the standard
//! library's directly.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
