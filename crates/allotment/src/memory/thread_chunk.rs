//! The thread chunk: one chunk that each thread keeps for itself.
//!
//! The shared recycler costs a few locked instructions, which take longer than a small request
//! does. So each thread keeps the last small chunk that it gave back, and takes that one first. A
//! loop that makes an arena for each small request then accesses nothing shared. (This is
//! for `allot bench query-small`.) A thread keeps at most one
//! chunk, of at most [`MAX_SIZE`] bytes. With a larger cache for each thread, every thread would
//! fault in its own working set.
//!
//! # Invariants
//!
//! 1. Only the thread's `ThreadChunk` owns the chunk: `put` puts it in, `take` takes it out, and
//!    the destructor gives it to the recycler.
//! 2. Only chunks of ordinary pages with a mapping number are kept here, so that the recycler can
//!    take them.

use core::cell::Cell;

use super::chunk_cache::{Backing, WarmChunk};
use super::index_stack::NIL;
use super::process_cache::cache;

/// The largest chunk that a thread keeps, in bytes.
pub(crate) const MAX_SIZE: usize = 64 << 10;

struct ThreadChunk {
    /// The chunk and its size.
    chunk: Cell<Option<(WarmChunk, usize)>>,
    /// Counts the chunks put here. Every 256th runs the recycler's decay, as giving a chunk to the
    /// recycler would.
    put_count: Cell<u8>,
}

thread_local! {
    static THREAD_CHUNK: ThreadChunk =
        const { ThreadChunk { chunk: Cell::new(None), put_count: Cell::new(0) } };
}

/// Runs `work` on the thread's own, unless the thread is ending and it has been destroyed.
fn with_own<R>(work: impl FnOnce(&ThreadChunk) -> R) -> Option<R> {
    THREAD_CHUNK.try_with(work).ok()
}

/// Takes the thread chunk, with its size, if it has at least `size` bytes; if `exact`, no more.
#[inline]
pub(crate) fn take(size: usize, exact: bool) -> Option<(WarmChunk, usize)> {
    if size > MAX_SIZE {
        return None;
    }
    with_own(|own| match own.chunk.get() {
        Some((_, kept)) if kept == size || (kept > size && !exact) => own.chunk.take(),
        _ => None,
    })?
}

/// Keeps a chunk as the thread chunk, if it is small enough and larger than the one already there.
/// Returns whether it took the chunk.
#[inline]
pub(crate) fn put(chunk: WarmChunk, size: usize) -> bool {
    if size > MAX_SIZE || chunk.mapping == NIL || size > cache().allowed() {
        return false;
    }
    with_own(|own| {
        if own.chunk.get().is_some_and(|(_, kept_size)| kept_size >= size) {
            return false;
        }
        if let Some((smaller, its_size)) = own.chunk.replace(Some((chunk, size))) {
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

/// Gives the calling thread's chunk to the recycler.
pub(crate) fn flush() {
    if let Some(Some((chunk, size))) = with_own(|own| own.chunk.take()) {
        recycle(chunk, size);
    }
}

fn recycle(chunk: WarmChunk, size: usize) {
    let mut batch = cache().recycle(size);
    // SAFETY: only the `ThreadChunk` owned the chunk (invariant 1). It has ordinary pages (2) and
    // holds nothing.
    unsafe { batch.add(Backing::Pages, chunk, size) };
    batch.finish();
}

impl Drop for ThreadChunk {
    fn drop(&mut self) {
        if let Some((chunk, size)) = self.chunk.take() {
            recycle(chunk, size);
        }
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

    #[test]
    fn the_larger_of_two_small_chunks_is_kept_and_comes_back() {
        std::thread::spawn(|| {
            let (small, large) = (chunk(8 << 10), chunk(32 << 10));
            assert!(put(small, 8 << 10));
            assert!(put(large, 32 << 10));
            assert_eq!(take(64 << 10, false), None);
            assert_eq!(take(4 << 10, true), None);
            assert_eq!(take(4 << 10, false), Some((large, 32 << 10)));
            assert_eq!(take(4 << 10, false), None);
            assert!(put(large, 32 << 10));
            assert_eq!(take(32 << 10, true), Some((large, 32 << 10)));
            recycle(large, 32 << 10);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_chunk_above_the_bound_is_not_kept() {
        let large = chunk(128 << 10);
        assert!(!put(large, 128 << 10));
        recycle(large, 128 << 10);
    }
}
