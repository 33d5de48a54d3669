//! `mimalloc-heap`: a mimalloc heap for each task, destroyed as a whole at the task's end.
//!
//! In mimalloc 3 any thread may use any heap, and each call finds the thread's own part of it. A
//! task stays on its thread, so the row gets that part once and allocates from it
//! (`mi_theap_malloc`), as mimalloc's header advises for runtimes. This is 5 % faster.
//!
//! # Invariants
//!
//! Beside that of [`arena`](crate::peers::arena):
//!
//! 1. `heap` is live from `create` until the value is dropped. So is `part`, the current thread's
//!    part of the heap, because the value can't leave its thread.
//! 2. A block is freed before its heap is dropped, or not at all.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use libmimalloc_sys as mi;

use super::{ArenaPerTask, TaskArena};
use crate::peers::about::Listed;
use crate::peers::malloc::mimalloc::ORIGIN;
use crate::peers::malloc::plain;
use crate::peers::{About, PeerKind};

// From mimalloc 3's `mimalloc.h`. The crate links these functions, but does not declare all of
// them.
unsafe extern "C" {
    fn mi_heap_new() -> *mut c_void;
    fn mi_heap_destroy(heap: *mut c_void);
    fn mi_heap_realloc_aligned(
        heap: *mut c_void,
        block: *mut c_void,
        new_size: usize,
        align: usize,
    ) -> *mut c_void;
    fn mi_heap_theap(heap: *mut c_void) -> *mut c_void;
    fn mi_theap_malloc(part: *mut c_void, size: usize) -> *mut c_void;
    fn mi_theap_malloc_aligned(part: *mut c_void, size: usize, align: usize) -> *mut c_void;
    fn mi_theap_realloc(part: *mut c_void, block: *mut c_void, new_size: usize) -> *mut c_void;
}

/// A heap for one task.
pub(crate) struct MimallocHeap {
    heap: NonNull<c_void>,
    part: NonNull<c_void>,
    /// The part belongs to the thread, so the value must not leave the thread.
    _not_send: PhantomData<*const ()>,
}

impl Listed for ArenaPerTask<MimallocHeap> {
    const ABOUT: About = About {
        frees_within_tasks: true,
        ..About::peer(
            PeerKind::Arena,
            "mimalloc-heap",
            ORIGIN,
            "a heap is destroyed when its task ends; its pages are decommitted after a second (purge_delay \
             1000 ms)",
        )
    };
}

impl Drop for MimallocHeap {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the heap is live, and no block of it is used after (invariants 1 and 2).
        unsafe { mi_heap_destroy(self.heap.as_ptr()) }
    }
}

impl TaskArena for MimallocHeap {
    #[inline]
    fn create() -> Self {
        // SAFETY: may be called on any thread at any time.
        let heap = NonNull::new(unsafe { mi_heap_new() }).expect("memory for a heap of mimalloc's");
        // SAFETY: the heap is live.
        let part = NonNull::new(unsafe { mi_heap_theap(heap.as_ptr()) })
            .expect("memory for a thread's part of a heap");
        Self { heap, part, _not_send: PhantomData }
    }

    #[inline]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        let part = self.part.as_ptr();
        // SAFETY: the part is live and this thread's (invariant 1); the alignment is a power of
        // two.
        let block = unsafe {
            if plain(layout.size(), layout.align()) {
                mi_theap_malloc(part, layout.size())
            } else {
                mi_theap_malloc_aligned(part, layout.size(), layout.align())
            }
        };
        NonNull::new(block.cast()).unwrap_or_else(|| handle_alloc_error(layout))
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the block is live and mimalloc's: the caller's promise.
        unsafe { mi::mi_free(block.as_ptr().cast()) }
    }

    #[inline]
    unsafe fn grow(&self, block: NonNull<u8>, _: Layout, new: Layout) -> NonNull<u8> {
        let block = block.as_ptr().cast();
        // SAFETY: heap and part are live and this thread's (invariant 1), and the block is the
        // heap's: the caller's promise.
        let grown = unsafe {
            if plain(new.size(), new.align()) {
                mi_theap_realloc(self.part.as_ptr(), block, new.size())
            } else {
                mi_heap_realloc_aligned(self.heap.as_ptr(), block, new.size(), new.align())
            }
        };
        NonNull::new(grown.cast()).unwrap_or_else(|| handle_alloc_error(new))
    }
}
