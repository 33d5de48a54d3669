//! What memory a pool holds, releases, and leaves to the next pool. Each claim is checked in a
//! process of its own, in which no other test has pools.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};
use std::collections::VecDeque;
use std::sync::Barrier;

use allotment::{Budget, ErrorKind, LocalPool, PoolGlobalAlloc, PoolRef, Release};
use support::child::{self, Child};
use support::list::under_a_tool;
use support::slab::layout;
use support::subject::panic_message;

/// The system's allocator, which counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passed on to the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<Counting> = PoolGlobalAlloc::new(Counting);

const WORDS: Layout = Layout::new::<[u64; 8]>();
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs `body` in a process of its own.
fn alone(test: &str, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    if under_a_tool() {
        return println!(
            "skipped under a memory tool: a checked pool keeps chunks while a block is live"
        );
    }
    Child::new(test, test).succeeds();
}

/// A block that may go to other threads.
struct Block(NonNull<u8>, Layout);

// SAFETY: any thread that owns the value may free the block.
unsafe impl Send for Block {}

impl Block {
    fn of(pool: &LocalPool, layout: Layout) -> Self {
        Self(pool.alloc_layout(layout), layout)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: a block of a pool, freed once.
        unsafe { PoolRef::free_anywhere(self.0, self.1) }
    }
}

/// The bytes that the pools of this name hold, according to the report.
fn reported(name: &str) -> Vec<u64> {
    let report = allotment::report();
    let pools = report.allocators.iter().filter(|one| one.name == name);
    pools.map(|one| one.statistics.held_bytes).collect()
}

#[test]
fn a_reserved_chunk_stays_over_a_trim_whether_the_pool_is_empty_or_not() {
    alone("a_reserved_chunk_stays_over_a_trim_whether_the_pool_is_empty_or_not", || {
        let pool = LocalPool::with_reserved(4 * MIB);
        let held = pool.statistics().held_bytes;
        assert_eq!(pool.trim(), 0);
        assert_eq!(pool.statistics().held_bytes, held);
        let block = Block::of(&pool, layout(MIB, 8));
        assert_eq!(pool.trim(), 0);
        drop(block);
        assert_eq!(pool.trim(), 0);
        assert_eq!(pool.statistics().held_bytes, held);
        // It still serves allocations.
        let calls = pool.statistics().source_calls;
        let blocks: Vec<_> = (0..4 * MIB / 64).map(|_| Block::of(&pool, WORDS)).collect();
        assert_eq!(pool.statistics().source_calls, calls);
        drop(blocks);
    });
}

#[test]
fn an_ended_pool_leaves_at_most_256_kib_to_the_next_one() {
    alone("an_ended_pool_leaves_at_most_256_kib_to_the_next_one", || {
        for reserved in [0, 100 * KIB, 16 * MIB] {
            for release in [Release::Adaptive, Release::Keep(usize::MAX), Release::AtOnce] {
                let builder = LocalPool::builder().release(release);
                let pool = builder.reserved(reserved).build();
                drop((0..20_000).map(|_| Block::of(&pool, WORDS)).collect::<Vec<_>>());
                assert!(pool.statistics().held_bytes > MIB as u64);
                drop(pool);
                let most = if release == Release::AtOnce { 0 } else { 256 * KIB as u64 };
                let next = LocalPool::new().statistics();
                assert!(next.held_bytes <= most, "{reserved} {release:?} {next:?}");
            }
        }
    });
}

#[test]
fn a_pool_that_ends_keeps_no_reserved_memory_without_live_blocks() {
    alone("a_pool_that_ends_keeps_no_reserved_memory_without_live_blocks", || {
        let pool = LocalPool::builder().name("ended").reserved(16 * MIB).build();
        let small: Vec<_> = (0..1000).map(|_| Block::of(&pool, WORDS)).collect();
        let large = Block::of(&pool, layout(200 * KIB, 8));
        drop(small);
        drop(pool);
        assert_eq!(reported("ended"), [256 * KIB as u64], "what the large block lies in");
        drop(large);
        assert!(reported("ended").is_empty());
    });
}

