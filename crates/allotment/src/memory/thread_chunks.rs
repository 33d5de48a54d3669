//! The thread chunks: two small chunks that each thread keeps for itself.
//!
//! The shared recycler costs a few locked instructions, which take longer than a small request
//! does. So each thread keeps the last small chunks that it gave back, and takes those first. A
//! loop that makes an arena for each small request then accesses nothing shared. (`allot bench
//! query-small` measures it.) A thread keeps at most two chunks, of at most [`SMALL_SIZE`] and
//! [`MAX_SIZE`] bytes. With a larger cache for each thread, every thread would fault in its own
//! working set.
//!
//! A thread chunk may be larger than what is asked for, because a request that has filled such a
//! chunk is probably followed by another of its kind. But small arenas that live on must not hold
//! the chunks of large ones. So a chunk is at most [`MAX_RATIO`] times as large as what was asked
//! for, with one exception: the thread *lends* one larger chunk, and no other until that one comes
//! back. It is memory that the thread would otherwise keep.
//!
//! # Invariants
//!
//! 1. Only the thread's `ThreadChunks` owns the chunks: `put` puts one in, `take` takes one out,
//!    and the destructor gives them to the recycler.
//! 2. Only chunks of ordinary pages with a mapping number are kept here, so that the recycler can
//!    take them.

use core::cell::Cell;

use super::chunk_cache::{Backing, WarmChunk};
use super::index_stack::NIL;
use super::process_cache::cache;
use super::small_chunks::MAX_SMALL;

/// The largest chunk that a thread keeps, in bytes.
const MAX_SIZE: usize = MAX_SMALL;

/// The largest chunk in the first slot, in bytes.
const SMALL_SIZE: usize = 16 << 10;

/// How many times as large as the size asked for a thread chunk may be.
const MAX_RATIO: usize = 4;

/// A chunk and its size.
type Slot = Cell<Option<(WarmChunk, usize)>>;

struct ThreadChunks {
    /// A chunk of at most [`SMALL_SIZE`] bytes.
    small: Slot,
    /// A larger chunk.
    large: Slot,
    /// The mapping number of the chunk that is lent, or [`NIL`].
    lent: Cell<u32>,
    /// Counts the chunks put here. Every 256th runs the recycler's decay, as giving a chunk to the
    /// recycler would.
    put_count: Cell<u8>,
}

thread_local! {
    static THREAD_CHUNKS: ThreadChunks = const {
        ThreadChunks {
            small: Cell::new(None),
            large: Cell::new(None),
            lent: Cell::new(NIL),
            put_count: Cell::new(0),
        }
    };
}

/// Runs `work` on the thread's chunks, unless the thread is ending and has destroyed them.
#[inline]
fn with_own<R>(work: impl FnOnce(&ThreadChunks) -> R) -> Option<R> {
    THREAD_CHUNKS.try_with(work).ok()
}

/// Takes a thread chunk, with its size, if it has at least `size` bytes; if `exact`, no more.
#[inline]
pub(crate) fn take(size: usize, exact: bool) -> Option<(WarmChunk, usize)> {
    if size > MAX_SIZE {
        return None;
    }
    with_own(|own| {
        for slot in [&own.large, &own.small] {
            let Some((chunk, kept)) = slot.get() else { continue };
            if kept == size {
                return slot.take();
            }
            if kept > size && !exact {
                if kept <= size * MAX_RATIO {
                    return slot.take();
                }
                if own.lent.get() == NIL {
                    own.lent.set(chunk.mapping);
                    return slot.take();
                }
            }
        }
        None
    })?
}

