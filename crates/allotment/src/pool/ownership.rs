//! The protocol between a pool's owner and the threads that free its blocks: the remote list, and
//! the ownership of the pool.
//!
//! ```text
//!          end, blocks are live             adopted by the next pool of any thread
//! OWNED ────────────────────────▶ PARKED ────────────────────────────────────▶ OWNED
//!   │                             │    ▲
//!   │ end, no block is live       ▼    │ blocks are still live
//!   └──────────────▶ EMPTY ◀─ RECLAIMING    a thread that freed a block reclaims the list
//! ```
//!
//! A thread that frees another thread's block pushes it on the remote list. The owner takes the
//! whole list when an allocation takes the slow path, when the thread leaves its outermost pool,
//! and for `trim` and `statistics`. A parked pool has no owner to do that. So a thread that frees
//! a block of a parked pool claims the pool, puts the block on the pool's free lists, and releases
//! the memory with the last live block. If the pool is parked only after the block was pushed, or
//! another thread has claimed it, the block goes by the list.
//!
//! # Invariants
//!
//! 1. A thread that changed the state from `PARKED` to `RECLAIMING`, or from `PARKED` or `EMPTY` to
//!    `OWNED`, has exclusive access to the pool except its `Ownership`, until it writes the state
//!    again.
//! 2. A block is pushed once for each time that it was handed out. A block on the list counts as
//!    handed out until it is taken from the list. So the list of an empty pool is empty.
//! 3. No block stays on the list of a parked pool. The pushing thread reads the state after its
//!    push, and the parking thread reads the list after its write of the state, so at least one of
//!    them sees the other's write.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, fence, mutant, order};

/// A block on a remote list and its size class, stored in the block itself.
#[repr(C)]
#[derive(Debug)]
pub struct RemoteBlock {
    pub next: *mut RemoteBlock,
    /// The number of its class, or a number that is no class for a large block.
    pub class: usize,
}

/// Owned: only the owning thread reclaims blocks from the remote list.
pub const OWNED: u32 = 1;
/// Without an owner, with live blocks.
pub const PARKED: u32 = 2;
/// Without an owner, while one thread reclaims blocks from the remote list.
pub const RECLAIMING: u32 = 3;
/// Without an owner and without live blocks.
pub const EMPTY: u32 = 4;

/// A pool's remote list and state.
#[derive(Debug)]
pub struct Ownership {
    remote: AtomicPtr<RemoteBlock>,
    state: AtomicU32,
}

