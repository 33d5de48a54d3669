//! Models of the recycler (`src/memory/chunk_cache.rs`), explored by loom; `.ci/loom` runs them.
//!
//! The cache is the one that ships, on a table that the test provides. Loom checks each access to a
//! chunk, so the model fails if a chunk has two owners at the same time, or an owner after it was
//! unmapped.
#![cfg(loom)]

use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64 as PlainU64;
use core::sync::atomic::AtomicUsize as PlainUsize;
use core::time::Duration;

use allotment::Release;
use allotment::for_loom::Mutant;
use allotment::for_loom::chunk_cache::{Backing, ChunkCache, Mappings, WarmChunk};
use allotment::for_loom::index_stack::{Links, NIL};
use allotment::for_loom::layout::class_size;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::{Gate, explore};

/// The size of every chunk in the models: the smallest class.
const SIZE: usize = class_size(0);

/// The largest number of chunks that a model maps.
const CHUNKS: usize = 4;

struct Table {
    gate: Gate,
    next: Vec<AtomicU32>,
    start: Vec<AtomicUsize>,
    chunks: Vec<UnsafeCell<Chunk>>,
    capacity: u32,
    /// Not an atomic of loom: bookkeeping of the model, not of the cache.
    mapped: PlainUsize,
    unmapped: PlainUsize,
    clock: PlainU64,
}

#[derive(Default)]
struct Chunk {
    written: u32,
    unmapped: bool,
}

impl Table {
    fn new(capacity: u32) -> Self {
        Self {
            gate: Gate::new(),
            next: (0..capacity).map(|_| AtomicU32::new(NIL)).collect(),
            start: (0..capacity).map(|_| AtomicUsize::new(0)).collect(),
            chunks: (0..CHUNKS).map(|_| UnsafeCell::new(Chunk::default())).collect(),
            capacity,
            mapped: PlainUsize::new(0),
            unmapped: PlainUsize::new(0),
            clock: PlainU64::new(1_000_000),
        }
    }

    /// A fresh mapping.
    fn map(&self) -> NonNull<u8> {
        let number = self.mapped.fetch_add(1, Ordering::Relaxed);
        assert!(number < CHUNKS, "the model maps more chunks than it has");
        NonNull::without_provenance(NonZeroUsize::MIN.saturating_add(number))
    }

    /// Accesses a chunk as its owner.
    fn with_chunk(&self, start: NonNull<u8>, work: impl FnOnce(&mut Chunk)) {
        self.chunks[start.addr().get() - 1].with_mut(|chunk| {
            // SAFETY: the caller owns the chunk; loom fails the model if another thread accesses
            // it.
            let chunk = unsafe { &mut *chunk };
            assert!(!chunk.unmapped, "a chunk was used after it was unmapped");
            work(chunk);
        });
    }

    fn in_use_or_kept(&self) -> usize {
        self.mapped.load(Ordering::Relaxed) - self.unmapped.load(Ordering::Relaxed)
    }
}

impl Links for Table {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.next[index as usize]
    }
}

impl Mappings for Table {
    fn start(&self, mapping: u32) -> NonNull<u8> {
        let start = self.start[mapping as usize].load(Ordering::Relaxed);
        NonNull::without_provenance(
            NonZeroUsize::new(start).expect("a number in use names a mapping"),
        )
    }

    fn set_start(&self, mapping: u32, start: NonNull<u8>) {
        self.start[mapping as usize].store(start.addr().get(), Ordering::Relaxed);
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    unsafe fn unmap(&self, chunk: WarmChunk, size: usize) {
        assert_eq!(size, SIZE);
        self.with_chunk(chunk.start, |chunk| chunk.unmapped = true);
        self.unmapped.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
}

/// The cache, its table, and the calls that an allocator makes.
struct SharedCache {
    cache: ChunkCache<SharedTable>,
    table: SharedTable,
}

#[derive(Clone)]
struct SharedTable(std::sync::Arc<Table>);

impl std::ops::Deref for SharedTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

impl Links for SharedTable {
    fn next(&self, index: u32) -> &AtomicU32 {
        self.0.next(index)
    }
}

impl Mappings for SharedTable {
    fn start(&self, mapping: u32) -> NonNull<u8> {
        self.0.start(mapping)
    }

    fn set_start(&self, mapping: u32, start: NonNull<u8>) {
        self.0.set_start(mapping, start);
    }

    fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    unsafe fn unmap(&self, chunk: WarmChunk, size: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.unmap(chunk, size) }
    }

    fn now(&self) -> u64 {
        self.0.now()
    }
}

impl SharedCache {
    fn new(mappings: u32) -> Arc<Self> {
        let table = SharedTable(std::sync::Arc::new(Table::new(mappings)));
        let shared = Self { cache: ChunkCache::new(table.clone()), table };
        // Without decay, unless a model sets another policy.
        shared.cache.set_policy(Release::Keep(usize::MAX));
        Arc::new(shared)
    }

