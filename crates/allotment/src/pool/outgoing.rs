//! Blocks of another pool that the current pool's thread has freed: they are collected and sent to
//! their pool together.
//!
//! # Invariant
//!
//! `first` to `last` are `count` linked blocks of the pool `to`. Their users have freed them, and
//! only this batch refers to them. If `count` is 0, the other fields mean nothing.

use core::cell::Cell;
use core::ptr;

use super::ownership::RemoteBlock;

/// A batch with this number of blocks is full.
const BATCH: usize = 32;

/// Freed blocks of one pool `P` that wait to be sent to it.
#[derive(Debug)]
pub(super) struct OutgoingBatch<P> {
    to: Cell<*const P>,
    first: Cell<*mut RemoteBlock>,
    last: Cell<*mut RemoteBlock>,
    count: Cell<usize>,
}

impl<P> OutgoingBatch<P> {
    pub(super) const fn empty() -> Self {
        Self {
            to: Cell::new(ptr::null()),
            first: Cell::new(ptr::null_mut()),
            last: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
        }
    }

    /// Whether a block of this pool can be added: the batch is empty or belongs to the same pool.
    pub(super) fn accepts(&self, to: &P) -> bool {
        self.count.get() == 0 || ptr::eq(self.to.get(), to)
    }

    /// Adds a block to a batch that [`accepts`](Self::accepts) its pool. Returns whether the batch
    /// is full.
    ///
    /// # Safety
    /// The block holds a `RemoteBlock` of that pool. Its user has freed it, and nothing else refers
    /// to it.
    pub(super) unsafe fn add(&self, to: &P, block: *mut RemoteBlock) -> bool {
        if self.count.get() == 0 {
            self.to.set(to);
            self.last.set(block);
        }
        // SAFETY: passed on to the caller.
        unsafe { (*block).next = self.first.replace(block) };
        self.count.set(self.count.get() + 1);
        self.count.get() >= BATCH
    }

    /// Empties the batch. Returns the pool and the first and last block, unless it was empty.
    pub(super) fn take(&self) -> Option<(*const P, *mut RemoteBlock, *mut RemoteBlock)> {
        if self.count.replace(0) == 0 {
            return None;
        }
        Some((self.to.get(), self.first.replace(ptr::null_mut()), self.last.get()))
    }
}
