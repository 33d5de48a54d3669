//! Models of the small chunks (`src/memory/small_chunks.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! The protocol is the one that ships, on a table that the test provides. A range has three chunks:
//! two in one word of bits, and one in another. Loom checks each access to a chunk, so the model
//! fails if a chunk has two owners at the same time, or an owner after its range was unmapped.
#![cfg(loom)]

use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool as PlainBool;
use core::sync::atomic::AtomicUsize as PlainUsize;
use core::sync::atomic::Ordering;

use allotment::AllocError;
use allotment::for_loom::Mutant;
use allotment::for_loom::chunk_cache::WarmChunk;
use allotment::for_loom::layout::class_size;
use allotment::for_loom::small_chunks::{ChunkRange, RangeId, RangeTable, SmallChunks, is_small};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// The class of every chunk in the models.
const CLASS: usize = 0;

/// The chunks of a range.
const CHUNKS: usize = 3;

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

    /// A range with two chunks in use, whose bits are in one word, or `apart` in two.
    fn with_two(apart: bool) -> (Arc<Self>, WarmChunk, WarmChunk) {
        let house = Self::new();
        let [first, second, third] = [1, 2, 2].map(|mark| house.take(mark));
        assert_eq!(house.mapped(), 1);
        let (other, unused) = if apart { (third, second) } else { (second, third) };
        house.release(unused, 2);
        (house, first, other)
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

fn two_threads_release_the_last_chunks(apart: bool) {
    explore(3, move || {
        let (house, mine, theirs) = House::with_two(apart);
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.release(theirs, 2));
        house.release(mine, 1);
        thread.join().unwrap();
        house.all_is_unmapped();
    });
}

#[test]
fn of_two_threads_that_release_the_last_chunks_one_unmaps_the_range() {
    two_threads_release_the_last_chunks(false);
    two_threads_release_the_last_chunks(true);
}

#[test]
#[should_panic(expected = "is still mapped")]
fn two_releases_that_do_not_order_their_bit_and_their_look_leave_an_empty_range() {
    let _mutant = Mutant::new("release chunk: unordered");
    two_threads_release_the_last_chunks(true);
}

/// The last chunk, or the last two, are released while another thread takes one of the range and
/// releases it.
fn the_last_chunks_are_released_while_another_thread_takes_one(chunks: u32) {
    explore(3, move || {
        let house = House::new();
        let mine: Vec<_> = (0..chunks).map(|_| house.take(1)).collect();
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || {
            let chunk = other.take(2);
            other.release(chunk, 2);
        });
        mine.into_iter().for_each(|chunk| house.release(chunk, 1));
        thread.join().unwrap();
        house.all_is_unmapped();
    });
}

#[test]
fn a_range_that_empties_while_another_thread_takes_a_chunk_of_it_is_unmapped_in_the_end() {
    the_last_chunks_are_released_while_another_thread_takes_one(1);
    the_last_chunks_are_released_while_another_thread_takes_one(2);
}

#[test]
#[should_panic(expected = "is still mapped")]
fn a_thread_that_keeps_the_words_that_it_took_of_a_range_leaves_it_mapped() {
    let _mutant = Mutant::new("take all: words kept");
    the_last_chunks_are_released_while_another_thread_takes_one(2);
}

/// One of a range's two chunks in use is released, taken and released again, while the other one is
/// released.
fn a_range_empties_twice(apart: bool) {
    explore(5, move || {
        let (house, mine, theirs) = House::with_two(apart);
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
fn a_range_that_empties_twice_at_the_same_time_is_unmapped_in_the_end() {
    a_range_empties_twice(false);
    a_range_empties_twice(true);
}

#[test]
#[should_panic(expected = "is still mapped")]
fn a_thread_that_does_not_look_again_after_it_met_a_chunk_in_use_leaves_an_empty_range() {
    let _mutant = Mutant::new("release chunk: no second look");
    a_range_empties_twice(true);
}

/// A chunk of a full range is released while another thread searches it.
fn a_chunk_is_released_during_a_search() {
    explore(3, || {
        let house = House::new();
        let [mine, stays, too] = [1, 2, 2].map(|mark| house.take(mark));
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.take(3));
        house.release(mine, 1);
        let theirs = thread.join().unwrap();
        house.release(theirs, 3);
        if house.mapped() > 1 {
            // The search came before the release.
            let next = house.take(4);
            assert_eq!(house.mapped(), 2, "a range with a free chunk was not found");
            house.release(next, 4);
        }
        house.release(stays, 2);
        house.release(too, 2);
        house.all_is_unmapped();
    });
}

#[test]
fn a_chunk_released_during_a_search_that_finds_none_is_found_by_the_next() {
    a_chunk_is_released_during_a_search();
}

#[test]
#[should_panic(expected = "a range with a free chunk was not found")]
fn a_search_that_hides_a_range_without_a_second_look_loses_a_free_chunk() {
    let _mutant = Mutant::new("unlist: no second look");
    a_chunk_is_released_during_a_search();
}

#[test]
#[should_panic(expected = "a range with a free chunk was not found")]
fn a_search_that_does_not_order_its_two_looks_loses_a_free_chunk() {
    let _mutant = Mutant::new("unlist: unordered");
    a_chunk_is_released_during_a_search();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_chunk_that_is_taken_relaxed_has_two_owners() {
    let _mutant = Mutant::new("take chunk: relaxed");
    a_chunk_is_released_during_a_search();
}

#[test]
fn a_range_that_cannot_be_unmapped_serves_again() {
    explore(2, || {
        let (house, mine, theirs) = House::with_two(true);
        house.0.table().refuses_to_unmap.store(true, Ordering::Relaxed);
        let other = Arc::clone(&house);
        let thread = thread::spawn(move || other.release(theirs, 2));
        house.release(mine, 1);
        thread.join().unwrap();
        let again = [3, 4, 5].map(|mark| (house.take(mark), mark));
        assert_eq!(house.mapped(), 1);
        house.0.table().refuses_to_unmap.store(false, Ordering::Relaxed);
        again.into_iter().for_each(|(chunk, mark)| house.release(chunk, mark));
        house.all_is_unmapped();
    });
}
