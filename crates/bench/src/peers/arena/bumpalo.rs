//! `bumpalo`, used in two ways: a new `Bump` for each task, and one `Bump` for each thread that is
//! reset after each task.
//!
//! Both use its defaults: minimum alignment 1, a first chunk of 512 bytes, and chunks that double.
//! The chunks come from the global allocator, which here is the system's. A reset keeps the newest
//! chunk, which is the largest, so a thread keeps what its largest task needed.
//!
//! # Invariant
//!
//! A block is used with the `Bump` that it came from: a task hands out only blocks of its own
//! `Bump`, and its callers return only blocks that they got from it.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use ::bumpalo::Bump;
use allocator_api2::alloc::Allocator as _;

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AllocatorKind, Task};

const ORIGIN: &str = "bumpalo 3.20.3";

/// `bumpalo`: a new `Bump` for each task.
pub(crate) struct NewBump;

/// A task with a `Bump` of its own.
pub(crate) struct NewBumpTask(Bump);

/// `bumpalo-reset`: one `Bump` for each thread.
pub(crate) struct ResetBump(Bump);

/// A task that borrows its thread's `Bump`.
pub(crate) struct ResetBumpTask<'t>(&'t mut Bump);

impl Listed for NewBump {
    const ABOUT: About = About::peer(
        AllocatorKind::Arena,
        "bumpalo",
        ORIGIN,
        "every chunk goes back to the C library's malloc when its task ends",
    );
}

impl Allocator for NewBump {
    type Task<'t> = NewBumpTask;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn begin(&mut self) -> NewBumpTask {
        NewBumpTask(Bump::new())
    }
}

impl Listed for ResetBump {
    const ABOUT: About = About::peer(
        AllocatorKind::Arena,
        "bumpalo-reset",
        ORIGIN,
        "each thread keeps its newest and largest chunk; the others go back to the C library's malloc when \
         a task ends",
    );
}

impl Allocator for ResetBump {
    type Task<'t> = ResetBumpTask<'t>;

    fn start() -> Self {
        Self(Bump::new())
    }

    #[inline]
    fn begin(&mut self) -> ResetBumpTask<'_> {
        ResetBumpTask(&mut self.0)
    }
}

impl Drop for ResetBumpTask<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.reset();
    }
}

/// The calls, the same for both tasks.
trait Bumps {
    fn bump(&self) -> &Bump;
}

impl Bumps for NewBumpTask {
    #[inline]
    fn bump(&self) -> &Bump {
        &self.0
    }
}

impl Bumps for ResetBumpTask<'_> {
    #[inline]
    fn bump(&self) -> &Bump {
        self.0
    }
}

impl<B: Bumps> Task for B {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.bump().alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.bump().deallocate(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that `new_size` is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        // SAFETY: the invariant above, and the caller's promise that the block is live with the
        // layout `old` and that the new size is no smaller.
        match unsafe { self.bump().grow(ptr, old, new) } {
            Ok(grown) => grown.cast(),
            Err(_) => handle_alloc_error(new),
        }
    }
}
