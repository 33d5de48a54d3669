//! `rpmalloc`, with its plain entry points: `rpmalloc` if its alignment suffices, otherwise the
//! aligned variant. (Its crate's `GlobalAlloc` always calls the aligned variants, which are a third
//! slower, and has no realloc.)
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem;
use std::sync::Once;

use rpmalloc_sys as rp;

use super::{Heap, Malloc, plain, zeroed_by_writing};
use crate::peers::{About, PeerKind};

pub(crate) type Rpmalloc = Malloc<RpmallocCalls>;

// The crate declares this function without the parameter that it has in the version that the crate
// builds.
unsafe extern "C" {
    /// Hands the calling thread's heap to the next thread that enters. If `release_caches` is not
    /// zero, the heap's caches go to the global cache.
    fn rpmalloc_thread_finalize(release_caches: c_int);
}

/// rpmalloc's alignments are smaller than a span, which has 64 KiB.
const MAX_ALIGN: usize = 32 << 10;

pub(crate) enum RpmallocCalls {}

/// A thread's entry into rpmalloc, which gives it a heap. Nested entries of one thread share the
/// heap. The first entry to be dropped removes it, and the next call through another entry gets a
/// new heap.
pub(crate) struct Entered(PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: the thread was initialised when this value was made.
        unsafe { rpmalloc_thread_finalize(1) }
    }
}

impl Heap for RpmallocCalls {
    const ABOUT: About = About::peer(
        PeerKind::Malloc,
        "rpmalloc",
        "rpmalloc 1.4.3, from rpmalloc-sys 0.2.3",
        "rpmalloc's defaults: free spans are cached per thread and globally, up to a fixed number of each \
         size; the rest is unmapped",
    );

    type Entered = Entered;

    fn enter() -> Entered {
        static INITIALISED: Once = Once::new();
        // SAFETY: called once, before any other call; `Once` orders it before the calls of other
        // threads.
        INITIALISED.call_once(|| assert_eq!(unsafe { rp::rpmalloc_initialize() }, 0));
        // SAFETY: rpmalloc is initialised; the call does nothing for a thread that has a heap.
        unsafe { rp::rpmalloc_thread_initialize() };
        Entered(PhantomData)
    }

    /// rpmalloc does this by itself if it is built for preloading, which would replace malloc. As
    /// there, no other thread gets the heap of a thread that ended.
    #[inline]
    fn enter_for_good() {
        thread_local! {
            static HAS_A_HEAP: Cell<bool> = const { Cell::new(false) };
        }
        if !HAS_A_HEAP.get() {
            mem::forget(Self::enter());
            HAS_A_HEAP.set(true);
        }
    }

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: the thread has a heap (invariant 3).
            return unsafe { rp::rpmalloc(layout.size()) }.cast();
        }
        assert!(layout.align() <= MAX_ALIGN, "rpmalloc aligns to {MAX_ALIGN} bytes at most");
        let align = layout.align().max(size_of::<usize>());
        // SAFETY: the thread has a heap (invariant 3); the alignment is a power of two, at least a
        // pointer's size and less than a span.
        unsafe { rp::rpaligned_alloc(align, layout.size()) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: the thread has a heap (invariant 3).
            return unsafe { rp::rpcalloc(1, layout.size()) }.cast();
        }
        // SAFETY: the same promise as the caller's.
        unsafe { zeroed_by_writing::<Self>(layout) }
    }

    #[inline]
    unsafe fn free(block: *mut u8, _: Layout) {
        // SAFETY: the block came from this heap (invariant 2).
        unsafe { rp::rpfree(block.cast()) }
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the thread has a heap (invariant 3), the block came from one (invariant 2); an
        // alignment that is not plain passed the test of `alloc`.
        unsafe {
            if plain(new_size, old.align()) {
                rp::rprealloc(block.cast(), new_size)
            } else {
                let align = old.align().max(size_of::<usize>());
                rp::rpaligned_realloc(block.cast(), align, new_size, old.size(), 0)
            }
        }
        .cast()
    }
}
