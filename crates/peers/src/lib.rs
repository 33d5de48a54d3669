//! The allocators that Allotment is measured against, and Allotment's own, behind two traits.
//!
//! An [`Allocator`] is the state that one worker thread holds; a [`Task`] is the memory of one
//! piece of work (a query, a request). A general-purpose malloc has nothing to create for a task and
//! frees its objects one by one; an arena is created for it and frees them together
//! ([`Task::FREED_TOGETHER`]). Workloads are generic over the two, so that each allocator's own fast
//! path is compiled into the loop exactly as in a program that uses it.
//!
//! A [`FixedSize`] is an allocator of objects of one layout which belong to no task: they live until they are
//! freed, by whichever thread. Each thread has a [`FixedSizeLocal`] way to it. A general-purpose malloc is
//! such an allocator too; an arena is not.
//!
//! An [`AnySize`] is the same for objects of any layout: one thread's allocator, from which other threads may
//! get objects to free.
//!
//! A [`Global`] can be a program's global allocator, from which its `String`s and `Vec`s come.
//!
//! A [`Placement`] is no allocator, but a way in which the nodes of a tree come to lie where they lie.
//!
//! # The rows
//!
//! [`known`] lists them, [`with`] runs a [`Visitor`] with the one of a name, [`with_fixed_size`] a
//! [`FixedSizeVisitor`], [`with_any_size`] an [`AnySizeVisitor`], [`with_global`] a [`GlobalVisitor`],
//! [`with_placement`] a [`PlacementVisitor`].
//!
//! | row | what it is | caveat |
//! |---|---|---|
//! | `glibc` | the C library's malloc, called directly; the row is `libc` where that is not glibc | |
//! | `jemalloc`, `mimalloc`, `snmalloc` | as their own crates' `GlobalAlloc` calls them, or more directly where that is faster | a call through FFI, as in every Rust program that uses them |
//! | `tcmalloc` | Google's, with its background thread | per CPU only if the process was started with [`About::environment`]; glibc only |
//! | `rpmalloc` | its 1.4 line, which is what its crate carries, by its plain entry points | aligns to 32 KiB at most |
//! | `allotment-arena` | ours: a new `Arena` for each task, with its defaults | |
//! | `allotment-reap` | ours: a new `Reap` for each task, with its defaults | |
//! | `allotment-pool` | ours: a `LocalPool` for each thread, with its defaults; as a global allocator, `Routed` with a pool that is entered for each request | |
//! | `mmap-per-query` | the same with recycling off, as its ancestor was | |
//! | `bumpalo` | a new `Bump` for each task | |
//! | `bumpalo-reset` | one `Bump` a thread, reset after each task | holds the largest chunk it ever had |
//! | `bump-scope` | one `Bump` a thread, reset after each task: the fastest of its ways | holds the largest chunk it ever had |
//! | `mimalloc-heap` | `mi_heap_new` ... `mi_heap_destroy` for each task, used by its thread-local part | |
//! | `pmr-monotonic` | a `std::pmr::monotonic_buffer_resource` for each task | one call through FFI an object, about what a container pays for the virtual one; upstream is `operator new` |
//! | `pmr-pool` | a `std::pmr::unsynchronized_pool_resource` for each task | the same |
//! | `typed-arena` | four typed arenas for each task | serves four sizes alone ([`TYPED_ARENA_SIZES`]) and grows nothing |
//! | `allotment-slab` | ours: one `RawSlab` for all threads, with its defaults, by its ordinary calls | no tasks |
//! | `allotment-slab-handle` | the same by a `RawSlabHandle` on each thread | no tasks |
//! | `allotment-slab-at-once` | the same, but no empty page is kept, as its ancestor did | no tasks |
//! | `allotment-free-list` | ours: one `RawFreeList`, with its defaults | one thread, no tasks |
//! | `allotment-free-list-a-tree` | the same, one for each of many trees | for workloads of many structures alone |
//! | `slab` | values behind keys in one vector | one thread, no tasks; values of 64 bytes, written whole |
//! | `sharded-slab` | values behind keys, lock-free | no tasks; values of 64 bytes, written whole |
//! | `boost-pool` | `boost::pool`, where its headers are installed | one thread, no tasks; a call through FFI |
//! | `malloc-built`, `malloc-copy`, `free-list-built`, `compact-copy`, `scrambled-copy` | the five placements of the free list's seed | for copies of trees alone |
//!
//! # What makes the rows comparable
//!
//! - **Nobody interposes.** Each malloc is called by its own prefixed name; `malloc` and
//!   `operator new` stay the system's. The test `interposition` shows it.
//! - **All are optimised.** A C or C++ peer runs as its project would release it, whatever the profile
//!   of the Rust code. Where something keeps one from its best in this very process,
//!   [`About::handicap`] says so.
//! - **The faster way.** Where an allocator offers several entry points, the row takes the fastest one
//!   that serves the layout: `malloc` for what `malloc` aligns anyhow, the aligned twin otherwise, and a
//!   free that is told the size where there is one.
//!
//! # Adding a peer
//!
//! A file under `malloc`, `arena` or `fixed_size` with the implementation and its [`About`], and a line in
//! the table in `registry`.

