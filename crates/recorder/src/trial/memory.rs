//! The memory of a trial: chunks of [`CHUNK`] bytes from one range of addresses.
//!
//! A chunk belongs to the thread state that took it, and is an arena's or a list's. In an arena's
//! chunk, block after block is handed out, and when all are freed, the chunk is used anew. A list's
//! chunk is divided into blocks of one size, which go to the list of the thread that frees them.
//!
//! Invariants:
//!
//! 1. `BASE`, `HEADERS` and `UNITS` are set once, before any chunk is taken, and what they point to
//!    stays mapped: [`REGION`] bytes, a [`ChunkHeader`] for each chunk, and a byte for each
//!    [`GRANULE`] of each chunk.
//! 2. A chunk's number is below `TAKEN`; it was handed out once, to the state that is its `owner`.
//!    Only the owner accesses the header, except `remote`, and except that any thread that has a
//!    block of the chunk may read `owner` and `size`, which change only while no block is live.
//! 3. `allocated` counts the blocks that were handed out since the chunk was last empty, `freed`
//!    those that the owner freed, and `remote` those that others freed. The chunk is empty if
//!    `freed` and `remote` sum to `allocated`.
//! 4. A chunk of an arena is current, or in `full`, or in `empty`, of its owner, and in one of them.
//! 5. A free block of a list has at least 16 bytes: a link to the next block and, in the first
//!    block of a batch, a link to the next batch.

use super::settings;
use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use trace_format::raw::MAX_ROUTE;

/// Bytes of all chunks.
const REGION: usize = 64 << 30;
/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = REGION / CHUNK;
/// The alignment of blocks, and the unit of their sizes: as malloc's.
const GRANULE: usize = 16;
const UNITS_OF_CHUNK: usize = CHUNK / GRANULE;
/// The largest block; malloc serves larger ones.
pub const LARGEST: usize = 32 << 10;
/// A size in units that is stored in the next bytes, because one byte is too small for it.
const LONG: usize = 255;

/// Sizes of lists: multiples of 16 up to 1 KiB, then four for each doubling.
const SMALL_CLASSES: usize = 64;
const CLASSES: usize = SMALL_CLASSES + 4 * 5;
/// Bytes of free blocks from which on a list gives half of its blocks to other threads.
const BATCH_BYTES: usize = 32 << 10;
const ROUTES: usize = MAX_ROUTE as usize + 1;
/// Full chunks that are looked at for frees by other threads before a new chunk is taken.
const LOOKED_AT: usize = 4;
/// The number of no chunk.
const NONE: u32 = 0;

/// Where no block is: every address has a distance of at least [`REGION`] from it.
const NOWHERE: usize = usize::MAX - REGION + 1;
static BASE: AtomicUsize = AtomicUsize::new(NOWHERE);
static HEADERS: AtomicPtr<ChunkHeader> = AtomicPtr::new(core::ptr::null_mut());
static UNITS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The number of chunks taken. The first is none, so that 0 is the number of no chunk.
static TAKEN: AtomicU32 = AtomicU32::new(1);

/// Batches of free blocks that any thread may take, by route and class.
static BATCHES: [[AtomicPtr<FreeBlock>; CLASSES]; ROUTES] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; CLASSES] }; ROUTES];
/// Not 0 while a thread changes `BATCHES`.
static BATCHES_LOCK: AtomicU32 = AtomicU32::new(0);

/// What is known of a chunk.
#[repr(C, align(64))]
struct ChunkHeader {
    owner: *mut TrialMemory,
    /// The bytes of each block in a list's chunk; 0 in an arena's.
    size: u32,
    route: u8,
    allocated: u32,
    freed: u32,
    remote: AtomicU32,
    previous: u32,
    next: u32,
}

#[repr(C)]
struct FreeBlock {
    next: *mut FreeBlock,
    next_batch: *mut FreeBlock,
}

/// A part of a chunk in which blocks are handed out one after the other.
#[derive(Debug, Clone, Copy)]
struct Bump {
    position: usize,
    end: usize,
    chunk: u32,
}

#[derive(Debug, Clone, Copy)]
struct FreeBlocks {
    first: *mut FreeBlock,
    count: u32,
}

/// The chunks of a thread. Zeroed memory has none.
#[derive(Debug)]
pub struct TrialMemory {
    arenas: [Bump; ROUTES],
    lists: [[FreeBlocks; CLASSES]; ROUTES],
    carved: [[Bump; CLASSES]; ROUTES],
    /// Empty chunks, the last one emptied first.
    empty: u32,
    /// Chunks without space, the oldest first.
    full: u32,
    newest_full: u32,
}

