//! Models of a pool's ownership (`src/pool/ownership.rs`), explored by loom; `.ci/loom` runs them.
//!
//! Besides the protocol that ships, there are two broken versions of it, whose tests must fail.
#![cfg(loom)]

use allotment::for_loom::ownership::{EMPTY, OWNED, Ownership, PARKED, RECLAIMING, RemoteBlock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// What the models need of the protocol: the real one, and the broken ones below.
trait Protocol: Send + Sync + 'static {
    fn owned() -> Self;
    fn push(&self, block: *mut RemoteBlock) -> bool;
    fn end(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool);
    fn reclaim_parked(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool);
}

impl Protocol for Ownership {
    fn owned() -> Self {
        let ownership = Self::new();
        assert!(ownership.adopt_empty());
        ownership
    }
    fn push(&self, block: *mut RemoteBlock) -> bool {
        // SAFETY: the models push each block once.
        unsafe { Ownership::push(self, block, block) }
    }
    fn end(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        Ownership::end(self, reclaim);
    }
    fn reclaim_parked(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        Ownership::reclaim_parked(self, reclaim);
    }
}

/// A pool with live blocks. `live` is what only the owner may access: if another thread accesses it
/// at the same time, loom fails the model.
struct Pool<P> {
    ownership: P,
    live: UnsafeCell<usize>,
    /// How often the memory was released.
    releases: AtomicUsize,
    blocks: Vec<usize>,
}

impl<P: Protocol> Pool<P> {
    fn new(blocks: usize) -> Arc<Self> {
        let block = |_| {
            let block = Box::new(RemoteBlock { next: core::ptr::null_mut(), class: 0 });
            Box::into_raw(block).expose_provenance()
        };
        Arc::new(Self {
            ownership: P::owned(),
            live: UnsafeCell::new(blocks),
            releases: AtomicUsize::new(0),
            blocks: (0..blocks).map(block).collect(),
        })
    }

    /// What the library does with a list. Returns whether no block is live any more.
    fn reclaim(&self, mut list: *mut RemoteBlock) -> bool {
        let mut count = 0;
        while !list.is_null() {
            // SAFETY: a block of this pool, which is freed when the pool is dropped.
            list = unsafe { (*list).next };
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
        let block = core::ptr::with_exposed_provenance_mut(self.blocks[block]);
        if self.ownership.push(block) {
            self.ownership.reclaim_parked(&mut |list| self.reclaim(list));
        }
    }

    fn end(&self) {
        self.ownership.end(&mut |list| self.reclaim(list));
    }
}

impl<P> Drop for Pool<P> {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: allocated in `new`, freed once.
            drop(unsafe {
                Box::from_raw(core::ptr::with_exposed_provenance_mut::<RemoteBlock>(*block))
            });
        }
    }
}

fn the_last_block_releases_the_memory<P: Protocol>() {
    let pool = Pool::<P>::new(2);
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
    explore(3, the_last_block_releases_the_memory::<Ownership>);
}

#[test]
#[should_panic(expected = "released once")]
fn a_free_that_does_not_read_the_state_after_its_push_loses_the_memory() {
    explore(3, the_last_block_releases_the_memory::<ReadsStateBeforePush>);
}

#[test]
#[should_panic(expected = "released once")]
fn an_end_that_does_not_read_the_list_after_parking_loses_the_memory() {
    explore(3, the_last_block_releases_the_memory::<ParksWithoutReading>);
}

#[test]
fn a_parked_pool_is_adopted_or_reclaimed_but_never_both_at_a_time() {
    explore(3, || {
        let pool = Pool::<Ownership>::new(2);
        pool.end();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.free(0))
        };
        if pool.ownership.adopt_parked() || pool.ownership.adopt_empty() {
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

/// The protocol with one step wrong.
struct Broken {
    remote: AtomicPtr<RemoteBlock>,
    state: AtomicU32,
    reads_state_before_push: bool,
    parks_without_reading: bool,
}

impl Broken {
    fn new(reads_state_before_push: bool, parks_without_reading: bool) -> Self {
        let remote = AtomicPtr::new(core::ptr::null_mut());
        Self {
            remote,
            state: AtomicU32::new(OWNED),
            reads_state_before_push,
            parks_without_reading,
        }
    }

    fn push(&self, block: *mut RemoteBlock) -> bool {
        let before = self.state.load(Ordering::SeqCst) == PARKED;
        let mut head = self.remote.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's block.
            unsafe { (*block).next = head };
            match self.remote.compare_exchange(head, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        loom::sync::atomic::fence(Ordering::SeqCst);
        if self.reads_state_before_push {
            before
        } else {
            self.state.load(Ordering::SeqCst) == PARKED
        }
    }

    fn take(&self) -> *mut RemoteBlock {
        self.remote.swap(core::ptr::null_mut(), Ordering::Acquire)
    }

    fn finish_reclaim(&self, empty: bool) -> bool {
        self.state.store(if empty { EMPTY } else { PARKED }, Ordering::Release);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let more = !self.remote.load(Ordering::Relaxed).is_null();
        !empty && more && !self.parks_without_reading
    }

    fn end(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        let empty = reclaim(self.take());
        if self.finish_reclaim(empty) {
            self.reclaim_parked(reclaim);
        }
    }

    fn reclaim_parked(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        let claim = || {
            self.state.compare_exchange(PARKED, RECLAIMING, Ordering::Acquire, Ordering::Relaxed)
        };
        while claim().is_ok() {
            let empty = reclaim(self.take());
            if !self.finish_reclaim(empty) {
                return;
            }
        }
    }
}

macro_rules! broken {
    ($name:ident, $reads_state_before_push:expr, $parks_without_reading:expr) => {
        struct $name(Broken);
        impl Protocol for $name {
            fn owned() -> Self {
                Self(Broken::new($reads_state_before_push, $parks_without_reading))
            }
            fn push(&self, block: *mut RemoteBlock) -> bool {
                self.0.push(block)
            }
            fn end(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
                self.0.end(reclaim);
            }
            fn reclaim_parked(&self, reclaim: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
                self.0.reclaim_parked(reclaim);
            }
        }
    };
}

broken!(ReadsStateBeforePush, true, false);
broken!(ParksWithoutReading, false, true);
