//! The thread chunk: one chunk that each thread keeps for itself.
//!
//! The shared recycler costs a few locked instructions, which take longer than a small request
//! does. So each thread keeps the last small chunk that it gave back, and takes that one first. A
//! loop that makes an arena for each small request then accesses nothing shared. A thread keeps at
//! most one chunk, of at most [`MAX_HOT`] bytes. With a larger cache for each thread, every thread
//! would fault in its own working set.
//!
//! # Invariants
//!
//! 1. Only the thread's slot owns the thread chunk: `put` gives it to the slot, `take` takes it
//!    out, and the slot's destructor gives it to the recycler.
//! 2. Only chunks of ordinary pages with a link are kept here, so that the recycler can take them.

use core::cell::Cell;
use std::thread::LocalKey;

use super::global_recycler::cache;
use super::lifo::NIL;
use super::recycler::{Backing, Warm};

/// The largest chunk that a thread keeps, in bytes.
pub(crate) const MAX_HOT: usize = 64 << 10;

struct Slot {
    chunk: Cell<Option<(Warm, usize)>>,
    /// Counts the chunks put here. Every 256th runs the recycler's decay, as giving a chunk to the
    /// recycler would.
    turns: Cell<u8>,
}

thread_local! {
    static SLOT: Slot = const { Slot { chunk: Cell::new(None), turns: Cell::new(0) } };
}

/// Runs `work` on the slot, unless the thread is ending and the slot has been destroyed.
fn with_slot<R>(work: impl FnOnce(&Slot) -> R) -> Option<R> {
    let key: &LocalKey<Slot> = &SLOT;
    key.try_with(work).ok()
}

/// Takes the thread chunk, with its size, if it has at least `size` bytes.
#[inline]
pub(crate) fn take(size: usize) -> Option<(Warm, usize)> {
    if size > MAX_HOT {
        return None;
    }
    with_slot(|slot| match slot.chunk.get() {
        Some(chunk) if chunk.1 >= size => slot.chunk.take(),
        _ => None,
    })?
}

/// Keeps a chunk as the thread chunk, if it is small enough and larger than the one already there.
/// Returns whether it took the chunk.
#[inline]
pub(crate) fn put(chunk: Warm, size: usize) -> bool {
    if size > MAX_HOT || chunk.link == NIL || size > cache().allowed() {
        return false;
    }
    with_slot(|slot| {
        if slot.chunk.get().is_some_and(|(_, at_hand)| at_hand >= size) {
            return false;
        }
        if let Some((smaller, its_size)) = slot.chunk.replace(Some((chunk, size))) {
            give(smaller, its_size);
        }
        slot.turns.set(slot.turns.get().wrapping_add(1));
        if slot.turns.get() == 0 {
            cache().give(0).finish();
        }
        true
    })
    .unwrap_or(false)
}

/// Gives the calling thread's chunk to the recycler.
pub(crate) fn flush() {
    if let Some(Some((chunk, size))) = with_slot(|slot| slot.chunk.take()) {
        give(chunk, size);
    }
}

fn give(chunk: Warm, size: usize) {
    let mut giving = cache().give(size);
    // SAFETY: only the slot owned the chunk (invariant 1). It has ordinary pages (2) and holds
    // nothing.
    unsafe { giving.add(Backing::Pages, chunk, size) };
    giving.finish();
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((chunk, size)) = self.chunk.take() {
            give(chunk, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::os;

    fn chunk(size: usize) -> Warm {
        let start = os::map(size, 1).unwrap();
        Warm { start, link: cache().link(start, size) }
    }

    #[test]
    fn the_larger_of_two_small_chunks_stays_at_hand_and_comes_back() {
        std::thread::spawn(|| {
            let (small, large) = (chunk(8 << 10), chunk(32 << 10));
            assert!(put(small, 8 << 10));
            assert!(put(large, 32 << 10));
            assert_eq!(take(64 << 10), None);
            assert_eq!(take(4 << 10), Some((large, 32 << 10)));
            assert_eq!(take(4 << 10), None);
            give(large, 32 << 10);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_chunk_above_the_bound_is_not_kept() {
        let large = chunk(128 << 10);
        assert!(!put(large, 128 << 10));
        give(large, 128 << 10);
    }
}
