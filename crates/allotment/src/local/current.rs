//! The pool that a thread is in.
//!
//! A thread-local without initialisation or destructor: it can be asked at any time of a thread's life, and by a global
//! allocator.

use core::cell::Cell;
use core::ptr;

use super::core::Core;

/// What a thread is known by: the address of this, while it lives.
#[inline(always)]
pub(super) fn token() -> usize {
    CURRENT.with(|current| ptr::from_ref(current).addr())
}

thread_local! {
    /// The core of the pool that this thread entered last, or null.
    pub(super) static CURRENT: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

/// While it lives, another pool, or none, is the current one.
pub(super) struct Entered(*const Core);

impl Entered {
    pub(super) fn new(core: *const Core) -> Self {
        Self(CURRENT.with(|current| current.replace(core)))
    }

    /// It stays the current one. Returns the pool that was current before.
    pub(super) fn for_good(self) -> *const Core {
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
