//! Models of the small chunks (`src/memory/small_chunks.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! The protocol is the one that ships, on a table that the test provides. A range has two chunks,
//! each in a word of its own. Loom checks each access to a chunk, so the model fails if a chunk has
//! two owners at the same time, or an owner after its range was unmapped.
#![cfg(loom)]

use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool as PlainBool;
use core::sync::atomic::AtomicUsize as PlainUsize;

use allotment::AllocError;
use allotment::for_loom::chunk_cache::WarmChunk;
use allotment::for_loom::layout::class_size;
use allotment::for_loom::small_chunks::{ChunkRange, RangeId, RangeTable, SmallChunks, is_small};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// The class of every chunk in the models.
const CLASS: usize = 0;

/// The chunks of a range.
const CHUNKS: usize = 2;

/// The largest number of ranges that a model maps, one after the other or at the same time.
const RANGES: usize = 4;

/// The distance between the addresses of two ranges.
const STRIDE: usize = 1 << 20;

struct Table {
    gate: Gate,
    ranges: Vec<ChunkRange>,
    chunks: Vec<UnsafeCell<Chunk>>,
    /// Not atomics of loom: bookkeeping of the model, not of the protocol.
    mapped: PlainUsize,
    unmapped: PlainUsize,
    refuses_to_unmap: PlainBool,
}

#[derive(Default)]
struct Chunk {
    written: u32,
    unmapped: bool,
}

impl Table {
    fn new() -> Self {
        Self {
            gate: Gate::new(),
            ranges: (0..RANGES).map(|_| ChunkRange::new()).collect(),
            chunks: (0..RANGES * CHUNKS).map(|_| UnsafeCell::new(Chunk::default())).collect(),
            mapped: PlainUsize::new(0),
            unmapped: PlainUsize::new(0),
            refuses_to_unmap: PlainBool::new(false),
        }
    }

    /// Accesses a chunk as its owner.
    fn with_chunk(&self, start: NonNull<u8>, work: impl FnOnce(&mut Chunk)) {
        let address = start.addr().get();
        let chunk = (address / STRIDE - 1) * CHUNKS + address % STRIDE / class_size(CLASS);
        self.chunks[chunk].with_mut(|chunk| {
            // SAFETY: the caller owns the chunk; loom fails the model if another thread accesses
            // it.
            let chunk = unsafe { &mut *chunk };
            assert!(!chunk.unmapped, "a chunk was used after it was unmapped");
            work(chunk);
        });
    }

    fn with_chunks(&self, start: NonNull<u8>, bytes: usize, work: impl Fn(&mut Chunk)) {
        for offset in (0..bytes).step_by(class_size(CLASS)) {
            let start = start.addr().checked_add(offset).unwrap();
            self.with_chunk(NonNull::without_provenance(start), &work);
        }
    }
}

impl RangeTable for Table {
    fn range(&self, id: RangeId) -> &ChunkRange {
        assert_eq!(id.class, CLASS);
        &self.ranges[id.index]
    }

    fn prepare(&self, _: RangeId) -> Result<(), AllocError> {
        Ok(())
    }

    fn map(&self, bytes: usize) -> Result<NonNull<u8>, AllocError> {
        assert_eq!(bytes, CHUNKS * class_size(CLASS));
        let number = self.mapped.fetch_add(1, Ordering::Relaxed);
        assert!(number < RANGES, "the model maps more ranges than it has");
        Ok(NonNull::without_provenance(NonZeroUsize::new((number + 1) * STRIDE).unwrap()))
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool {
        if self.refuses_to_unmap.load(Ordering::Relaxed) {
            return false;
        }
        self.with_chunks(start, bytes, |chunk| chunk.unmapped = true);
        self.unmapped.fetch_add(1, Ordering::Relaxed);
        true
    }

    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) {
        self.with_chunks(start, bytes, |chunk| chunk.written = 0);
    }
}

struct House(SmallChunks<Table>);

impl House {
    fn new() -> Arc<Self> {
        Arc::new(Self(SmallChunks::new(Table::new())))
    }

    /// Takes a chunk, which must be zero, and writes to it.
    fn take(&self, mark: u32) -> WarmChunk {
        self.0.table().gate.pass();
        let chunk = self.0.take(CLASS).unwrap();
        assert!(is_small(chunk.mapping));
        self.0.table().with_chunk(chunk.start, |chunk| {
            assert_eq!(chunk.written, 0, "a chunk that was taken is not zero");
            chunk.written = mark;
        });
        chunk
    }

    fn release(&self, chunk: WarmChunk, mark: u32) {
        self.0.table().gate.pass();
        self.0.table().with_chunk(chunk.start, |chunk| assert_eq!(chunk.written, mark));
        // SAFETY: taken by the caller, and not used any more.
        unsafe { self.0.release(chunk.mapping) };
    }

    fn mapped(&self) -> usize {
        self.0.table().mapped.load(Ordering::Relaxed)
    }