/// Maps the memory. Returns whether there is any.
pub fn map() -> bool {
    let mapped = (
        sys::map(REGION),
        sys::map(CHUNKS * size_of::<ChunkHeader>()),
        sys::map(CHUNKS * UNITS_OF_CHUNK),
    );
    let (Ok(region), Ok(headers), Ok(units)) = mapped else { return false };
    HEADERS.store(headers.cast(), Ordering::Relaxed);
    UNITS.store(units, Ordering::Relaxed);
    // Last. A thread has a block only after it, and gets to know of it as of the block.
    BASE.store(region as usize, Ordering::Release);
    true
}

/// Whether a block is one of these.
#[inline(always)]
pub fn owns(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(BASE.load(Ordering::Relaxed)) < REGION
}

fn chunk_of(block: *mut u8) -> u32 {
    ((block as usize - BASE.load(Ordering::Relaxed)) / CHUNK) as u32
}

fn header_of(chunk: u32) -> *mut ChunkHeader {
    // SAFETY: the number is below `CHUNKS` (invariants 1 and 2).
    unsafe { HEADERS.load(Ordering::Relaxed).add(chunk as usize) }
}

fn start_of(chunk: u32) -> usize {
    BASE.load(Ordering::Relaxed) + chunk as usize * CHUNK
}

/// The byte for the unit at which a block begins.
fn units_at(block: *mut u8) -> *mut u8 {
    let unit = (block as usize - BASE.load(Ordering::Relaxed)) / GRANULE;
    // SAFETY: the block is in the region (invariant 1).
    unsafe { UNITS.load(Ordering::Relaxed).add(unit) }
}

fn class_of(size: usize) -> usize {
    let units = size.max(1).div_ceil(GRANULE);
    if units <= SMALL_CLASSES {
        return units - 1;
    }
    // Four classes for each doubling: the two bits below the highest one.
    let bits = (units - 1).ilog2();
    let quarter = ((units - 1) >> (bits - 2)) & 3;
    SMALL_CLASSES + (bits as usize - 6) * 4 + quarter
}

fn size_of_class(class: usize) -> usize {
    if class < SMALL_CLASSES {
        return (class + 1) * GRANULE;
    }
    let (doubling, quarter) = ((class - SMALL_CLASSES) / 4, (class - SMALL_CLASSES) % 4);
    ((5 + quarter) << (doubling + 4)) * GRANULE
}

/// Bytes of a block that may be used.
///
/// # Safety
///
/// It is a live block of this memory.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    // SAFETY: the block's chunk has a header, and the block a size (invariants 1 and 2).
    unsafe {
        match (*header_of(chunk_of(block))).size as usize {
            0 => {
                let units = units_at(block);
                match units.read() as usize {
                    LONG => units.add(1).cast::<u16>().read_unaligned() as usize * GRANULE,
                    short => short * GRANULE,
                }
            }
            size => size,
        }
    }
}

impl TrialMemory {
    /// A new block, of at most [`LARGEST`] bytes; null if there is no memory.
    ///
    /// # Safety
    ///
    /// The memory is the calling thread's. [`map`] has succeeded.
    #[inline(always)]
    pub unsafe fn allocate_in_arena(this: *mut Self, route: u8, size: usize) -> *mut u8 {
        let bytes = size.max(1).next_multiple_of(GRANULE);
        // SAFETY: the calling thread's memory; a current chunk is its own (invariant 2).
        unsafe {
            let arena = &raw mut (*this).arenas[usize::from(route)];
            if (*arena).end - (*arena).position < bytes && !Self::next_chunk(this, route) {
                return core::ptr::null_mut();
            }
            let block = (*arena).position as *mut u8;
            (*arena).position += bytes;
            (*header_of((*arena).chunk)).allocated += 1;
            let units = units_at(block);
            let count = bytes / GRANULE;
            units.write(count.min(LONG) as u8);
            if count >= LONG {
                units.add(1).cast::<u16>().write_unaligned(count as u16);
            }
            block
        }
    }

