//! The free objects of a list, in several chains.
//!
//! The fast paths use one chain, `head`. The others wait in a stack: the chain set aside last is
//! used next, so that the object freed last is still the first to be used. A sweep follows all
//! chains side by side. To follow one chain means to wait for memory at each step; to follow
//! sixteen side by side takes hardly longer.

use core::cell::Cell;
use core::ptr::NonNull;

use super::raw::Link;

/// The most chains that wait. When there would be one more, the current chain grows longer instead.
pub(super) const MAX_WAITING_CHAINS: usize = 16;

/// The chains that wait.
///
/// Each begins with a free object of the list and ends with null. It shares no object with another
/// chain or with `head` (raw.rs, invariant 2).
#[derive(Debug)]
pub(super) struct WaitingChains {
    waiting: [Cell<Option<NonNull<Link>>>; MAX_WAITING_CHAINS],
    count: Cell<usize>,
}

impl WaitingChains {
    pub(super) const fn new() -> Self {
        Self { waiting: [const { Cell::new(None) }; MAX_WAITING_CHAINS], count: Cell::new(0) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.get() == MAX_WAITING_CHAINS
    }

    /// Sets a chain aside. The caller has checked that there is room.
    pub(super) fn push(&self, first: NonNull<Link>) {
        let count = self.count.get();
        self.waiting[count].set(Some(first));
        self.count.set(count + 1);
    }

    /// Takes the chain that was set aside last.
    pub(super) fn pop(&self) -> Option<NonNull<Link>> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        self.waiting[count].get()
    }

    /// Forgets all chains: nothing on them is free any more.
    pub(super) fn clear(&self) {
        self.count.set(0);
    }

    /// The first object of each chain.
    pub(super) fn each(&self) -> impl Iterator<Item = NonNull<Link>> + '_ {
        self.waiting[..self.count.get()].iter().filter_map(Cell::get)
    }
}
