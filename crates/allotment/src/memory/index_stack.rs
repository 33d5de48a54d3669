//! A lock-free stack of indexes into a table whose entries are never unmapped.
//!
//! It holds the recycler's warm chunks and the free statistics records. Last in, first out: the
//! warmest chunk is taken first.
//!
//! # Invariants
//!
//! 1. `head = tag << 32 | top`, and every successful exchange of `head` adds one to `tag`.
//! 2. An index has one owner: the stack's chain, or the thread that took it and has not pushed it
//!    yet. Only the thread that owns an index writes its `next`.
//! 3. The table's links are never unmapped. So a `pop` may read the `next` of an index that another
//!    thread took in the meantime. The value is stale, but the tag has changed (1) and the exchange
//!    fails.
//!
//! Without a tag, the stack breaks in (3): an index that was popped, used and pushed again is the
//! same `top` with another `next` below it (the ABA problem). The tag has 32 bits. To be misled, a
//! thread would have to sleep between its two loads and its exchange through exactly 2^32
//! exchanges. `tests/loom_index_stack.rs` shows that the stack fails without a tag.
//!
//! The idea is Treiber's stack (IBM RJ 5118, 1986) with a counted head.

use crate::sync::{AtomicU32, AtomicU64, Ordering, mutant, order};

/// No index: the bottom of the stack.
pub const NIL: u32 = u32::MAX;

/// A table of links. The links stay valid as long as the table's stacks are in use.
pub trait Links {
    /// The link of an index that was handed out by this table.
    fn next(&self, index: u32) -> &AtomicU32;
}

/// A stack. One table may serve many stacks; an index is on one of them at a time.
#[derive(Debug)]
pub struct IndexStack {
    head: AtomicU64,
}

const fn pack(tag: u32, top: u32) -> u64 {
    ((tag as u64) << 32) | top as u64
}

const fn top_of(head: u64) -> u32 {
    head as u32
}

/// The head that follows this one (invariant 1).
fn next_head(head: u64, top: u32) -> u64 {
    let tag = if mutant("stack: not counted") { 0 } else { 1 };
    pack(((head >> 32) as u32).wrapping_add(tag), top)
}

impl IndexStack {
    /// An empty stack.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { head: AtomicU64::new(pack(0, NIL)) }
    }

    /// An empty stack, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicU64::new(pack(0, NIL)) }
    }

    /// Pushes a chain that the caller owns: `first`, and the indexes linked from it down to `last`.
    pub fn push_chain(&self, links: &impl Links, first: u32, last: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            links.next(last).store(top_of(head), Ordering::Relaxed);
            // Release pairs with the Acquire of `pop` and `take_all`: a thread that takes an index
            // sees what its former owner wrote (its link, and the chunk behind it). Pops in between
            // are read-modify-writes, so they continue the release sequence.
            match self.head.compare_exchange_weak(
                head,
                next_head(head, first),
                order(Ordering::Release, "stack push: relaxed"),
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

    /// Pops the index pushed last.
    pub fn pop(&self, links: &impl Links) -> Option<u32> {
        // Acquire pairs with the Release of `push_chain`: the link of `top` is what its pusher
        // wrote.
        let acquire = order(Ordering::Acquire, "stack pop: relaxed");
        let mut head = self.head.load(acquire);
        loop {
            let top = top_of(head);
            if top == NIL {
                return None;
            }
            // This may be stale (invariant 3). Then the exchange fails.
            let next = links.next(top).load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, next_head(head, next), acquire, acquire) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }

    /// Pops the whole chain and returns its first index. The other indexes follow by their links,
    /// down to [`NIL`].
    pub fn take_all(&self) -> u32 {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if top_of(head) == NIL || mutant("trim: chain not taken") {
                return top_of(head);
            }
            // Acquire: as in `pop`.
            match self.head.compare_exchange_weak(
                head,
                next_head(head, NIL),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return top_of(head),
                Err(now) => head = now,
            }
        }
    }

    /// The number of indexes on the stack, while no other thread uses it.
    pub fn count(&self, links: &impl Links) -> usize {
        let top = |index: u32| (index != NIL).then_some(index);
        let first = top(top_of(self.head.load(Ordering::Relaxed)));
        core::iter::successors(first, |index| top(links.next(*index).load(Ordering::Relaxed)))
            .count()
    }

    /// Whether the stack was empty at this instant.
    pub fn is_empty(&self) -> bool {
        top_of(self.head.load(Ordering::Relaxed)) == NIL
    }
}
