//! What ended pools leave: taken over by any later pool, counted towards no budget, released when
//! it is freed, and cheap to look at. Each claim about a whole process is checked in one of its
//! own.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::VecDeque;
use std::sync::Mutex;

use allotment::{Budget, LocalPool, PoolRef, PoolVec, Release, pool};
use support::child::{self, Child};
use support::list::under_a_tool;
use support::slab::layout;

const SMALL: Layout = Layout::new::<[u64; 6]>();
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs `body` in a process of its own.
fn alone(test: &str, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    if under_a_tool() {
        return println!("skipped under a memory tool: checked pools are not taken over");
    }
    Child::new(test, test).succeeds();
}

/// A live block.
struct Block(NonNull<u8>, Layout);

// SAFETY: any thread that owns the value may free the block.
unsafe impl Send for Block {}

impl Block {
    /// A block whose every byte is written.
    fn of(pool: &LocalPool, layout: Layout) -> Self {
        let block = pool.alloc_layout(layout);
        // SAFETY: the block has these bytes.
        unsafe { block.write_bytes(7, layout.size()) };
        Self(block, layout)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: a block of a pool, freed once.
        unsafe { PoolRef::free_anywhere(self.0, self.1) }
    }
}

/// The bytes that all pools of this name hold, according to the report.
fn reported(name: &str) -> u64 {
    let report = allotment::report();
    let pools = report.allocators.iter().filter(|one| one.name == name);
    pools.map(|one| one.statistics.held_bytes).sum()
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = text.split(' ').nth(1).expect("the second number").parse().expect("pages");
    pages * 4096
}

#[test]
fn a_pool_with_a_limit_for_each_request_shares_the_memory_of_what_escapes() {
    let test = "a_pool_with_a_limit_for_each_request_shares_the_memory_of_what_escapes";
    alone(test, || {
        let before = resident();
        let tenant = Budget::new(64 * MIB);
        let mut cache = Vec::new();
        for request in 0..20_000 {
            let builder = LocalPool::builder();
            let pool = match request % 2 {
                0 => builder.maximum(8 * MIB).build(),
                _ => builder.budget(&tenant).build(),
            };
            let work: Vec<_> = (0..200).map(|_| Block::of(&pool, SMALL)).collect();
            cache.push(Block::of(&pool, SMALL));
            drop(work);
        }
        let live = cache.len() * SMALL.size();
        let more = resident().saturating_sub(before);
        assert!(more < 2 * live + 4 * MIB, "{more} resident bytes for {live} live ones");
        assert_eq!(tenant.used(), 0, "what escaped is the program's");
    });
}

#[test]
fn a_pool_uses_no_more_of_what_an_ended_one_left_than_its_limit() {
    let test = "a_pool_uses_no_more_of_what_an_ended_one_left_than_its_limit";
    alone(test, || {
        let large_pool = LocalPool::new();
        let mut left: Vec<_> = (0..100_000).map(|_| Block::of(&large_pool, SMALL)).collect();
        // Half of five megabytes is free, and no chunk is empty.
        let mut index = 0;
        left.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        drop(large_pool);
        for limit in [0, 64, 10 * KIB, 100 * KIB, MIB] {
            let pool = LocalPool::builder().maximum(limit).build();
            let mut mine = Vec::new();
            while let Ok(block) = pool.try_alloc_layout(SMALL) {
                mine.push(Block(block, SMALL));
            }
            let statistics = pool.statistics();
            let used = mine.len() * SMALL.size();
            assert!(used <= limit, "{used} of {limit}");
            assert!(used + 4 * KIB > limit, "what is free is used: {used} of {limit}");
            assert_eq!(statistics.live_bytes as usize, used);
            assert!(statistics.held_bytes as usize <= limit, "{statistics:?}");
            if limit == MIB {
                // These outlive their pool.
                drop(pool);
            }
        }
        drop(left);
        let pool = LocalPool::new();
        assert_eq!(pool.statistics().live_objects, 0);
        pool.trim();
        assert_eq!(pool.statistics().held_bytes, 0, "everything came back");
    });
}

