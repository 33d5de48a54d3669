//! Raw layouts: what malloc-shaped callers need.
//!
//! # Invariant
//!
//! As in `typed.rs`: memory is the caller's alone until it is freed, rewound or reset.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::Arena;
use crate::error::{Abort, AllocError, ErrorKind, OnFailure, Report, always};
use crate::memory::home::Home;

/// The alignment of memory whose caller does not say one.
const DEFAULT_ALIGN: usize = 16;

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    pub(super) fn zeroed_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        let (place, zeroed) = self.raw.alloc_maybe_zeroed::<F, MIN_ALIGN>(layout)?;
        if !zeroed {
            // SAFETY: memory of this layout, the caller's alone.
            unsafe { place.write_bytes(0, layout.size()) };
        }
        Ok(place)
    }

    fn calloc_or<F: OnFailure>(&self, count: usize, size: usize) -> Result<&mut [u8], F::Error> {
        let layout = count
            .checked_mul(size)
            .and_then(|bytes| Layout::from_size_align(bytes, DEFAULT_ALIGN).ok())
            .ok_or_else(|| F::fail(AllocError::new(ErrorKind::SizeOverflow, size)))?;
        let place = self.zeroed_or::<F>(layout)?;
        // SAFETY: `layout.size()` zeroed bytes, lent as long as the arena is borrowed.
        Ok(unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), layout.size()) })
    }

    /// Memory of this layout, uninitialised. A size of zero takes none: the address is aligned and dangling.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        always(self.raw.alloc::<Abort, MIN_ALIGN>(layout))
    }

    /// [`alloc_layout`](Self::alloc_layout), or the reason why not.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.raw.alloc::<Report, MIN_ALIGN>(layout)
    }

    /// Zeroed memory of this layout.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_layout_zeroed(&self, layout: Layout) -> NonNull<u8> {
        always(self.zeroed_or::<Abort>(layout))
    }

    /// [`alloc_layout_zeroed`](Self::alloc_layout_zeroed), or the reason why not.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_layout_zeroed(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.zeroed_or::<Report>(layout)
    }

    /// `count` times `size` zeroed bytes at an alignment of 16: calloc.
    ///
    /// # Panics
    /// Aborts when the product overflows, and as [`alloc`](Self::alloc).
    pub fn calloc(&self, count: usize, size: usize) -> &mut [u8] {
        always(self.calloc_or::<Abort>(count, size))
    }

    /// [`calloc`](Self::calloc), or the reason why not.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`] when the product overflows; else as [`try_alloc`](Self::try_alloc).
    pub fn try_calloc(&self, count: usize, size: usize) -> Result<&mut [u8], AllocError> {
        self.calloc_or::<Report>(count, size)
    }

    /// Memory of a size and an alignment that come from elsewhere and may be nonsense.
    ///
    /// # Errors
    /// [`ErrorKind::BadAlignment`] for one that is no power of two, [`ErrorKind::SizeOverflow`] for a size
    /// that does not fit with it; else as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_bytes(&self, size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
        if !align.is_power_of_two() {
            return Err(AllocError::new(ErrorKind::BadAlignment, align));
        }
        match Layout::from_size_align(size, align) {
            Ok(layout) => self.try_alloc_layout(layout),
            Err(_) => Err(AllocError::new(ErrorKind::SizeOverflow, size)),
        }
    }

    /// Frees one object early. The last one allocated gives its bytes back to the arena; an earlier one only
    /// counts as gone. In a scope, an object from outside it stays as it is.
    ///
    /// # Safety
    /// The object came from this arena (allocated, or last grown or shrunk, with this layout), was not freed,
    /// rewound or reset, and nothing refers to it any more.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.raw.free::<MIN_ALIGN>(object, layout) }
    }

    /// Makes an object larger: in place if it is the last one and its chunk has room, else it moves.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of the old layout; `new.size() >= old.size()`. In a scope, the object is of
    /// that scope. If the address returned is another one, the old object is freed.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub unsafe fn grow(&self, object: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: passed on to the caller.
        always(unsafe { self.raw.grow::<Abort, MIN_ALIGN>(object, old, new) })
    }

    /// [`grow`](Self::grow), or the reason why not; the object is as it was then.
    ///
    /// # Safety
    /// As for [`grow`](Self::grow).
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub unsafe fn try_grow(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe { self.raw.grow::<Report, MIN_ALIGN>(object, old, new) }
    }

    /// Makes an object smaller, in place unless a larger alignment makes it move. The last one gives the
    /// difference back to the arena.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of the old layout; `new.size() <= old.size()`. In a scope, the object is of
    /// that scope.
    ///
    /// # Errors
    /// Only if it has to move: as [`try_alloc`](Self::try_alloc). The object is as it was then.
    #[inline]
    pub unsafe fn try_shrink(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: passed on to the caller.
        unsafe { self.raw.shrink::<Report, MIN_ALIGN>(object, old, new) }
    }
}

// SAFETY: an object stays until it is freed, or the arena is reset, rewound or dropped, which a borrow of it prevents as long
// as a collection has one. An object of size zero is dangling. Nothing unwinds.
unsafe impl<const MIN_ALIGN: usize> Home for &Arena<MIN_ALIGN> {
    #[inline]
    fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.raw.alloc::<F, MIN_ALIGN>(layout)
    }

    #[inline]
    fn alloc_zeroed(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.zeroed_or::<Report>(layout)
    }

    #[inline]
    unsafe fn free(self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { self.raw.free::<MIN_ALIGN>(object, layout) }
    }

    #[inline]
    unsafe fn resize<F: OnFailure>(
        self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: passed on to the caller.
        unsafe {
            if new.size() >= old.size() {
                self.raw.grow::<F, MIN_ALIGN>(object, old, new)
            } else {
                self.raw.shrink::<F, MIN_ALIGN>(object, old, new)
            }
        }
    }
}