#[test]
fn a_pool_that_ends_while_blocks_live_keeps_only_their_chunks() {
    alone("a_pool_that_ends_while_blocks_live_keeps_only_their_chunks", || {
        let budget = Budget::new(usize::MAX);
        for budget in [None, Some(&budget)] {
            let mut builder = LocalPool::builder().name("ended").increment(1);
            if let Some(budget) = budget {
                builder = builder.budget(budget);
            }
            let pool = builder.build();
            let mut blocks: Vec<_> = (0..50_000).map(|_| Block::of(&pool, WORDS)).collect();
            let last = blocks.pop().expect("many");
            let some = blocks.split_off(25_000);
            drop(blocks);
            drop(some);
            drop(pool);
            assert_eq!(reported("ended"), [64 * KIB as u64]);
            assert!(budget.is_none_or(|budget| budget.used() == 0), "the pool has ended");
            drop(last);
            assert!(reported("ended").is_empty());
        }
    });
}

#[test]
fn statistics_of_a_pool_with_a_budget_count_nothing_that_another_pool_left() {
    alone("statistics_of_a_pool_with_a_budget_count_nothing_that_another_pool_left", || {
        let pool = LocalPool::builder().initial(256 * KIB).build();
        drop(Block::of(&pool, WORDS));
        drop(pool);
        let pool = LocalPool::builder().maximum(64 * KIB).build();
        assert_eq!(pool.statistics(), allotment::Statistics::default());
        drop(Block::of(&pool, WORDS));
        assert_eq!(pool.statistics().peak_held_bytes, 64 * KIB as u64);
    });
}

#[test]
fn a_pool_that_takes_over_live_blocks_of_an_ended_one_counts_them() {
    alone("a_pool_that_takes_over_live_blocks_of_an_ended_one_counts_them", || {
        let pool = LocalPool::builder().name("first").build();
        let block = Block::of(&pool, WORDS);
        drop(pool);
        let next = LocalPool::builder().name("second").build();
        assert!(reported("first").is_empty());
        let statistics = next.statistics();
        assert_eq!((statistics.live_objects, statistics.live_bytes), (1, 64));
        assert_eq!((statistics.chunks, statistics.held_bytes), (1, 64 * KIB as u64));
        // The pool fills the same chunk.
        let mine = Block::of(&next, WORDS);
        assert_eq!(mine.0.addr().get() / (64 * KIB), block.0.addr().get() / (64 * KIB));
        assert_eq!(next.statistics().chunks, 1);
        drop((block, mine));
        assert_eq!(next.trim(), 64 * KIB);
    });
}

#[test]
fn a_pool_with_a_budget_counts_no_live_blocks_that_it_took_over() {
    alone("a_pool_with_a_budget_counts_no_live_blocks_that_it_took_over", || {
        let mut kept = Vec::new();
        for round in 0..20 {
            let pool = LocalPool::builder().maximum(MIB).build();
            assert_eq!(pool.statistics(), allotment::Statistics::default());
            kept.push(Block::of(&pool, WORDS));
            assert_eq!(pool.statistics().live_objects, 1);
            drop(pool);
            let plain = LocalPool::new();
            assert_eq!(plain.statistics().live_objects, 2 * round + 1, "it took over all");
            kept.push(Block::of(&plain, WORDS));
        }
    });
}

#[test]
fn a_large_block_is_sent_at_once_by_a_thread_that_stays_in_its_pool() {
    alone("a_large_block_is_sent_at_once_by_a_thread_that_stays_in_its_pool", || {
        let pool = LocalPool::new();
        let (small, large) = (Block::of(&pool, WORDS), Block::of(&pool, layout(8 * MIB, 8)));
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                LocalPool::new().enter(|| {
                    drop(small);
                    both.wait();
                    both.wait();
                    drop(large);
                    both.wait();
                    both.wait();
                });
            });
            both.wait();
            let first = pool.statistics().live_objects;
            both.wait();
            both.wait();
            let second = pool.statistics().live_objects;
            both.wait();
            assert_eq!((first, second), (2, 1), "the small one waits for others");
        });
        assert_eq!(pool.statistics().live_objects, 0);
    });
}

