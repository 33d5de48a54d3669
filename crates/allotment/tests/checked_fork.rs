//! Checked allocators in a forked child, while another thread of the parent was inside their locks:
//! hardened mode, pass-through mode, and reports of live objects.
//!
//! `slab_fork.rs`, `pool_fork.rs` and `claims_fork.rs` fork at any moment. Here the forking thread
//! waits until another one is in a critical section: the test's global allocator tells, and stops
//! there for a while.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, System};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use allotment::{Arena, LocalPool, Malloc, PoolGlobalAlloc, PoolRef, RawFreeList, RawSlab, Reap};
use support::child::{self, Child};
use support::fork::{forked, rounds};
use support::list::{passed_through, under_a_tool};
use support::slab::{Object, free_all, layout, stamped};

// ---- a thread that is inside at the fork ----

/// The system's heap, in which the threads that ask for it stay for a while in each allocation.
struct Pausing;

thread_local! {
    static PAUSES: Cell<bool> = const { Cell::new(false) };
}

/// The number of threads that pause in an allocation.
static PAUSED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's heap.
unsafe impl GlobalAlloc for Pausing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if PAUSES.get() {
            PAUSED.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
            PAUSED.fetch_sub(1, Ordering::SeqCst);
        }
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static GLOBAL: PoolGlobalAlloc<Pausing> = PoolGlobalAlloc::new(Pausing);

/// Only one test at a time has a thread that pauses.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `inside` on another thread, forks while that thread allocates the library's own structures,
/// and runs `work` in the child. `make` makes what the two use.
fn forks_while_a_thread_is_inside<T: Sync>(
    make: impl Fn() -> T,
    inside: impl Fn(&T) + Sync,
    work: impl Fn(&T),
) {
    let mut forks = 0;
    while forks < rounds(8) {
        let used = make();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                PAUSES.set(true);
                inside(&used);
                PAUSES.set(false);
            });
            while PAUSED.load(Ordering::SeqCst) == 0 && !thread.is_finished() {
                std::thread::yield_now();
            }
            if PAUSED.load(Ordering::SeqCst) > 0 {
                // SAFETY: the child uses allocators of the library, threads and malloc.
                let status = unsafe { forked(|| work(&used)) };
                assert_eq!(status, 0, "the child neither hung nor failed");
                forks += 1;
            }
        });
    }
}

/// Runs a part of `inside` without pauses.
fn without_pauses<R>(run: impl FnOnce() -> R) -> R {
    PAUSES.set(false);
    let result = run();
    PAUSES.set(true);
    result
}

/// Asserts that a misuse ends the child that commits it.
fn aborts(misuse: impl FnOnce()) {
    // SAFETY: none: this is the misuse, in a child of one thread.
    let status = unsafe { forked(misuse) };
    let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(aborted, "the misuse was not detected: {status:#x}");
}

/// Whether a double free ends the process.
fn detects_misuse() -> bool {
    !passed_through() && !under_a_tool()
}

/// A ledger takes memory several times for this number of objects.
const ALLOCATIONS: usize = 100;

#[test]
fn a_child_uses_the_slab_that_a_thread_of_its_parent_was_inside() {
    let _alone = alone();
    let make = || RawSlab::builder(layout(40, 8)).name("inside").hardened(true).build();
    let inside = |slab: &RawSlab| {
        let slots: Vec<_> = without_pauses(|| Vec::with_capacity(ALLOCATIONS));
        let slots = (0..ALLOCATIONS).fold(slots, |mut slots, _| {
            slots.push(slab.alloc());
            slots
        });
        // SAFETY: allocated above, and freed once.
        slots.into_iter().for_each(|slot| unsafe { slab.free(slot) });
    };
    let work = |slab: &RawSlab| {
        let ours = stamped(slab, 2000);
        assert!(slab.statistics().live_objects >= 2000);
        std::thread::scope(|scope| {
            scope.spawn(|| free_all(slab, stamped(slab, 500)));
        });
        ours.iter().for_each(Object::assert_intact);
        if detects_misuse() {
            // SAFETY: none: this is the misuse.
            aborts(|| (0..2).for_each(|_| unsafe { slab.free(ours[0].start) }));
        }
        free_all(slab, ours);
        slab.trim();
    };
    forks_while_a_thread_is_inside(make, inside, work);
}

/// Blocks of a pool, which any thread may free.
#[derive(Default)]
struct Blocks(OnceLock<[PointerToBlock; 10]>);

struct PointerToBlock(NonNull<u8>);

// SAFETY: any thread may free a block of a pool.
unsafe impl Send for PointerToBlock {}
// SAFETY: a shared reference gives an address only.
unsafe impl Sync for PointerToBlock {}

