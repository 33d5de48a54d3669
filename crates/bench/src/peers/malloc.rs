//! General-purpose allocators: they create nothing for a task, and free each object separately.
//!
//! Each file below implements [`Heap`] with calls into one of them. [`Malloc`] turns a heap into an
//! [`Allocator`], an [`AnySize`] and a [`Requests`], `HeapObjects` into a [`FixedSize`](crate::peers::FixedSize),
//! and [`HeapAsGlobal`] into a [`Global`].
//!
//! # Invariants of this file and those below
//!
//! 1. A non-null block from [`Heap::alloc`] is fresh, and has the alignment and the size of its
//!    layout, until it is freed or grown. malloc promises this.
//! 2. A block goes back to the heap that it came from, with its current layout. The callers of
//!    [`Task::free`] and [`Task::grow`], of [`AnySize`] and of [`GlobalCalls`] promise this.
//! 3. The calling thread has entered the heap. A [`HeapTask`] borrows the [`Malloc`] that
//!    [`Allocator::start`] made on this thread, and neither can leave the thread. If the heap is a
//!    program's global allocator, each thread enters it with its first call, and stays
//!    ([`Heap::enter_for_good`]).

use std::alloc::{Layout, handle_alloc_error};
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use allocator_api2::alloc::AllocError;
use allocator_api2::vec::Vec;

use crate::peers::about::Listed;
use crate::peers::assume_read::{assume_read, push_all};
use crate::peers::{
    About, Allocator, AnySize, Collections, Global, GlobalCalls, Line, Requests, Task,
};

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

/// The calls of one general-purpose allocator. They return null if there is no memory.
pub(crate) trait Heap: 'static {
    const ABOUT: About;

    /// The value that a thread holds while it uses the heap. Dropping it leaves the heap.
    type Entered: 'static;

    /// Prepares the heap for the calling thread.
    fn enter() -> Self::Entered;

    /// Prepares the heap for the calling thread until the thread ends, unless that is done already.
    /// If the heap is a program's global allocator, this runs before each call, from the program's
    /// first call on. It allocates nothing.
    #[inline(always)]
    fn enter_for_good() {}

    /// Allocates a block for `layout`, which may have size zero.
    ///
    /// # Safety
    /// The calling thread has entered the heap.
    unsafe fn alloc(layout: Layout) -> *mut u8;

    /// Like [`Heap::alloc`], filled with zeros.
    ///
    /// # Safety
    /// As for [`Heap::alloc`]; the size is not zero.
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// The calling thread has entered the heap; the block is live, came from this heap, and has
    /// `layout`.
    unsafe fn free(block: *mut u8, layout: Layout);

    /// Resizes a block to `new_size` bytes, in place or by moving it. Its contents stay, up to the
    /// smaller of the two sizes.
    ///
    /// # Safety
    /// As for [`Heap::free`]; `new_size` is not zero, and valid for the alignment.
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8;

    /// Releases memory that the calling thread and the heap keep without need, with the calls that
    /// the allocator has for it. Returns whether it has any.
    ///
    /// # Safety
    /// The calling thread has entered the heap.
    unsafe fn trim() -> bool {
        false
    }
}

/// The alignment that malloc gives to every block that is large enough (C's `max_align_t`).
const MALLOC_ALIGN: usize = 16;

/// Whether the alignment of an allocator's plain `malloc(size)` suffices. Blocks smaller than an
/// alignment may be aligned to less: a block of 8 bytes is aligned to 8.
#[inline(always)]
pub(crate) const fn plain(size: usize, align: usize) -> bool {
    align <= MALLOC_ALIGN && align <= size
}

/// Allocates a block filled with zeros, if the allocator has no call for it.
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

