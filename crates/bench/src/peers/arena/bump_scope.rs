//! `bump-scope` in its fastest configuration: one `Bump` for each thread, reset after each task.
//!
//! The row uses the default settings (upwards, minimum alignment 1). On the objects of
//! `query-alloc`, bumping downwards and a minimum alignment of 8 are slower, and disabling claims,
//! deallocation and shrinking is no faster. A reset keeps the largest chunk.
//!
//! # Invariant
//!
//! A block is used with the `Bump` that it came from: a thread has one `Bump`, and a task's callers
//! return only blocks that they got from the task.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use ::bump_scope::Bump;
use ::bump_scope::alloc::Allocator as _;
use ::bump_scope::traits::BumpAllocatorTyped as _;

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AllocatorKind, Task};

/// One for each thread.
pub(crate) struct ResetBumpScope(Bump);

/// A task that borrows its thread's `Bump`.
pub(crate) struct ResetBumpScopeTask<'t>(&'t mut Bump);

impl Listed for ResetBumpScope {
    const ABOUT: About = About::peer(
        AllocatorKind::Arena,
        "bump-scope",
        "bump-scope 2.4.1",
        "each thread keeps its largest chunk; the others go back to the C library's malloc when a task ends",
    );
}

impl Allocator for ResetBumpScope {
    type Task<'t> = ResetBumpScopeTask<'t>;

    fn start() -> Self {
        Self(Bump::new())
    }

    #[inline]
    fn begin(&mut self) -> ResetBumpScopeTask<'_> {
        ResetBumpScopeTask(&mut self.0)
    }
}

impl Drop for ResetBumpScopeTask<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.reset();
    }
}

impl Task for ResetBumpScopeTask<'_> {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.allocate_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.0.deallocate(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that `new_size` is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        // SAFETY: the invariant above, and the caller's promise that the block is live with the
        // layout `old` and that the new size is no smaller.
        match unsafe { self.0.grow(ptr, old, new) } {
            Ok(grown) => grown.cast(),
            Err(_) => handle_alloc_error(new),
        }
    }
}
