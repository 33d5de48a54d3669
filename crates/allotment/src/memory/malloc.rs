//! The system's malloc, independent of the program's global allocator. Without the feature `std` it
//! is the global allocator: nothing else is known.

use core::alloc::Layout;
use core::ptr::NonNull;
#[cfg(feature = "std")]
use std::alloc::{GlobalAlloc, System};

/// A block of this layout, whose size is not zero. `None` if there is no memory.
pub(crate) fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    assert!(layout.size() > 0);
    // SAFETY: the size is not zero.
    #[cfg(feature = "std")]
    let block = unsafe { System.alloc(layout) };
    // SAFETY: as above.
    #[cfg(not(feature = "std"))]
    let block = unsafe { alloc::alloc::alloc(layout) };
    NonNull::new(block)
}

/// Frees a block.
///
/// # Safety
/// The block came from [`alloc`] with this layout, is freed once, and nothing refers to it.
pub(crate) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    // SAFETY: guaranteed by the caller.
    #[cfg(feature = "std")]
    unsafe {
        System.dealloc(block.as_ptr(), layout);
    }
    // SAFETY: guaranteed by the caller.
    #[cfg(not(feature = "std"))]
    unsafe {
        alloc::alloc::dealloc(block.as_ptr(), layout);
    }
}
