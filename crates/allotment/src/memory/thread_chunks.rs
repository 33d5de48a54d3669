//! The thread chunks: two small chunks that each thread keeps for itself.
//!
//! The shared recycler costs a few locked instructions, which take longer than a small request
//! does. So each thread keeps the last small chunks that it gave back, and takes those first. A
//! loop that makes an arena for each small request then accesses nothing shared. (`allot bench
//! query-small` measures it.) A thread keeps at most two chunks, of at most [`SMALL_SIZE`] and
//! [`MAX_SIZE`] bytes. With a larger cache for each thread, every thread would fault in its own
//! working set.
//!
//! # Loans
//!
//! A thread chunk may be larger than what is asked for, because a request that has filled such a
//! chunk is probably followed by another of its kind. But small arenas that live on must not hold
//! the chunks of large ones. So a chunk is at most [`MAX_RATIO`] times as large as what was asked
//! for, with one exception: the thread *lends* one larger chunk, and no other until that one comes
//! back. It is memory that the thread would otherwise keep.
//!
//! Many threads that lend a chunk and end would still leave one large chunk in each of many small
//! arenas. So the process has [`MAX_LOANS`] *permits*, and each lent chunk has one: lent chunks have
//! at most 8 MiB together. A thread takes a permit when it lends for the first time. The permit goes
//! with the chunk, as a bit of the mapping number ([`LENT`]), and stays with the thread when the
//! chunk comes back. So a thread that serves one request after another writes to nothing shared.
//!
//! The arena may also be dropped on another thread, or when the lender has ended. Then the permit
//! goes back to the process, and is counted as returned by another thread. The lender can't know
//! that it was its own chunk. It lends again if the count has risen since it took its permit. So
//! with such returns, a thread may have several chunks lent, but the process never has more than
//! [`MAX_LOANS`]. In a process with more threads than permits, the last ones to ask don't lend.
//!
//! # Invariants
//!
//! 1. Only the thread's `ThreadChunks` owns the chunks: `put` puts one in, `take` takes one out,
//!    and the thread's end gives them to the recycler.
//! 2. Only chunks of ordinary pages with a mapping number are kept here, so that the recycler can
//!    take them.
//! 3. A permit is in one place: in [`PERMITS`], with a thread (`lent` is [`HOME`]), or with a chunk
//!    whose mapping number has [`LENT`]. Only `take` sets that bit. `put` and [`end_loan`] clear it,
//!    and every chunk that is released passes through one of them. (A child made by fork lacks the
//!    permits of its parent's other threads.)

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use super::chunk_cache::{Backing, WarmChunk};
use super::index_stack::NIL;
use super::process_cache::cache;
use super::small_chunks::{CLASS_SHIFT, MAX_SMALL, SMALL_CLASSES};
use super::thread_end::{EndStage, ThreadEnd};

/// The largest chunk that a thread keeps, in bytes.
const MAX_SIZE: usize = MAX_SMALL;

/// The largest chunk in the first slot, in bytes.
const SMALL_SIZE: usize = 16 << 10;

/// How many times as large as the size asked for a thread chunk may be.
const MAX_RATIO: usize = 4;

/// The most chunks that the process lends at one time.
pub const MAX_LOANS: u64 = 128;

/// Set in the mapping number of a lent chunk.
const LENT: u32 = 1 << 31;

const _: () = assert!((SMALL_CLASSES as u32 + 1) << CLASS_SHIFT <= LENT);

/// In `lent`: the thread has no permit.
const NO_PERMIT: u32 = 0;

/// In `lent`: the thread has a permit, and no chunk is lent.
const HOME: u32 = 1;

/// The permits that are with no thread and no chunk; in the upper half, how many were returned by
/// another thread than the lender.
static PERMITS: AtomicU64 = AtomicU64::new(MAX_LOANS);

/// One return by another thread, in [`PERMITS`].
const RETURN: u64 = 1 << 32;

/// A chunk and its size.
type Slot = Cell<Option<(WarmChunk, usize)>>;

