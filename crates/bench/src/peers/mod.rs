//! The allocators that Allotment is measured against, and Allotment's own, behind common traits.
//!
//! An [`Allocator`] is the state that one worker thread holds; a [`Task`] is the memory of one
//! piece of work (a query, a request). A general-purpose malloc has nothing to create for a task
//! and frees its objects one by one. An arena is created for the task and frees them together
//! ([`Task::FREED_TOGETHER`]). Workloads are generic over both traits, so each allocator's own fast
//! path is compiled into the loop, exactly as in a program that uses it.
//!
//! A [`FixedSize`] is an allocator of objects of one layout that belong to no task. They live until
//! any thread frees them. Each thread uses the allocator through a [`FixedSizeLocal`]. A
//! general-purpose malloc is such an allocator too; an arena is not.
//!
//! [`Boxes`] is an allocator of boxes, which own their values and go from thread to thread.
//!
//! An [`AnySize`] is an allocator of objects of any layout: one thread's, whose objects other
//! threads may free. [`Requests`] is an allocator of requests, whose objects may outlive them.
//!
//! A [`Global`] can be a program's global allocator, which serves its `String`s and `Vec`s.
//!
//! [`Collections`] is an allocator with a vector and a string of its own, and [`Scopes`] one with
//! scopes inside which objects can be freed.
//!
//! A [`Placement`] is not an allocator, but a way to place the nodes of a tree in memory.
//!
//! # Files, lowest first
//!
//! | file or folder | holds |
//! |---|---|
//! | `about` | what a row is |
//! | `assume_read` | how work keeps the compiler from omitting it |
//! | `allotment_options` | the options of the rows of Allotment's arenas and slabs |
//! | `malloc`, `arena`, `fixed_size`, `boxes`, `allotment_pool`, `placement` | the rows |
//! | `registry` | the list of the rows, and how to find one by its name |
//!
//! # The rows
//!
//! [`known`] lists the rows. Work that is generic over one of the traits above is a *visitor*:
//! [`TaskVisitor`], [`FixedSizeVisitor`], [`BoxesVisitor`], [`AnySizeVisitor`],
//! [`RequestsVisitor`], [`GlobalVisitor`] or [`PlacementVisitor`]. Its method `with` does the work
//! with the row of a given name.
//!
//! | row | what it is | caveat |
//! |---|---|---|
//! | `glibc` | the C library's malloc, called directly; the row is `libc` if the C library is not glibc | |
//! | `jemalloc`, `mimalloc`, `snmalloc` | called as their crates' `GlobalAlloc` does, or more directly if that is faster | a call through FFI, as in every Rust program that uses them |
//! | `tcmalloc` | Google's, with its background thread | has per-CPU caches only if the process was started with [`About::environment`]; glibc only |
//! | `rpmalloc` | version 1.4, which its crate contains, with its plain entry points | aligns to 32 KiB at most |
//! | `allotment-arena` | ours: a new `Arena` for each task, with its defaults | |
//! | `allotment-arena-reset` | ours: one `Arena` for each thread, reset after each task | keeps at most 1 MiB itself; the rest goes through the recycler |
//! | `allotment-arena-raw` | the same, but values are allocated as bytes of a layout | |
//! | `allotment-reap` | ours: a new `Reap` for each task, with its defaults | |
//! | `allotment-pool` | ours: a `LocalPool` for each thread, with its defaults; as a global allocator, `PoolGlobalAlloc` with a pool that the thread enters for each request | |
//! | `allotment-pool-request` | ours: a new `LocalPool` for each request, with its defaults | only for requests whose objects outlive them |
//! | `allotment-pool-limited` | the same with a limit of 1 MiB | the same |
//! | `mmap-per-query` | `allotment-arena` without recycling, as in its ancestor | |
//! | `mmap-huge`, `mmap-small` | `allotment-arena` and `allotment-slab` on huge pages alone, and on ordinary pages alone | references, for work on cold memory |
//! | `bumpalo` | a new `Bump` for each task | |
//! | `bumpalo-reset` | one `Bump` for each thread, reset after each task | holds the largest chunk that it ever had |
//! | `bump-scope` | one `Bump` for each thread, reset after each task: its fastest configuration | holds the largest chunk that it ever had |
//! | `multitude` | a new `Arena` for each task | where work asks for bytes, it neither reuses a block nor grows one in place |
//! | `multitude-reset` | one `Arena` for each thread, reset after each task | the same |
//! | `mimalloc-heap` | `mi_heap_new` ... `mi_heap_destroy` for each task, through its thread-local part | |
//! | `pmr-monotonic` | a `std::pmr::monotonic_buffer_resource` for each task | one FFI call for each object, about as much as a container pays for the virtual call; upstream is `operator new` |
//! | `pmr-pool` | a `std::pmr::unsynchronized_pool_resource` for each task | the same |
//! | `typed-arena` | four typed arenas for each task | serves four sizes only ([`TYPED_ARENA_SIZES`]) and grows nothing |
//! | `allotment-slab` | ours: one `RawSlab` for all threads, with its defaults and its ordinary calls; for boxes, a `Slab` and its `SlabBox`es | no tasks |
//! | `allotment-slab-handle` | the same with a `RawSlabHandle` on each thread | no tasks |
//! | `allotment-slab-at-once` | `allotment-slab` that keeps no empty page, as its ancestor | no tasks |
//! | `allotment-free-list` | ours: one `RawFreeList`, with its defaults | one thread, no tasks |
//! | `allotment-free-list-a-tree` | the same, one for each of many trees | only for workloads with many structures |
//! | `slab` | values behind keys in one vector | one thread, no tasks; values of 64 bytes, written whole |
//! | `sharded-slab` | values behind keys, lock-free | no tasks; values of 64 bytes, written whole |
//! | `plurality` | a `Pool` for each thread | boxes only |
//! | `boost-pool` | `boost::pool`, if its headers are installed | one thread, no tasks; a call through FFI |
//! | `malloc-built`, `malloc-copy`, `free-list-built`, `compact-copy`, `scrambled-copy` | the five placements | only for copies of trees |
//!
//! # What makes the rows comparable
//!
//! - **No interposition.** Each malloc is called by its own prefixed name. `malloc` and
//!   `operator new` stay the system's. The test `interposition` checks this.
//! - **Optimised builds.** A C or C++ peer is built as its project releases it, for every profile
//!   of the Rust code. If something keeps an allocator from its best in this process,
//!   [`About::handicap`] says so.
//! - **Everyday calls.** Values and strings are allocated by the call that an allocator's
//!   documentation shows first ([`Task::put`]). A row that ends in `-raw` or `-handle` uses a lower
//!   one.
//! - **The fastest calls.** If an allocator has several entry points, the row uses the fastest one
//!   that serves the layout: `malloc` if its alignment suffices, otherwise the aligned variant, and
//!   a sized free if there is one.
//!
//! # Adding a peer
//!
//! Add a file under `malloc`, `arena` or `fixed_size` with the implementation and its [`About`],
//! and a line to the table in `registry`.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

