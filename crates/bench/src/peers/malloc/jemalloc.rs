//! `jemalloc`, called as its crate's `GlobalAlloc` calls it: `malloc` if its alignment suffices,
//! `mallocx` otherwise, and sized frees.
//!
//! The crate builds it with its own configure and make, with the prefix `_rjem_` on every name, and
//! without statistics.
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;
use std::ptr;

use tikv_jemalloc_sys as je;

use super::{Heap, Malloc, plain};
use crate::peers::{About, PeerKind};

pub(crate) type Jemalloc = Malloc<JemallocCalls>;

pub(crate) enum JemallocCalls {}

/// The flags of the `...x` calls: the alignment, if malloc would not provide it.
#[inline(always)]
fn flags(size: usize, align: usize) -> i32 {
    if plain(size, align) { 0 } else { je::MALLOCX_ALIGN(align) }
}

impl Heap for JemallocCalls {
    const ABOUT: About = About::peer(
        PeerKind::Malloc,
        "jemalloc",
        "jemalloc 5.3.1, from tikv-jemalloc-sys 0.7.1",
        "jemalloc's defaults: unused pages are released over ten seconds (dirty_decay_ms 10000, \
         muzzy_decay_ms 0); no background thread",
    );

    type Entered = ();

    fn enter() {}

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: malloc takes any size.
            return unsafe { je::malloc(layout.size()) }.cast();
        }
        // SAFETY: the size is not zero, the alignment a power of two.
        unsafe { je::mallocx(layout.size().max(1), je::MALLOCX_ALIGN(layout.align())) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: calloc takes any size.
            return unsafe { je::calloc(1, layout.size()) }.cast();
        }
        let flags = je::MALLOCX_ALIGN(layout.align()) | je::MALLOCX_ZERO;
        // SAFETY: the size is not zero, the alignment a power of two.
        unsafe { je::mallocx(layout.size(), flags) }.cast()
    }

    #[inline]
    unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: the block came from this heap (invariant 2) for the same size and flags.
        unsafe {
            je::sdallocx(block.cast(), layout.size().max(1), flags(layout.size(), layout.align()));
        }
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the block came from this heap (invariant 2), and `new_size` is not zero.
        unsafe {
            match flags(new_size, old.align()) {
                0 => je::realloc(block.cast(), new_size),
                flags => je::rallocx(block.cast(), new_size, flags),
            }
        }
        .cast()
    }

    unsafe fn trim() -> bool {
        // Flushes this thread's cache, then purges the unused pages of all arenas (4096 means all
        // of them).
        for command in [c"thread.tcache.flush", c"arena.4096.purge"] {
            // SAFETY: a command that neither reads nor writes a value.
            let failed = unsafe {
                je::mallctl(command.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
            };
            assert_eq!(failed, 0, "jemalloc knows {command:?}");
        }
        true
    }
}