impl Ownership {
    /// The ownership of an empty pool.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { remote: AtomicPtr::new(core::ptr::null_mut()), state: AtomicU32::new(EMPTY) }
    }

    /// The ownership of an empty pool. Loom's atomics have no `const` constructor.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { remote: AtomicPtr::new(core::ptr::null_mut()), state: AtomicU32::new(EMPTY) }
    }

    /// Makes the caller the owner if the pool is empty. Returns whether it was.
    pub fn adopt_empty(&self) -> bool {
        self.transition(EMPTY, OWNED)
    }

    /// Makes the caller the owner if the pool is parked. Returns whether it was.
    fn adopt_parked(&self) -> bool {
        self.transition(PARKED, OWNED)
    }

    /// Makes the caller the owner if the pool is empty, or parked and `parked` is true. Returns
    /// whether it was parked, if the caller is the owner.
    pub fn adopt(&self, parked: bool) -> Option<bool> {
        let was_parked = parked && self.is_parked();
        let adopted = if was_parked { self.adopt_parked() } else { self.adopt_empty() };
        adopted.then_some(was_parked)
    }

    /// Gives up the ownership of a pool that was adopted empty and still is.
    pub fn release_empty(&self) {
        // Release pairs with the Acquire in `transition`.
        self.state.store(EMPTY, Ordering::Release);
    }

    /// Acquire pairs with the Release of the thread that wrote the state `from`: all that it did to
    /// the pool happens before.
    fn transition(&self, from: u32, to: u32) -> bool {
        let acquire = order(Ordering::Acquire, "transition: relaxed");
        self.state.compare_exchange(from, to, acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the list was not empty at the time of the call.
    #[inline(always)]
    pub fn has_remote(&self) -> bool {
        !self.remote.load(Ordering::Relaxed).is_null()
    }

    /// Pushes blocks that the caller freed, linked from `first` to `last`. Returns whether the pool
    /// was parked; if so, the caller must call [`reclaim_parked`](Self::reclaim_parked).
    ///
    /// # Safety
    /// The blocks belong to this pool, nothing else uses them, and each holds a [`RemoteBlock`].
    pub unsafe fn push(&self, first: *mut RemoteBlock, last: *mut RemoteBlock) -> bool {
        let parked_before = mutant("remote push: state read before") && self.is_parked();
        let mut head = self.remote.load(Ordering::Relaxed);
        loop {
            // SAFETY: passed on to the caller.
            unsafe { (*last).next = head };
            // Release pairs with the Acquire in `take`: it publishes the link, and everything done
            // with the blocks.
            match self.remote.compare_exchange_weak(
                head,
                first,
                order(Ordering::Release, "remote push: relaxed"),
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if mutant("remote push: state read before") {
            return parked_before;
        }
        // Pairs with the fence in `park`: here the push comes before the read of the state, there
        // the write of the state before the read of the list.
        fence(Ordering::SeqCst);
        self.is_parked()
    }

    /// Reclaims blocks that the caller freed, linked from `first` to `last`, and those on the list,
    /// if the pool is parked and no other thread reclaims. Returns whether it did; if not, the
    /// blocks are still the caller's. `reclaim` is as for [`end`](Self::end).
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub unsafe fn reclaim_if_parked(
        &self,
        first: *mut RemoteBlock,
        last: *mut RemoteBlock,
        mut reclaim: impl FnMut(*mut RemoteBlock) -> bool,
    ) -> bool {
        if !self.is_parked() || !self.transition(PARKED, RECLAIMING) {
            return false;
        }
        // SAFETY: passed on to the caller.
        unsafe { (*last).next = self.take() };
        if reclaim(first) {
            // Release pairs with the Acquire in `transition`.
            self.state.store(EMPTY, Ordering::Release);
        } else if self.park() {
            self.reclaim_parked(reclaim);
        }
        true
    }

    fn is_parked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == PARKED
    }

    /// Takes the whole list.
    pub fn take(&self) -> *mut RemoteBlock {
        if !self.has_remote() {
            return core::ptr::null_mut();
        }
        self.remote.swap(core::ptr::null_mut(), Ordering::Acquire)
    }

    /// Ends the ownership. `reclaim` gets a list and puts its blocks on the pool's free lists. It
    /// returns whether no block is live; in that case it has released the memory.
    pub fn end(&self, mut reclaim: impl FnMut(*mut RemoteBlock) -> bool) {
        if reclaim(self.take()) {
            // Release pairs with the Acquire in `transition`.
            return self.state.store(EMPTY, Ordering::Release);
        }
        if self.park() {
            self.reclaim_parked(reclaim);
        }
    }

    /// Gives up the ownership of a pool with live blocks. Returns whether the list has blocks to
    /// reclaim.
    fn park(&self) -> bool {
        // Release pairs with the Acquire in `transition`.
        self.state.store(PARKED, Ordering::Release);
        // Pairs with the fence in `push`: here the write of the state comes before the read of the
        // list.
        fence(Ordering::SeqCst);
        self.has_remote() && !mutant("park: list not read")
    }

    /// Reclaims the listed blocks of a parked pool, unless another thread does so or has adopted
    /// the pool. `reclaim` is as for [`end`](Self::end).
    pub fn reclaim_parked(&self, mut reclaim: impl FnMut(*mut RemoteBlock) -> bool) {
        while self.transition(PARKED, RECLAIMING) {
            if reclaim(self.take()) {
                // Release pairs with the Acquire in `transition`.
                return self.state.store(EMPTY, Ordering::Release);
            }
            if !self.park() {
                return;
            }
        }
    }
}
