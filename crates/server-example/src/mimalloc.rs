//! mimalloc as a global allocator.
//!
//! The crate `mimalloc` has one too, which always makes the aligned calls. They are slower than the
//! plain ones, and the benchmark compares with mimalloc at its best.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// The alignment of `mi_malloc`'s blocks, unless they are smaller than that.
const ALIGN: usize = 16;

/// mimalloc with its defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mimalloc;

/// Whether `mi_malloc` aligns a block of this size enough.
#[inline(always)]
fn is_plain(size: usize, align: usize) -> bool {
    align <= ALIGN && align <= size
}

// SAFETY: mimalloc keeps malloc's contract: a non-null block is fresh, has the requested size and
// alignment, and stays until it is freed or resized. `mi_free` and `mi_realloc` take every block,
// whichever call allocated it.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: any size is allowed, and a layout's alignment is a power of two.
        let block = unsafe {
            if is_plain(size, align) {
                mi::mi_malloc(size)
            } else {
                mi::mi_malloc_aligned(size, align)
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        let block = unsafe {
            if is_plain(size, align) {
                mi::mi_zalloc(size)
            } else {
                mi::mi_zalloc_aligned(size, align)
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller promises that the block came from this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, old: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the block came from this allocator; the alignment is a
        // power of two.
        let block = unsafe {
            if is_plain(new_size, old.align()) {
                mi::mi_realloc(block.cast(), new_size)
            } else {
                mi::mi_realloc_aligned(block.cast(), new_size, old.align())
            }
        };
        block.cast()
    }
}
