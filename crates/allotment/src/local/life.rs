//! The protocol between a pool's owner and the threads that free its blocks: the remote list, and the pool's life.
//!
//! ```text
//!            end, something lives             adopted by the next pool of any thread
//! OWNED ────────────────────────▶ PARKED ────────────────────────────────────▶ OWNED
//!   │                             │    ▲
//!   │ end, nothing lives          ▼    │ something still lives
//!   └──────────────▶ EMPTY ◀───── BUSY ┘      a remote free collects
//! ```
//!
//! A block that another thread frees is pushed on the remote list. The owner takes the whole list whenever it has no free
//! block of a class, enters or leaves. Nobody collects for a parked pool, so whoever pushes on one's list claims it, puts the
//! list's blocks where they belong, and gives the memory back with the last one.
//!
//! # Invariants
//!
//! 1. Who brought the state from `PARKED` to `BUSY`, or from `PARKED` or `EMPTY` to `OWNED`, alone touches what the pool
//!    has beside this, until he writes the state again.
//! 2. A block is pushed once for each time that it was handed out. One that is on the list counts as handed out until it
//!    was taken from it: so nothing is on the list of an empty pool.
//! 3. Nothing stays on the list of a parked pool: who pushes looks at the state after that, who parks looks at the list
//!    after that, and one of them sees the other's write.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, fence};

/// A block on a remote list, with what is known of it. It lies in the block itself.
#[repr(C)]
#[derive(Debug)]
pub struct Remote {
    pub next: *mut Remote,
    /// The number of its class, or of none.
    pub class: usize,
}

/// Somebody's: only he puts blocks back.
pub const OWNED: u32 = 1;
/// Nobody's, with blocks that live.
pub const PARKED: u32 = 2;
/// Nobody's, and somebody puts blocks back.
pub const BUSY: u32 = 3;
/// Nobody's, with nothing that lives.
pub const EMPTY: u32 = 4;

/// A pool's remote list and state.
#[derive(Debug)]
pub struct Life {
    remote: AtomicPtr<Remote>,
    state: AtomicU32,
}

impl Life {
    /// An empty pool's.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { remote: AtomicPtr::new(core::ptr::null_mut()), state: AtomicU32::new(EMPTY) }
    }

    /// An empty pool's; loom's atomics can't be made in a constant.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { remote: AtomicPtr::new(core::ptr::null_mut()), state: AtomicU32::new(EMPTY) }
    }

    /// Makes an empty pool the caller's.
    pub fn adopt_empty(&self) -> bool {
        self.turn(EMPTY, OWNED)
    }

    /// Makes a parked pool the caller's.
    pub fn adopt_parked(&self) -> bool {
        self.turn(PARKED, OWNED)
    }

    /// Lets go of an empty pool that was adopted.
    pub fn release_empty(&self) {
        // Release pairs with the Acquire in `turn`.
        self.state.store(EMPTY, Ordering::Release);
    }

    /// Acquire pairs with the Release of who wrote the state: what he did to the pool comes before.
    fn turn(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the list was not empty at this instant.
    #[inline(always)]
    pub fn has_remote(&self) -> bool {
        !self.remote.load(Ordering::Relaxed).is_null()
    }

    /// Pushes blocks that the caller freed, linked from `first` to `last`. Whether the pool was parked, so that the caller
    /// has to [`collect`](Self::collect).
    ///
    /// # Safety
    /// They are this pool's, and nobody's; each holds a [`Remote`].
    pub unsafe fn push(&self, first: *mut Remote, last: *mut Remote) -> bool {
        let mut head = self.remote.load(Ordering::Relaxed);
        loop {
            // SAFETY: passed on to the caller.
            unsafe { (*last).next = head };
            // Release pairs with the Acquire in `take`: the link, and all that was done with the blocks.
            match self.remote.compare_exchange_weak(
                head,
                first,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // Pairs with the one in `park`: the push, then the look at the state.
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Relaxed) == PARKED
    }

    /// Takes the whole list.
    pub fn take(&self) -> *mut Remote {
        self.remote.swap(core::ptr::null_mut(), Ordering::Acquire)
    }

    /// Ends the owner's time. `put_back` takes a list and puts its blocks where they belong, and says whether nothing lives
    /// any more; it gives the memory back then.
    pub fn end(&self, mut put_back: impl FnMut(*mut Remote) -> bool) {
        if put_back(self.take()) {
            // Release pairs with the Acquire in `turn`.
            return self.state.store(EMPTY, Ordering::Release);
        }
        if self.park() {
            self.collect(put_back);
        }
    }

    /// Lets go of a pool with blocks that live. Whether there is something to collect.
    fn park(&self) -> bool {
        // Release pairs with the Acquire in `turn`.
        self.state.store(PARKED, Ordering::Release);
        // Pairs with the one in `push`: the state, then the look at the list.
        fence(Ordering::SeqCst);
        self.has_remote()
    }

    /// Puts the list's blocks back for a parked pool, unless somebody else does, or has adopted it.
    pub fn collect(&self, mut put_back: impl FnMut(*mut Remote) -> bool) {
        while self.turn(PARKED, BUSY) {
            if put_back(self.take()) {
                // Release pairs with the Acquire in `turn`.
                return self.state.store(EMPTY, Ordering::Release);
            }
            if !self.park() {
                return;
            }
        }
    }
}
