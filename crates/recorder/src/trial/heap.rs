//! The memory of a thread in a trial: arenas and lists, one of each for each route.
//!
//! Invariants, beside the two of [`chunks`](super::chunks):
//!
//! A. Each arena chunk is in exactly one place of its owner: current, `full` or `empty`.
//!
//! B. The chunk is empty if its counts of freed blocks sum to that of allocated ones.
//!
//! C. Chunks of lists stay with the lists.

use super::chunks::{
    Bump, ChunkHeader, GRANULE, NONE, chunk_of, header_of, set_size, start_of, take_new,
    usable_size,
};
use super::lists::{Batches, Lists};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use trace_format::raw::MAX_ROUTE;

/// The largest block; malloc serves larger ones.
pub const LARGEST: usize = 32 << 10;
const ROUTES: usize = MAX_ROUTE as usize + 1;
/// Full chunks that are looked at for frees by other threads before a new chunk is taken.
const LOOKED_AT: usize = 4;

/// For each route: batches of its lists.
static BATCHES: [Batches; ROUTES] = [const { Batches::none() }; ROUTES];

/// The memory of a thread. Zeroed memory has no chunks.
#[derive(Debug)]
pub struct ThreadHeap {
    arenas: [Bump; ROUTES],
    lists: [Lists; ROUTES],
    /// Empty chunks, the last one emptied first.
    empty: u32,
    /// Chunks without space, the oldest first.
    full: u32,
    newest_full: u32,
}

impl ThreadHeap {
    /// A new block, of at most [`LARGEST`] bytes; null if there is no memory.
    ///
    /// # Safety
    ///
    /// The memory is the calling thread's. `chunks::map` has succeeded.
    #[inline(always)]
    pub unsafe fn allocate_in_arena(this: *mut Self, route: u8, size: usize) -> *mut u8 {
        let bytes = size.max(1).next_multiple_of(GRANULE);
        // SAFETY: the calling thread's memory. A current chunk is its own (A, and invariant 2 of
        // `chunks`).
        unsafe {
            let arena = &raw mut (*this).arenas[usize::from(route)];
            let block = match (*arena).take(bytes) {
                Some(block) => block,
                None if Self::next_chunk(this, route) => match (*arena).take(bytes) {
                    Some(block) => block,
                    None => return null_mut(),
                },
                None => return null_mut(),
            };
            (*header_of((*arena).chunk)).allocated += 1;
            set_size(block, bytes);
            block
        }
    }

    /// Does what an allocation in an arena and its free do. No block is handed out, so a full chunk is
    /// reused. The counts keep one block as live, so the chunk never counts as empty.
    ///
    /// # Safety
    ///
    /// As for [`allocate_in_arena`](Self::allocate_in_arena). Nothing else uses the route.
    #[inline(always)]
    pub unsafe fn simulate_arena_pair(this: *mut Self, route: u8, size: usize) {
        // SAFETY: as the caller promised; the current chunk is the thread's own.
        unsafe {
            let arena = &raw mut (*this).arenas[usize::from(route)];
            if (*arena).chunk != NONE && (*arena).end - (*arena).position < size + GRANULE {
                (*arena).position = start_of((*arena).chunk);
            }
            let block = Self::allocate_in_arena(this, route, size);
            if block.is_null() {
                return;
            }
            let header = header_of(chunk_of(block));
            if (*header).owner == this.cast() && (*header).size == 0 {
                (*header).freed = (*header).freed.wrapping_add(1);
                if Self::is_empty(chunk_of(block)) {
                    (*header).freed = 0;
                    (*header).allocated = 1;
                }
            }
        }
    }

    /// Makes a chunk with space the current one of an arena.
    ///
    /// # Safety
    ///
    /// As for [`allocate_in_arena`](Self::allocate_in_arena).
    #[cold]
    unsafe fn next_chunk(this: *mut Self, route: u8) -> bool {
        // SAFETY: the calling thread's memory, and its own chunks.
        unsafe {
            let arena = &raw mut (*this).arenas[usize::from(route)];
            let old = (*arena).chunk;
            if old != NONE {
                Self::append_full(this, old);
            }
            for _ in 0..LOOKED_AT {
                let oldest = (*this).full;
                if (*this).empty != NONE || oldest == NONE {
                    break;
                }
                Self::remove_full(this, oldest);
                if Self::is_empty(oldest) {
                    Self::push_empty(this, oldest)
                } else {
                    Self::append_full(this, oldest)
                }
            }
            let chunk = Self::take_empty_or_new(this, route, 0);
            *arena = Bump::of(chunk);
            chunk != NONE
        }
    }

