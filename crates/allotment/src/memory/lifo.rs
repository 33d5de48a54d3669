//! A lock-free stack of indexes into a table whose entries never go away.
//!
//! The recycler's warm chunks and the free statistics records are kept on it: last in, first out, so that
//! the warmest is taken first.
//!
//! # Invariants
//!
//! 1. `head = tag << 32 | top`, and every successful exchange of `head` adds one to `tag`.
//! 2. An index on the stack, or taken and not yet pushed, belongs to one place: the stack's chain or the
//!    thread that took it. Only the thread that owns an index writes its `next`.
//! 3. The table's links are never unmapped. A `pop` may therefore read the `next` of an index that another
//!    thread took in the meantime; the value is stale, but the tag has moved (1) and the exchange fails.
//!
//! An untagged stack breaks in (3): taken, used and pushed again, the same top comes back with another
//! `next` below it (the ABA error). The tag has 32 bits, so a thread would have to sleep between its two
//! loads and its exchange through exactly 2^32 exchanges to be deceived. `tests/loom_lifo.rs` keeps the
//! untagged version and shows that it fails.
//!
//! The idea is Treiber's stack (IBM RJ 5118, 1986) with a counted head.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No index: the bottom of the stack.
pub const NIL: u32 = u32::MAX;

/// A table of links. The links stay valid as long as the table's stacks are used.
pub trait Links {
    /// The link of an index that was handed out by this table.
    fn next(&self, index: u32) -> &AtomicU32;
}

/// A stack. One table may serve many; an index is on one of them at a time.
#[derive(Debug)]
pub struct Lifo {
    head: AtomicU64,
}

const fn pack(tag: u32, top: u32) -> u64 {
    ((tag as u64) << 32) | top as u64
}

const fn top_of(head: u64) -> u32 {
    head as u32
}

const fn tag_of(head: u64) -> u32 {
    (head >> 32) as u32
}

impl Lifo {
    /// An empty stack.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { head: AtomicU64::new(pack(0, NIL)) }
    }

    /// An empty stack; loom's atomics can't be made in a constant.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicU64::new(pack(0, NIL)) }
    }

    /// Pushes a chain that the caller owns: `first`, its links, down to `last`.
    pub fn push_chain(&self, links: &impl Links, first: u32, last: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            links.next(last).store(top_of(head), Ordering::Relaxed);
            // Release pairs with the Acquire of `pop` and `take_all`: who takes an index sees what its
            // former owner wrote (its link, and the chunk behind it). Pops in between keep the release
            // sequence, being read-modify-writes.
            match self.head.compare_exchange_weak(
                head,
                pack(tag_of(head).wrapping_add(1), first),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Pushes one index that the caller owns.
    pub fn push(&self, links: &impl Links, index: u32) {
        self.push_chain(links, index, index);
    }

    /// Takes the index pushed last.
    pub fn pop(&self, links: &impl Links) -> Option<u32> {
        // Acquire pairs with the Release of `push_chain`: the link of `top` is the one its pusher wrote.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let top = top_of(head);
            if top == NIL {
                return None;
            }
            // Possibly stale (invariant 3); then the exchange fails.
            let next = links.next(top).load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                pack(tag_of(head).wrapping_add(1), next),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }

    /// Takes the whole chain: its first index; the others follow by their links down to [`NIL`].
    pub fn take_all(&self) -> u32 {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if top_of(head) == NIL {
                return NIL;
            }
            // Acquire: as in `pop`.
            match self.head.compare_exchange_weak(
                head,
                pack(tag_of(head).wrapping_add(1), NIL),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return top_of(head),
                Err(now) => head = now,
            }
        }
    }

    /// Whether nothing was on the stack at this instant.
    pub fn is_empty(&self) -> bool {
        top_of(self.head.load(Ordering::Relaxed)) == NIL
    }
}