#[test]
fn a_limited_pool_begins_with_what_the_one_before_used_and_trims_what_is_aside() {
    let test = "a_limited_pool_begins_with_what_the_one_before_used_and_trims_what_is_aside";
    alone(test, || {
        let large_pool = LocalPool::builder().increment(64 * KIB).build();
        let left: Vec<_> = (0..50_000).map(|_| Block::of(&large_pool, SMALL)).collect();
        let one = Block::of(&large_pool, SMALL);
        drop(left);
        // Without a search: what it holds stays.
        let spare = Block::of(&large_pool, layout(2 * MIB, 8));
        drop(large_pool);
        drop(spare);
        let request = || {
            let pool = LocalPool::builder().maximum(MIB).build();
            let held = || pool.statistics().held_bytes as usize;
            let begins_with = held();
            let blocks: Vec<_> = (0..500).map(|_| Block::of(&pool, SMALL)).collect();
            assert!(held() >= 500 * SMALL.size());
            assert_eq!(pool.statistics().live_objects, 500);
            drop(blocks);
            (begins_with, held())
        };
        assert_eq!(request().0, 0);
        for _ in 0..5 {
            let (begins_with, used) = request();
            assert!(begins_with >= 500 * SMALL.size(), "{begins_with}");
            assert!(used < 40 * KIB, "it takes no more each time: {used}");
        }
        let pool = LocalPool::builder().maximum(MIB).build();
        let block = Block::of(&pool, SMALL);
        pool.trim();
        assert_eq!(pool.statistics().live_objects, 1);
        let mut more = Vec::new();
        while let Ok(block) = pool.try_alloc_layout(SMALL) {
            more.push(Block(block, SMALL));
        }
        assert!(more.len() * SMALL.size() <= MIB);
        drop((pool, block, one, more));
        let pool = LocalPool::new();
        pool.trim();
        assert_eq!(pool.statistics().held_bytes, 0);
    });
}

#[test]
fn a_limited_pool_uses_the_rest_of_a_chunk_in_pieces() {
    let test = "a_limited_pool_uses_the_rest_of_a_chunk_in_pieces";
    alone(test, || {
        let first = LocalPool::builder().initial(MIB).build();
        let kept = Block::of(&first, SMALL);
        drop(first);
        let budget = Budget::new(32 * KIB);
        let second = LocalPool::builder().budget(&budget).build();
        let mine = Block::of(&second, SMALL);
        assert_eq!(mine.0.addr().get(), kept.0.addr().get() + SMALL.size(), "the next bytes");
        assert!(budget.used() <= 4 * KIB, "{}", budget.used());
        let large = Block::of(&second, layout(20 * KIB, 8));
        assert!(second.try_alloc_layout(layout(20 * KIB, 8)).is_err(), "beyond the limit");
        // A new chunk for what does not fit the rest; the rest is not lost.
        drop(second);
        let third = LocalPool::new();
        let more: Vec<_> = (0..15_000).map(|_| Block::of(&third, SMALL)).collect();
        assert_eq!(third.statistics().chunks, 1, "the rest of the first chunk");
        drop((kept, mine, large, more));
        assert_eq!(third.trim(), MIB);
    });
}

