//! General-purpose allocators: nothing to create for a task, each object freed by itself.
//!
//! Each file below implements [`Heap`] by calls into one of them; [`Malloc`] makes an
//! [`Allocator`] of it, and `HeapObjects` a [`FixedSize`](crate::FixedSize) one.
//!
//! # Invariants of this file and those below
//!
//! 1. A block that [`Heap::alloc`] returned non-null is fresh, aligned as its layout asks, and as long.
//!    It stays so until it is freed or grown: that is what malloc promises.
//! 2. A block goes back to the heap that it came from, with the layout that it has: what the callers of
//!    [`Task::free`] and [`Task::grow`] promise.
//! 3. The calling thread has entered the heap: a [`HeapTask`] borrows the [`Malloc`] that
//!    [`Allocator::start`] made on this thread, and neither can leave it.

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::registry::Listed;
use crate::{About, Allocator, Task};

pub(crate) mod libc;

#[cfg(feature = "c-peers")]
pub(crate) mod jemalloc;
#[cfg(feature = "c-peers")]
pub(crate) mod mimalloc;
#[cfg(feature = "c-peers")]
pub(crate) mod rpmalloc;
#[cfg(feature = "c-peers")]
pub(crate) mod snmalloc;
#[cfg(all(feature = "c-peers", target_env = "gnu"))]
pub(crate) mod tcmalloc;

/// The calls of one general-purpose allocator. Null means that there is no memory.
pub(crate) trait Heap: 'static {
    const ABOUT: About;

    /// What a thread holds while it uses the heap; dropping it leaves the heap.
    type Entered: 'static;

    /// Makes the heap ready for the calling thread.
    fn enter() -> Self::Entered;

    /// A block for `layout`, which may have size zero.
    ///
    /// # Safety
    /// The calling thread has entered the heap.
    unsafe fn alloc(layout: Layout) -> *mut u8;

    /// Gives a block back.
    ///
    /// # Safety
    /// The calling thread has entered the heap; the block is live, came from this heap, and has
    /// `layout`.
    unsafe fn free(block: *mut u8, layout: Layout);

    /// Moves a block to one of `new_size` bytes, or grows it in place; its bytes stay.
    ///
    /// # Safety
    /// As for [`Heap::free`]; `new_size` is at least `old.size()`, not zero, and valid for the
    /// alignment.
    unsafe fn grow(block: *mut u8, old: Layout, new_size: usize) -> *mut u8;

    /// Gives back what the calling thread and the heap keep without need, by whatever calls the
    /// allocator has for it. Returns whether it has any.
    ///
    /// # Safety
    /// The calling thread has entered the heap.
    unsafe fn trim() -> bool {
        false
    }
}

/// What malloc aligns every block to that is large enough (C's `max_align_t`).
const MALLOC_ALIGN: usize = 16;

/// Whether an allocator's plain `malloc(size)` aligns well enough. Blocks smaller than an alignment may
/// be aligned to less: a block of 8 bytes to 8.
#[inline(always)]
pub(crate) const fn plain(size: usize, align: usize) -> bool {
    align <= MALLOC_ALIGN && align <= size
}

/// Grows a block for which the allocator has no call of its own: allocate, copy, free.
///
/// # Safety
/// As for [`Heap::grow`].
#[inline]
unsafe fn grow_by_copy<H: Heap>(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: the caller vouches that `new_size` suits the alignment.
    let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
    // SAFETY: the thread has entered the heap; both blocks are live, apart, and at least `old.size()`
    // long; the old one is given back once, with its layout.
    unsafe {
        let grown = H::alloc(new);
        if !grown.is_null() {
            grown.copy_from_nonoverlapping(block, old.size());
            H::free(block, old);
        }
        grown
    }
}

/// A [`Heap`] as a worker thread sees it.
pub(crate) struct Malloc<H: Heap> {
    _entered: H::Entered,
    /// Heaps have state by thread: this one must not leave its own.
    _not_send: PhantomData<*const ()>,
}

/// A piece of work on a [`Heap`]. There is nothing to begin and nothing to end.
pub(crate) struct HeapTask<'t, H: Heap>(PhantomData<&'t mut Malloc<H>>);

impl<H: Heap> Listed for Malloc<H> {
    const ABOUT: About = H::ABOUT;
}

impl<H: Heap> Allocator for Malloc<H> {
    type Task<'t> = HeapTask<'t, H>;

    fn start() -> Self {
        Self { _entered: H::enter(), _not_send: PhantomData }
    }

    #[inline]
    fn begin(&mut self) -> HeapTask<'_, H> {
        HeapTask(PhantomData)
    }
}

impl<H: Heap> Task for HeapTask<'_, H> {
    const FREED_TOGETHER: bool = false;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: invariant 3.
        let block = unsafe { H::alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        unsafe { H::free(ptr.as_ptr(), layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // Growing nothing to nothing: a call to `realloc` would free the block.
        if new_size == 0 {
            return ptr;
        }
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        let block = unsafe { H::grow(ptr.as_ptr(), old, new_size) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(old))
    }
}
