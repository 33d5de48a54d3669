//! Our own memory of any size for one thread: `allotment-reap`, a new `Reap` for each task, and `allotment-pool`, a
//! `LocalPool` for each thread, as it ships.
//!
//! A reap's objects are freed with it, and one by one where the work does so. A pool's are freed one by one, by any thread.
//! As a program's global allocator it is `Routed<System>`: a thread has a pool and enters it for each request.
//!
//! # Invariant
//!
//! A block is used with the reap or the pool that it came from: a task hands out blocks of its own alone, and its callers
//! give back what they got from it. A block of any pool goes back on any thread by [`PoolRef::free_anywhere`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;

use allotment::{LocalPool, PoolRef, Reap, Routed};

use crate::registry::Listed;
use crate::{About, Allocator, AnySize, FreedBy, Global, GlobalCalls, Kind, Task};

const ORIGIN: &str = "allotment, this workspace's library";

/// `allotment-reap`: a new one for each task.
pub(crate) struct NewReap;

/// A task with a reap of its own.
pub(crate) struct ReapTask(Reap);

impl Listed for NewReap {
    const ABOUT: About = About {
        ours: true,
        frees_within_tasks: true,
        ..About::peer(
            Kind::Arena,
            "allotment-reap",
            ORIGIN,
            "adaptive: chunks stay warm for the next task of any thread; what goes unused goes back",
        )
    };
}

impl Allocator for NewReap {
    type Task<'t> = ReapTask;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn begin(&mut self) -> ReapTask {
        ReapTask(Reap::new())
    }
}

impl Task for ReapTask {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this layout.
        unsafe { self.0.free_layout(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the invariant above, and the caller's promise that the block is live with the layout `old` and
        // that the new size suits its alignment.
        unsafe { self.0.resize(ptr, old, new_size) }
    }
}

/// `allotment-pool`: one a thread.
pub(crate) struct Pool(LocalPool);

/// A task that borrows its thread's pool. There is nothing to begin and nothing to end.
pub(crate) struct PoolTask<'t>(&'t LocalPool);

impl Listed for Pool {
    const ABOUT: About = About {
        ours: true,
        frees_within_tasks: true,
        lasting: Some(FreedBy::AnyThread),
        global: true,
        ..About::peer(
            Kind::Pool,
            "allotment-pool",
            ORIGIN,
            "adaptive: when a thread leaves its pool, what is empty goes back but for 1 MiB",
        )
    };
}

impl Allocator for Pool {
    type Task<'t> = PoolTask<'t>;

    fn start() -> Self {
        Self(LocalPool::new())
    }

    #[inline]
    fn begin(&mut self) -> PoolTask<'_> {
        PoolTask(&self.0)
    }
}

impl Task for PoolTask<'_> {
    const FREED_TOGETHER: bool = false;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this layout.
        unsafe { self.0.free_layout(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the invariant above, and the caller's promise that the block is live with the layout `old` and
        // that the new size suits its alignment.
        unsafe { self.0.resize(ptr, old, new_size) }
    }
}

impl AnySize for Pool {
    fn start() -> Self {
        Self(LocalPool::new())
    }

    fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.enter(work)
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline(always)]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this layout.
        unsafe { self.0.free_layout(ptr, layout) }
    }

    #[inline(always)]
    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: of some thread's pool, live with this layout: the caller's promise.
        unsafe { PoolRef::free_anywhere(ptr, layout) }
    }
}

/// What a program with `#[global_allocator] static GLOBAL: Routed<System>` has.
static ROUTED: Routed<System> = Routed::new(System);

impl Global for Pool {
    const CALLS: GlobalCalls = {
        unsafe fn alloc(layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise is the callee's, here and below.
            unsafe { ROUTED.alloc(layout) }
        }
        unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
            // SAFETY: as above.
            unsafe { ROUTED.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(block: *mut u8, layout: Layout) {
            // SAFETY: as above.
            unsafe { ROUTED.dealloc(block, layout) }
        }
        unsafe fn realloc(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: as above.
            unsafe { ROUTED.realloc(block, old, new_size) }
        }
        GlobalCalls { alloc, alloc_zeroed, dealloc, realloc }
    };

    fn start() -> Self {
        Self(LocalPool::new())
    }

    #[inline]
    fn request<R>(&self, serve: impl FnOnce() -> R) -> R {
        self.0.enter(serve)
    }
}