#[test]
fn large_blocks_of_an_ended_pool_go_back_when_they_are_freed() {
    alone("large_blocks_of_an_ended_pool_go_back_when_they_are_freed", || {
        let budget = Budget::new(usize::MAX);
        for limited in [false, true] {
            let all: Vec<_> = (0..20)
                .map(|_| {
                    let builder = LocalPool::builder().name("ended");
                    let pool = if limited { builder.budget(&budget) } else { builder }.build();
                    let blocks = (Block::of(&pool, SMALL), Block::of(&pool, layout(3 * MIB, 8)));
                    (pool, blocks)
                })
                .collect();
            let kept = all.into_iter().map(|(pool, (small, large))| {
                drop(pool);
                drop(large);
                small
            });
            let kept: Vec<_> = kept.collect();
            let held = reported("ended");
            assert!(held <= 20 * 64 * KIB as u64, "{held}");
            drop(kept);
            assert_eq!(reported("ended"), 0);
        }
    });
}

#[test]
fn an_ended_pool_releases_empty_chunks_while_its_last_blocks_are_freed_elsewhere() {
    let test = "an_ended_pool_releases_empty_chunks_while_its_last_blocks_are_freed_elsewhere";
    alone(test, || {
        let pool = LocalPool::builder().name("ended").increment(64 * KIB).build();
        let mut blocks: Vec<_> = (0..100_000).map(|_| Block::of(&pool, SMALL)).collect();
        drop(pool);
        let held = reported("ended");
        assert!(held > 4 * MIB as u64);
        let last = blocks.split_off(99_000);
        std::thread::spawn(move || drop(blocks)).join().unwrap();
        let less = reported("ended");
        assert!(less < held / 2, "{less} of {held}");
        drop(last);
        assert_eq!(reported("ended"), 0);
    });
}

#[test]
fn pools_with_one_escaping_object_each_hold_what_their_objects_need() {
    let test = "pools_with_one_escaping_object_each_hold_what_their_objects_need";
    alone(test, || {
        // A cache, of which half expires again and again.
        let mut cache = VecDeque::new();
        for request in 0..60_000 {
            let pool = LocalPool::new();
            let work: Vec<_> = (0..50).map(|_| Block::of(&pool, SMALL)).collect();
            cache.push_back(Block::of(&pool, SMALL));
            drop(work);
            drop(pool);
            if request % 10_000 == 9_999 {
                cache.drain(..cache.len() / 2);
            }
        }
        let pool = LocalPool::new();
        let statistics = pool.statistics();
        assert_eq!(statistics.live_objects as usize, cache.len());
        let live = statistics.live_bytes;
        assert!(statistics.held_bytes < 3 * live + MIB as u64, "{statistics:?}");
    });
}

/// What coroutines with a stack of their own do: they suspend inside a pool, and go on inside
/// another.
#[test]
fn pools_may_be_left_in_any_order_and_one_that_has_ended_is_not_current_again() {
    let (first, second) = (LocalPool::new(), LocalPool::new());
    let number = second.reference();
    // SAFETY: left below, before it ends.
    let before_first = unsafe { first.enter_unguarded() };
    // SAFETY: as above.
    let before_second = unsafe { second.enter_unguarded() };
    assert_eq!(pool::current(), number);
    // SAFETY: the value of the call above.
    unsafe { first.leave_to(before_first) };
    assert_eq!(pool::current(), PoolRef::GLOBAL);
    // It leaves a live block and a free one.
    let (kept, _) = (Block::of(&first, SMALL), Block::of(&first, SMALL));
    drop(first);
    // SAFETY: the value of the call above.
    unsafe { second.leave_to(before_second) };
    assert_eq!(PoolRef::alloc_fast_in_current(SMALL), None, "the first pool has ended");
    drop(kept);
}

#[test]
fn a_pool_that_ends_during_a_call_outside_is_not_current_after_it() {
    let pool = LocalPool::new();
    // SAFETY: the pool is left by its end.
    let before = unsafe { pool.enter_unguarded() };
    assert!(before.is_null());
    pool::outside(|| drop(pool));
    assert_eq!(pool::current(), PoolRef::GLOBAL);
}