#[test]
fn a_child_frees_blocks_of_the_pool_that_its_owner_was_inside() {
    let _alone = alone();
    let block = layout(48, 8);
    let new_pool = || LocalPool::builder().hardened(true).report_live(false).build();
    let inside = |blocks: &Blocks| {
        let pool = without_pauses(|| {
            let pool = new_pool();
            let shared = [(); 10].map(|()| PointerToBlock(pool.alloc_layout(block)));
            assert!(blocks.0.set(shared).is_ok());
            pool
        });
        for _ in 0..ALLOCATIONS {
            let _ = pool.alloc_layout(block);
        }
    };
    let ours = new_pool();
    let work = |blocks: &Blocks| {
        let theirs = blocks.0.get().expect("the thread pauses after it has shared them");
        // SAFETY: live in the child's copy, and freed once in it.
        theirs[1..].iter().for_each(|shared| unsafe { PoolRef::free_anywhere(shared.0, block) });
        let texts: Vec<_> = ours.enter(|| (0..500).map(|number| number.to_string()).collect());
        assert_eq!(texts[499], "499");
        if detects_misuse() {
            let first = theirs[0].0;
            // SAFETY: none: this is the misuse.
            aborts(|| (0..2).for_each(|_| unsafe { PoolRef::free_anywhere(first, block) }));
        }
    };
    forks_while_a_thread_is_inside(Blocks::default, inside, work);
}

#[test]
fn a_child_finds_slabs_by_size_while_a_thread_of_its_parent_enters_one() {
    let _alone = alone();
    // Nothing is left in the table between the rounds, so the first slab needs memory for it.
    let inside = |_: &()| {
        let slabs = [64, 128, 192].map(|size| RawSlab::by_size(layout(size, 8)));
        without_pauses(|| drop(slabs));
    };
    let work = |_: &()| {
        let one = RawSlab::by_size(layout(2000, 8));
        assert!(Arc::ptr_eq(&one, &RawSlab::by_size(layout(2000, 8))), "they are still shared");
    };
    forks_while_a_thread_is_inside(|| (), inside, work);
}

#[test]
fn a_child_makes_every_checked_allocator_while_a_thread_of_its_parent_is_inside_its_own() {
    let _alone = alone();
    let use_all = || {
        let arena: Arena = Arena::builder().hardened(true).build();
        let list = RawFreeList::builder(layout(40, 8)).hardened(true).build();
        let reap = Reap::builder().hardened(true).build();
        for number in 0..50u64 {
            assert_eq!(*arena.alloc(number), number);
            let object = list.alloc();
            let block = reap.alloc_layout(layout(100, 8));
            // SAFETY: allocated above, and freed once.
            unsafe {
                list.free(object);
                reap.free_layout(block, layout(100, 8));
            }
        }
    };
    let work = |_: &()| {
        use_all();
        assert!(allotment::report().to_json().starts_with('{'));
    };
    forks_while_a_thread_is_inside(|| (), |_: &()| use_all(), work);
}

// ---- reports ----

/// Another thread holds the lock of standard error at the fork, as one that is in `eprintln!` does.
fn forks_while_standard_error_is_locked(work: impl Fn()) {
    let (locked, is_locked) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _lock = std::io::stderr().lock();
            locked.send(()).unwrap();
            let _ = is_done.recv();
        });
        is_locked.recv().unwrap();
        // SAFETY: the child uses allocators of the library and malloc.
        let status = unsafe { forked(work) };
        drop(done);
        assert_eq!(status, 0, "the child neither hung nor failed");
    });
}

#[test]
fn a_child_reports_live_objects_while_a_thread_of_its_parent_prints() {
    let test = "a_child_reports_live_objects_while_a_thread_of_its_parent_prints";
    if !child::is(test) {
        let printed = Child::new(test, test).succeeds();
        for line in [
            "slab 'left in a slab' dropped with 1 live objects",
            "free list 'left in a list' dropped with 1 live objects",
            "pool 'left in a pool' ended with 1 objects in use",
        ] {
            assert!(passed_through() || printed.contains(line), "{printed}");
        }
        return;
    }
    forks_while_standard_error_is_locked(|| {
        let slab = RawSlab::builder(layout(40, 8)).name("left in a slab").report_live(true).build();
        let _ = slab.alloc();
        drop(slab);
        let list = RawFreeList::builder(layout(40, 8)).name("left in a list").report_live(true);
        let _ = list.build().alloc();
        let pool = LocalPool::builder().name("left in a pool").report_live(true).build();
        let _ = pool.alloc_layout(layout(40, 8));
        drop(pool);
    });
}

#[test]
fn a_child_without_memory_says_so_while_a_thread_of_its_parent_prints() {
    let test = "a_child_without_memory_says_so_while_a_thread_of_its_parent_prints";
    if child::is(test) {
        return forks_while_standard_error_is_locked(|| {
            aborts(|| {
                let arena: Arena = Arena::builder().source(Malloc).build();
                let _ = arena.alloc_layout(layout(1 << 60, 8));
            });
        });
    }
    let printed = Child::new(test, test).succeeds();
    assert!(printed.contains("allotment: "), "{printed}");
}

// ---- pass-through mode ----

/// Runs tests of this file with every object a block of malloc.
#[test]
fn in_pass_through_mode_too() {
    if child::is_any() || passed_through() {
        return;
    }
    for test in [
        "a_child_uses_the_slab_that_a_thread_of_its_parent_was_inside",
        "a_child_frees_blocks_of_the_pool_that_its_owner_was_inside",
        "a_child_makes_every_checked_allocator_while_a_thread_of_its_parent_is_inside_its_own",
        "a_child_reports_live_objects_while_a_thread_of_its_parent_prints",
    ] {
        let child = Child::new(test, "passed through").env("ALLOTMENT_PASSTHROUGH", "1");
        child.succeeds();
    }
}
