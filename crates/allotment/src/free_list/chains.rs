//! The free objects of a list, in several chains.
//!
//! The fast paths know one chain, `head`. Others wait behind it, the one that was set aside last to be used next, so that
//! what was freed last is still the first to be used. A look follows all of them side by side: to follow a chain is to
//! wait for memory at each step, and to follow sixteen takes hardly longer than one.

use core::cell::Cell;
use core::ptr::NonNull;

use super::raw::Link;

/// So many chains wait at the most; where one more would, the last one grows longer.
pub(super) const MOST_CHAINS: usize = 16;

/// The chains that wait.
///
/// Each one begins with a free object of the list's, ends with null, and shares none with another one or with `head`
/// (raw.rs, invariant 2).
#[derive(Debug)]
pub(super) struct Chains {
    waiting: [Cell<Option<NonNull<Link>>>; MOST_CHAINS],
    count: Cell<usize>,
}

impl Chains {
    pub(super) const fn new() -> Self {
        Self { waiting: [const { Cell::new(None) }; MOST_CHAINS], count: Cell::new(0) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.get() == MOST_CHAINS
    }

    /// Sets a chain aside. There is room.
    pub(super) fn push(&self, first: NonNull<Link>) {
        let count = self.count.get();
        self.waiting[count].set(Some(first));
        self.count.set(count + 1);
    }

    /// The chain that was set aside last.
    pub(super) fn pop(&self) -> Option<NonNull<Link>> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        self.waiting[count].get()
    }

    /// Nothing on them is free any more.
    pub(super) fn clear(&self) {
        self.count.set(0);
    }

    /// The first object of each.
    pub(super) fn each(&self) -> impl Iterator<Item = NonNull<Link>> + '_ {
        self.waiting[..self.count.get()].iter().filter_map(Cell::get)
    }
}
