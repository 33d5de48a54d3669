//! The thread's current pool.
//!
//! A thread-local without initialisation or destructor: it can be read at any time in a thread's
//! life, and by a global allocator.

use core::cell::Cell;
use core::ptr;

use super::shared::Shared;

/// Identifies the thread while it runs: the address of its `CURRENT`.
#[inline(always)]
pub(super) fn token() -> usize {
    CURRENT.with(|current| ptr::from_ref(current).addr())
}

thread_local! {
    /// The core of the pool that this thread entered last and has not left, or null.
    pub(super) static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// Makes another pool, or none, the current one while this value exists.
pub(super) struct Entered(*const Shared);

impl Entered {
    pub(super) fn new(core: *const Shared) -> Self {
        Self(CURRENT.with(|current| current.replace(core)))
    }

    /// Keeps the current pool after this value is gone. Returns the pool that was current before.
    pub(super) fn for_good(self) -> *const Shared {
        let before = self.0;
        core::mem::forget(self);
        before
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}