#[test]
fn collected_blocks_of_other_pools_are_sent_when_the_inner_pool_is_left() {
    alone("collected_blocks_of_other_pools_are_sent_when_the_inner_pool_is_left", || {
        let pool = LocalPool::new();
        let blocks: Vec<_> = (0..3).map(|_| Block::of(&pool, WORDS)).collect();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (outer, inner) = (LocalPool::new(), LocalPool::new());
                outer.enter(|| {
                    inner.enter(|| drop(blocks));
                    both.wait();
                    both.wait();
                });
            });
            both.wait();
            let live = pool.statistics().live_objects;
            both.wait();
            assert_eq!(live, 0);
        });
    });
}

#[test]
fn alternating_pools_with_and_without_a_budget_reuse_what_ended_ones_left() {
    alone("alternating_pools_with_and_without_a_budget_reuse_what_ended_ones_left", || {
        let budget = Budget::new(usize::MAX);
        let mut escaped = VecDeque::new();
        // More pools than may exist at a time.
        for _ in 0..70_000 {
            drop(LocalPool::builder().budget(&budget).build());
            let pools = [LocalPool::new(), LocalPool::new()];
            escaped.extend(pools.iter().map(|pool| Block::of(pool, WORDS)));
            while escaped.len() > 20 {
                escaped.pop_front();
            }
        }
    });
}

#[test]
fn the_65_537th_pool_uses_the_global_heap_or_is_refused_if_it_asks_for_more() {
    alone("the_65_537th_pool_uses_the_global_heap_or_is_refused_if_it_asks_for_more", || {
        let mut pools: Vec<_> = (0..65_536).map(|_| LocalPool::new()).collect();
        for _ in 0..3 {
            let limited = || LocalPool::builder().maximum(MIB);
            assert_eq!(limited().try_build().unwrap_err().kind(), ErrorKind::LimitReached);
            assert!(panic_message(|| limited().build()).contains("a fixed limit is reached"));
            let hardened = LocalPool::builder().hardened(true);
            assert_eq!(hardened.try_build().unwrap_err().kind(), ErrorKind::LimitReached);
            let pool = LocalPool::with_reserved(MIB);
            assert_eq!(pool.reference(), PoolRef::GLOBAL);
            assert_eq!(pool.statistics(), allotment::Statistics::default());
            let boxed = pool.enter(|| Box::new([7; 100]));
            assert!(!LocalPool::any_holds(&raw const *boxed));
            let block = pool.alloc_layout(WORDS);
            let error = LocalPool::new().try_alloc_layout(layout(1 << 62, 8)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SourceRefused);
            // SAFETY: allocated above with this layout; resized and freed once.
            unsafe {
                let longer = layout(4096, 8);
                let block = pool.resize(block, WORDS, longer);
                pool.free_layout(block, longer);
            }
        }
        let last = pools.last().expect("many");
        drop(Block::of(last, WORDS));
        pools.truncate(10);
        assert!(LocalPool::try_new().is_ok());
        drop(pools);
        drop((0..65_536).map(|_| LocalPool::new()).collect::<Vec<_>>());
    });
}

#[test]
fn the_ledger_of_a_hardened_pool_is_freed_with_it() {
    alone("the_ledger_of_a_hardened_pool_is_freed_with_it", || {
        let before = IN_USE.load(Ordering::Relaxed);
        let pool = LocalPool::builder().hardened(true).build();
        let mut blocks: Vec<_> = (0..20_000).map(|_| Block::of(&pool, WORDS)).collect();
        let last = blocks.pop();
        drop(blocks);
        assert!(IN_USE.load(Ordering::Relaxed) > before + 100_000);
        drop(pool);
        drop(last);
        let after = IN_USE.load(Ordering::Relaxed);
        assert!(after < before + 10_000, "{before} {after}");
    });
}

#[test]
fn a_pool_that_is_made_inside_another_takes_no_memory_from_it() {
    alone("a_pool_that_is_made_inside_another_takes_no_memory_from_it", || {
        let outer = LocalPool::new();
        let inner = outer.enter(|| LocalPool::builder().hardened(true).build());
        assert_eq!(outer.statistics().live_objects, 0);
        drop(outer);
        drop(Block::of(&inner, WORDS));
    });
}