/// Resizes a block if the allocator has no call for it: allocate, copy, free.
///
/// # Safety
/// As for [`Heap::resize`].
#[inline]
unsafe fn resize_by_copy<H: Heap>(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: the caller promises that `new_size` is valid for the alignment.
    let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
    // SAFETY: the thread has entered the heap; both blocks are live, don't overlap, and are at
    // least as long as the shorter of them; the old one is freed once, with its layout.
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
    /// Heaps have state for each thread, so this value must not leave its thread.
    _not_send: PhantomData<*const ()>,
}

/// A task on a [`Heap`]. It begins and ends without calls.
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
        // Size zero stays size zero: a call to `realloc` would free the block.
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
        // SAFETY: as in `free`: a malloc takes back a block on every thread that has entered it.
        unsafe { H::free(ptr.as_ptr(), layout) }
    }
}

impl<H: Heap> Requests for Malloc<H> {
    type Memory = Self;

    fn start() -> Self {
        <Self as Allocator>::start()
    }

    #[inline(always)]
    fn request<R>(&self, serve: impl FnOnce(&Self) -> R) -> R {
        serve(self)
    }
}

/// A [`Heap`] as the allocator of a vector. Invariant 3 holds while a [`Malloc`] is borrowed.
struct InHeap<'m, H: Heap>(PhantomData<&'m mut Malloc<H>>);

// Not derived: that would require it of the heap.
impl<H: Heap> Clone for InHeap<'_, H> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

// SAFETY: a heap has no state of its own in the value, so every value of the type is the same
// allocator, and a block lives until it is freed.
unsafe impl<H: Heap> allocator_api2::alloc::Allocator for InHeap<'_, H> {
    #[inline(always)]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: invariant 3.
        let block = NonNull::new(unsafe { H::alloc(layout) }).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline(always)]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: invariant 3 and the caller's promise, invariant 2.
        unsafe { H::free(block.as_ptr(), layout) }
    }

    #[inline(always)]
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        debug_assert_eq!(old.align(), new.align(), "a vector's alignment stays");
        // SAFETY: invariant 3 and the caller's promise, invariant 2. A vector grows to more than
        // nothing.
        let grown = unsafe { H::resize(block.as_ptr(), old, new.size()) };
        let grown = NonNull::new(grown).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(grown, new.size()))
    }
}

/// A string in a heap. Rust's own string takes no allocator.
struct Text<'m, H: Heap>(Vec<u8, InHeap<'m, H>>);

impl<H: Heap> fmt::Write for Text<'_, H> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<H: Heap> Collections for Malloc<H> {
    fn push(&mut self, numbers: u64) {
        push_all!(Vec::new_in(InHeap::<H>(PhantomData)), numbers);
    }

    fn format<'l>(&mut self, lines: impl Iterator<Item = Line<'l>>) {
        // A program keeps its strings, too.
        let mut texts = Vec::new_in(InHeap::<H>(PhantomData));
        for Line { name, number, value } in lines {
            let mut text = Text::<H>(Vec::new_in(InHeap(PhantomData)));
            write!(text, "{name}.{number}={value}").expect("a string takes any text");
            texts.push(text);
        }
        assume_read(texts.as_ptr());
    }
}

/// A [`Heap`] as a program's global allocator.
pub(crate) struct HeapAsGlobal<H>(PhantomData<fn() -> H>);

impl<H: Heap> Global for HeapAsGlobal<H> {
    const CALLS: GlobalCalls = GlobalCalls {
        alloc: Self::alloc,
        alloc_zeroed: Self::alloc_zeroed,
        dealloc: Self::dealloc,
        realloc: Self::realloc,
    };

    fn start() -> Self {
        // Never left: blocks that the thread frees while it ends go back to the heap too.
        mem::forget(H::enter());
        Self(PhantomData)
    }

    #[inline(always)]
    fn request<R>(&self, serve: impl FnOnce() -> R) -> R {
        serve()
    }
}

/// The calls. Their callers promise what [`GlobalCalls`]'s fields require, the same as
/// [`GlobalAlloc`'s].
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
