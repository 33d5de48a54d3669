//! Which thread owns a thread cache, if one does.
//!
//! A cache that its thread has left stays allocated, and the next thread that needs one attaches to
//! it.

use crate::sync::{AtomicBool, Ordering, order};

/// Whether a thread owns a cache. Only the owner reads and writes what the cache holds.
#[derive(Debug)]
pub struct CacheOwnership {
    owned: AtomicBool,
}

impl CacheOwnership {
    /// Owned by the thread that makes the cache.
    #[cfg(not(loom))]
    pub const fn owned() -> Self {
        Self { owned: AtomicBool::new(true) }
    }

    /// The same for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    pub fn owned() -> Self {
        Self { owned: AtomicBool::new(true) }
    }

    /// Makes the calling thread the owner, if there is none. Returns whether it succeeded.
    pub fn try_acquire(&self) -> bool {
        // Acquire pairs with the Release in `release`: the previous owner's accesses happen before.
        !self.owned.load(Ordering::Relaxed)
            && self
                .owned
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Gives up the ownership. The caller has emptied the cache.
    pub fn release(&self) {
        // Release pairs with the Acquire in `try_acquire`.
        self.owned.store(false, order(Ordering::Release, "detach: relaxed"));
    }
}
