//! The one switch between the standard library's atomics and loom's.
//!
//! Every protocol between threads takes its atomics from here, so that the code that ships is the code
//! that loom explores (`--cfg loom`). Statistics are counters, not a protocol; they use the standard
//! library's directly.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Stands between a thread's read-modify-write or store and its load of what another thread writes, where that
/// one does the same the other way round, and at least one of them has to see the other's write.
///
/// All four accesses are sequentially consistent, which is enough. Loom takes such accesses for acquire and
/// release alone, and knows sequential consistency of fences only: for it, this is one.
#[inline(always)]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