use std::alloc::Layout;
use std::ptr::NonNull;

mod arena;
mod fixed_size;
mod local;
mod malloc;
mod placement;
mod registry;

pub use arena::typed_arena::SIZES as TYPED_ARENA_SIZES;
pub use fixed_size::{FixedSize, FixedSizeLocal, OBJECT};
pub use placement::Placement;
pub use registry::{
    About, AnySizeVisitor, FixedSizeAbout, FixedSizeVisitor, FreedBy, GlobalVisitor, Kind,
    PlacementVisitor, UnknownAllocator, Visitor, about, global_calls, known, missing, with, with_any_size,
    with_fixed_size, with_global, with_placement,
};

/// One allocator as one worker thread sees it.
pub trait Allocator: Sized + 'static {
    /// The memory of one piece of work.
    type Task<'t>: Task
    where
        Self: 't;

    /// Makes the calling thread's state. Called once on each worker thread, before the work.
    fn start() -> Self;

    /// Begins one piece of work. Dropping the task ends it.
    fn begin(&mut self) -> Self::Task<'_>;
}

/// The memory of one piece of work.
pub trait Task {
    /// Whether dropping the task frees all of its objects. If not, the workload frees each one.
    const FREED_TOGETHER: bool;

    /// Memory for one object, uninitialised. Aborts when there is none: a benchmark has no plan for it.
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    /// Frees one object.
    ///
    /// # Safety
    /// `ptr` came from this task's `alloc` or `grow`, is live, and `layout` is the one it has now.
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout);

    /// Grows one object to `new_size` bytes at the same alignment; its first bytes stay.
    ///
    /// # Safety
    /// As for [`Task::free`]; `new_size` is at least `old.size()` and valid for the alignment.
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8>;
}

/// An allocator of objects of any layout which belong to no task, as one thread sees it: they live until they
/// are freed. Which threads may free them says [`About::lasting`].
pub trait AnySize: Sized + 'static {
    /// Makes the calling thread's state, of which the thread's own objects come. It lives until all of them
    /// are freed.
    fn start() -> Self;

    /// Does the thread's work, in which it allocates and frees, for those who want to be told where it begins and ends.
    fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Memory for one object, uninitialised. Aborts when there is none: a benchmark has no plan for it.
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    /// Frees one object.
    ///
    /// # Safety
    /// `ptr` came from this very value's `alloc`, is live, and has this layout; it is not used after.
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout);

    /// Frees an object that another thread may have allocated.
    ///
    /// # Safety
    /// `ptr` came from `alloc` of a value of this type that still exists, on whichever thread; it is live, has
    /// this layout, and is not used after.
    ///
    /// # Panics
    /// If only the thread itself may free ([`FreedBy::ItsThread`]).
    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout);
}

/// An allocator that can be the global one of a program, as one thread that serves requests sees it.
pub trait Global: Sized + 'static {
    /// The calls that the program then makes.
    const CALLS: GlobalCalls;

    /// Makes what the thread needs. Called once on each worker thread, before the work.
    fn start() -> Self;

    /// Serves one request, which allocates from the program's global allocator.
    fn request<R>(&self, serve: impl FnOnce() -> R) -> R;
}

/// What a program calls that has an allocator as its global one: [`GlobalAlloc`](std::alloc::GlobalAlloc)'s
/// functions, with the promises that these have, and without the receiver.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GlobalCalls {
    pub alloc: unsafe fn(Layout) -> *mut u8,
    pub alloc_zeroed: unsafe fn(Layout) -> *mut u8,
    pub dealloc: unsafe fn(*mut u8, Layout),
    pub realloc: unsafe fn(*mut u8, Layout, usize) -> *mut u8,
}
