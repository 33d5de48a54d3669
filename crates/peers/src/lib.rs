//! The allocators that Allotment is measured against, and Allotment's own, behind one trait.
//!
//! An [`Allocator`] is the state that one worker thread holds; a [`Task`] is the memory of one
//! piece of work (a query, a request). A general-purpose malloc has nothing to create for a task and
//! frees its objects one by one; an arena is created for it and frees them together
//! ([`Task::FREED_TOGETHER`]). Workloads are generic over the two, so that each allocator's own fast
//! path is compiled into the loop exactly as in a program that uses it.

use std::alloc::Layout;
use std::ptr::NonNull;

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