#[test]
fn a_panic_hook_runs_in_no_pool_and_what_it_keeps_is_not_the_pools() {
    static WHERE: Mutex<Vec<PoolRef>> = Mutex::new(Vec::new());
    alone("a_panic_hook_runs_in_no_pool_and_what_it_keeps_is_not_the_pools", || {
        std::panic::set_hook(Box::new(|_| WHERE.lock().unwrap().push(pool::current())));
        let requests = LocalPool::new();
        let panic_inside = || {
            let caught = std::panic::catch_unwind(|| requests.enter(|| panic!("on purpose")));
            assert!(caught.is_err());
        };
        panic_inside();
        (0..3).for_each(|_| pool::run_panic_hook_outside());
        panic_inside();
        assert_eq!(*WHERE.lock().unwrap(), [requests.reference(), PoolRef::GLOBAL]);
    });
}

#[test]
fn a_closure_outside_is_in_no_pool_and_a_panic_returns_to_the_pool() {
    let pool = LocalPool::new();
    pool.enter(|| {
        let caught = std::panic::catch_unwind(|| {
            pool::outside(|| {
                assert_eq!(pool::current(), PoolRef::GLOBAL);
                std::panic::resume_unwind(Box::new(7));
            })
        });
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(pool::current(), pool.reference());
    });
}

#[test]
fn a_pool_says_what_escapes_it_by_size() {
    let test = "a_pool_says_what_escapes_it_by_size";
    if child::is(test) {
        let pool = LocalPool::builder().name("request").report_live(true).build();
        assert_eq!(pool.live_by_size(), []);
        let mut escapes: Vec<_> = (0..3).map(|_| Block::of(&pool, SMALL)).collect();
        escapes.push(Block::of(&pool, Layout::new::<u8>()));
        escapes.push(Block::of(&pool, layout(MIB, 8)));
        escapes.push(Block::of(&pool, layout(MIB, 8)));
        drop(Block::of(&pool, layout(100, 8)));
        let other = Block::of(&pool, layout(200, 8));
        std::thread::spawn(move || drop(other)).join().unwrap();
        if !under_a_tool() {
            assert_eq!(pool.live_by_size(), [(16, 1), (48, 3), (MIB, 2)]);
        }
        pool.enter(|| assert_eq!(pool.live_by_size().len(), if under_a_tool() { 0 } else { 3 }));
        drop(pool);
        return;
    }
    let text = Child::new(test, test).succeeds();
    let expected = "pool 'request' ended with 6 objects in use (2 of 1048576 bytes, 3 of 48 bytes, 1 of 16 bytes); their";
    assert!(under_a_tool() || text.contains(expected), "{text}");
}

/// The blocks of 1000 bytes that a pool allocates until its budget refuses.
fn fill_up(pool: &LocalPool) -> Vec<Block> {
    let layout = layout(1000, 8);
    let blocks = core::iter::from_fn(|| pool.try_alloc_layout(layout).ok());
    blocks.map(|block| Block(block, layout)).collect()
}

