//! The only switch between the standard library's atomics and loom's.
//!
//! A protocol between threads that has a model takes its atomics from here. So the code that ships
//! is the code that loom explores (`--cfg loom`). Other files use the standard library's atomics:
//! those with counters that order nothing, and the protocols without a model, which
//! `docs/src/decisions/loom.md` lists with the reasons.

#[cfg(all(system_memory, not(loom)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Orders a write before a later load in the store-buffering pattern: each of two threads writes
/// one location and then loads the location that the other thread writes. At least one of the
/// threads must see the other's write. The caller puts this between its write (a store or a
/// read-modify-write) and its load.
///
/// All four accesses are sequentially consistent, which is enough. Loom treats sequentially
/// consistent accesses as acquire and release only, and models sequential consistency for fences
/// alone. Under loom this function is such a fence.
#[cfg(system_memory)]
#[inline(always)]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Whether a model explores this *mutant*: the code that ships with one step wrong. A model must
/// fail on each mutant, which shows that it would find the mistake. `false` without loom, so the
/// compiler removes what depends on it.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn mutant(_name: &str) -> bool {
    false
}
#[cfg(loom)]
pub use of_loom::{Mutant, mutant};

/// The ordering `shipped`, or a weaker one in the [`mutant`] `weaker_in`: `AcqRel` instead of
/// `SeqCst`, which only read-modify-writes pass here, and `Relaxed` instead of any other.
#[cfg(system_memory)]
#[inline(always)]
pub(crate) fn order(shipped: Ordering, weaker_in: &str) -> Ordering {
    match shipped {
        _ if !mutant(weaker_in) => shipped,
        Ordering::SeqCst => Ordering::AcqRel,
        _ => Ordering::Relaxed,
    }
}

#[cfg(loom)]
mod of_loom {
    use core::cell::Cell;

    std::thread_local! {
        /// The mutant that the models on this system thread explore. Loom runs all threads of a
        /// model on one system thread.
        static EXPLORED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// While this value lives, the models that run on this system thread explore one mutant.
    pub struct Mutant(());

    impl Mutant {
        #[must_use]
        pub fn new(name: &'static str) -> Self {
            assert_eq!(EXPLORED.replace(Some(name)), None, "one step is wrong");
            Self(())
        }
    }

    impl Drop for Mutant {
        fn drop(&mut self) {
            EXPLORED.set(None);
        }
    }

    pub fn mutant(name: &str) -> bool {
        EXPLORED.get() == Some(name)
    }
}
