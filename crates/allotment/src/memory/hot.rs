//! The chunk that each thread keeps at hand.
//!
//! A small request takes less time than the few locked instructions that the shared recycler costs it. So each
//! thread keeps the last small chunk that it gave back, and takes that first: a loop that makes an arena for
//! each small request touches nothing shared. One chunk of at most [`MAX_HOT`] bytes a thread is the bound;
//! a cache for each thread that holds more makes every thread fault a working set of its own in.
//!
//! # Invariants
//!
//! 1. A chunk at hand is owned by its thread's slot, and by nothing else: `put` takes it over, `take` hands it
//!    out, and the slot's destructor gives it to the recycler.
//! 2. Only chunks of ordinary pages with a link come here, so that the recycler can take them.

use core::cell::Cell;
use std::thread::LocalKey;

use super::lifo::NIL;
use super::process::cache;
use super::recycler::{Backing, Warm};

/// The largest chunk that is kept at hand.
pub(crate) const MAX_HOT: usize = 64 << 10;

struct Slot {
    chunk: Cell<Option<(Warm, usize)>>,
    /// Chunks put here; every 256th looks after the recycler's decay, as a chunk given there would.
    turns: Cell<u8>,
}

thread_local! {
    static SLOT: Slot = const { Slot { chunk: Cell::new(None), turns: Cell::new(0) } };
}

/// The slot, unless the thread is so near its end that it is gone.
fn with_slot<R>(work: impl FnOnce(&Slot) -> R) -> Option<R> {
    let key: &LocalKey<Slot> = &SLOT;
    key.try_with(work).ok()
}

/// The chunk at hand and its size, if it has at least `size` bytes.
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

/// Keeps a chunk at hand, if it is small and none as large is there. Whether it was taken over.
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
    // SAFETY: the chunk was the slot's alone (invariant 1), of ordinary pages (2), with nothing in it.
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