struct ThreadChunks {
    /// A chunk of at most [`SMALL_SIZE`] bytes.
    small: Slot,
    /// A larger chunk.
    large: Slot,
    /// The mapping number of the chunk that is lent, with [`LENT`]; or [`HOME`], or [`NO_PERMIT`].
    lent: Cell<u32>,
    /// The returns by other threads when this thread took its last permit. Meaningful while a chunk
    /// is lent.
    returns: Cell<u32>,
    /// Counts the chunks put here. Every 256th runs the recycler's decay, as giving a chunk to the
    /// recycler would.
    put_count: Cell<u8>,
    end: EndStage,
}

thread_local! {
    static THREAD_CHUNKS: ThreadChunks = const {
        ThreadChunks {
            small: Cell::new(None),
            large: Cell::new(None),
            lent: Cell::new(NO_PERMIT),
            returns: Cell::new(0),
            put_count: Cell::new(0),
            end: EndStage::new(),
        }
    };
}

/// Runs `work` on the thread's chunks, unless nothing would give them to the recycler at the
/// thread's end.
#[inline]
fn with_own<R>(work: impl FnOnce(&ThreadChunks) -> R) -> Option<R> {
    THREAD_CHUNKS.with(|own| FLUSH_AT_END.will_run(&own.end).then(|| work(own)))
}

static FLUSH_AT_END: ThreadEnd = ThreadEnd::new(flush_at_end);

