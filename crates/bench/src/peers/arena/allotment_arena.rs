//! Our own arena: `allotment-arena` with its defaults, and `mmap-per-query`, the same arena without
//! recycling.
//!
//! The second works as the arena's ancestor did: each task maps its chunks, faults in every page
//! and unmaps all chunks. It is listed among the peers, to show the effect of the recycler.
//!
//! # Invariant
//!
//! A block is used with the arena that it came from: a task hands out only blocks of its own arena,
//! and its callers return only blocks that they got from it.

use std::alloc::Layout;
use std::ptr::NonNull;

use allotment::{Arena, Mmap, Release};

use crate::peers::about::Listed;
use crate::peers::{About, Allocator, AllocatorKind, Task};

/// `allotment-arena`: a new arena for each task.
pub(crate) struct NewArena;

/// `mmap-per-query`: a new arena for each task. Nothing is kept between tasks.
pub(crate) struct MmapPerQuery;

/// A task with an arena of its own.
pub(crate) struct ArenaTask(Arena);

impl Listed for NewArena {
    const ABOUT: About = About {
        ours: true,
        ..About::peer(
            AllocatorKind::Arena,
            "allotment-arena",
            "allotment, this workspace's library",
            "adaptive: chunks stay warm for later tasks of any thread, with huge pages beyond 2 MiB; unused \
             memory is released",
        )
    };
}

impl Allocator for NewArena {
    type Task<'t> = ArenaTask;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn begin(&mut self) -> ArenaTask {
        ArenaTask(Arena::new())
    }
}

impl Listed for MmapPerQuery {
    const ABOUT: About = About::peer(
        AllocatorKind::Arena,
        "mmap-per-query",
        "allotment's arena with recycling and huge pages off",
        "at once: every chunk is unmapped when its task ends",
    );
}

impl Allocator for MmapPerQuery {
    type Task<'t> = ArenaTask;

    fn start() -> Self {
        Self
    }

    #[inline]
    fn begin(&mut self) -> ArenaTask {
        ArenaTask(Arena::builder().source(Mmap::small_pages()).release(Release::AtOnce).build())
    }
}

impl Task for ArenaTask {
    const FREED_TOGETHER: bool = true;

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the invariant above, and the caller's promise that the block is live with this
        // layout.
        unsafe { self.0.free(ptr, layout) }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises that `new_size` is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, old.align()) };
        // SAFETY: the invariant above, and the caller's promise that the block is live with the
        // layout `old` and that the new size is no smaller.
        unsafe { self.0.grow(ptr, old, new) }
    }
}
