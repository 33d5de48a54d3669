//! Sizes and alignments as C passes them: a size of zero counts as one byte, and both may be nonsense.

use core::alloc::Layout;

use allotment::{AllocError, ErrorKind};

/// The alignment of memory whose caller does not say one.
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

/// The layout of `count` objects of `size` bytes behind each other, at the usual alignment.
#[inline]
pub(crate) fn layout_of_many(count: usize, size: usize) -> Result<Layout, AllocError> {
    match count.checked_mul(size) {
        Some(bytes) => layout_of(bytes, DEFAULT_ALIGN),
        None => Err(AllocError::new(ErrorKind::SizeOverflow, size)),
    }
}
