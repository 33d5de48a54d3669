//! Pools and threads: blocks move between threads, pools end before their blocks, threads end
//! before their pools, and all memory is released in the end.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use allotment::pool::current;
use allotment::{Budget, LocalPool, PoolRef, Release};
use support::kernel::is_resident;
use support::list::{passed_through, under_a_tool};
use support::slab::{Object, Random, layout};

const WORDS: Layout = Layout::new::<[u64; 8]>();

/// A block that any thread frees.
struct Block(Option<Object>, Layout);

impl Block {
    fn of(pool: PoolRef, layout: Layout, number: u64) -> Self {
        let start = pool.try_alloc_layout(layout).unwrap();
        Self(Some(Object::stamp(start, layout, number)), layout)
    }

    fn address(&self) -> NonNull<u8> {
        self.0.as_ref().expect("until it is dropped").start
    }

    /// Resizes it, by a reference to any pool.
    fn resize(&mut self, by: PoolRef, size: usize, number: u64) {
        let start = self.0.take().expect("until it is dropped").end();
        let new = layout(size, self.1.align());
        // SAFETY: a live block with this layout, used only at its new address afterwards.
        let start = unsafe { by.try_resize(start, self.1, new) }.unwrap();
        self.1 = new;
        self.0 = Some(Object::stamp(start, self.1, number));
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let object = self.0.take().expect("until it is dropped");
        // SAFETY: live until now, with this layout.
        unsafe { PoolRef::free_anywhere(object.end(), self.1) }
    }
}

/// Whether the report lists a pool of this name.
fn is_reported(name: &str) -> bool {
    allotment::report().allocators.iter().any(|one| one.name == name)
}

/// How a thread uses its pools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    /// Never.
    None,
    /// It allocates by a reference, outside the pool.
    Beside,
    /// It is in the pool all the time.
    Within,
}