    /// Takes a chunk as a source does, warm or fresh, and writes to it.
    fn take(&self, mark: u32) -> WarmChunk {
        self.table.gate.pass();
        let warm = self.cache.take(Backing::Pages, SIZE).unwrap_or_else(|| {
            let start = self.table.map();
            WarmChunk { start, mapping: self.cache.add_mapping(start, SIZE) }
        });
        self.table.with_chunk(warm.start, |chunk| chunk.written = mark);
        self.within_limit();
        warm
    }

    fn give(&self, chunks: &[WarmChunk]) -> usize {
        self.table.gate.pass();
        let mut batch = self.cache.recycle(chunks.len() * SIZE);
        for &chunk in chunks {
            // SAFETY: taken by the caller, and not used any more.
            unsafe { batch.add(Backing::Pages, chunk, SIZE) };
        }
        let unmapped = batch.finish();
        self.within_limit();
        unmapped
    }

    /// Invariant 2, as far as one load can show it. If `cached` fell below the bytes on the stacks,
    /// the sum wraps.
    fn within_limit(&self) {
        assert!(self.cache.cached() <= self.cache.limit(), "more is cached than the limit allows");
    }

    /// With no thread in the cache: `cached` is the bytes on the stacks, and every mapping is on a
    /// stack or unmapped.
    fn is_consistent(&self, in_use: usize) {
        let cached = self.cache.cached();
        let mut kept = 0;
        while let Some(warm) = self.cache.take(Backing::Pages, SIZE) {
            self.table.with_chunk(warm.start, |chunk| chunk.written += 1);
            kept += 1;
        }
        assert_eq!(cached, kept * SIZE, "`cached` is what lies on the stacks");
        assert_eq!(self.cache.cached(), 0);
        assert_eq!(self.table.in_use_or_kept(), kept + in_use, "a mapping was lost");
    }
}

fn threads_take_and_give() {
    explore(3, || {
        let shared = SharedCache::new(4);
        let first = shared.take(1);
        shared.give(&[first]);
        let threads: Vec<_> = (0..2)
            .map(|mark| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let chunk = shared.take(mark);
                    shared.give(&[chunk]);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        shared.is_consistent(0);
    });
}

#[test]
fn threads_that_take_and_give_never_hold_one_chunk_together() {
    threads_take_and_give();
}

#[test]
#[should_panic(expected = "more is cached than the limit allows")]
fn bytes_reserved_after_the_push_let_the_count_fall_below_the_stack() {
    let _mutant = Mutant::new("recycle: reserved after the push");
    threads_take_and_give();
}

#[test]
fn a_run_of_chunks_is_given_and_taken_one_by_one() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunks = [shared.take(1), shared.take(2)];
        let other = Arc::clone(&shared);
        let taker = thread::spawn(move || {
            let taken = other.take(3);
            other.give(&[taken]);
        });
        shared.give(&chunks);
        let mine = shared.take(4);
        taker.join().unwrap();
        shared.is_consistent(1);
        shared.table.with_chunk(mine.start, |chunk| assert_eq!(chunk.written, 4));
    });
}

#[test]
fn the_limit_holds_at_every_instant_while_threads_give() {
    explore(3, || {
        let shared = SharedCache::new(4);
        shared.cache.set_limit(SIZE);
        let theirs = shared.take(1);
        let mine = shared.take(2);
        let other = Arc::clone(&shared);
        let giver = thread::spawn(move || other.give(&[theirs]));
        let unmapped = shared.give(&[mine]);
        shared.within_limit();
        assert_eq!(unmapped + giver.join().unwrap(), 1, "one of the two has room");
        shared.is_consistent(0);
    });
}

fn a_trim_while_another_takes_and_gives() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunks = [shared.take(1), shared.take(2)];
        shared.give(&chunks);
        let other = Arc::clone(&shared);
        let user = thread::spawn(move || {
            let chunk = other.take(3);
            other.table.with_chunk(chunk.start, |chunk| assert_eq!(chunk.written, 3));
            other.give(&[chunk]);
        });
        shared.table.gate.pass();
        shared.cache.trim_to(0);
        shared.within_limit();
        user.join().unwrap();
        shared.is_consistent(0);
    });
}

#[test]
fn a_trim_while_others_take_and_give_unmaps_nothing_in_use() {
    a_trim_while_another_takes_and_gives();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_trim_that_unmaps_what_it_has_not_taken_meets_a_user() {
    let _mutant = Mutant::new("trim: chain not taken");
    a_trim_while_another_takes_and_gives();
}

#[test]
fn two_trims_at_once_unmap_each_chunk_once() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunks = [shared.take(1), shared.take(2)];
        shared.give(&chunks);
        let other = Arc::clone(&shared);
        let trimmer = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.trim_to(SIZE)
        });
        shared.table.gate.pass();
        let mine = shared.cache.trim_to(0);
        let theirs = trimmer.join().unwrap();
        assert_eq!(mine + theirs, SIZE * shared.table.unmapped.load(Ordering::Relaxed));
        shared.is_consistent(0);
    });
}

