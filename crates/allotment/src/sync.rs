//! The only switch between the standard library's atomics and loom's.
//!
//! A protocol between threads that has a model takes its atomics from here. So the code that ships
//! is the code that loom explores (`--cfg loom`). Other files use the standard library's atomics:
//! those with counters that order nothing, and the protocols without a model, which
//! `docs/src/decisions/loom.md` lists with the reasons.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Orders a write before a later load in the store-buffering pattern: each of two threads writes
/// one location and then loads the location that the other thread writes. At least one of the
/// threads must see the other's write. The caller puts this between its write (a store or a
/// read-modify-write) and its load.
///
/// All four accesses are sequentially consistent, which is enough. Loom treats sequentially
/// consistent accesses as acquire and release only, and models sequential consistency for fences
/// alone. Under loom this function is such a fence.
#[inline(always)]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
