//! `allotment-reap`: a new `Reap` for each task, with its defaults. It frees its objects when it is
//! dropped, and one by one if the work does so.
//!
//! The invariant is that of [`arena`](crate::peers::arena).

use std::alloc::Layout;
use std::ptr::NonNull;

use allotment::Reap;

use super::{ArenaPerTask, TaskArena};
use crate::peers::about::Listed;
use crate::peers::{About, PeerKind};

impl Listed for ArenaPerTask<Reap> {
    const ABOUT: About = About {
        ours: true,
        frees_within_tasks: true,
        ..About::peer(
            PeerKind::Arena,
            "allotment-reap",
            "allotment, this workspace's library",
            "adaptive: chunks stay warm for later tasks of any thread; unused memory is released",
        )
    };
}

impl TaskArena for Reap {
    #[inline]
    fn create() -> Self {
        Self::new()
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.alloc_layout(layout)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.free_layout(block, layout) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(block, old, new) }
    }

    #[inline(always)]
    fn put<V>(&self, value: V) -> NonNull<V> {
        NonNull::from(Self::alloc(self, value))
    }

    #[inline(always)]
    fn put_str(&self, text: &str) -> NonNull<u8> {
        NonNull::from(self.alloc_str(text)).cast()
    }
}
