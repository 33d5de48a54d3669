//! Bytes, for callers that need an interface like C's; an arena as a source of blocks.
//!
//! # Invariant
//!
//! As in `typed.rs`: memory belongs to the caller alone until it is freed, rewound or reset.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::typed::Arena;
use crate::collections::BlockSource;
use crate::error::{
    AllocError, ErrorKind, OnFailure, OnRefusal, PanicOrAbort, ReturnError, always,
};

/// The alignment of memory for callers that give none.
const DEFAULT_ALIGN: usize = 16;

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    pub(super) fn zeroed_or<F: OnFailure>(&self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        let (memory, zeroed) = self.raw.alloc_maybe_zeroed::<F, MIN_ALIGN>(layout)?;
        if !zeroed {
            // SAFETY: memory of this layout, which belongs to the caller alone.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        Ok(memory)
    }

    fn calloc_or<F: OnFailure>(&self, count: usize, size: usize) -> Result<&mut [u8], F::Error> {
        let layout = count
            .checked_mul(size)
            .and_then(|bytes| Layout::from_size_align(bytes, DEFAULT_ALIGN).ok())
            .ok_or_else(|| F::fail(AllocError::new(ErrorKind::SizeOverflow, size)))?;
        let memory = self.zeroed_or::<F>(layout)?;
        // SAFETY: `layout.size()` zeroed bytes, lent for as long as the arena is borrowed.
        Ok(unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), layout.size()) })
    }
}

/// # Allocate bytes
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Allocates `count * size` zeroed bytes with an alignment of 16, like calloc.
    ///
    /// # Panics
    /// If the product overflows, or as [`alloc`](Self::alloc).
    pub fn calloc(&self, count: usize, size: usize) -> &mut [u8] {
        always(self.calloc_or::<PanicOrAbort>(count, size))
    }

    /// Like [`calloc`](Self::calloc), but returns an error instead of panicking or ending the
    /// process.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`] if the product overflows; otherwise as
    /// [`try_alloc`](Self::try_alloc).
    pub fn try_calloc(&self, count: usize, size: usize) -> Result<&mut [u8], AllocError> {
        self.calloc_or::<ReturnError>(count, size)
    }

    /// Allocates memory of a size and an alignment that come from elsewhere and may be invalid.
    ///
    /// # Errors
    /// [`ErrorKind::BadAlignment`] if the alignment is not a power of two;
    /// [`ErrorKind::SizeOverflow`] if size and alignment don't fit the address space; otherwise as
    /// [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_bytes(&self, size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
        if !align.is_power_of_two() {
            return Err(AllocError::new(ErrorKind::BadAlignment, align));
        }
        match Layout::from_size_align(size, align) {
            Ok(layout) => self.try_alloc_layout(layout),
            Err(_) => Err(AllocError::new(ErrorKind::SizeOverflow, size)),
        }
    }
}

// SAFETY: an object stays valid until it is freed, or until the arena is reset, rewound or dropped.
// A collection borrows the arena, which prevents the latter three. An object of size zero is
// dangling. A call that unwinds does so before it changes anything.
unsafe impl<const MIN_ALIGN: usize> BlockSource for &Arena<MIN_ALIGN> {
    #[inline]
    fn alloc<F: OnFailure>(self, layout: Layout) -> Result<NonNull<u8>, F::Error> {
        self.raw.alloc::<F, MIN_ALIGN>(layout)
    }

    #[inline]
    fn alloc_zeroed(self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.zeroed_or::<ReturnError>(layout)
    }

    #[inline]
    unsafe fn free(self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.free::<MIN_ALIGN>(object, layout) }
    }

    fn on_refusal(self) -> OnRefusal {
        self.raw.settings().common.on_refusal
    }

    #[inline]
    unsafe fn resize<F: OnFailure>(
        self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, F::Error> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if new.size() >= old.size() {
                self.raw.grow::<F, MIN_ALIGN>(object, old, new)
            } else {
                self.raw.shrink::<F, MIN_ALIGN>(object, old, new)
            }
        }
    }
}