    fn all_is_unmapped(&self) {
        let unmapped = self.0.table().unmapped.load(Ordering::Relaxed);
        assert_eq!(unmapped, self.mapped(), "a range without chunks in use is still mapped");
    }
}

#[test]
fn threads_that_take_and_release_never_hold_one_chunk_together() {
    explore(3, || {
        let house = House::new();
        let threads: Vec<_> = (1..=2)
            .map(|mark| {
                let house = Arc::clone(&house);
                thread::spawn(move || {
                    let chunk = house.take(mark);
                    house.release(chunk, mark);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        house.all_is_unmapped();
    });
}

#[test]
fn of_two_threads_that_release_the_last_chunks_one_unmaps_the_range() {
    explore(3, || {
        let house = House::new();
        let (mine, theirs) = (house.take(1), house.take(2));
        assert_eq!(house.mapped(), 1);
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.release(theirs, 2));
        house.release(mine, 1);
        thread.join().unwrap();
        house.all_is_unmapped();
    });
}

#[test]
fn a_range_that_empties_while_another_thread_takes_a_chunk_of_it_is_unmapped_in_the_end() {
    explore(3, || {
        let house = House::new();
        let mine = house.take(1);
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || {
            let chunk = other.take(2);
            other.release(chunk, 2);
        });
        house.release(mine, 1);
        thread.join().unwrap();
        house.all_is_unmapped();
    });
}

#[test]
fn a_range_that_empties_twice_at_the_same_time_is_unmapped_in_the_end() {
    explore(5, || {
        let house = House::new();
        let (mine, theirs) = (house.take(1), house.take(2));
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || {
            other.release(theirs, 2);
            let chunk = other.take(3);
            other.release(chunk, 3);
        });
        house.release(mine, 1);
        thread.join().unwrap();
        house.all_is_unmapped();
    });
}

#[test]
fn a_chunk_released_during_a_search_that_finds_none_is_found_by_the_next() {
    explore(3, || {
        let house = House::new();
        let (mine, stays) = (house.take(1), house.take(2));
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.take(3));
        house.release(mine, 1);
        let theirs = thread.join().unwrap();
        house.release(theirs, 3);
        if house.mapped() == 1 {
            // The search came after the release.
            house.release(stays, 2);
            return house.all_is_unmapped();
        }
        let next = house.take(4);
        assert_eq!(house.mapped(), 2, "a range with a free chunk was not found");
        house.release(next, 4);
        house.release(stays, 2);
        house.all_is_unmapped();
    });
}

#[test]
fn a_range_that_cannot_be_unmapped_serves_again() {
    explore(2, || {
        let house = House::new();
        let (mine, theirs) = (house.take(1), house.take(2));
        house.0.table().refuses_to_unmap.store(true, Ordering::Relaxed);
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.release(theirs, 2));
        house.release(mine, 1);
        thread.join().unwrap();
        let again = [house.take(3), house.take(4)];
        assert_eq!(house.mapped(), 1);
        house.0.table().refuses_to_unmap.store(false, Ordering::Relaxed);
        house.release(again[0], 3);
        house.release(again[1], 4);
        house.all_is_unmapped();
    });
}

/// The bits of one range in a few lines. A thread that took the first word and then met a chunk in
/// use looks at all bits again, or not.
struct Bits {
    gate: Gate,
    free: [AtomicU64; 2],
    unmapped: AtomicBool,
    looks_again: bool,
}

impl Bits {
    fn take(&self, word: usize) -> bool {
        self.gate.pass();
        self.free[word].compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn release(&self, word: usize) {
        self.gate.pass();
        self.free[word].store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.free.iter().all(|free| free.load(Ordering::SeqCst) == 1) {
            if self.take(0) {
                if self.take(1) {
                    return self.unmapped.store(true, Ordering::Relaxed);
                }
                self.free[0].store(1, Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            if !self.looks_again {
                return;
            }
        }
    }
}

fn release_while_another_takes_and_releases(looks_again: bool) {
    explore(3, move || {
        let bits = Arc::new(Bits {
            gate: Gate::new(),
            free: [AtomicU64::new(0), AtomicU64::new(1)],
            unmapped: AtomicBool::new(false),
            looks_again,
        });
        let other = Arc::clone(&bits);
        let thread = thread::spawn(move || {
            if other.take(1) {
                other.release(1);
            }
        });
        bits.release(0);
        thread.join().unwrap();
        assert!(bits.unmapped.load(Ordering::Relaxed), "an empty range stayed mapped");
    });
}

#[test]
fn a_thread_that_looks_again_after_it_met_a_chunk_in_use_unmaps_the_range() {
    release_while_another_takes_and_releases(true);
}

#[test]
#[should_panic(expected = "an empty range stayed mapped")]
fn a_thread_that_does_not_look_again_leaves_an_empty_range() {
    release_while_another_takes_and_releases(false);
}