    /// # Safety
    ///
    /// The chunk is the calling thread's.
    unsafe fn is_empty(chunk: u32) -> bool {
        // SAFETY: as the caller promised.
        unsafe {
            let header = header_of(chunk);
            // Pairs with the addition in `free`: what the other thread did to the block has ended.
            (*header).freed.wrapping_add((*header).remote.load(Ordering::Acquire))
                == (*header).allocated
        }
    }

    /// # Safety
    ///
    /// The calling thread's memory.
    unsafe fn take_empty_or_new(this: *mut Self, route: u8, size: u32) -> u32 {
        // SAFETY: the calling thread's memory; an empty chunk is its own, and a new one becomes so.
        unsafe {
            let mut chunk = (*this).empty;
            if chunk != NONE {
                (*this).empty = (*header_of(chunk)).next;
            } else {
                chunk = take_new();
                if chunk == NONE {
                    return NONE;
                }
            }
            header_of(chunk).write(ChunkHeader {
                owner: this.cast(),
                size,
                route,
                allocated: 0,
                freed: 0,
                remote: AtomicU32::new(0),
                previous: NONE,
                next: NONE,
            });
            chunk
        }
    }

    /// # Safety
    ///
    /// The calling thread's memory and chunk.
    unsafe fn push_empty(this: *mut Self, chunk: u32) {
        // SAFETY: as the caller promised.
        unsafe {
            (*header_of(chunk)).next = (*this).empty;
            (*this).empty = chunk;
        }
    }

    /// # Safety
    ///
    /// The calling thread's memory and chunk.
    unsafe fn append_full(this: *mut Self, chunk: u32) {
        // SAFETY: as the caller promised.
        unsafe {
            let last = (*this).newest_full;
            (*header_of(chunk)).previous = last;
            (*header_of(chunk)).next = NONE;
            if last == NONE {
                (*this).full = chunk;
            } else {
                (*header_of(last)).next = chunk;
            }
            (*this).newest_full = chunk;
        }
    }

    /// # Safety
    ///
    /// The calling thread's memory, and a chunk in its `full`.
    unsafe fn remove_full(this: *mut Self, chunk: u32) {
        // SAFETY: as the caller promised.
        unsafe {
            let (previous, next) = ((*header_of(chunk)).previous, (*header_of(chunk)).next);
            if previous == NONE {
                (*this).full = next
            } else {
                (*header_of(previous)).next = next
            }
            if next == NONE {
                (*this).newest_full = previous
            } else {
                (*header_of(next)).previous = previous
            }
        }
    }

    /// A new block, of at most [`LARGEST`] bytes; null if there is no memory.
    ///
    /// # Safety
    ///
    /// As for [`allocate_in_arena`](Self::allocate_in_arena).
    #[inline(always)]
    pub unsafe fn allocate_from_list(this: *mut Self, route: u8, size: usize) -> *mut u8 {
        let batches = &BATCHES[usize::from(route)];
        // SAFETY: the calling thread's memory; its lists and its chunks are two parts of it.
        unsafe {
            let lists = &mut (*this).lists[usize::from(route)];
            lists.allocate(size, batches, |size| Self::take_empty_or_new(this, route, size))
        }
    }