#[test]
fn what_a_limited_pool_took_over_and_gave_back_is_charged_no_longer() {
    alone("what_a_limited_pool_took_over_and_gave_back_is_charged_no_longer", || {
        let first = LocalPool::new();
        let mut kept: Vec<_> = (0..40_000).map(|_| Block::of(&first, layout(1000, 8))).collect();
        let mut keep = [true, false].into_iter().cycle();
        kept.retain(|_| keep.next().expect("without end"));
        drop(first);
        let budget = Budget::new(16 * MIB);
        let pool = LocalPool::builder().name("took over").budget(&budget).build();
        let most = fill_up(&pool).len();
        assert!(most > 15_000, "{most} blocks");
        drop(kept);
        pool.trim();
        assert!(budget.used() <= MIB, "{} bytes charged", budget.used());
        assert!(pool.statistics().held_bytes <= MIB as u64, "{:?}", pool.statistics());
        for _ in 0..3 {
            let blocks = fill_up(&pool);
            assert!(blocks.len() > 15_000, "{} blocks", blocks.len());
            assert!(budget.used() <= 16 * MIB);
        }
        drop(pool);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_limited_pool_whose_free_blocks_have_another_size_searches_for_empty_chunks() {
    alone("a_limited_pool_whose_free_blocks_have_another_size_searches_for_empty_chunks", || {
        let pool = LocalPool::builder().maximum(8 * MIB).build();
        drop(fill_up(&pool));
        for size in [100, 10_000, 100_000] {
            let blocks: Vec<_> = (0..4 * MIB / size)
                .map(|_| {
                    pool.try_alloc_layout(layout(size, 8))
                        .map(|block| Block(block, layout(size, 8)))
                })
                .collect();
            let refused = blocks.iter().filter(|block| block.is_err()).count();
            assert_eq!(refused, 0, "of {} blocks of {size} bytes", blocks.len());
        }
    });
}

/// Frees all but each `step`th block, so that no chunk becomes empty.
fn keep_one_in(step: usize, blocks: &mut Vec<Block>) {
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % step == 1
    });
}

/// Frees the blocks on another thread.
fn free_elsewhere<T: Send>(blocks: T) {
    std::thread::scope(|scope| scope.spawn(move || drop(blocks)).join().unwrap());
}

#[test]
fn a_pool_that_only_grows_blocks_takes_back_what_other_threads_free() {
    alone("a_pool_that_only_grows_blocks_takes_back_what_other_threads_free", || {
        let pool = LocalPool::builder().name("grows").build();
        for _ in 0..200 {
            let mut vec: PoolVec<u8> = PoolVec::new_in(pool.reference());
            vec.reserve_exact(1000);
            vec.reserve_exact(100_000);
            free_elsewhere(vec);
        }
        let held = reported("grows");
        assert!(held <= 4 * MIB as u64, "{held} bytes for 100,000");
    });
}

#[test]
fn a_limited_pool_grows_a_block_where_it_would_allocate_one() {
    alone("a_limited_pool_grows_a_block_where_it_would_allocate_one", || {
        let pool = LocalPool::builder().maximum(MIB).build();
        let mut vec: PoolVec<u8> = PoolVec::new_in(pool.reference());
        vec.reserve_exact(32 * KIB);
        // The rest of the limit is free blocks of another size.
        drop(fill_up(&pool));
        assert!(vec.try_reserve_exact(64 * KIB).is_ok(), "empty chunks are released for it");
        drop(vec);
        pool.trim();
        // The rest of the limit is on its way back from another thread.
        let vec_of = |bytes| {
            let mut vec: PoolVec<u8> = PoolVec::new_in(pool.reference());
            vec.try_reserve_exact(bytes).map(|()| vec)
        };
        let mut vec = vec_of(60_000).unwrap();
        free_elsewhere(core::iter::from_fn(|| vec_of(60_000).ok()).collect::<Vec<_>>());
        assert!(vec.try_reserve_exact(300_000).is_ok(), "what other threads freed is reclaimed");
    });
}

#[test]
fn a_limited_pool_searches_again_once_blocks_are_freed() {
    alone("a_limited_pool_searches_again_once_blocks_are_freed", || {
        let pool = LocalPool::builder().maximum(MIB).build();
        let mut kept = core::iter::from_fn(|| pool.try_alloc_layout(SMALL).ok())
            .map(|block| Block(block, SMALL))
            .collect::<Vec<_>>();
        // One block in each chunk, and more, so that no chunk is empty.
        keep_one_in(1000, &mut kept);
        let other = layout(128, 8);
        let allocates = || pool.try_alloc_layout(other).map(|block| drop(Block(block, other)));
        assert!(kept.len() > 16 && allocates().is_err());
        kept.truncate(1);
        assert!(allocates().is_ok(), "with one live block");
        pool.trim();
        // What is carved of the other size goes with it.
        let kept: Vec<_> = core::iter::from_fn(|| pool.try_alloc_layout(SMALL).ok())
            .map(|block| Block(block, SMALL))
            .collect();
        assert!(allocates().is_err());
        drop(kept);
        assert!(allocates().is_ok(), "with no live block");
    });
}

#[test]
fn a_pool_that_keeps_nothing_ends_with_the_chunks_of_its_live_blocks() {
    alone("a_pool_that_keeps_nothing_ends_with_the_chunks_of_its_live_blocks", || {
        for release in [Release::AtOnce, Release::Keep(0)] {
            let pool = LocalPool::builder().name("at once").increment(64 * KIB).release(release);
            let pool = pool.build();
            let mut blocks = pool.enter(|| fill(&pool, 4000));
            // Leaving it may have searched for empty chunks; its end does so again.
            blocks.truncate(1);
            drop(pool);
            let held = reported("at once");
            assert!(held <= 64 * KIB as u64, "{release:?}: {held} bytes with one live block");
            drop(blocks);
        }
    });
}

/// Blocks of 1000 bytes.
fn fill(pool: &LocalPool, count: usize) -> Vec<Block> {
    (0..count).map(|_| Block::of(pool, layout(1000, 8))).collect()
}

#[test]
fn an_ended_pool_with_few_live_blocks_releases_the_chunks_of_those_that_are_freed() {
    let test = "an_ended_pool_with_few_live_blocks_releases_the_chunks_of_those_that_are_freed";
    alone(test, || {
        let pool = LocalPool::builder().name("few").increment(64 * KIB).build();
        let mut blocks = fill(&pool, 60 * 64);
        keep_one_in(65, &mut blocks);
        assert!(blocks.len() < 64, "{}", blocks.len());
        drop(pool);
        assert!(reported("few") > 50 * 64 * KIB as u64, "each chunk has a live block");
        blocks.truncate(1);
        let held = reported("few");
        assert!(held <= 2 * 64 * KIB as u64, "{held} bytes with one live block");
    });
}

/// The blocks of `size` bytes that a pool allocates until its budget refuses.
fn fill_with(pool: &LocalPool, size: usize) -> Vec<Block> {
    let layout = layout(size, 8);
    let blocks = core::iter::from_fn(|| pool.try_alloc_layout(layout).ok());
    blocks.map(|block| Block(block, layout)).take(100_000).collect()
}

#[test]
fn a_limited_pool_gives_back_free_pieces_of_chunks_that_escapes_pin() {
    alone("a_limited_pool_gives_back_free_pieces_of_chunks_that_escapes_pin", || {
        let first = LocalPool::new();
        let mut escapes = fill(&first, 4 * KIB);
        keep_one_in(50, &mut escapes);
        drop(first);
        let budget = Budget::new(MIB);
        let pool = LocalPool::builder().budget(&budget).build();
        for size in [1000, 500, 300, 1000] {
            let blocks = fill_with(&pool, size);
            assert!(blocks.len() * size > MIB / 2, "{} blocks of {size} bytes", blocks.len());
            assert!(pool.statistics().live_bytes as usize <= budget.used());
        }
        let one = fill(&pool, 1);
        pool.trim();
        assert!(budget.used() <= 4 * KIB, "{} bytes charged for one block", budget.used());
        drop((one, pool, escapes));
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_limited_pool_takes_what_ended_ones_left_in_pieces_of_at_most_4_kib() {
    alone("a_limited_pool_takes_what_ended_ones_left_in_pieces_of_at_most_4_kib", || {
        let first = LocalPool::new();
        let mut escapes = fill(&first, 4 * KIB);
        keep_one_in(50, &mut escapes);
        drop(first);
        let budget = Budget::new(4 * MIB);
        let pool = LocalPool::builder().budget(&budget).build();
        let mut blocks = Vec::new();
        while blocks.len() < 2000 {
            let before = budget.used();
            blocks.push(fill(&pool, 1));
            assert!(budget.used() - before <= 4 * KIB, "after {} blocks", blocks.len());
        }
        drop(escapes);
    });
}

#[test]
fn a_limit_holds_when_blocks_of_earlier_requests_are_freed_inside() {
    alone("a_limit_holds_when_blocks_of_earlier_requests_are_freed_inside", || {
        let limit = 256 * KIB;
        for elsewhere in [false, true] {
            let first = LocalPool::new();
            // Small blocks, and those of a class that takes the slow path.
            let mut escapes = fill(&first, 4 * KIB);
            escapes.extend((0..400).map(|_| Block::of(&first, layout(10_000, 8))));
            escapes.extend((0..400).map(|_| Block::of(&first, layout(4096, 4096))));
            let pin = fill(&first, 1);
            drop(first);
            let pool = LocalPool::builder().maximum(limit).build();
            if elsewhere {
                free_elsewhere(escapes);
            } else {
                drop(escapes);
            }
            assert_eq!(pool.statistics().live_objects, 0);
            for size in [1000, 10_000, 1000] {
                let blocks = fill_with(&pool, size);
                let requested = blocks.len() * size;
                assert!(requested <= limit, "{requested} bytes beyond {limit}");
                let live = pool.statistics().live_bytes as usize;
                assert!(live <= limit, "{live} live bytes of {size} each");
                assert!(live > limit / 2, "what is free is used: {live}");
                assert_eq!(pool.statistics().live_objects as usize, blocks.len());
            }
            drop((pin, pool));
            let next = LocalPool::new();
            assert_eq!(next.statistics().live_objects, 0);
            next.trim();
            assert_eq!(next.statistics().held_bytes, 0, "everything came back");
        }
    });
}

#[test]
fn a_pool_that_has_allocated_nothing_uses_nothing_of_a_budget_that_it_shares() {
    alone("a_pool_that_has_allocated_nothing_uses_nothing_of_a_budget_that_it_shares", || {
        let shared = Budget::new(MIB);
        let below = shared.child(MIB);
        for budget in [&shared, &below] {
            let limited = |maximum: Option<usize>| {
                let builder = LocalPool::builder().budget(budget);
                match maximum {
                    Some(bytes) => builder.maximum(bytes).build(),
                    None => builder.build(),
                }
            };
            for maximum in [None, Some(MIB)] {
                // What these used and freed is left to the next pools, with a live block.
                let pools: Vec<_> = (0..8).map(|_| limited(maximum)).collect();
                let escapes: Vec<_> =
                    pools.iter().map(|pool| fill(pool, 60).split_off(59)).collect();
                drop(pools);
                let idle: Vec<_> = (0..8).map(|_| limited(maximum)).collect();
                assert_eq!(shared.used(), 0, "they have allocated nothing");
                let blocks: Vec<_> = idle.iter().map(|pool| fill(pool, 10)).collect();
                assert!(shared.used() > 8 * 10 * 1000);
                drop((blocks, idle, escapes));
            }
        }
    });
}

#[test]
fn ended_pools_that_report_their_live_blocks_are_used_again_once_they_are_empty() {
    alone("ended_pools_that_report_their_live_blocks_are_used_again_once_they_are_empty", || {
        // Almost as many as there may be.
        let pools: Vec<_> = (0..65_500).map(|_| LocalPool::new()).collect();
        let mut escapes = VecDeque::new();
        for _ in 0..200 {
            let pool = LocalPool::builder().report_live(true).try_build().unwrap();
            escapes.push_back(Block::of(&pool, SMALL));
            if escapes.len() > 3 {
                escapes.pop_front();
            }
        }
        // Empty when it ends.
        for _ in 0..200 {
            let pool = LocalPool::builder().report_live(true).try_build().unwrap();
            drop(Block::of(&pool, SMALL));
        }
        drop((pools, escapes));
    });
}
