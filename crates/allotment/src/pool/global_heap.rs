//! The program's global heap: its global allocator, called outside every pool.
//!
//! The global allocator may be a `PoolGlobalAlloc`, which prefers the thread's current pool. So
//! each call first leaves the current pool.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::current::CurrentPoolGuard;
use crate::error::{AllocError, ErrorKind};

#[cold]
#[inline(never)]
pub(super) fn global_alloc(layout: Layout) -> Result<NonNull<u8>, AllocError> {
    let _outside = CurrentPoolGuard::outside();
    // SAFETY: the size is not zero.
    let block = unsafe { std::alloc::alloc(at_least_one_byte(layout)) };
    NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, layout.size()))
}

/// # Safety
/// The block belongs to the global heap, was allocated with this layout, and has not been freed.
#[cold]
#[inline(never)]
pub(super) unsafe fn global_free(block: NonNull<u8>, layout: Layout) {
    let _outside = CurrentPoolGuard::outside();
    // SAFETY: passed on to the caller.
    unsafe { std::alloc::dealloc(block.as_ptr(), at_least_one_byte(layout)) }
}

/// # Safety
/// As for [`global_free`]; the new size is valid for the alignment.
#[cold]
#[inline(never)]
pub(super) unsafe fn global_resize(
    block: NonNull<u8>,
    old: Layout,
    new_size: usize,
) -> Result<NonNull<u8>, AllocError> {
    let _outside = CurrentPoolGuard::outside();
    let (old, nonzero_size) = (at_least_one_byte(old), new_size.max(1));
    // SAFETY: passed on to the caller; the size is not zero.
    let block = unsafe { std::alloc::realloc(block.as_ptr(), old, nonzero_size) };
    NonNull::new(block).ok_or(AllocError::new(ErrorKind::SourceRefused, new_size))
}

/// The layout with a size of at least one byte: the global allocator accepts no size of zero.
fn at_least_one_byte(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}
