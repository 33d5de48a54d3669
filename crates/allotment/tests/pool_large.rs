//! Large blocks of pools: what they touch, how they grow and shrink in place, what is kept for
//! later ones, and what goes back. Each claim is checked in a process of its own, in which no other
//! test has pools.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::hint::black_box;
use core::ptr::NonNull;
use std::alloc::System;

use allotment::{Budget, LocalPool, PoolGlobalAlloc, PoolRef, Release};
use support::child::{self, Child};
use support::list::under_a_tool;
use support::slab::layout;

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

const MIB: usize = 1 << 20;

/// Runs `body` in a process of its own.
fn alone(test: &str, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    if under_a_tool() {
        return println!("skipped under a memory tool: checked blocks neither grow nor stay");
    }
    Child::new(test, test).succeeds();
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = text.split(' ').nth(1).expect("the second number").parse().expect("pages");
    pages * 4096
}

fn held(pool: &LocalPool) -> usize {
    pool.statistics().held_bytes as usize
}

/// Resizes a block.
fn resize(pool: &LocalPool, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
    // SAFETY: the tests resize the block that they have, and use the new one from then on.
    unsafe { pool.resize(block, old, new) }
}

fn fill(block: NonNull<u8>, layout: Layout, value: u8) {
    // SAFETY: the block has these bytes.
    unsafe { block.write_bytes(value, layout.size()) };
}

fn is_filled(block: NonNull<u8>, layout: Layout, value: u8) -> bool {
    // SAFETY: the block has these bytes, which `fill` wrote.
    let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), layout.size()) };
    bytes.iter().all(|byte| *byte == value)
}

#[test]
fn a_zeroed_vector_of_new_memory_is_not_touched_and_one_of_used_memory_reads_zeros() {
    let test = "a_zeroed_vector_of_new_memory_is_not_touched_and_one_of_used_memory_reads_zeros";
    alone(test, || {
        let pool = LocalPool::new();
        pool.enter(|| {
            let before = resident();
            let table = black_box(vec![0u8; 256 * MIB]);
            let more = resident().saturating_sub(before);
            assert!(more < 8 * MIB, "{more} bytes touched");
            assert_eq!(table[200 * MIB], 0);
            drop(table);
            for size in [100, 40_000, MIB, 3 * MIB, 20 * MIB] {
                for _ in 0..4 {
                    let mut table = vec![0u8; size];
                    assert!(table.iter().all(|byte| *byte == 0), "{size}");
                    table.fill(7);
                    assert!(LocalPool::any_holds(black_box(&table).as_ptr()));
                }
            }
        });
    });
}