#[test]
fn a_mapping_number_names_one_chunk_at_a_time_when_there_are_few() {
    explore(3, || {
        let shared = SharedCache::new(1);
        let threads: Vec<_> = (0..2)
            .map(|mark| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let chunk = shared.take(mark);
                    let numbered = chunk.mapping != NIL;
                    if numbered {
                        assert_eq!(shared.table.start(chunk.mapping), chunk.start);
                    }
                    let unmapped = shared.give(&[chunk]);
                    assert_eq!(
                        unmapped,
                        usize::from(!numbered),
                        "a chunk without a mapping number has no place"
                    );
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        shared.is_consistent(0);
    });
}

#[test]
fn a_mapping_number_that_comes_back_with_an_unmapping_names_the_next_chunk() {
    explore(2, || {
        let shared = SharedCache::new(1);
        let chunk = shared.take(1);
        let other = Arc::clone(&shared);
        let trimmer = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.trim_to(0)
        });
        shared.give(&[chunk]);
        let next = shared.take(2);
        trimmer.join().unwrap();
        shared.table.with_chunk(next.start, |chunk| assert_eq!(chunk.written, 2));
        shared.is_consistent(1);
    });
}

#[test]
fn a_lower_limit_binds_a_thread_that_was_giving_meanwhile() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunk = shared.take(1);
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_limit(0);
        });
        shared.table.gate.pass();
        let mut batch = shared.cache.recycle(SIZE);
        // SAFETY: taken above and not used after.
        unsafe { batch.add(Backing::Pages, chunk, SIZE) };
        batch.finish();
        setter.join().unwrap();
        assert_eq!(shared.cache.cached(), 0, "more is cached than the limit allows");
        shared.is_consistent(0);
    });
}

#[test]
fn switching_off_binds_a_thread_that_was_giving_meanwhile() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunk = shared.take(1);
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_policy(Release::AtOnce);
        });
        shared.give(&[chunk]);
        setter.join().unwrap();
        assert_eq!(shared.cache.cached(), 0, "something is kept by a recycler that is off");
        shared.is_consistent(0);
    });
}

fn a_limit_is_lowered_while_a_trim_puts_chunks_back() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunks = [shared.take(1), shared.take(2)];
        shared.give(&chunks);
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_limit(0);
        });
        shared.table.gate.pass();
        shared.cache.trim_to(SIZE);
        setter.join().unwrap();
        assert_eq!(shared.cache.cached(), 0, "more is cached than the limit allows");
        shared.is_consistent(0);
    });
}

#[test]
fn a_lower_limit_binds_a_trim_that_puts_chunks_back_meanwhile() {
    a_limit_is_lowered_while_a_trim_puts_chunks_back();
}

#[test]
#[should_panic(expected = "more is cached than the limit allows")]
fn a_trim_that_does_not_compare_again_leaves_more_than_the_limit_allows() {
    let _mutant = Mutant::new("trim: no second comparison");
    a_limit_is_lowered_while_a_trim_puts_chunks_back();
}

#[test]
fn switching_off_binds_a_trim_that_puts_chunks_back_meanwhile() {
    explore(2, || {
        let shared = SharedCache::new(4);
        let chunks = [shared.take(1), shared.take(2)];
        shared.give(&chunks);
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_policy(Release::AtOnce);
        });
        shared.table.gate.pass();
        shared.cache.trim_to(SIZE);
        setter.join().unwrap();
        assert_eq!(shared.cache.cached(), 0, "something is kept by a recycler that is off");
        shared.is_consistent(0);
    });
}

#[test]
fn switching_off_is_not_undone_by_the_adaptive_lesson_of_another_thread() {
    explore(2, || {
        let shared = SharedCache::new(4);
        shared.cache.set_policy(Release::Adaptive);
        // A chunk went back just before because the allowance was used up. So the next miss raises
        // the allowance.
        shared.cache.set_limit(0);
        let overflowing = shared.take(1);
        shared.give(&[overflowing]);
        shared.cache.set_limit(4 * SIZE);
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_policy(Release::AtOnce);
        });
        let chunk = shared.take(2);
        setter.join().unwrap();
        shared.give(&[chunk]);
        assert_eq!(shared.cache.cached(), 0, "something is kept by a recycler that is off");
    });
}

#[test]
fn of_two_policies_that_are_set_at_once_one_remains() {
    explore(2, || {
        let shared = SharedCache::new(1);
        let policies = [Release::Keep(1 << 20), Release::Decay(Duration::from_millis(50))];
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || {
            other.table.gate.pass();
            other.cache.set_policy(policies[1]);
        });
        shared.table.gate.pass();
        shared.cache.set_policy(policies[0]);
        setter.join().unwrap();
        assert!(policies.contains(&shared.cache.policy()), "no thread set this policy");
    });
}
