//! `glibc`: the C library's own malloc. If the C library is not glibc, the row is called `libc`, so
//! that musl's malloc is not mistaken for glibc's.
//!
//! Rust's `System` allocator makes the same calls. The row makes them itself, so it does not depend
//! on a program's global allocator.
//!
//! The invariants are those of [`malloc`](crate::peers::malloc).

use std::alloc::Layout;
use std::ptr;

use super::{Heap, Malloc, plain, resize_by_copy, zeroed_by_writing};
use crate::peers::{About, PeerKind};

pub(crate) type Libc = Malloc<LibcCalls>;

pub(crate) const NAME: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };

pub(crate) enum LibcCalls {}

impl Heap for LibcCalls {
    const ABOUT: About = About::peer(
        PeerKind::Malloc,
        NAME,
        "this system's C library",
        if cfg!(target_env = "gnu") {
            "glibc's defaults: the top of the heap is released once 128 KiB of it are free (the threshold \
             adapts); each block of 128 KiB or more has a mapping of its own"
        } else {
            "the C library's defaults"
        },
    );

    type Entered = ();

    fn enter() {}

    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: malloc takes any size.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut block = ptr::null_mut();
        let align = layout.align().max(size_of::<usize>());
        // SAFETY: `align` is a power of two and a multiple of a pointer's size; `block` is ours.
        match unsafe { libc::posix_memalign(&mut block, align, layout.size()) } {
            0 => block.cast(),
            _ => ptr::null_mut(),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        if plain(layout.size(), layout.align()) {
            // SAFETY: calloc takes any size.
            return unsafe { libc::calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the same promise as the caller's.
        unsafe { zeroed_by_writing::<Self>(layout) }
    }

    #[inline]
    unsafe fn free(block: *mut u8, _: Layout) {
        // SAFETY: the block came from this malloc (invariant 2).
        unsafe { libc::free(block.cast()) }
    }

    #[inline]
    unsafe fn resize(block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        if plain(new_size, old.align()) {
            // SAFETY: the block came from this malloc (invariant 2), and `new_size` is not zero.
            return unsafe { libc::realloc(block.cast(), new_size) }.cast();
        }
        // SAFETY: the same promise as the caller's.
        unsafe { resize_by_copy::<Self>(block, old, new_size) }
    }

    #[cfg(target_env = "gnu")]
    unsafe fn trim() -> bool {
        // SAFETY: may be called at any time.
        unsafe { libc::malloc_trim(0) };
        true
    }
}
