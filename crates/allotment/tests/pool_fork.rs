//! Pools in a forked child, while the parent's other threads were inside their pools; and pools in
//! a process with a small limit on addresses. `checked_fork.rs` has what is particular to hardened
//! pools.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::System;
use std::sync::{Mutex, mpsc};

use allotment::{ErrorKind, LocalPool, PoolGlobalAlloc, PoolRef};
use support::child::{self, Child};
use support::fork::{forked, rounds};
use support::list::{passed_through, under_a_tool};
use support::slab::{Random, layout};

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

/// A request: values that are freed, and one that outlives it.
fn request(random: &mut Random) -> Vec<u8> {
    let mut texts: Vec<_> =
        (0..random.below(30)).map(|n| vec![n as u8; random.below(3000)]).collect();
    texts.iter_mut().step_by(3).for_each(|text| text.resize(random.below(50_000), 7));
    vec![9; 1 + random.below(200)]
}

#[test]
fn a_forked_child_uses_pools_while_the_parents_threads_were_inside_theirs() {
    a_forked_child_uses_pools(false);
}

#[test]
fn a_forked_child_uses_hardened_pools_while_the_parents_threads_were_inside_theirs() {
    a_forked_child_uses_pools(true);
}

fn a_forked_child_uses_pools(hardened: bool) {
    // The live report of a hardened pool would name each block that outlives its pool.
    let new_pool = || LocalPool::builder().hardened(hardened).report_live(false).build();
    // A hardened pool fills and checks each block.
    let requests = if hardened { 20 } else { 200 };
    let exchanged: Mutex<Vec<Vec<u8>>> = Mutex::default();
    let ours = new_pool();
    let mut of_ours: Vec<Vec<u8>> = ours.enter(|| (0..1000).map(|n| vec![n as u8; 100]).collect());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (stop, exchanged) = (&stop, &exchanged);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let pool = new_pool();
                let mut here = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    here.push(pool.enter(|| request(&mut random)));
                    if random.one_in(10) {
                        // A pool of one request, and blocks that others free.
                        here.push(new_pool().enter(|| request(&mut random)));
                        let mut others = exchanged.lock().unwrap();
                        core::mem::swap(&mut here, &mut others);
                        others.truncate(500);
                        here.clear();
                    }
                }
            });
        }
        for round in 0..rounds(12) {
            // No thread holds the mutex at the fork.
            let mut inherited = exchanged.lock().unwrap();
            let work = || {
                let mut random = Random::new(100 + round);
                // Blocks of the parent's threads, which the child does not have.
                assert!(inherited.iter().flatten().all(|byte| *byte == 9));
                inherited.clear();
                of_ours.truncate(500);
                let mut kept = Vec::new();
                for _ in 0..requests {
                    kept.push(ours.enter(|| request(&mut random)));
                    kept.push(new_pool().enter(|| request(&mut random)));
                }
                std::thread::scope(|scope| {
                    for thread in 0..3 {
                        scope.spawn(move || {
                            let mut random = Random::new(thread);
                            let pool = new_pool();
                            for _ in 0..requests / 2 {
                                pool.enter(|| request(&mut random));
                            }
                        });
                    }
                });
                assert!(of_ours.iter().zip(0..).all(|(text, n)| **text == [n as u8; 100]));
                ours.trim();
                drop(kept);
                assert!(passed_through() || ours.statistics().live_objects >= 500);
            };
            // SAFETY: the child uses only pools, threads and malloc.
            assert_eq!(unsafe { forked(work) }, 0, "the child neither hung nor failed");
            drop(inherited);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(of_ours.iter().zip(0..).all(|(text, n)| **text == [n as u8; 100]));
}

#[test]
fn in_a_child_no_new_thread_owns_the_pool_of_a_thread_that_the_child_lacks() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (to_main, from_owner) = mpsc::channel();
        scope.spawn(|| {
            let to_main = to_main;
            let pool = LocalPool::new();
            to_main.send(pool.reference()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        let pool = from_owner.recv().unwrap();
        // The child's first thread may get the stack of the owner, which the child lacks.
        let work = || {
            let is_usable = std::thread::spawn(move || pool.is_usable()).join().unwrap();
            assert!(!is_usable);
        };
        // SAFETY: the child uses only a pool's reference, a thread and malloc.
        let all_ended_well = (0..20).all(|_| unsafe { forked(work) } == 0);
        // The owner must end before a panic here, for the scope waits for it.
        stop.store(true, Ordering::Relaxed);
        assert!(all_ended_well, "the child's new thread uses the pool of a thread that it lacks");
    });
}

// ---- few addresses ----

fn limited(test: &str, bytes: u64, body: impl FnOnce()) {
    if child::is(test) {
        return body();
    }
    if under_a_tool() || passed_through() {
        return println!("skipped: the tool needs addresses itself, or no pool has any");
    }
    Child::new(test, test).limit_addresses(bytes).succeeds();
}

#[test]
fn under_a_limit_on_addresses_pools_have_a_smaller_range() {
    limited("under_a_limit_on_addresses_pools_have_a_smaller_range", 1 << 30, || {
        let pool = LocalPool::new();
        let texts: Vec<_> = pool.enter(|| (0..1000).map(|n| n.to_string()).collect());
        assert!(LocalPool::any_holds(texts[7].as_ptr()));
        // What the range has no memory for, and what no pool owns, comes from the global heap.
        assert!(!LocalPool::any_holds(Box::new(7).as_ref()));
        let error = pool.try_alloc_layout(layout(900 << 20, 8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached);
        let mut most = Vec::new();
        pool.enter(|| {
            while most.len() < 400 {
                most.push(vec![7u8; 1 << 20]);
            }
        });
        let (inside, outside): (Vec<_>, Vec<_>) =
            most.into_iter().partition(|text| LocalPool::any_holds(text.as_ptr()));
        assert!(inside.len() > 50 && !outside.is_empty(), "{} {}", inside.len(), outside.len());
        drop((texts, inside, outside));
        pool.trim();
        assert!(pool.try_alloc_layout(layout(50 << 20, 8)).is_ok(), "all of it is free again");
    });
}

#[test]
fn without_a_range_a_pool_returns_an_error_and_the_global_heap_serves() {
    let test = "without_a_range_a_pool_returns_an_error_and_the_global_heap_serves";
    limited(test, 100 << 20, || {
        let pool = LocalPool::new();
        for size in [8, 5000, 100_000] {
            let error = pool.try_alloc_layout(layout(size, 8)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::System(_)), "{error}");
        }
        assert_eq!(pool.statistics().live_objects, 0);
        assert!(LocalPool::try_with_reserved(100_000).is_err());
        let hardened = LocalPool::builder().hardened(true).build();
        assert!(hardened.try_alloc_layout(Layout::new::<u64>()).is_err());
        for pool in [&pool, &hardened] {
            let block = pool.reference().try_alloc_layout(Layout::new::<u64>()).unwrap();
            assert!(!LocalPool::any_holds(block.as_ptr()));
            // SAFETY: allocated above.
            unsafe {
                let block = pool
                    .reference()
                    .try_resize(block, Layout::new::<u64>(), layout(80, 8))
                    .unwrap();
                PoolRef::free_anywhere(block, layout(80, 8));
            }
            pool.enter(|| {
                let mut texts: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
                texts.iter_mut().for_each(|text| text.push_str("grows"));
                assert!(!LocalPool::any_holds(texts[7].as_ptr()));
                assert_eq!(texts[999], "999grows");
            });
        }
    });
}
