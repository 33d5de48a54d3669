//! General-purpose allocators as allocators of objects of one layout, with the same direct calls as
//! for tasks.
//!
//! The invariants are those of [`malloc`](crate::peers::malloc) and of
//! [`fixed_size`](crate::peers::fixed_size).

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{Block, FixedSize, Slots, check};
use crate::peers::malloc::Heap;

/// Objects of one layout from a [`Heap`]. It has no state except the heap's own.
pub(crate) struct HeapObjects<H> {
    layout: Layout,
    _heap: PhantomData<fn() -> H>,
}

/// The calling thread's part of the heap.
pub(crate) struct HeapLocal<H: Heap> {
    layout: Layout,
    _entered: H::Entered,
    /// Heaps have state for each thread, so this value must not leave its thread.
    _not_send: PhantomData<*const ()>,
}

impl<H: Heap> FixedSize for HeapObjects<H> {
    type Object = Block;
    type Local<'s> = HeapLocal<H>;

    fn new(layout: Layout) -> Self {
        check(layout);
        Self { layout, _heap: PhantomData }
    }

    fn local(&self) -> HeapLocal<H> {
        HeapLocal { layout: self.layout, _entered: H::enter(), _not_send: PhantomData }
    }
}

impl<H: Heap> Slots for HeapLocal<H> {
    #[inline(always)]
    fn take(&self) -> NonNull<u8> {
        // SAFETY: this thread has entered the heap: the value was made on it and can't leave it.
        let block = unsafe { H::alloc(self.layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(self.layout))
    }

    #[inline(always)]
    unsafe fn give_back(&self, block: NonNull<u8>) {
        // SAFETY: this thread has entered the heap; the block is the heap's, of this layout, and
        // live: the caller's promise.
        unsafe { H::free(block.as_ptr(), self.layout) }
    }

    fn trim(&self) -> bool {
        // SAFETY: this thread has entered the heap.
        unsafe { H::trim() }
    }
}
