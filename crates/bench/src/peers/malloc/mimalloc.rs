//! `mimalloc`: `mi_malloc` if its alignment suffices, otherwise its aligned variant. (Its crate's
//! `GlobalAlloc` always calls the aligned variant, which is up to a tenth slower.)
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;

use libmimalloc_sys as mi;

use super::{Heap, Malloc, plain};
use crate::peers::{About, PeerKind};

pub(crate) type Mimalloc = Malloc<MimallocCalls>;

pub(crate) const ORIGIN: &str = "mimalloc 3.3.2, from libmimalloc-sys 0.1.49";

// From mimalloc's `mimalloc.h`. The crate links it, but declares it only with more of its features.
unsafe extern "C" {
    /// Releases what the calling thread's heap keeps; with `force`, everything that can be
    /// released.
    fn mi_collect(force: bool);
}

pub(crate) enum MimallocCalls {}

impl Heap for MimallocCalls {
    const ABOUT: About = About::peer(
        PeerKind::Malloc,
        "mimalloc",
        ORIGIN,
        "mimalloc's defaults: unused pages are decommitted after a second (purge_delay 1000 ms)",
    );

    type Entered = ();

    fn enter() {}

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: mi_malloc takes any size.
            return unsafe { mi::mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: the alignment is a power of two.
        unsafe { mi::mi_malloc_aligned(layout.size(), layout.align()) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: mi_zalloc takes any size.
            return unsafe { mi::mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: the alignment is a power of two.
        unsafe { mi::mi_zalloc_aligned(layout.size(), layout.align()) }.cast()
    }

    #[inline]
    unsafe fn free(block: *mut u8, _: Layout) {
        // SAFETY: the block came from this heap (invariant 2).
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the block came from this heap (invariant 2).
        unsafe {
            if plain(new_size, old.align()) {
                mi::mi_realloc(block.cast(), new_size)
            } else {
                mi::mi_realloc_aligned(block.cast(), new_size, old.align())
            }
        }
        .cast()
    }

    unsafe fn trim() -> bool {
        // SAFETY: may be called on any thread at any time.
        unsafe { mi_collect(true) };
        true
    }
}