mod about;
mod allotment_options;
mod allotment_pool;
mod arena;
mod assume_read;
mod boxes;
mod fixed_size;
mod malloc;
mod placement;
mod registry;

pub use about::{About, FreedBy, MissingService, PeerKind, Service};
#[cfg(all(test, feature = "catalogue"))]
pub(crate) use boxes::BlockBoxes;

pub use arena::typed_arena::SIZES as TYPED_ARENA_SIZES;
pub use fixed_size::{FixedSize, FixedSizeLocal, OBJECT};
pub use placement::Placement;
pub use registry::{
    AnySizeVisitor, BoxesVisitor, CollectionsVisitor, FixedSizeVisitor, GlobalVisitor,
    PlacementVisitor, RequestsVisitor, ScopesVisitor, TaskVisitor, UnknownAllocator, about,
    global_calls, known, missing,
};

/// One allocator as one worker thread sees it.
pub trait Allocator: Sized + 'static {
    /// The memory of one piece of work.
    type Task<'t>: Task
    where
        Self: 't;

    /// Creates the calling thread's state. Called once on each worker thread, before the work.
    fn start() -> Self;

    /// Begins one piece of work. Dropping the task ends it.
    fn begin(&mut self) -> Self::Task<'_>;
}

/// The memory of one piece of work.
pub trait Task {
    /// Whether dropping the task frees all of its objects. If not, the workload frees each one.
    const FREED_TOGETHER: bool;

    /// Memory for one object, uninitialised. Aborts when there is none: a benchmark has no plan for
    /// it.
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    /// Frees one object.
    ///
    /// # Safety
    /// `ptr` came from this task's `alloc` or `grow`, is live, and `layout` is the one it has now.
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout);

    /// Grows one object to `new_size` bytes with the same alignment. Its contents stay.
    ///
    /// # Safety
    /// As for [`Task::free`]; `new_size` is at least `old.size()` and valid for the alignment.
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8>;

    /// Moves a value into memory of the task, by the call that the allocator's documentation shows
    /// first. The value is not dropped. A malloc does what `Box::new` does.
    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        let place = self.alloc(Layout::new::<V>()).cast::<V>();
        // SAFETY: `alloc` returned unused memory of this layout.
        unsafe { place.write(value) };
        place
    }

    /// Copies a text, which is not empty, into memory of the task, by such a call.
    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        let place = self.alloc(Layout::for_value(text));
        // SAFETY: `alloc` returned unused memory, as long as the text.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(text).cast(), text.len()) };
        place
    }
}

/// What a line of text is made of: `name.number=value`.
#[derive(Clone, Copy, Debug)]
pub struct Line<'l> {
    /// A word.
    pub name: &'l str,
    /// A number of few digits.
    pub number: u32,
    /// A number of many digits.
    pub value: u64,
}

/// An allocator with a vector and a string of its own, as one thread sees it. A malloc has the
/// vector of `allocator-api2`, and a string made of one.
pub trait Collections: Allocator {
    /// A task: the numbers from 0 are pushed to an empty vector, one by one.
    fn push(&mut self, numbers: u64);

