//! An allocator that frees some objects of a task before its end.

use super::{FreedTogetherTask, SystemTask};
use crate::peers::{Allocator, Task};
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

/// Frees objects one by one during the task, and the rest together at its end.
#[derive(Debug)]
pub struct TogetherWithin;

/// A [`TogetherWithin`] task.
#[derive(Debug, Default)]
pub struct TogetherWithinTask(FreedTogetherTask);

thread_local! {
    static FREES_WITHIN: Cell<u64> = const { Cell::new(0) };
}

impl TogetherWithin {
    /// The number of objects that were freed one by one since the last call.
    pub fn take_frees() -> u64 {
        FREES_WITHIN.take()
    }
}

impl Allocator for TogetherWithin {
    type Task<'t> = TogetherWithinTask;

    fn start() -> Self {
        Self
    }

    fn begin(&mut self) -> TogetherWithinTask {
        TogetherWithinTask::default()
    }
}

impl Task for TogetherWithinTask {
    const FREED_TOGETHER: bool = true;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc(layout)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        let mut objects = self.0.0.borrow_mut();
        let index = objects.iter().position(|object| *object == (ptr, layout));
        let (ptr, layout) = objects.swap_remove(index.expect("it is live, with this layout"));
        FREES_WITHIN.set(FREES_WITHIN.get() + 1);
        // SAFETY: it was allocated with this layout, and is no longer in the list of objects to
        // free.
        unsafe { SystemTask.free(ptr, layout) };
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        unsafe { self.0.grow(ptr, old, new_size) }
    }
}