/// Sixteen threads send each other blocks, while their pools end and are replaced.
fn exchange(name: &str, budget: Option<&Budget>, hardened: bool, rounds: u64) {
    const THREADS: usize = 16;
    let boxes: Vec<Mutex<Vec<Block>>> = (0..THREADS).map(|_| Mutex::default()).collect();
    let addresses = Mutex::new(Vec::new());
    let one = |thread: usize| {
        let has = [Has::Within, Has::Beside, Has::Within, Has::None][thread % 4];
        let mut random = Random::new(thread as u64);
        let mut number = (thread as u64) << 40;
        for round in 0..rounds {
            let mut work = |pool: PoolRef| {
                for _ in 0..20 {
                    if has != Has::None {
                        let mut blocks = Vec::new();
                        for _ in 0..random.below(40) {
                            number += 1;
                            let size = match random.below(40) {
                                0 => 33_000 + random.below(60_000),
                                1..=4 => random.below(5000),
                                _ => random.below(200),
                            };
                            let most = if random.one_in(10) { 13 } else { 5 };
                            let align = 1 << random.below(most);
                            blocks.push(Block::of(pool, layout(size, align), number));
                        }
                        if let (true, Some(block)) = (random.one_in(10), blocks.first()) {
                            addresses.lock().unwrap().push(block.address().addr().get());
                        }
                        boxes[random.below(THREADS)].lock().unwrap().append(&mut blocks);
                    }
                    let mut mine = core::mem::take(&mut *boxes[thread].lock().unwrap());
                    for block in mine.iter_mut().step_by(7) {
                        number += 1;
                        block.resize(pool, random.below(700), number);
                    }
                    let keep = random.below(1 + mine.len().min(20));
                    let mut kept = mine.split_off(mine.len() - keep);
                    drop(mine);
                    boxes[random.below(THREADS)].lock().unwrap().append(&mut kept);
                }
            };
            if has == Has::None {
                work(PoolRef::GLOBAL);
                continue;
            }
            let mut builder =
                LocalPool::builder().name(name).release(Release::AtOnce).hardened(hardened);
            // Both kinds in turn, so that one kind adopts what the other left.
            if let (Some(budget), true) = (budget, round % 2 == 0) {
                builder = builder.budget(budget);
            }
            let pool = builder.build();
            match has {
                Has::Within => pool.enter(|| work(current())),
                _ => work(pool.reference()),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let one = &one;
                scope.spawn(move || one(thread))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    drop(boxes);
    assert_eq!(budget.map_or(0, Budget::used), 0);
    assert!(!is_reported(name), "no ended pool keeps memory");
    if !passed_through() && !under_a_tool() {
        for address in addresses.into_inner().unwrap() {
            let of_pool = LocalPool::any_holds(core::ptr::without_provenance::<u8>(address));
            assert!(!of_pool && is_resident(address) != Some(true), "{address:#x} was given back");
        }
    }
}

/// These tests check that memory was released, so no pool of another test may take it over.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn sixteen_threads_exchange_blocks_of_pools_that_end_and_all_memory_is_released() {
    let _alone = ALONE.lock();
    exchange("exchange", None, false, 40);
}

#[test]
fn sixteen_threads_exchange_blocks_of_pools_with_and_without_a_budget() {
    let _alone = ALONE.lock();
    exchange("exchange in turn", Some(&Budget::new(usize::MAX)), false, 40);
}

#[test]
fn sixteen_threads_exchange_blocks_of_hardened_pools() {
    let _alone = ALONE.lock();
    exchange("exchange hardened", Some(&Budget::new(usize::MAX)), true, 4);
}

#[test]
fn a_pool_ends_while_threads_free_its_last_blocks() {
    let _alone = ALONE.lock();
    let budget = Budget::new(usize::MAX);
    for round in 0..300 {
        let mut builder = LocalPool::builder().name("ends").release(Release::AtOnce);
        if round % 2 == 0 {
            builder = builder.budget(&budget);
        }
        let pool = builder.hardened(round % 10 == 0).build();
        let go = AtomicBool::new(false);
        let mut parts: Vec<Vec<Block>> = Vec::new();
        for part in 0..3 {
            let block = |index: u64| Block::of(pool.reference(), WORDS, part * 100 + index);
            parts.push((0..1 + (round % 50)).map(block).collect());
        }
        std::thread::scope(|scope| {
            for part in parts {
                let go = &go;
                scope.spawn(move || {
                    while !go.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    drop(part);
                });
            }
            go.store(true, Ordering::Relaxed);
            drop(pool);
        });
        assert!(!is_reported("ends"), "round {round}");
        assert_eq!(budget.used(), 0, "round {round}");
    }
}

thread_local! {
    /// Made before `POOL`, and so dropped after it.
    static DROPPED_LAST: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
    static POOL: LocalPool = LocalPool::builder().name("of a thread").release(Release::AtOnce).build();
    /// Made after `POOL`, and so dropped before it.
    static DROPPED_FIRST: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
    /// Dropped between the two others and the pool, and after the pool: each enters a pool of its
    /// own.
    static POOL_INSIDE: Cell<Option<EntersAtTheEnd>> = const { Cell::new(None) };
}

struct EntersAtTheEnd(Block);

impl Drop for EntersAtTheEnd {
    fn drop(&mut self) {
        let pool = LocalPool::new();
        pool.enter(|| {
            self.0.resize(current(), 500, 1);
            drop(Block::of(current(), WORDS, 2));
        });
    }
}

#[test]
fn a_pool_of_a_thread_ends_with_it_and_destructors_free_before_and_after_it() {
    let _alone = ALONE.lock();
    let ours = LocalPool::builder().name("ours").build();
    for _ in 0..20 {
        let mut kept = Vec::new();
        std::thread::scope(|scope| {
            let of_ours = [0, 1, 2].map(|number| Block::of(ours.reference(), WORDS, number));
            let thread = scope.spawn(|| {
                let [first, second, third] = of_ours;
                DROPPED_LAST.with_borrow_mut(|last| last.push(first));
                let block = |number| POOL.with(|pool| Block::of(pool.reference(), WORDS, number));
                DROPPED_FIRST.with_borrow_mut(|blocks| blocks.extend([second, block(10)]));
                POOL_INSIDE.set(Some(EntersAtTheEnd(third)));
                DROPPED_LAST.with_borrow_mut(|last| last.extend([block(11), block(12)]));
                block(13)
            });
            kept.push(thread.join().unwrap());
        });
        assert!(passed_through() || is_reported("of a thread"), "it has a block that lives");
        drop(kept);
        assert!(!is_reported("of a thread"));
        assert_eq!(ours.statistics().live_objects, 0);
    }
}

#[test]
fn a_reference_is_good_on_other_threads_and_after_the_pools_end() {
    let _alone = ALONE.lock();
    let pool = LocalPool::new();
    let reference = pool.reference();
    let block = Block::of(reference, WORDS, 1);
    assert!(passed_through() || reference.is_usable());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!reference.is_usable());
            let global = Block::of(reference, WORDS, 2);
            assert!(!LocalPool::any_holds(global.address().as_ptr()));
        });
    });
    drop(pool);
    assert!(!reference.is_usable());
    // It does not lead to the next pool either, which may have the same `PoolShared`.
    let next = LocalPool::new();
    assert!(!reference.is_usable());
    assert!(passed_through() || reference != next.reference());
    let global = Block::of(reference, WORDS, 3);
    assert!(!LocalPool::any_holds(global.address().as_ptr()));
    drop(block);
}

#[test]
fn a_forgotten_pool_takes_no_blocks_from_threads_that_free_them() {
    let _alone = ALONE.lock();
    // Its thread has ended: no thread reclaims its remote list any more.
    let block = std::thread::spawn(|| {
        let pool = LocalPool::new();
        let block = Block::of(pool.reference(), WORDS, 1);
        core::mem::forget(pool);
        block
    });
    drop(block.join().unwrap());
    for _ in 0..20 {
        std::thread::spawn(|| {
            // It takes over no live blocks of ended pools.
            let pool = LocalPool::builder().maximum(1 << 20).build();
            drop(Block::of(pool.reference(), WORDS, 2));
            assert_eq!(pool.statistics().live_objects, 0);
        })
        .join()
        .unwrap();
    }
}

#[test]
fn requests_on_many_threads_leave_blocks_to_others_and_later_pools_reuse_their_memory() {
    let _alone = ALONE.lock();
    let left: Vec<Mutex<Vec<Block>>> = (0..8).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let left = &left;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                for request in 0..1000 {
                    let pool =
                        LocalPool::builder().name("request").release(Release::AtOnce).build();
                    pool.enter(|| {
                        let blocks: Vec<_> = (0..random.below(50))
                            .map(|number| {
                                Block::of(current(), layout(random.below(3000), 8), number as u64)
                            })
                            .collect();
                        left[random.below(8)].lock().unwrap().extend(blocks.into_iter().next());
                    });
                    if request % 3 == 0 {
                        let mut some = left[thread].lock().unwrap();
                        let keep = some.len() / 2;
                        some.drain(keep..);
                    }
                }
            });
        }
    });
    drop(left);
    assert!(!is_reported("request"));
}
