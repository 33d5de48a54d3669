//! Models of a pool's life (`src/pool/ownership.rs`), explored by loom; `.ci/loom` runs them.
//!
//! Beside the protocol that ships stand two that break a claim, as tests that must fail.
#![cfg(loom)]

use allotment::for_loom::ownership::{EMPTY, Ownership, PARKED, RemoteBlock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

/// What the models need of a life: the real one has it, and the broken ones below.
trait Lives: Send + Sync + 'static {
    fn make() -> Self;
    fn push(&self, block: *mut RemoteBlock) -> bool;
    fn end(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool);
    fn collect(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool);
}

impl Lives for Ownership {
    fn make() -> Self {
        let life = Self::new();
        assert!(life.adopt_empty());
        life
    }
    fn push(&self, block: *mut RemoteBlock) -> bool {
        // SAFETY: the models push each block once.
        unsafe { Ownership::push(self, block, block) }
    }
    fn end(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        Ownership::end(self, put_back);
    }
    fn collect(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        Ownership::reclaim_parked(self, put_back);
    }
}

/// A pool of so many live blocks. Whoever touches what is behind the cell has it by the state, or loom says so.
struct Pool<L> {
    life: L,
    inside: UnsafeCell<usize>,
    /// How often the memory was given back.
    given: AtomicUsize,
    blocks: Vec<usize>,
}

impl<L: Lives> Pool<L> {
    fn new(blocks: usize) -> Arc<Self> {
        let block = |_| {
            let block = Box::new(RemoteBlock { next: core::ptr::null_mut(), class: 0 });
            Box::into_raw(block).expose_provenance()
        };
        Arc::new(Self {
            life: L::make(),
            inside: UnsafeCell::new(blocks),
            given: AtomicUsize::new(0),
            blocks: (0..blocks).map(block).collect(),
        })
    }

    /// What the library does with a list: whether nothing lives any more.
    fn put_back(&self, mut list: *mut RemoteBlock) -> bool {
        let mut count = 0;
        while !list.is_null() {
            // SAFETY: a block of ours, which stays until the pool goes.
            list = unsafe { (*list).next };
            count += 1;
        }
        // SAFETY: the caller has the pool; loom fails the model if another thread is inside too.
        let live = self.inside.with_mut(|live| unsafe {
            *live -= count;
            *live
        });
        if live == 0 {
            self.given.fetch_add(1, Ordering::Relaxed);
        }
        live == 0
    }

    fn free(&self, block: usize) {
        let block = core::ptr::with_exposed_provenance_mut(self.blocks[block]);
        if self.life.push(block) {
            self.life.collect(&mut |list| self.put_back(list));
        }
    }

    fn end(&self) {
        self.life.end(&mut |list| self.put_back(list));
    }
}

impl<L> Drop for Pool<L> {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: made in `new`, freed once.
            drop(unsafe {
                Box::from_raw(core::ptr::with_exposed_provenance_mut::<RemoteBlock>(*block))
            });
        }
    }
}

fn the_last_block_gives_the_memory_back<L: Lives>() {
    let pool = Pool::<L>::new(2);
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
    assert_eq!(pool.given.load(Ordering::Relaxed), 1, "given back once");
}

#[test]
fn the_last_block_gives_the_memory_back_whoever_frees_it() {
    explore(3, the_last_block_gives_the_memory_back::<Ownership>);
}

#[test]
#[should_panic(expected = "given back once")]
fn a_free_that_does_not_look_at_the_state_after_its_push_loses_the_memory() {
    explore(3, the_last_block_gives_the_memory_back::<LooksFirst>);
}

#[test]
#[should_panic(expected = "given back once")]
fn an_end_that_does_not_look_at_the_list_after_parking_loses_the_memory() {
    explore(3, the_last_block_gives_the_memory_back::<ParksBlindly>);
}

#[test]
fn a_parked_pool_is_adopted_or_collected_and_never_both_at_a_time() {
    explore(3, || {
        let pool = Pool::<Ownership>::new(2);
        pool.end();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.free(0))
        };
        if pool.life.adopt_parked() || pool.life.adopt_empty() {
            // The adopter frees one of its own, and ends.
            pool.put_back(pool.life.take());
            // SAFETY: adopted.
            pool.inside.with_mut(|live| unsafe { *live -= 1 });
            pool.end();
            other.join().unwrap();
        } else {
            other.join().unwrap();
            pool.free(1);
        }
        assert_eq!(pool.given.load(Ordering::Relaxed), 1, "given back once");
    });
}

/// The same with one thing wrong.
struct Broken {
    remote: AtomicPtr<RemoteBlock>,
    state: AtomicU32,
    looks_first: bool,
    parks_blindly: bool,
}

const OWNED: u32 = 1;

impl Broken {
    fn new(looks_first: bool, parks_blindly: bool) -> Self {
        let remote = AtomicPtr::new(core::ptr::null_mut());
        Self { remote, state: AtomicU32::new(OWNED), looks_first, parks_blindly }
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
        if self.looks_first { before } else { self.state.load(Ordering::SeqCst) == PARKED }
    }

    fn take(&self) -> *mut RemoteBlock {
        self.remote.swap(core::ptr::null_mut(), Ordering::Acquire)
    }

    fn settle(&self, empty: bool) -> bool {
        self.state.store(if empty { EMPTY } else { PARKED }, Ordering::Release);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let more = !self.remote.load(Ordering::Relaxed).is_null();
        !empty && more && !self.parks_blindly
    }

    fn end(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        let empty = put_back(self.take());
        if self.settle(empty) {
            self.collect(put_back);
        }
    }

    fn collect(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
        let claim = || self.state.compare_exchange(PARKED, 3, Ordering::Acquire, Ordering::Relaxed);
        while claim().is_ok() {
            let empty = put_back(self.take());
            if !self.settle(empty) {
                return;
            }
        }
    }
}

macro_rules! broken {
    ($name:ident, $looks_first:expr, $parks_blindly:expr) => {
        struct $name(Broken);
        impl Lives for $name {
            fn make() -> Self {
                Self(Broken::new($looks_first, $parks_blindly))
            }
            fn push(&self, block: *mut RemoteBlock) -> bool {
                self.0.push(block)
            }
            fn end(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
                self.0.end(put_back);
            }
            fn collect(&self, put_back: &mut dyn FnMut(*mut RemoteBlock) -> bool) {
                self.0.collect(put_back);
            }
        }
    };
}

broken!(LooksFirst, true, false);
broken!(ParksBlindly, false, true);
