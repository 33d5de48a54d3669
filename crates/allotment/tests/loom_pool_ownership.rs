//! Models of a pool's ownership (`src/pool/ownership.rs`), explored by loom; `.ci/loom` runs them.
//!
//! Mutants of the protocol, with one step wrong, must fail.
#![cfg(loom)]

use allotment::for_loom::Mutant;
use allotment::for_loom::ownership::{Ownership, RemoteBlock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// A block, whose contents the thread that frees it writes.
#[repr(C)]
struct Block {
    remote: RemoteBlock,
    freed: UnsafeCell<bool>,
}

/// A pool with live blocks. `live` is what only the owner may access: if another thread accesses it
/// at the same time, loom fails the model.
struct Pool {
    ownership: Ownership,
    live: UnsafeCell<usize>,
    /// How often the memory was released.
    releases: AtomicUsize,
    /// The addresses of [`Block`]s.
    blocks: Vec<usize>,
}

impl Pool {
    fn new(blocks: usize) -> Arc<Self> {
        let block = |_| {
            let remote = RemoteBlock { next: core::ptr::null_mut(), class: 0 };
            let block = Box::new(Block { remote, freed: UnsafeCell::new(false) });
            Box::into_raw(block).expose_provenance()
        };
        let ownership = Ownership::new();
        assert!(ownership.adopt_empty());
        Arc::new(Self {
            ownership,
            live: UnsafeCell::new(blocks),
            releases: AtomicUsize::new(0),
            blocks: (0..blocks).map(block).collect(),
        })
    }

    /// What the library does with a list. Returns whether no block is live any more.
    fn reclaim(&self, mut list: *mut RemoteBlock) -> bool {
        let mut count = 0;
        while !list.is_null() {
            // SAFETY: a block of this pool, which is freed when the pool is dropped. Loom fails the
            // model if the thread that freed it still writes.
            unsafe {
                assert!((*list.cast::<Block>()).freed.with(|freed| *freed));
                list = (*list).next;
            }
            count += 1;
        }
        // SAFETY: the caller has exclusive access; if not, loom fails the model.
        let live = self.live.with_mut(|live| unsafe {
            *live -= count;
            *live
        });
        if live == 0 {
            self.releases.fetch_add(1, Ordering::Relaxed);
        }
        live == 0
    }

    fn free(&self, block: usize) {
        let block = core::ptr::with_exposed_provenance_mut::<Block>(self.blocks[block]);
        // SAFETY: a block of this pool, which is freed and pushed once.
        unsafe {
            (*block).freed.with_mut(|freed| *freed = true);
            let (first, last) = (block.cast(), block.cast());
            if !self.ownership.reclaim_if_parked(first, last, |list| self.reclaim(list))
                && self.ownership.push(first, last)
            {
                self.ownership.reclaim_parked(|list| self.reclaim(list));
            }
        }
    }

    fn end(&self) {
        self.ownership.end(|list| self.reclaim(list));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: allocated in `new`, freed once.
            drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Block>(*block)) });
        }
    }
}

fn the_last_block_releases_the_memory() {
    let pool = Pool::new(2);
    let others: Vec<_> = (0..2)
        .map(|block| {
            let pool = pool.clone();
            thread::spawn(move || pool.free(block))
        })
        .collect();
    pool.end();
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(pool.releases.load(Ordering::Relaxed), 1, "released once");
}

#[test]
fn the_last_block_releases_the_memory_on_any_thread() {
    explore(3, the_last_block_releases_the_memory);
}

#[test]
#[should_panic(expected = "released once")]
fn a_free_that_does_not_read_the_state_after_its_push_loses_the_memory() {
    let _mutant = Mutant::new("remote push: state read before");
    explore(3, the_last_block_releases_the_memory);
}

#[test]
#[should_panic(expected = "released once")]
fn an_end_that_does_not_read_the_list_after_parking_loses_the_memory() {
    let _mutant = Mutant::new("park: list not read");
    explore(3, the_last_block_releases_the_memory);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thread_that_claims_a_parked_pool_relaxed_has_it_beside_another() {
    let _mutant = Mutant::new("transition: relaxed");
    explore(3, the_last_block_releases_the_memory);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_block_that_is_pushed_relaxed_is_reclaimed_while_it_is_written() {
    let _mutant = Mutant::new("remote push: relaxed");
    explore(3, the_last_block_releases_the_memory);
}

#[test]
fn two_threads_that_free_blocks_of_a_parked_pool_release_its_memory_once() {
    explore(3, || {
        let pool = Pool::new(3);
        pool.end();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || {
                pool.free(0);
                pool.free(1);
            })
        };
        pool.free(2);
        other.join().unwrap();
        assert_eq!(pool.releases.load(Ordering::Relaxed), 1, "released once");
    });
}

#[test]
fn a_parked_pool_is_adopted_or_reclaimed_but_never_both_at_a_time() {
    explore(3, || {
        let pool = Pool::new(2);
        pool.end();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.free(0))
        };
        if pool.ownership.adopt(true) == Some(true) || pool.ownership.adopt_empty() {
            // The adopting thread frees a block of its own, and ends the pool.
            pool.reclaim(pool.ownership.take());
            // SAFETY: this thread adopted the pool.
            pool.live.with_mut(|live| unsafe { *live -= 1 });
            pool.end();
            other.join().unwrap();
        } else {
            other.join().unwrap();
            pool.free(1);
        }
        assert_eq!(pool.releases.load(Ordering::Relaxed), 1, "released once");
    });
}
