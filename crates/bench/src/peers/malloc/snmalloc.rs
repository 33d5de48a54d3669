//! `snmalloc`, with its entry points for Rust. All of them take alignment and size.
//!
//! If its crate does not use cmake, it compiles snmalloc without `NDEBUG`, even for a release, and
//! the assertions halve the speed. The workspace therefore sets that flag for every C++ peer. A
//! build without the flag prints a warning, and the row says so.
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;

use snmalloc_sys as sn;

use super::{Heap, Malloc};
use crate::peers::{About, PeerKind};

pub(crate) type Snmalloc = Malloc<SnmallocCalls>;

pub(crate) enum SnmallocCalls {}

impl Heap for SnmallocCalls {
    const ABOUT: About = About {
        handicap: || {
            cfg!(cxx_assertions).then_some(
                "snmalloc was built with its assertions; rebuild it with -DNDEBUG in CXXFLAGS",
            )
        },
        ..About::peer(
            PeerKind::Malloc,
            "snmalloc",
            "snmalloc 0.7, from snmalloc-sys 0.7.6",
            "snmalloc's defaults: unused chunks are cached per thread, then globally; only large ranges are \
             decommitted",
        )
    };

    type Entered = ();

    fn enter() {}

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { sn::sn_rust_alloc(layout.align(), layout.size()) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        // SAFETY: the alignment is a power of two.
        unsafe { sn::sn_rust_alloc_zeroed(layout.align(), layout.size()) }.cast()
    }

    #[inline]
    unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: the block came from this heap (invariant 2) with the same alignment and size.
        unsafe { sn::sn_rust_dealloc(block.cast(), layout.align(), layout.size()) };
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the block came from this heap (invariant 2) with the same alignment and size.
        unsafe { sn::sn_rust_realloc(block.cast(), old.align(), old.size(), new_size) }.cast()
    }
}
