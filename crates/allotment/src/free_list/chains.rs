//! Free objects, linked into chains.
//!
//! The fast paths use one chain, which begins at the list's `head`. The others wait in a stack: the
//! chain set aside last is used next, so that the object freed last is still the first to be used.
//! A sweep follows all chains side by side. To follow one chain means to wait for memory at each
//! step; to follow sixteen side by side takes hardly longer. This is for lists whose objects are
//! freed in random order.

use core::cell::Cell;
use core::ptr::NonNull;

/// What a free object holds: the address of the next one, or null.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct ListLink(pub(super) Cell<*mut ListLink>);

/// The most chains that wait. When there would be one more, the current chain grows longer instead.
pub(super) const MAX_WAITING_CHAINS: usize = 16;

/// The chains that wait.
///
/// Each begins with a free object of the list and ends with null. It shares no object with another
/// chain or with `head` (raw.rs, invariant 2).
#[derive(Debug)]
pub(super) struct WaitingChains {
    firsts: [Cell<Option<NonNull<ListLink>>>; MAX_WAITING_CHAINS],
    count: Cell<usize>,
}

impl WaitingChains {
    pub(super) const fn new() -> Self {
        Self { firsts: [const { Cell::new(None) }; MAX_WAITING_CHAINS], count: Cell::new(0) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.get() == MAX_WAITING_CHAINS
    }

    /// Sets a chain aside. The caller has checked that the stack is not full.
    pub(super) fn push(&self, first: NonNull<ListLink>) {
        let count = self.count.get();
        self.firsts[count].set(Some(first));
        self.count.set(count + 1);
    }

    /// Takes the chain that was set aside last.
    pub(super) fn pop(&self) -> Option<NonNull<ListLink>> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        self.firsts[count].get()
    }

    /// Forgets all chains. The caller has taken their objects, or no longer counts them as free.
    pub(super) fn clear(&self) {
        self.count.set(0);
    }

    /// The first object of each chain.
    pub(super) fn firsts(&self) -> impl Iterator<Item = NonNull<ListLink>> + '_ {
        self.firsts[..self.count.get()].iter().filter_map(Cell::get)
    }
}