#[test]
fn an_ended_pool_keeps_no_budget_that_was_made_inside_another_pool() {
    alone("an_ended_pool_keeps_no_budget_that_was_made_inside_another_pool", || {
        let outer = LocalPool::new();
        let mut escaped = Vec::new();
        for hardened in [false, true] {
            let build = || {
                let builder = LocalPool::builder().hardened(hardened).report_live(false);
                outer.enter(|| builder.budget(&Budget::new(MIB)).build())
            };
            drop(build());
            assert_eq!(outer.statistics().live_objects, 0, "hardened: {hardened}");
            let pool = build();
            escaped.push(Block::of(&pool, WORDS));
            drop(pool);
            assert_eq!(outer.statistics().live_objects, 0, "hardened: {hardened}");
        }
        drop(escaped);
        outer.trim();
        assert_eq!(outer.statistics().held_bytes, 0);
    });
}

#[test]
fn a_reservation_that_is_refused_leaves_nothing() {
    alone("a_reservation_that_is_refused_leaves_nothing", || {
        let budget = Budget::new(MIB);
        for bytes in [MIB, 1 << 40, isize::MAX as usize, usize::MAX] {
            for hardened in [false, true] {
                let builder =
                    LocalPool::builder().name("refused").reserved(bytes).hardened(hardened);
                let error = builder.clone().budget(&budget).try_build().unwrap_err();
                let expected = if bytes < 1 << 62 {
                    ErrorKind::BudgetExceeded
                } else {
                    ErrorKind::SizeOverflow
                };
                assert_eq!(error.kind(), expected, "{bytes}");
                assert!(bytes == MIB || builder.try_build().is_err());
                assert_eq!(budget.used(), 0);
                assert!(reported("refused").is_empty());
            }
        }
        let pool = LocalPool::builder().reserved(MIB - 64).budget(&budget).build();
        assert_eq!(budget.used() as u64, pool.statistics().held_bytes);
    });
}

thread_local! {
    /// Made before `POOL`, and so dropped after it.
    static WITNESS: Witness = const { Witness };
    static POOL: LocalPool = LocalPool::new();
}

struct Witness;

impl Drop for Witness {
    fn drop(&mut self) {
        // A pool that has ended is no thread's current pool.
        let boxed = Box::new(7);
        eprintln!("from a pool: {}", LocalPool::any_holds(&raw const *boxed));
    }
}

#[test]
fn a_process_that_exits_inside_a_pool_has_no_current_pool_once_it_has_ended() {
    let test = "a_process_that_exits_inside_a_pool_has_no_current_pool_once_it_has_ended";
    if child::is(test) {
        WITNESS.with(|_| ());
        POOL.with(|pool| {
            let end =
                || std::process::exit(i32::from(LocalPool::any_holds(&raw const *Box::new(7))));
            // The pool has a free block of this size.
            pool.enter(|| drop(Box::new(7)));
            pool.enter(end)
        });
    }
    let (code, text) = Child::new(test, test).exits();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("from a pool: false"), "{text}");
}

#[test]
fn a_pool_that_is_never_left_gives_memory_back_while_it_works() {
    alone("a_pool_that_is_never_left_gives_memory_back_while_it_works", || {
        let decay = Release::Decay(std::time::Duration::from_millis(20));
        for release in [decay, Release::Adaptive] {
            let pool = LocalPool::builder().release(release).build();
            pool.enter(|| {
                let kept = Box::new([7u8; 1000]);
                drop((0..50_000).map(|_| Box::new([1u8; 1000])).collect::<Vec<_>>());
                assert!(pool.statistics().held_bytes > 40 * MIB as u64);
                let begun = std::time::Instant::now();
                while pool.statistics().held_bytes > 8 * MIB as u64 {
                    drop(core::hint::black_box(Vec::<u8>::with_capacity(100_000)));
                    assert!(begun.elapsed().as_secs() < 60, "it stays");
                }
                assert_eq!(*kept, [7; 1000]);
            });
        }
    });
}
