//! Measures what the blocks of some groups cost with malloc: they get the null address, and all
//! other blocks come from malloc. The saving compared with malloc for all blocks is the most that
//! any allocator can save there.
//!
//! # Invariant
//!
//! A block of these groups is the address of a thread's scratch memory. The address is only
//! compared, and never written through, because the scratch memory may be another thread's, and no
//! longer exist. The shape of a block (`route != 0`) alone says which blocks these are.

use super::thread_memory::{
    MallocCalls, MallocFactory, MemoryFactory, NullMemory, RoutedShape, ThreadMemory,
};
use bench::peers::Global;

/// Creates a thread's memory from a malloc that serves all blocks but those of some groups.
#[derive(Debug)]
pub struct WithoutGroupsFactory<G>(MallocFactory<G>);

impl<G> WithoutGroupsFactory<G> {
    pub fn new() -> Self {
        Self(MallocFactory::new())
    }
}

impl<G: Global> MemoryFactory for WithoutGroupsFactory<G> {
    type Memory<'r> = MallocExceptGroups<G>;

    fn within<R>(
        &self,
        thread: usize,
        leaves: bool,
        work: impl FnOnce(&mut MallocExceptGroups<G>) -> R,
    ) -> R {
        self.0.within(thread, leaves, |calls| {
            let malloc = std::mem::replace(calls, MallocCalls::new());
            work(&mut MallocExceptGroups { malloc, null: NullMemory::new() })
        })
    }
}

/// One thread's memory.
#[derive(Debug)]
pub struct MallocExceptGroups<G> {
    malloc: MallocCalls<G>,
    null: NullMemory,
}

impl<G: Global> ThreadMemory for MallocExceptGroups<G> {
    #[inline(always)]
    fn alloc(&mut self, shape: &RoutedShape) -> *mut u8 {
        if shape.route == 0 { self.malloc.alloc(shape) } else { self.null.scratch() }
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: *mut u8, shape: &RoutedShape) {
        if shape.route == 0 {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            unsafe { self.malloc.free(block, shape) };
        }
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: *mut u8, old: &RoutedShape, new: &RoutedShape) -> *mut u8 {
        match (old.route, new.route) {
            // SAFETY: a block of malloc's: the caller's promise, and the invariant.
            (0, 0) => unsafe { self.malloc.resize(block, old, new) },
            (0, _) => {
                // SAFETY: as above.
                unsafe { self.malloc.free(block, old) };
                self.null.scratch()
            }
            (_, 0) => {
                let fresh = self.malloc.alloc(new);
                // SAFETY: a fresh block, as long as its shape says.
                unsafe { self.touch(fresh, 0, old.layout.size().min(new.layout.size())) };
                fresh
            }
            _ => self.null.scratch(),
        }
    }

    #[inline(always)]
    unsafe fn touch(&mut self, block: *mut u8, from: usize, to: usize) {
        if block == self.null.scratch() {
            self.null.write(to - from);
        } else {
            // SAFETY: `alloc` and `resize` return malloc's blocks or this thread's scratch, so it
            // is malloc's.
            unsafe { self.malloc.touch(block, from, to) };
        }
    }
}
