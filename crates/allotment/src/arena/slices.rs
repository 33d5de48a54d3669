//! Strings and slices, copied, cloned or constructed in place.
//!
//! # Invariant
//!
//! As in `typed.rs`. While a slice is being filled, [`PartialSlice`] owns its memory and its first
//! `filled` values.

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::boxed::ArenaBox;
use super::raw::RawArena;
use super::typed::{Arena, NoDrop};
use super::vec::ArenaVec;
use crate::error::{Abort, AllocError, ErrorKind, OnFailure, ReturnError, always};

/// A slice that is being filled. If making a value unwinds or fails, the drop of this guard drops
/// the values made so far and frees the memory.
struct PartialSlice<'a, T, const MIN_ALIGN: usize> {
    raw: &'a RawArena,
    first: NonNull<T>,
    layout: Layout,
    filled: usize,
}

impl<T, const MIN_ALIGN: usize> Drop for PartialSlice<'_, T, MIN_ALIGN> {
    fn drop(&mut self) {
        // SAFETY: the first `filled` values were written; the memory has this layout and is not
        // lent.
        unsafe {
            core::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.filled).drop_in_place();
            self.raw.free::<MIN_ALIGN>(self.first.cast(), self.layout);
        }
    }
}

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    fn array_or<F: OnFailure, T>(&self, len: usize) -> Result<(NonNull<T>, Layout), F::Error> {
        let layout = Layout::array::<T>(len)
            .map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, len)))?;
        Ok((self.raw.alloc::<F, MIN_ALIGN>(layout)?.cast(), layout))
    }

    fn copy_or<F: OnFailure, T: Copy>(&self, values: &[T]) -> Result<&mut [T], F::Error> {
        let memory = self.raw.alloc::<F, MIN_ALIGN>(Layout::for_value(values))?.cast::<T>();
        // SAFETY: memory for `values.len()` values, which overlaps nothing borrowed; lent by the
        // invariant.
        unsafe {
            memory.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
            Ok(core::slice::from_raw_parts_mut(memory.as_ptr(), values.len()))
        }
    }

    pub(super) fn fill_or<F: OnFailure, T, E>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Result<&mut [T], E>, F::Error> {
        let (first, layout) = self.array_or::<F, T>(len)?;
        let mut partial = PartialSlice::<T, MIN_ALIGN> { raw: &self.raw, first, layout, filled: 0 };
        while partial.filled < len {
            match make(partial.filled) {
                // SAFETY: `filled < len`, inside the array.
                Ok(value) => unsafe { first.add(partial.filled).write(value) },
                Err(error) => return Ok(Err(error)),
            }
            partial.filled += 1;
        }
        core::mem::forget(partial);
        // SAFETY: all `len` values were written; lent by the invariant.
        Ok(Ok(unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), len) }))
    }

    fn fill_always_or<F: OnFailure, T>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<&mut [T], F::Error> {
        match self.fill_or::<F, T, Infallible>(len, |index| Ok(make(index)))? {
            Ok(values) => Ok(values),
        }
    }

    fn uninit_slice_or<F: OnFailure, T>(
        &self,
        len: usize,
    ) -> Result<&mut [MaybeUninit<T>], F::Error> {
        let (first, _) = self.array_or::<F, MaybeUninit<T>>(len)?;
        // SAFETY: memory for `len` values, possibly uninitialised; lent by the invariant.
        Ok(unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), len) })
    }

    fn c_str_or<F: OnFailure>(&self, text: &CStr) -> Result<&CStr, F::Error> {
        let bytes = self.copy_or::<F, u8>(text.to_bytes_with_nul())?;
        // SAFETY: a copy of a C string's bytes, including the nul.
        Ok(unsafe { CStr::from_bytes_with_nul_unchecked(bytes) })
    }

    fn str_or<F: OnFailure>(&self, text: &str) -> Result<&mut str, F::Error> {
        let bytes = self.copy_or::<F, u8>(text.as_bytes())?;
        // SAFETY: a copy of a string's bytes, which are UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    /// Copies a string, like strdup.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_str(&self, text: &str) -> &mut str {
        always(self.str_or::<Abort>(text))
    }

    /// Like [`alloc_str`](Self::alloc_str), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
        self.str_or::<ReturnError>(text)
    }

    /// Copies a C string, including its nul.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_c_str(&self, text: &CStr) -> &CStr {
        always(self.c_str_or::<Abort>(text))
    }

    /// Like [`alloc_c_str`](Self::alloc_c_str), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_c_str(&self, text: &CStr) -> Result<&CStr, AllocError> {
        self.c_str_or::<ReturnError>(text)
    }

    /// Copies a slice, like memdup. An empty slice takes no memory.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
        always(self.copy_or::<Abort, T>(values))
    }

    /// Like [`alloc_slice_copy`](Self::alloc_slice_copy), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_slice_copy<T: Copy>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        self.copy_or::<ReturnError, T>(values)
    }

    /// Clones a slice. If a clone panics, the clones made before it are dropped and the memory is
    /// freed.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and if a clone panics.
    pub fn alloc_slice_clone<T: Clone>(&self, values: &[T]) -> &mut [T] {
        const { NoDrop::<T>::CHECK };
        always(self.fill_always_or::<Abort, T>(values.len(), |index| values[index].clone()))
    }

    /// Like [`alloc_slice_clone`](Self::alloc_slice_clone), but returns an error instead of
    /// aborting.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_clone<T: Clone>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        const { NoDrop::<T>::CHECK };
        self.fill_always_or::<ReturnError, T>(values.len(), |index| values[index].clone())
    }

    /// Makes a slice of `len` values; `make` gets the index of each. If `make` panics, the values
    /// made before are dropped and the memory is freed.
    ///
    /// # Panics
    /// Aborts if the size overflows, or as [`alloc`](Self::alloc). Panics if `make` panics.
    pub fn alloc_slice_with<T>(&self, len: usize, make: impl FnMut(usize) -> T) -> &mut [T] {
        const { NoDrop::<T>::CHECK };
        always(self.fill_always_or::<Abort, T>(len, make))
    }

    /// Like [`alloc_slice_with`](Self::alloc_slice_with), but returns an error instead of aborting.
    /// A failed call has not called `make`.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; otherwise as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_with<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<&mut [T], AllocError> {
        const { NoDrop::<T>::CHECK };
        self.fill_always_or::<ReturnError, T>(len, make)
    }

    /// Makes a slice of `len` values with a fallible `make`. The first error of `make` is returned,
    /// and the values made before it are dropped.
    ///
    /// # Errors
    /// The outer error is the arena's, the inner one that of `make`.
    pub fn try_alloc_slice_fallible<T, E>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Result<&mut [T], E>, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.fill_or::<ReturnError, T, E>(len, make)
    }

    /// Collects an iterator into a slice. The iterator's size hint need not be right, and the
    /// iterator may use the arena itself.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and if the iterator panics.
    pub fn alloc_slice_from_iter<T>(&self, values: impl IntoIterator<Item = T>) -> &mut [T] {
        const { NoDrop::<T>::CHECK };
        ArenaVec::from_iter_in(values, self).into_slice()
    }

    /// Like [`alloc_slice_from_iter`](Self::alloc_slice_from_iter), but returns an error instead of
    /// aborting. A failed call loses the values that it has taken from the iterator.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_from_iter<T>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<&mut [T], AllocError> {
        const { NoDrop::<T>::CHECK };
        ArenaVec::try_from_iter_in(values, self).map(ArenaVec::into_slice)
    }

    fn boxed_or<F: OnFailure, T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<ArenaBox<'_, [T]>, F::Error> {
        let mut values = ArenaVec::with_capacity_in_or::<F>(len, self)?;
        values.extend_or::<F>((0..len).map(make))?;
        Ok(values.into_boxed_slice())
    }

    /// Makes a slice of values in a box that drops them.
    ///
    /// # Panics
    /// If the size overflows; otherwise as [`alloc_slice_with`](Self::alloc_slice_with).
    pub fn alloc_slice_boxed<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> ArenaBox<'_, [T]> {
        always(self.boxed_or::<Abort, T>(len, make))
    }

    /// Like [`alloc_slice_boxed`](Self::alloc_slice_boxed), but returns an error instead of
    /// aborting. A failed call has not called `make`.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; otherwise as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_boxed<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<ArenaBox<'_, [T]>, AllocError> {
        self.boxed_or::<ReturnError, T>(len, make)
    }

    /// Allocates memory for `len` values, for the caller to fill. Values written there are never
    /// dropped.
    ///
    /// # Panics
    /// Aborts if the size overflows, or as [`alloc`](Self::alloc).
    pub fn alloc_slice_uninit<T>(&self, len: usize) -> &mut [MaybeUninit<T>] {
        always(self.uninit_slice_or::<Abort, T>(len))
    }

    /// Like [`alloc_slice_uninit`](Self::alloc_slice_uninit), but returns an error instead of
    /// aborting.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; otherwise as [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_uninit<T>(
        &self,
        len: usize,
    ) -> Result<&mut [MaybeUninit<T>], AllocError> {
        self.uninit_slice_or::<ReturnError, T>(len)
    }
}