/// Keeps a chunk as a thread chunk, if it is small enough and larger than the one in its slot.
/// Returns whether it took the chunk.
#[inline]
pub(crate) fn put(chunk: WarmChunk, size: usize) -> bool {
    if size > MAX_SIZE || chunk.mapping == NIL {
        return false;
    }
    with_own(|own| {
        if own.lent.get() == chunk.mapping {
            own.lent.set(NIL);
        }
        if size > cache().allowed() {
            return false;
        }
        let slot = if size > SMALL_SIZE { &own.large } else { &own.small };
        if slot.get().is_some_and(|(_, kept_size)| kept_size >= size) {
            return false;
        }
        if let Some((smaller, its_size)) = slot.replace(Some((chunk, size))) {
            recycle(smaller, its_size);
        }
        own.put_count.set(own.put_count.get().wrapping_add(1));
        if own.put_count.get() == 0 {
            cache().recycle(0).finish();
        }
        true
    })
    .unwrap_or(false)
}

/// Gives the calling thread's chunks to the recycler.
pub(crate) fn flush() {
    let _ = with_own(ThreadChunks::flush);
}

fn recycle(chunk: WarmChunk, size: usize) {
    let mut batch = cache().recycle(size);
    // SAFETY: only the `ThreadChunks` owned the chunk (invariant 1). It has ordinary pages (2) and
    // holds nothing.
    unsafe { batch.add(Backing::Pages, chunk, size) };
    batch.finish();
}

impl ThreadChunks {
    fn flush(&self) {
        for slot in [&self.small, &self.large] {
            if let Some((chunk, size)) = slot.take() {
                recycle(chunk, size);
            }
        }
    }
}

impl Drop for ThreadChunks {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::os;

    fn chunk(size: usize) -> WarmChunk {
        let start = os::map(size, 1).unwrap();
        WarmChunk { start, mapping: cache().add_mapping(start, size) }
    }

    fn in_a_fresh_thread(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn the_larger_of_two_chunks_for_one_slot_is_kept_and_comes_back() {
        in_a_fresh_thread(|| {
            let (small, large) = (chunk(32 << 10), chunk(64 << 10));
            assert!(put(small, 32 << 10));
            assert!(put(large, 64 << 10));
            assert!(!put(small, 32 << 10));
            assert_eq!(take(32 << 10, true), None);
            assert_eq!(take(32 << 10, false), Some((large, 64 << 10)));
            assert_eq!(take(32 << 10, false), None);
            assert!(put(large, 64 << 10));
            assert_eq!(take(64 << 10, true), Some((large, 64 << 10)));
            recycle(large, 64 << 10);
        });
    }

    #[test]
    fn a_chunk_of_more_than_four_times_the_size_is_lent_once_until_it_comes_back() {
        in_a_fresh_thread(|| {
            let (first, second) = (chunk(64 << 10), chunk(64 << 10));
            for _ in 0..3 {
                assert!(put(first, 64 << 10));
                assert_eq!(take(4 << 10, true), None);
                assert_eq!(take(4 << 10, false), Some((first, 64 << 10)));
                assert!(put(second, 64 << 10));
                assert_eq!(take(4 << 10, false), None);
                assert_eq!(take(8 << 10, false), None);
                assert_eq!(take(16 << 10, false), Some((second, 64 << 10)));
            }
            recycle(first, 64 << 10);
            recycle(second, 64 << 10);
        });
    }

    #[test]
    fn while_one_chunk_is_lent_a_page_is_taken_from_the_chunk_of_small_size() {
        in_a_fresh_thread(|| {
            let (lent, small, large) = (chunk(64 << 10), chunk(16 << 10), chunk(64 << 10));
            assert!(put(lent, 64 << 10));
            assert_eq!(take(4 << 10, false), Some((lent, 64 << 10)));
            assert!(put(large, 64 << 10) && put(small, 16 << 10));
            assert_eq!(take(4 << 10, false), Some((small, 16 << 10)));
            assert_eq!(take(32 << 10, false), Some((large, 64 << 10)));
            for (chunk, size) in [(lent, 64 << 10), (small, 16 << 10), (large, 64 << 10)] {
                recycle(chunk, size);
            }
        });
    }

    #[test]
    fn a_chunk_above_the_bound_is_not_kept() {
        let large = chunk(128 << 10);
        assert!(!put(large, 128 << 10));
        recycle(large, 128 << 10);
    }
}