#[test]
fn a_block_that_shrinks_gives_back_what_it_does_not_need() {
    alone("a_block_that_shrinks_gives_back_what_it_does_not_need", || {
        let budget = Budget::new(usize::MAX);
        for limited in [false, true] {
            let builder = LocalPool::builder();
            let pool = if limited { builder.budget(&budget) } else { builder }.build();
            let (before, long, short) = (resident(), layout(100 * MIB, 64), layout(26 * MIB, 64));
            let block = pool.alloc_layout(long);
            fill(block, long, 7);
            let shorter = resize(&pool, block, long, short);
            assert_eq!(shorter, block, "it stays");
            assert!(is_filled(shorter, short, 7));
            assert!(resident() < before + 30 * MIB);
            assert!(held(&pool) < 27 * MIB, "{}", held(&pool));
            assert!(!limited || budget.used() == held(&pool));
            assert_eq!(pool.statistics().live_bytes as usize, short.size());
            // SAFETY: live, with this layout.
            unsafe { pool.free_layout(shorter, short) };
            pool.trim();
            assert_eq!(held(&pool), 0);
        }
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_block_grows_in_place_until_other_memory_lies_behind_it() {
    alone("a_block_grows_in_place_until_other_memory_lies_behind_it", || {
        // A budget, so that no block gets capacity that it did not ask for.
        let budget = Budget::new(64 * MIB);
        let pool = LocalPool::builder().budget(&budget).build();
        let mut now = layout(5 * MIB, 8);
        let first = pool.alloc_layout(now);
        fill(first, now, 7);
        for more in [6, 9, 17, 40] {
            let longer = layout(more * MIB, 8);
            assert_eq!(resize(&pool, first, now, longer), first, "{more} MiB");
            now = longer;
            assert!(is_filled(first, layout(5 * MIB, 8), 7));
            assert_eq!(budget.used(), held(&pool));
        }
        // SAFETY: the first block is live; a refused resize leaves it as it was.
        assert!(unsafe { pool.try_resize(first, now, layout(65 * MIB, 8)) }.is_err());
        assert!(is_filled(first, layout(5 * MIB, 8), 7));
        assert_eq!(budget.used(), held(&pool));
        let behind = pool.alloc_layout(layout(5 * MIB, 8));
        let small = layout(6 * MIB, 8);
        assert_eq!(resize(&pool, first, now, small), first);
        // Between the two there is space for 34 MiB.
        assert_eq!(resize(&pool, first, small, layout(38 * MIB, 8)), first);
        assert!(behind > first);
        // SAFETY: both are live, with these layouts.
        unsafe {
            pool.free_layout(first, layout(38 * MIB, 8));
            pool.free_layout(behind, layout(5 * MIB, 8));
        }
        pool.trim();
        assert_eq!((held(&pool), budget.used()), (0, 0));
    });
}

#[test]
fn a_pool_learns_to_keep_blocks_that_are_made_and_freed_again_and_again() {
    alone("a_pool_learns_to_keep_blocks_that_are_made_and_freed_again_and_again", || {
        for (size, kept) in [(3, true), (16, true), (31, true), (200, false)] {
            let pool = LocalPool::new();
            pool.enter(|| {
                let cycle = || drop(black_box(vec![1u8; size * MIB]));
                (0..4).for_each(|_| cycle());
                let calls = pool.statistics().source_calls;
                (0..10).for_each(|_| cycle());
                let more = pool.statistics().source_calls - calls;
                assert_eq!(more == 0, kept, "{size} MiB: {more} calls");
                assert!(held(&pool) <= 64 * MIB);
            });
            assert!(pool.trim() > 0 || !kept);
            assert_eq!(held(&pool), 0);
        }
        let pool = LocalPool::builder().release(Release::AtOnce).build();
        pool.enter(|| (0..10).for_each(|_| drop(black_box(vec![1u8; 16 * MIB]))));
        assert_eq!(held(&pool), 0);
    });
}

#[test]
fn replies_that_grow_to_the_same_size_again_touch_no_new_memory() {
    alone("replies_that_grow_to_the_same_size_again_touch_no_new_memory", || {
        for size in [300_000, MIB, 3 * MIB, 10 * MIB] {
            let pool = LocalPool::new();
            pool.enter(|| {
                // Faster than the pool gives back what is kept.
                let reply = || {
                    let mut reply = Vec::new();
                    while reply.len() < size {
                        reply.extend_from_slice(&[1_u8; 4096]);
                    }
                    assert!(black_box(reply).iter().step_by(997).all(|byte| *byte == 1));
                };
                (0..8).for_each(|_| reply());
                let faults = minor_faults();
                (0..8).for_each(|_| reply());
                let faults = (minor_faults() - faults) / 8;
                assert!(faults < size / 4096 / 4, "{faults} faults a reply of {size} bytes");
            });
            assert!(pool.statistics().peak_held_bytes < 6 * size as u64 + (2 << 20));
        }
    });
}

fn minor_faults() -> usize {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields = text.rsplit(')').next().expect("the fields behind the name");
    fields.split_whitespace().nth(7).expect("there are more").parse().expect("a number")
}

#[test]
fn a_block_that_another_thread_frees_goes_back_while_its_owner_sleeps() {
    alone("a_block_that_another_thread_frees_goes_back_while_its_owner_sleeps", || {
        let pool = LocalPool::new();
        let before = resident();
        let reply = pool.enter(|| vec![7u8; 200 * MIB]);
        assert!(resident() > before + 190 * MIB);
        std::thread::spawn(move || drop(reply)).join().unwrap();
        let more = resident().saturating_sub(before);
        assert!(more < 10 * MIB, "{more}");
        assert_eq!(pool.statistics().live_objects, 0);
        let block = pool.alloc_layout(layout(200 * MIB, 8));
        fill(block, layout(200 * MIB, 8), 1);
        // SAFETY: live, with this layout.
        unsafe { PoolRef::free_anywhere(block, layout(200 * MIB, 8)) };
    });
}

#[test]
fn a_large_block_of_no_bytes_stays_in_the_pools_memory() {
    alone("a_large_block_of_no_bytes_stays_in_the_pools_memory", || {
        for align in [64 << 10, MIB] {
            for size in [1, 100_000, 9 * MIB] {
                let pool = LocalPool::new();
                let (old, none) = (layout(size, align), layout(0, align));
                let block = resize(&pool, pool.alloc_layout(old), old, none);
                assert!(LocalPool::any_holds(block.as_ptr()), "{size} bytes, alignment {align}");
                assert!(held(&pool) >= 1, "{size} bytes, alignment {align}");
                // It grows again, beside what other pools take meanwhile.
                let other = LocalPool::new();
                let words: Vec<_> =
                    (0..40).map(|_| other.alloc_layout(layout(40_000, 16))).collect();
                words.iter().for_each(|word| fill(*word, layout(40_000, 16), 1));
                let block = resize(&pool, block, none, old);
                fill(block, old, 2);
                for word in words {
                    // SAFETY: filled above, and freed once.
                    unsafe {
                        assert_eq!((word.read(), word.add(39_999).read()), (1, 1));
                        other.free_layout(word, layout(40_000, 16));
                    }
                }
                // SAFETY: a live block, freed once.
                unsafe { pool.free_layout(block, old) };
                assert_eq!(pool.statistics().live_objects, 0);
            }
        }
    });
}