    /// Frees a block. `this` is null if the calling thread has no memory at the moment.
    ///
    /// # Safety
    ///
    /// It is a live block of this memory. `this` is null, or the calling thread's memory.
    #[inline(always)]
    pub unsafe fn free(this: *mut Self, block: *mut u8) {
        let chunk = chunk_of(block);
        let header = header_of(chunk);
        // SAFETY: the block's chunk has a header (both invariants of `chunks`).
        unsafe {
            if (*header).size != 0 {
                // A thread without memory loses the block.
                if !this.is_null() {
                    let route = usize::from((*header).route);
                    let lists = &mut (*this).lists[route];
                    lists.free(block, (*header).size, &BATCHES[route]);
                }
            } else if (*header).owner == this.cast() {
                (*header).freed += 1;
                if Self::is_empty(chunk) {
                    Self::reuse(this, chunk);
                }
            } else {
                // Pairs with the load in `is_empty`.
                (*header).remote.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Reuses an empty chunk.
    ///
    /// # Safety
    ///
    /// The calling thread's memory, and an empty chunk of an arena of it.
    #[inline(never)]
    unsafe fn reuse(this: *mut Self, chunk: u32) {
        // SAFETY: as the caller promised. No block of the chunk is live.
        unsafe {
            let header = header_of(chunk);
            let arena = &raw mut (*this).arenas[usize::from((*header).route)];
            if (*arena).chunk == chunk {
                (*header).allocated = 0;
                (*header).freed = 0;
                (*header).remote.store(0, Ordering::Relaxed);
                (*arena).position = start_of(chunk);
            } else {
                Self::remove_full(this, chunk);
                Self::push_empty(this, chunk);
            }
        }
    }

    /// Grows a block in place, if it is the last one in its arena and there is space.
    ///
    /// # Safety
    ///
    /// It is a live block of this memory, and `this` is the calling thread's memory.
    pub unsafe fn grow_in_place(this: *mut Self, block: *mut u8, size: usize) -> bool {
        let chunk = chunk_of(block);
        // SAFETY: as the caller promised.
        unsafe {
            let header = header_of(chunk);
            if (*header).size != 0 || (*header).owner != this.cast() || size > LARGEST {
                return false;
            }
            let arena = &raw mut (*this).arenas[usize::from((*header).route)];
            let end = block as usize + usable_size(block);
            let bytes = size.max(1).next_multiple_of(GRANULE);
            if (*arena).chunk != chunk
                || (*arena).position != end
                || block as usize + bytes > (*arena).end
            {
                return false;
            }
            (*arena).position = block as usize + bytes;
            set_size(block, bytes);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunks::{self, owns};
    use super::*;
    use crate::sys;

    /// The tests share the statics, as a process does.
    fn memory() -> *mut ThreadHeap {
        static MAPPED: std::sync::Once = std::sync::Once::new();
        MAPPED.call_once(|| assert!(chunks::map()));
        sys::map(size_of::<ThreadHeap>()).unwrap().cast()
    }

    #[test]
    fn an_arena_reuses_its_chunk_once_all_blocks_are_freed() {
        let memory = memory();
        // SAFETY: this thread's memory; blocks are freed once.
        unsafe {
            let first = ThreadHeap::allocate_in_arena(memory, 1, 24);
            let second = ThreadHeap::allocate_in_arena(memory, 1, 5000);
            assert!(owns(first) && !owns(memory.cast()));
            assert_eq!((usable_size(first), usable_size(second)), (32, 5008));
            assert_eq!(second as usize - first as usize, 32);
            ThreadHeap::free(memory, first);
            assert_ne!(ThreadHeap::allocate_in_arena(memory, 1, 16), first);
            let third = ThreadHeap::allocate_in_arena(memory, 1, 16);
            for block in [second, third, third.sub(16)] {
                ThreadHeap::free(memory, block);
            }
            assert_eq!(ThreadHeap::allocate_in_arena(memory, 1, 16), first);
        }
    }

    #[test]
    fn chunks_that_others_emptied_are_found_again() {
        let memory = memory();
        let (other, mut chunks) = (self::memory(), Vec::new());
        // SAFETY: one thread uses both memories; blocks are freed once.
        unsafe {
            for round in 0..100 {
                let blocks: Vec<*mut u8> =
                    (0..8).map(|_| ThreadHeap::allocate_in_arena(memory, 2, 16 << 10)).collect();
                chunks.extend(blocks.iter().map(|block| chunk_of(*block)));
                for block in blocks {
                    let frees = if round % 2 == 0 { memory } else { other };
                    ThreadHeap::free(frees, block);
                }
            }
        }
        chunks.sort_unstable();
        chunks.dedup();
        assert!(chunks.len() < 16, "{}", chunks.len());
    }

    #[test]
    fn the_last_block_of_an_arena_grows_in_place() {
        let memory = memory();
        // SAFETY: this thread's memory; its own blocks.
        unsafe {
            let first = ThreadHeap::allocate_in_arena(memory, 3, 16);
            assert!(ThreadHeap::grow_in_place(memory, first, 9000));
            assert_eq!(usable_size(first), 9008);
            ThreadHeap::allocate_in_arena(memory, 3, 16);
            assert!(!ThreadHeap::grow_in_place(memory, first, 10_000));
        }
    }

    #[test]
    fn blocks_of_a_list_are_distinct_and_go_from_thread_to_thread() {
        let (makes, frees) = (memory(), memory());
        let mut chunks = Vec::new();
        // SAFETY: one thread uses both memories; blocks are freed once.
        unsafe {
            for _ in 0..50 {
                let mut blocks: Vec<*mut u8> =
                    (0..5000).map(|_| ThreadHeap::allocate_from_list(makes, 4, 40)).collect();
                for block in &blocks {
                    block.write_bytes(0xa5, 40);
                    assert_eq!(usable_size(*block), 48);
                }
                chunks.extend(blocks.iter().map(|block| chunk_of(*block)));
                blocks.sort_unstable();
                assert!(blocks.windows(2).all(|pair| pair[1] as usize - pair[0] as usize >= 48));
                for block in blocks {
                    ThreadHeap::free(frees, block);
                }
            }
        }
        // What one thread frees, the other uses: 5,000 blocks of 48 bytes are 4 chunks.
        chunks.sort_unstable();
        chunks.dedup();
        assert!(chunks.len() < 16, "{}", chunks.len());
    }
}
