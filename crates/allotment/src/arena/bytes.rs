//! Raw layouts, for callers that need an interface like malloc's.
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

    /// Allocates uninitialised memory of this layout. A size of zero takes no memory and returns an
    /// aligned dangling pointer.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        always(self.raw.alloc::<PanicOrAbort, MIN_ALIGN>(layout))
    }

    /// Like [`alloc_layout`](Self::alloc_layout), but returns an error instead of panicking or
    /// ending the process.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.raw.alloc::<ReturnError, MIN_ALIGN>(layout)
    }

    /// Allocates zeroed memory of this layout.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_layout_zeroed(&self, layout: Layout) -> NonNull<u8> {
        always(self.zeroed_or::<PanicOrAbort>(layout))
    }

    /// Like [`alloc_layout_zeroed`](Self::alloc_layout_zeroed), but returns an error instead of
    /// panicking or ending the process.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_layout_zeroed(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        self.zeroed_or::<ReturnError>(layout)
    }

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

    /// Frees one object early. If it is the last one allocated, its bytes go back to the arena;
    /// otherwise only the statistics change. Inside a scope, an object from outside the scope keeps
    /// its bytes until the scope ends, which sets the statistics back.
    ///
    /// # Safety
    /// The object came from this arena, and was allocated, or last grown or shrunk, with this
    /// layout. It was not freed, rewound or reset, and nothing refers to it any more.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.free::<MIN_ALIGN>(object, layout) }
    }

    /// Makes an object larger. If it is the last one and its chunk has room, it grows in place;
    /// otherwise it moves.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the old layout, and `new.size() >= old.size()`. Inside a
    /// scope, the object belongs to that scope. If the returned address differs, the old object is
    /// freed.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub unsafe fn grow(&self, object: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: guaranteed by the caller.
        always(unsafe { self.raw.grow::<PanicOrAbort, MIN_ALIGN>(object, old, new) })
    }

    /// Like [`grow`](Self::grow), but returns an error instead of panicking or ending the process.
    /// A failed call leaves the object as it was.
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
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.grow::<ReturnError, MIN_ALIGN>(object, old, new) }
    }

    /// Makes an object smaller. It stays in place unless it has to move for a larger alignment. If
    /// it is the last one, the difference goes back to the arena.
    ///
    /// # Safety
    /// As for [`free`](Self::free), with the old layout, and `new.size() <= old.size()`. Inside a
    /// scope, the object belongs to that scope.
    ///
    /// # Errors
    /// Only if the object has to move, as [`try_alloc`](Self::try_alloc). The object is then as it
    /// was.
    #[inline]
    pub unsafe fn try_shrink(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.shrink::<ReturnError, MIN_ALIGN>(object, old, new) }
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
        let settings = self.raw.settings();
        settings.on_refusal.with(&settings.budget)
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
