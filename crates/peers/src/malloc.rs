//! General-purpose allocators: nothing to create for a task, each object freed by itself.
//!
//! Each file below implements [`Heap`] by calls into one of them; [`Malloc`] makes an
//! [`Allocator`] and an [`AnySize`] of it, `HeapObjects` a [`FixedSize`](crate::FixedSize) one, and
//! [`HeapAsGlobal`] a program's [`Global`] one.
//!
//! # Invariants of this file and those below
//!
//! 1. A block that [`Heap::alloc`] returned non-null is fresh, aligned as its layout asks, and as long.
//!    It stays so until it is freed or grown: that is what malloc promises.
//! 2. A block goes back to the heap that it came from, with the layout that it has: what the callers of
//!    [`Task::free`] and [`Task::grow`], of [`AnySize`] and of [`GlobalCalls`] promise.
//! 3. The calling thread has entered the heap: a [`HeapTask`] borrows the [`Malloc`] that
//!    [`Allocator::start`] made on this thread, and neither can leave it. A thread of a program of which it is
//!    the global allocator enters it with its first call, and stays ([`Heap::enter_for_good`]).

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use crate::registry::Listed;
use crate::{About, Allocator, AnySize, Global, GlobalCalls, Task};

pub(crate) mod libc;

#[cfg(feature = "all-peers")]
pub(crate) mod jemalloc;
#[cfg(feature = "fast-peers")]
pub(crate) mod mimalloc;
#[cfg(feature = "fast-peers")]
pub(crate) mod rpmalloc;
#[cfg(feature = "fast-peers")]
pub(crate) mod snmalloc;
#[cfg(all(feature = "all-peers", target_env = "gnu"))]
pub(crate) mod tcmalloc;

/// The calls of one general-purpose allocator. Null means that there is no memory.
pub(crate) trait Heap: 'static {
    const ABOUT: About;

    /// What a thread holds while it uses the heap; dropping it leaves the heap.
    type Entered: 'static;

    /// Makes the heap ready for the calling thread.
    fn enter() -> Self::Entered;

    /// Makes the heap ready for the calling thread until its end, unless it is; called before each call of a
    /// program that has the heap as its global allocator, from the program's first one on. It allocates
    /// nothing.
    #[inline(always)]
    fn enter_for_good() {}

    /// A block for `layout`, which may have size zero.
    ///
    /// # Safety
    /// The calling thread has entered the heap.
    unsafe fn alloc(layout: Layout) -> *mut u8;

    /// The same with zeros in it.
    ///
    /// # Safety
    /// As for [`Heap::alloc`]; the size is not zero.
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8;

    /// Gives a block back.
    ///
    /// # Safety
    /// The calling thread has entered the heap; the block is live, came from this heap, and has
    /// `layout`.
    unsafe fn free(block: *mut u8, layout: Layout);

    /// Moves a block to one of `new_size` bytes, or makes it larger or smaller in place; its bytes stay, as
    /// far as there is room for them.
    ///
    /// # Safety
    /// As for [`Heap::free`]; `new_size` is not zero, and valid for the alignment.
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8;

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

/// A block with zeros in it, where the allocator has no call of its own.
///
/// # Safety
/// As for [`Heap::alloc_zeroed`].
#[inline]
unsafe fn zeroed_by_writing<H: Heap>(layout: Layout) -> *mut u8 {
    // SAFETY: the thread has entered the heap; a block is as long as its layout.
    unsafe {
        let block = H::alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }
}

/// Resizes a block for which the allocator has no call of its own: allocate, copy, free.
///
/// # Safety
/// As for [`Heap::resize`].
#[inline]
unsafe fn resize_by_copy<H: Heap>(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: the caller vouches that `new_size` suits the alignment.
    let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
    // SAFETY: the thread has entered the heap; both blocks are live, apart, and at least as long as the
    // shorter of them; the old one is given back once, with its layout.
    unsafe {
        let resized = H::alloc(new);
        if !resized.is_null() {
            resized.copy_from_nonoverlapping(block, old.size().min(new_size));
            H::free(block, old);
        }
        resized
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
        let block = unsafe { H::resize(ptr.as_ptr(), old, new_size) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(old))
    }
}

impl<H: Heap> AnySize for Malloc<H> {
    fn start() -> Self {
        <Self as Allocator>::start()
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: invariant 3.
        let block = unsafe { H::alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    }

    #[inline(always)]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        unsafe { H::free(ptr.as_ptr(), layout) }
    }

    #[inline(always)]
    unsafe fn free_elsewhere(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the same: a malloc takes a block back on every thread that has entered it.
        unsafe { H::free(ptr.as_ptr(), layout) }
    }
}

/// A [`Heap`] as the global allocator of a program.
pub(crate) struct HeapAsGlobal<H>(PhantomData<fn() -> H>);

impl<H: Heap> Global for HeapAsGlobal<H> {
    const CALLS: GlobalCalls = GlobalCalls {
        alloc: Self::alloc,
        alloc_zeroed: Self::alloc_zeroed,
        dealloc: Self::dealloc,
        realloc: Self::realloc,
    };

    fn start() -> Self {
        // For good: what the thread frees when it ends goes back to the heap too.
        mem::forget(H::enter());
        Self(PhantomData)
    }

    #[inline(always)]
    fn request<R>(&self, serve: impl FnOnce() -> R) -> R {
        serve()
    }
}

/// The calls. Their promises are those of [`GlobalCalls`]'s fields, which are [`GlobalAlloc`'s].
///
/// [`GlobalAlloc`'s]: std::alloc::GlobalAlloc
impl<H: Heap> HeapAsGlobal<H> {
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        H::enter_for_good();
        // SAFETY: invariant 3.
        unsafe { H::alloc(layout) }
    }

    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        H::enter_for_good();
        // SAFETY: invariant 3; the size is not zero: the caller's promise.
        unsafe { H::alloc_zeroed(layout) }
    }

    unsafe fn dealloc(block: *mut u8, layout: Layout) {
        H::enter_for_good();
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        unsafe { H::free(block, layout) }
    }

    unsafe fn realloc(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        H::enter_for_good();
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        unsafe { H::resize(block, old, new_size) }
    }
}
