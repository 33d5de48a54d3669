//! Our own pool: `allotment-pool`, a `LocalPool` for each thread, with its defaults;
//! `allotment-pool-request`, a `LocalPool` for each request; and `allotment-pool-limited`, the same
//! with a limit.
//!
//! A pool's objects are freed one by one, by any thread, also after the pool's end. As a program's
//! global allocator, the pool is `PoolGlobalAlloc<System>`: each thread has a pool and enters it
//! for each request.
//!
//! # Invariant
//!
//! A block is used with the pool that it came from: a task hands out only its own blocks, and its
//! callers return only blocks that they got from it. [`PoolRef::free_anywhere`]
//! takes a block of any pool on any thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;

use allotment::{LocalPool, PoolGlobalAlloc, PoolRef};

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AnySize, Global, GlobalCalls, PeerKind, Requests, Task};

const ORIGIN: &str = "allotment, this workspace's library";

/// `allotment-pool`: one pool for each thread.
pub(crate) struct OwnPool(LocalPool);

/// A task that borrows its thread's pool. It begins and ends without calls.
pub(crate) struct PoolTask<'t>(&'t LocalPool);

impl Listed for OwnPool {
    const ABOUT: About = About {
        ours: true,
        frees_within_tasks: true,
        ..About::peer(
            PeerKind::Pool,
            "allotment-pool",
            ORIGIN,
            "adaptive: a thread that leaves its pool keeps up to 1 MiB of empty memory, and more for a second",
        )
    };
}

impl Allocator for OwnPool {
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
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.0.free_layout(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that the new size suits the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        // SAFETY: the invariant above, and the caller's promise that the block is live with the
        // layout `old`.
        unsafe { self.0.resize(ptr, old, new) }
    }
}

impl AnySize for OwnPool {
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
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.0.free_layout(ptr, layout) }
    }

    #[inline(always)]
    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the block comes from the pool of some thread and is live with this layout: the
        // caller's promise.
        unsafe { PoolRef::free_anywhere(ptr, layout) }
    }
}

impl Requests for OwnPool {
    type Memory = Self;

    fn start() -> Self {
        Self(LocalPool::new())
    }

    #[inline]
    fn request<R>(&self, serve: impl FnOnce(&Self) -> R) -> R {
        self.0.enter(|| serve(self))
    }
}

/// `allotment-pool-request`, and with a limit `allotment-pool-limited`: a pool for each request.
pub(crate) struct PoolPerRequest<const LIMITED: bool>;

/// The limit of a request in bytes.
const LIMIT: usize = 1 << 20;

impl Listed for PoolPerRequest<false> {
    const ABOUT: About = per_request(
        "allotment-pool-request",
        "adaptive: an ended pool leaves up to 256 KiB of empty memory, and its live objects, to the next pool",
    );
}

impl Listed for PoolPerRequest<true> {
    const ABOUT: About = per_request(
        "allotment-pool-limited",
        "adaptive, as without a limit; each request may take 1 MiB",
    );
}

const fn per_request(name: &'static str, policy: &'static str) -> About {
    About {
        ours: true,
        frees_within_tasks: true,
        ..About::peer(PeerKind::Pool, name, ORIGIN, policy)
    }
}

impl<const LIMITED: bool> Requests for PoolPerRequest<LIMITED> {
    type Memory = OwnPool;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn request<R>(&self, serve: impl FnOnce(&OwnPool) -> R) -> R {
        let pool =
            if LIMITED { LocalPool::builder().maximum(LIMIT).build() } else { LocalPool::new() };
        Requests::request(&OwnPool(pool), serve)
    }
}

/// The allocator of a program with `#[global_allocator] static GLOBAL: PoolGlobalAlloc<System>`.
static GLOBAL_ALLOC: PoolGlobalAlloc<System> = PoolGlobalAlloc::new(System);

impl Global for OwnPool {
    const CALLS: GlobalCalls = {
        unsafe fn alloc(layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise is the callee's, here and below.
            unsafe { GLOBAL_ALLOC.alloc(layout) }
        }
        unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
            // SAFETY: as above.
            unsafe { GLOBAL_ALLOC.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(block: *mut u8, layout: Layout) {
            // SAFETY: as above.
            unsafe { GLOBAL_ALLOC.dealloc(block, layout) }
        }
        unsafe fn realloc(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: as above.
            unsafe { GLOBAL_ALLOC.realloc(block, old, new_size) }
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
