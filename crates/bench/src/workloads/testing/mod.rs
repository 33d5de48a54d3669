//! Small allocators for this crate's tests. They count allocations and frees.

#[cfg(feature = "catalogue")]
mod audited;
#[cfg(feature = "catalogue")]
mod together_within;

#[cfg(feature = "catalogue")]
pub use audited::{Audit, Audited, LiveSteps, audited, live};
#[cfg(feature = "catalogue")]
pub use together_within::TogetherWithin;

use crate::peers::{Allocator, Task};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// The number of objects allocated through [`System`] on this thread since the last call, and the
/// number still live.
pub fn take_counts() -> (u64, i64) {
    (ALLOCATED.take(), LIVE.take())
}

/// The system's allocator. It frees object by object.
#[derive(Debug)]
pub struct System;

/// A [`System`] task.
#[derive(Debug)]
pub struct SystemTask;

impl Allocator for System {
    type Task<'t> = SystemTask;

    fn start() -> Self {
        Self
    }

    fn begin(&mut self) -> SystemTask {
        SystemTask
    }
}

fn checked(ptr: *mut u8, layout: Layout) -> NonNull<u8> {
    NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Task for SystemTask {
    const FREED_TOGETHER: bool = false;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        assert_ne!(layout.size(), 0, "no workload asks for nothing");
        ALLOCATED.set(ALLOCATED.get() + 1);
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the size is not zero.
        checked(unsafe { alloc(layout) }, layout)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the caller's promise.
        unsafe { dealloc(ptr.as_ptr(), layout) }
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        assert!(new_size >= old.size());
        // SAFETY: the caller's promise; the new size is not zero as no object is.
        checked(unsafe { realloc(ptr.as_ptr(), old, new_size) }, old)
    }
}

/// Frees all objects together: it remembers every object and frees it when the task ends.
#[derive(Debug)]
pub struct FreedTogether;

/// A [`FreedTogether`] task.
#[derive(Debug, Default)]
pub struct FreedTogetherTask(RefCell<Vec<(NonNull<u8>, Layout)>>);

/// The number of `free` calls on [`FreedTogether`] tasks. Workloads must make none.
pub static NEEDLESS_FREES: AtomicUsize = AtomicUsize::new(0);

impl Allocator for FreedTogether {
    type Task<'t> = FreedTogetherTask;

    fn start() -> Self {
        Self
    }

    fn begin(&mut self) -> FreedTogetherTask {
        FreedTogetherTask::default()
    }
}

impl Task for FreedTogetherTask {
    const FREED_TOGETHER: bool = true;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        let ptr = SystemTask.alloc(layout);
        self.0.borrow_mut().push((ptr, layout));
        ptr
    }

    unsafe fn free(&self, _: NonNull<u8>, _: Layout) {
        NEEDLESS_FREES.fetch_add(1, Ordering::Relaxed);
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        let new = self.alloc(Layout::from_size_align(new_size, old.align()).unwrap());
        // SAFETY: both are live, have at least `old.size()` bytes, and don't overlap.
        unsafe { new.copy_from_nonoverlapping(ptr, old.size()) };
        new
    }
}

impl Drop for FreedTogetherTask {
    fn drop(&mut self) {
        for (ptr, layout) in self.0.get_mut().drain(..) {
            // SAFETY: every object was allocated with this layout and is freed only here.
            unsafe { SystemTask.free(ptr, layout) };
        }
    }
}
