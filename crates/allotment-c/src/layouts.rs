//! Sizes and alignments as C passes them: a size of zero counts as one byte, and both may be
//! invalid.

use core::alloc::Layout;

use allotment::{AllocError, ErrorKind};

/// The alignment of memory for calls without an alignment parameter.
pub(crate) const DEFAULT_ALIGN: usize = 16;

/// The layout of one object.
#[inline]
pub(crate) fn layout_of(size: usize, align: usize) -> Result<Layout, AllocError> {
    if !align.is_power_of_two() {
        return Err(AllocError::new(ErrorKind::BadAlignment, align));
    }
    Layout::from_size_align(size.max(1), align)
        .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, size))
}

/// The largest size that fast paths serve, in bytes.
pub(crate) const MAX_FAST_BYTES: usize = 1024;

/// The layout of an object whose size and alignment fast paths serve. The slow path handles all
/// others.
#[inline(always)]
pub(crate) fn fast_layout(size: usize, align: usize) -> Option<Layout> {
    // The bits of 1, 2, 4, 8 and 16.
    const ALIGNS: u32 = 0x1_0116;
    if size.wrapping_sub(1) < MAX_FAST_BYTES && align <= DEFAULT_ALIGN && (ALIGNS >> align) & 1 != 0
    {
        // SAFETY: a power of two, and a size far below the end of the address space.
        return Some(unsafe { Layout::from_size_align_unchecked(size, align) });
    }
    None
}

/// The layout of `count` adjacent objects of `size` bytes, at the default alignment.
#[inline]
pub(crate) fn layout_of_many(count: usize, size: usize) -> Result<Layout, AllocError> {
    layout_of(bytes_of_many(count, size)?, DEFAULT_ALIGN)
}

/// The bytes of `count` objects of `size` bytes. If the product overflows, the error's number of
/// bytes is `usize::MAX`.
#[inline]
pub(crate) fn bytes_of_many(count: usize, size: usize) -> Result<usize, AllocError> {
    count.checked_mul(size).ok_or(AllocError::new(ErrorKind::SizeOverflow, usize::MAX))
}