    /// All that an allocation in an arena and its free do, but for using the block: the chunk is used
    /// anew when it is full, because none of its blocks is live.
    ///
    /// # Safety
    ///
    /// As for [`allocate_in_arena`](Self::allocate_in_arena). Nothing else uses the route.
    #[inline(always)]
    pub unsafe fn use_arena(this: *mut Self, route: u8, size: usize) {
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
            if (*header).owner == this && (*header).size == 0 {
                // One block is never freed, so the chunk is never empty.
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
            *arena = Bump { position: 0, end: 0, chunk };
            if chunk == NONE {
                return false;
            }
            *arena = Bump { position: start_of(chunk), end: start_of(chunk) + CHUNK, chunk };
            true
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
                chunk = TAKEN.fetch_add(1, Ordering::Relaxed);
                if chunk as usize >= CHUNKS {
                    TAKEN.store(CHUNKS as u32, Ordering::Relaxed);
                    return NONE;
                }
            }
            header_of(chunk).write(ChunkHeader {
                owner: this,
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
        let class = class_of(size);
        // SAFETY: the calling thread's memory. A free block holds links (invariant 5).
        unsafe {
            let list = &raw mut (*this).lists[usize::from(route)][class];
            let first = (*list).first;
            if first.is_null() {
                return Self::carve(this, route, class);
            }
            (*list).first = (*first).next;
            (*list).count -= 1;
            first.cast()
        }
    }

    /// A block where the thread's list has none.
    ///
    /// # Safety
    ///
    /// As for [`allocate_in_arena`](Self::allocate_in_arena).
    #[cold]
    unsafe fn carve(this: *mut Self, route: u8, class: usize) -> *mut u8 {
        // SAFETY: the calling thread's memory; its chunks are its own, and blocks of a batch belong
        // to who takes the batch.
        unsafe {
            let list = &raw mut (*this).lists[usize::from(route)][class];
            let batches = &BATCHES[usize::from(route)][class];
            if !batches.load(Ordering::Relaxed).is_null() {
                let batch = locked(|| {
                    let batch = batches.load(Ordering::Relaxed);
                    if !batch.is_null() {
                        batches.store((*batch).next_batch, Ordering::Relaxed);
                    }
                    batch
                });
                if !batch.is_null() {
                    let (mut count, mut last) = (0, (*batch).next);
                    while !last.is_null() {
                        count += 1;
                        last = (*last).next;
                    }
                    *list = FreeBlocks { first: (*batch).next, count };
                    return batch.cast();
                }
            }
            let size = size_of_class(class);
            let carved = &raw mut (*this).carved[usize::from(route)][class];
            if (*carved).end - (*carved).position < size {
                let chunk = Self::take_empty_or_new(this, route, size as u32);
                if chunk == NONE {
                    return core::ptr::null_mut();
                }
                *carved = Bump { position: start_of(chunk), end: start_of(chunk) + CHUNK, chunk };
            }
            let block = (*carved).position as *mut u8;
            (*carved).position += size;
            block
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
        // SAFETY: the block's chunk has a header (invariants 1 and 2).
        unsafe {
            if (*header).size != 0 {
                // A thread without memory loses the block.
                if !this.is_null() {
                    Self::push(
                        (&raw mut (*this).lists[usize::from((*header).route)])
                            .cast::<FreeBlocks>()
                            .add(class_of((*header).size as usize)),
                        header,
                        block,
                    );
                }
            } else if (*header).owner == this {
                (*header).freed += 1;
                if Self::is_empty(chunk) {
                    Self::use_anew(this, chunk);
                }
            } else {
                // Pairs with the load in `is_empty`.
                (*header).remote.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Adds a block to the calling thread's list.
    ///
    /// # Safety
    ///
    /// The list is the calling thread's, and that of the block, which is free and no one's.
    #[inline(always)]
    unsafe fn push(list: *mut FreeBlocks, header: *mut ChunkHeader, block: *mut u8) {
        let block = block.cast::<FreeBlock>();
        // SAFETY: as the caller promised; the block has space for the link (invariant 5).
        unsafe {
            (*block).next = (*list).first;
            (*list).first = block;
            (*list).count += 1;
            if (*list).count as usize * (*header).size as usize > 2 * BATCH_BYTES
                && (*list).count > 64
            {
                Self::give_half(list, header);
            }
        }
    }

    /// Gives half of a list to all threads.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push).
    #[cold]
    unsafe fn give_half(list: *mut FreeBlocks, header: *mut ChunkHeader) {
        // SAFETY: as the caller promised: the list has `count` blocks, which are the thread's.
        unsafe {
            let keep = (*list).count / 2;
            let mut last = (*list).first;
            for _ in 1..keep {
                last = (*last).next;
            }
            let batch = (*last).next;
            (*last).next = core::ptr::null_mut();
            (*list).count = keep;
            let batches = &BATCHES[usize::from((*header).route)][class_of((*header).size as usize)];
            locked(|| {
                (*batch).next_batch = batches.load(Ordering::Relaxed);
                batches.store(batch, Ordering::Relaxed);
            });
        }
    }

    /// Uses an empty chunk anew.
    ///
    /// # Safety
    ///
    /// The calling thread's memory, and an empty chunk of an arena of it.
    #[inline(never)]
    unsafe fn use_anew(this: *mut Self, chunk: u32) {
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
            if (*header).size != 0 || (*header).owner != this || size > LARGEST {
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
            let (units, count) = (units_at(block), bytes / GRANULE);
            units.write(count.min(LONG) as u8);
            if count >= LONG {
                units.add(1).cast::<u16>().write_unaligned(count as u16);
            }
            true
        }
    }
}

/// Calls `change` while no other thread changes the batches.
fn locked<R>(change: impl FnOnce() -> R) -> R {
    while BATCHES_LOCK.swap(1, Ordering::Acquire) != 0 {
        sys::yield_now();
    }
    let result = change();
    BATCHES_LOCK.store(0, Ordering::Release);
    result
}

/// In the child of a fork, where no other thread can hold the lock.
pub fn forked() {
    BATCHES_LOCK.store(0, Ordering::Relaxed);
}

/// Whether there is memory for a trial; it is mapped for it.
pub fn is_ready() -> bool {
    settings::is_on() && BASE.load(Ordering::Relaxed) != NOWHERE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests share the statics, as a process does.
    fn memory() -> *mut TrialMemory {
        static MAPPED: std::sync::Once = std::sync::Once::new();
        MAPPED.call_once(|| assert!(map()));
        sys::map(size_of::<TrialMemory>()).unwrap().cast()
    }

    #[test]
    fn a_class_holds_every_size_up_to_its_own_and_wastes_at_most_a_fifth() {
        let mut last = 0;
        for size in 1..=LARGEST {
            let class = class_of(size);
            assert!(class == last || class == last + 1);
            last = class;
            let most = size_of_class(class);
            assert!(
                most >= size
                    && most.is_multiple_of(GRANULE)
                    && (most < size + GRANULE || most * 4 <= size * 5 + 64),
                "{size} {most}"
            );
        }
        assert_eq!(last, CLASSES - 1);
    }

    #[test]
    fn an_arena_uses_its_chunk_anew_once_all_blocks_are_freed() {
        let memory = memory();
        // SAFETY: this thread's memory; blocks are freed once.
        unsafe {
            let first = TrialMemory::allocate_in_arena(memory, 1, 24);
            let second = TrialMemory::allocate_in_arena(memory, 1, 5000);
            assert!(owns(first) && !owns(memory.cast()));
            assert_eq!((usable_size(first), usable_size(second)), (32, 5008));
            assert_eq!(second as usize - first as usize, 32);
            TrialMemory::free(memory, first);
            assert_ne!(TrialMemory::allocate_in_arena(memory, 1, 16), first);
            let third = TrialMemory::allocate_in_arena(memory, 1, 16);
            for block in [second, third, third.sub(16)] {
                TrialMemory::free(memory, block);
            }
            assert_eq!(TrialMemory::allocate_in_arena(memory, 1, 16), first);
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
                    (0..8).map(|_| TrialMemory::allocate_in_arena(memory, 2, 16 << 10)).collect();
                chunks.extend(blocks.iter().map(|block| chunk_of(*block)));
                for block in blocks {
                    let frees = if round % 2 == 0 { memory } else { other };
                    TrialMemory::free(frees, block);
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
            let first = TrialMemory::allocate_in_arena(memory, 3, 16);
            assert!(TrialMemory::grow_in_place(memory, first, 9000));
            assert_eq!(usable_size(first), 9008);
            TrialMemory::allocate_in_arena(memory, 3, 16);
            assert!(!TrialMemory::grow_in_place(memory, first, 10_000));
        }
    }

    #[test]
    fn blocks_of_a_list_are_distinct_and_go_from_thread_to_thread() {
        let (makes, frees) = (memory(), memory());
        let mut chunks = 0;
        // SAFETY: one thread uses both memories; blocks are freed once.
        unsafe {
            for _ in 0..50 {
                let mut blocks: Vec<*mut u8> =
                    (0..5000).map(|_| TrialMemory::allocate_from_list(makes, 4, 40)).collect();
                for block in &blocks {
                    block.write_bytes(0xa5, 40);
                    assert_eq!(usable_size(*block), 48);
                }
                chunks = chunks.max(chunk_of(blocks.iter().copied().max().unwrap()));
                blocks.sort_unstable();
                assert!(blocks.windows(2).all(|pair| pair[1] as usize - pair[0] as usize >= 48));
                for block in blocks {
                    TrialMemory::free(frees, block);
                }
            }
            // What one thread frees, the other uses: 5,000 blocks of 48 bytes are 4 chunks.
            let carved = (*makes).carved[4][class_of(40)].chunk;
            assert!(chunks - carved < 16, "{chunks} {carved}");
        }
    }
}