extern "C" fn flush_at_end(_: *mut c_void) {
    THREAD_CHUNKS.with(|own| {
        own.end.end();
        own.flush();
        if own.lent.replace(NO_PERMIT) == HOME {
            // Relaxed: as in `return_permit`.
            PERMITS.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Takes a thread chunk, with its size, if it has at least `size` bytes; if `exact`, no more.
#[inline]
pub(crate) fn take(size: usize, exact: bool) -> Option<(WarmChunk, usize)> {
    if size > MAX_SIZE {
        return None;
    }
    with_own(|own| {
        for slot in [&own.large, &own.small] {
            let Some((_, kept)) = slot.get() else { continue };
            if kept == size {
                return slot.take();
            }
            if kept > size && !exact {
                if kept <= size * MAX_RATIO {
                    return slot.take();
                }
                if own.lent.get() == HOME {
                    return own.lend(slot);
                }
                return own.lend_with_new_permit(size);
            }
        }
        None
    })?
}

/// Keeps a chunk as a thread chunk, if it is small enough and larger than the one in its slot.
/// Returns whether it took the chunk. A lent chunk that it does not take stays lent.
#[inline]
pub(crate) fn put(chunk: WarmChunk, size: usize) -> bool {
    if size > MAX_SIZE {
        return false;
    }
    with_own(|own| {
        if size > cache().allowed() {
            return false;
        }
        let slot = if size > SMALL_SIZE { &own.large } else { &own.small };
        let before = slot.get();
        if before.is_some_and(|(_, kept_size)| kept_size >= size) {
            return false;
        }
        let mut mapping = chunk.mapping;
        // One test for both: NIL has the mark, too.
        if mapping & LENT != 0 {
            if mapping == NIL {
                return false;
            }
            mapping = own.end_loan(mapping);
        }
        slot.set(Some((WarmChunk { mapping, ..chunk }, size)));
        if let Some((smaller, its_size)) = before {
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

/// The chunk without the mark of a loan, which ends if it was lent.
#[inline]
pub(crate) fn end_loan(chunk: WarmChunk) -> WarmChunk {
    if chunk.mapping & LENT == 0 || chunk.mapping == NIL {
        return chunk;
    }
    let mapping = with_own(|own| own.end_loan(chunk.mapping)).unwrap_or_else(|| {
        return_permit();
        chunk.mapping & !LENT
    });
    WarmChunk { mapping, ..chunk }
}

/// Gives back the permit of a chunk that another thread may have lent.
#[cold]
fn return_permit() {
    // Relaxed: numbers only. What was done to the chunk is ordered by the way it goes.
    PERMITS.fetch_add(RETURN + 1, Ordering::Relaxed);
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
    /// Lends the chunk in a slot, with this thread's permit.
    #[inline]
    fn lend(&self, slot: &Slot) -> Option<(WarmChunk, usize)> {
        let (chunk, kept) = slot.take()?;
        let mapping = chunk.mapping | LENT;
        self.lent.set(mapping);
        Some((WarmChunk { mapping, ..chunk }, kept))
    }

    /// Lends a chunk with a new permit. Without one, takes the smaller chunk if that is not too
    /// large.
    #[cold]
    fn lend_with_new_permit(&self, size: usize) -> Option<(WarmChunk, usize)> {
        for slot in [&self.large, &self.small] {
            let Some((_, kept)) = slot.get().filter(|&(_, kept)| kept >= size) else { continue };
            if kept <= size * MAX_RATIO {
                return slot.take();
            }
            if self.take_permit() {
                return self.lend(slot);
            }
        }
        None
    }

    /// Takes a permit, if there is one, unless this thread's last loan certainly is not over.
    #[cold]
    fn take_permit(&self) -> bool {
        let is_lent = self.lent.get() != NO_PERMIT;
        let take = |permits: u64| {
            let unchanged = is_lent && (permits / RETURN) as u32 == self.returns.get();
            (permits % RETURN > 0 && !unchanged).then(|| permits - 1)
        };
        // Relaxed: as in `return_permit`.
        let taken = PERMITS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if let Ok(permits) = taken {
            self.returns.set((permits / RETURN) as u32);
        }
        taken.is_ok()
    }

    /// Ends a loan. The permit stays here if it is this thread's, otherwise goes back to the process.
    /// Returns the mapping number without the mark.
    #[inline]
    fn end_loan(&self, marked: u32) -> u32 {
        if self.lent.get() == marked {
            self.lent.set(HOME);
        } else {
            return_permit();
        }
        marked & !LENT
    }

    fn flush(&self) {
        for slot in [&self.small, &self.large] {
            if let Some((chunk, size)) = slot.take() {
                recycle(chunk, size);
            }
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

    /// The chunk as `take` lends it.
    fn marked(chunk: WarmChunk) -> WarmChunk {
        WarmChunk { mapping: chunk.mapping | LENT, ..chunk }
    }

    #[test]
    fn a_chunk_of_more_than_four_times_the_size_is_lent_once_until_it_comes_back() {
        in_a_fresh_thread(|| {
            let (first, second) = (chunk(64 << 10), chunk(64 << 10));
            assert!(put(first, 64 << 10));
            for _ in 0..3 {
                assert_eq!(take(4 << 10, true), None);
                assert_eq!(take(4 << 10, false), Some((marked(first), 64 << 10)));
                assert!(put(second, 64 << 10));
                assert_eq!(take(4 << 10, false), None);
                assert_eq!(take(8 << 10, false), None);
                assert_eq!(take(16 << 10, false), Some((second, 64 << 10)));
                assert!(put(marked(first), 64 << 10));
            }
            assert_eq!(take(64 << 10, true), Some((first, 64 << 10)));
            recycle(first, 64 << 10);
            recycle(second, 64 << 10);
        });
    }

    #[test]
    fn while_one_chunk_is_lent_a_page_is_taken_from_the_chunk_of_small_size() {
        in_a_fresh_thread(|| {
            let (lent, small, large) = (chunk(64 << 10), chunk(16 << 10), chunk(64 << 10));
            assert!(put(lent, 64 << 10));
            assert_eq!(take(4 << 10, false), Some((marked(lent), 64 << 10)));
            assert!(put(large, 64 << 10) && put(small, 16 << 10));
            assert_eq!(take(4 << 10, false), Some((small, 16 << 10)));
            assert_eq!(take(32 << 10, false), Some((large, 64 << 10)));
            for (chunk, size) in [(end_loan(marked(lent)), 64 << 10), (small, 16 << 10)] {
                recycle(chunk, size);
            }
            recycle(large, 64 << 10);
        });
    }

    #[test]
    fn a_chunk_above_the_bound_is_not_kept() {
        let large = chunk(128 << 10);
        assert!(!put(large, 128 << 10));
        recycle(large, 128 << 10);
    }
}
