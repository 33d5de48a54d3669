//! A lock for a few instructions, by threads that hold no other one and do not allocate.

use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering};

/// The lock.
#[derive(Debug)]
pub struct SpinLock(AtomicU32);

impl SpinLock {
    /// A lock that nobody holds.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits for it, and holds it until the guard is dropped.
    pub fn take(&self) -> SpinLockGuard<'_> {
        // Pairs with the store of the guard: all is as the last thread left it.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            sys::yield_now();
        }
        SpinLockGuard(self)
    }

    /// In the child of a fork: a thread that held it is not there.
    pub fn free_in_child(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Default for SpinLock {
    fn default() -> Self {
        Self::new()
    }
}

/// A lock that is held.
#[derive(Debug)]
pub struct SpinLockGuard<'l>(&'l SpinLock);

impl Drop for SpinLockGuard<'_> {
    fn drop(&mut self) {
        // Pairs with the exchange in `take`.
        self.0.0.store(0, Ordering::Release);
    }
}