    /// A task: each line is formatted to a string of its own. All live until the task ends.
    fn format<'l>(&mut self, lines: impl Iterator<Item = Line<'l>>);
}

/// The layout of the objects of [`Scopes`].
pub const SCOPED: Layout = Layout::new::<[u64; 2]>();

/// An allocator with scopes, inside which objects can be freed, as one thread sees it.
pub trait Scopes: Sized + 'static {
    /// Creates the calling thread's state.
    fn start() -> Self;

    /// A scope: allocates an object of the layout [`SCOPED`] for each place, then frees all of them
    /// in the same order. Returns the time of the frees.
    fn scope(&mut self, places: &mut [NonNull<u8>]) -> Duration;
}

/// An allocator of objects of any layout that belong to no task, as one thread sees it. The objects
/// live until they are freed. [`About::freed_by`] says which threads may free them.
pub trait AnySize: Sized + 'static {
    /// Creates the calling thread's state, which serves the thread's objects. It lives until all of
    /// them are freed.
    fn start() -> Self;

    /// Runs the thread's work, in which it allocates and frees. Allocators that need to know where
    /// the work begins and ends override this.
    fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Memory for one object, uninitialised. Aborts when there is none: a benchmark has no plan for
    /// it.
    fn alloc(&self, layout: Layout) -> NonNull<u8>;

    /// Frees one object.
    ///
    /// # Safety
    /// `ptr` came from this very value's `alloc`, is live, and has this layout; it is not used
    /// after.
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout);

    /// Frees an object that another thread may have allocated.
    ///
    /// # Safety
    /// `ptr` came from `alloc` of a value of this type, on any thread; that value still exists, or
    /// has served a request of [`Requests`]. `ptr` is live, has this layout, and is not used after.
    ///
    /// # Panics
    /// If only the allocating thread may free ([`FreedBy::ItsThread`]).
    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout);
}

/// An allocator of requests, as one thread sees it. The objects of a request have any layout, and
/// some of them outlive it.
pub trait Requests: Sized + 'static {
    /// What serves the objects of one request. Its [`AnySize::free_elsewhere`] also frees what
    /// earlier requests left, on any thread.
    type Memory: AnySize;

    /// Creates the calling thread's state. Called once on each worker thread, before the work.
    fn start() -> Self;

    /// Serves one request.
    fn request<R>(&self, serve: impl FnOnce(&Self::Memory) -> R) -> R;
}

/// The value of a box of [`Boxes`].
pub type BoxedValue = [u64; 8];

/// An allocator of boxes, by the call that its documentation shows first. The threads of the
/// program share this value, and each thread gets its own [`local`](Self::local) part before it
/// uses it.
pub trait Boxes: Send + Sync + Sized + 'static {
    /// A box, which any thread may drop.
    type Boxed: Send + 'static;

    /// One thread's part of the allocator.
    type Local<'s>: LocalBoxes<Boxed = Self::Boxed>
    where
        Self: 's;

    /// A new allocator.
    fn new() -> Self;

    /// The calling thread's part of the allocator.
    fn local(&self) -> Self::Local<'_>;
}

/// One thread's part of an allocator of boxes.
pub trait LocalBoxes {
    /// A box.
    type Boxed;

    /// Runs the thread's work, in which it makes and drops boxes. Allocators that need to know
    /// where the work begins and ends override this.
    fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Makes a box, inside [`within`](Self::within). Aborts when there is no memory: a benchmark
    /// has no plan for it.
    fn boxed(&self, value: BoxedValue) -> Self::Boxed;

    /// The value of a box. Workloads don't read it.
    ///
    /// # Safety
    /// The box came from this allocator, and was not dropped.
    unsafe fn value(&self, boxed: &Self::Boxed) -> BoxedValue;

    /// Drops a box, which any thread may have made.
    ///
    /// # Safety
    /// As for [`value`](Self::value); no copy of the box is used after.
    unsafe fn drop_box(&self, boxed: Self::Boxed);
}

/// An allocator that can be a program's global allocator, as a thread that serves requests sees it.
pub trait Global: Sized + 'static {
    /// The calls that such a program makes.
    const CALLS: GlobalCalls;

    /// Creates what the thread needs. Called once on each worker thread, before the work.
    fn start() -> Self;

    /// Serves one request, which allocates from the program's global allocator.
    fn request<R>(&self, serve: impl FnOnce() -> R) -> R;
}

/// The calls of a program to its global allocator: [`GlobalAlloc`](std::alloc::GlobalAlloc)'s
/// functions, with the same promises, without the receiver.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GlobalCalls {
    pub alloc: unsafe fn(Layout) -> *mut u8,
    pub alloc_zeroed: unsafe fn(Layout) -> *mut u8,
    pub dealloc: unsafe fn(*mut u8, Layout),
    pub realloc: unsafe fn(*mut u8, Layout, usize) -> *mut u8,
}
