//! Typed calls of a reap: values, strings and slices, with the names and the semantics of an
//! arena's.
//!
//! # Invariant
//!
//! A block belongs to the caller of the allocation alone until an unsafe call frees it, or until the
//! reap is reset or dropped, which ends every borrow of the reap. So it can be lent for as long as
//! `&self` is borrowed.
#![allow(clippy::mut_from_ref, reason = "each call lends another block")]

use core::alloc::Layout;
use core::convert::Infallible;
use core::ffi::CStr;
use core::mem::{MaybeUninit, needs_drop};
use core::ptr::{self, NonNull};
use core::slice;

use super::reap::Reap;
use crate::error::{Abort, AllocError, ErrorKind, OnFailure, ReturnError, always};
use crate::memory::layout::MAX_GROWTH;

/// Refuses a type that needs drop, at compile time.
struct ReapNoDrop<T>(core::marker::PhantomData<T>);

impl<T> ReapNoDrop<T> {
    const CHECK: () = assert!(
        !needs_drop::<T>(),
        "this type needs drop, and a reap frees its memory without dropping what is in it: \
         use `collections::VecIn` in the reap or a `PoolBox`, which drop their values, \
         or `alloc_undropped`, which says that it is never dropped"
    );
}

/// A block with space for `capacity` values, of which the first `len` are initialised. If making a
/// value unwinds or fails, the drop of this guard drops the values and frees the block.
struct PartialSlice<'r, T> {
    reap: &'r Reap,
    first: NonNull<T>,
    capacity: usize,
    len: usize,
}

impl<T> Drop for PartialSlice<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the first `len` values were written, and the block is not lent.
        unsafe {
            ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len).drop_in_place();
            self.reap.free_layout(self.first.cast(), self.layout());
        }
    }
}

impl<'r, T> PartialSlice<'r, T> {
    #[inline]
    fn new<F: OnFailure>(reap: &'r Reap, capacity: usize) -> Result<Self, F::Error> {
        let layout = array_layout::<F, T>(capacity)?;
        let first = reap.blocks.alloc::<F>(layout)?.cast();
        Ok(Self { reap, first, capacity, len: 0 })
    }

    fn layout(&self) -> Layout {
        // SAFETY: the block was allocated with this size and alignment, so they are valid.
        unsafe {
            Layout::from_size_align_unchecked(self.capacity * size_of::<T>(), align_of::<T>())
        }
    }

    /// Gives the block another capacity, at least `len`. On an error nothing has changed.
    fn resize<F: OnFailure>(&mut self, capacity: usize) -> Result<(), F::Error> {
        let size = array_layout::<F, T>(capacity)?.size();
        // SAFETY: a block of the reap with this layout, which is not lent; the new size is valid.
        let moved = unsafe { self.reap.try_resize(self.first.cast(), self.layout(), size) };
        self.first = moved.map_err(F::fail)?.cast();
        self.capacity = capacity;
        Ok(())
    }

    /// Adds a value.
    ///
    /// # Safety
    /// `len < capacity`.
    #[inline]
    unsafe fn push(&mut self, value: T) {
        // SAFETY: inside the block.
        unsafe { self.first.add(self.len).write(value) };
        self.len += 1;
    }

    /// Lends the values. The block is no longer freed with this guard.
    fn lend(self) -> &'r mut [T] {
        let (first, len) = (self.first.as_ptr(), self.len);
        core::mem::forget(self);
        // SAFETY: `len` initialised values in a block that is lent by the module's invariant.
        unsafe { slice::from_raw_parts_mut(first, len) }
    }
}

fn array_layout<F: OnFailure, T>(len: usize) -> Result<Layout, F::Error> {
    Layout::array::<T>(len).map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, len)))
}

impl Reap {
    // ---- the bodies that a call and its `try_` twin share ----

    /// Inlined as a whole, so that the value is written once, to its block: on the fast path no
    /// call lies between its construction and its use.
    #[inline(always)]
    fn value_or<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        let block = self.blocks.alloc::<F>(Layout::new::<T>())?.cast::<T>();
        // SAFETY: a block for one `T`, lent by the module's invariant.
        unsafe {
            block.write(value);
            Ok(&mut *block.as_ptr())
        }
    }

    #[inline(always)]
    fn with_or<F: OnFailure, T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, F::Error> {
        // Its capacity is one value.
        let mut guard = PartialSlice::new::<F>(self, 1)?;
        Ok(match make() {
            // SAFETY: no value was added before.
            Ok(value) => unsafe {
                guard.push(value);
                Ok(&mut guard.lend()[0])
            },
            Err(error) => Err(error),
        })
    }

    #[inline]
    fn uninit_slice_or<F: OnFailure, T>(
        &self,
        len: usize,
    ) -> Result<&mut [MaybeUninit<T>], F::Error> {
        let block = self.blocks.alloc::<F>(array_layout::<F, T>(len)?)?;
        // SAFETY: a block for `len` values, possibly uninitialised; lent by the invariant.
        Ok(unsafe { slice::from_raw_parts_mut(block.cast().as_ptr(), len) })
    }

    #[inline]
    fn copy_or<F: OnFailure, T: Copy>(&self, values: &[T]) -> Result<&mut [T], F::Error> {
        let block = self.blocks.alloc::<F>(Layout::for_value(values))?.cast::<T>();
        // SAFETY: a block for `values.len()` values, which overlaps nothing borrowed; lent by the
        // invariant.
        unsafe {
            block.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
            Ok(slice::from_raw_parts_mut(block.as_ptr(), values.len()))
        }
    }

    fn fill_or<F: OnFailure, T, E>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Result<&mut [T], E>, F::Error> {
        let mut values = PartialSlice::new::<F>(self, len)?;
        while values.len < len {
            match make(values.len) {
                // SAFETY: `len` is the capacity.
                Ok(value) => unsafe { values.push(value) },
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(values.lend()))
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

    fn collect_or<F: OnFailure, T>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<&mut [T], F::Error> {
        let values = values.into_iter();
        // The hint may be wrong, so it is not trusted with more than 1 MiB.
        let most = MAX_GROWTH / size_of::<T>().max(1);
        let mut collected = PartialSlice::new::<F>(self, values.size_hint().0.min(most))?;
        for value in values {
            if collected.len == collected.capacity {
                collected.resize::<F>(collected.capacity.saturating_mul(2).max(4))?;
            }
            // SAFETY: `len < capacity`.
            unsafe { collected.push(value) };
        }
        if collected.len < collected.capacity {
            // The slice's layout must be that of its block, so that the caller can free it early.
            collected.resize::<F>(collected.len)?;
        }
        Ok(collected.lend())
    }

    // ---- values ----

    /// Moves a value into the reap and returns a reference to it. The value is constructed in its
    /// block where the compiler can do so; [`alloc_with`](Self::alloc_with) is for large values.
    ///
    /// The reap frees memory and drops nothing. So this does not compile for a type that needs
    /// drop. The compiler checks this when it generates code, so `cargo check` alone does not
    /// report it.
    ///
    /// ```compile_fail
    /// let reap = allotment::Reap::new();
    /// reap.alloc(String::from("who would drop this?"));
    /// ```
    ///
    /// The value lives until the reap is reset or dropped:
    ///
    /// ```compile_fail,E0502
    /// let mut reap = allotment::Reap::new();
    /// let number = reap.alloc(7);
    /// reap.reset();
    /// *number += 1;
    /// ```
    ///
    /// [`free_layout`](Self::free_layout) frees it before that. The layout is that of the value,
    /// also for slices and strings:
    ///
    /// ```
    /// use core::{alloc::Layout, ptr::NonNull};
    ///
    /// let reap = allotment::Reap::new();
    /// let name = reap.alloc_str("system.cpu");
    /// let (block, layout) = (NonNull::from(&mut *name).cast(), Layout::for_value(name));
    /// // SAFETY: allocated above with this layout, and `name` is not used again.
    /// unsafe { reap.free_layout(block, layout) };
    /// assert_eq!(reap.statistics().live_objects, 0);
    /// ```
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        const { ReapNoDrop::<T>::CHECK };
        always(self.value_or::<Abort, T>(value))
    }

    /// Like [`alloc`](Self::alloc), but returns an error instead of aborting. A failed call drops
    /// the value.
    ///
    /// # Errors
    /// As for [`try_alloc_layout`](Self::try_alloc_layout).
    #[inline]
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.value_or::<ReturnError, T>(value)
    }

    /// Allocates a block, then calls `make` to construct the value in it. If `make` panics, the
    /// block is freed. `make` may use the reap itself.
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let table = reap.alloc_with(|| [0_u32; 4096]);
    /// assert_eq!(table[4095], 0);
    /// ```
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc), and if `make` panics.
    #[inline]
    pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
        const { ReapNoDrop::<T>::CHECK };
        match always(self.with_or::<Abort, T, Infallible>(|| Ok(make()))) {
            Ok(value) => value,
        }
    }

    /// Like [`alloc_with`](Self::alloc_with), but returns an error instead of aborting. A failed
    /// call has not called `make`.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_with<T>(&self, make: impl FnOnce() -> T) -> Result<&mut T, AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.with_or::<ReturnError, T, Infallible>(|| Ok(make())).map(|made| match made {
            Ok(value) => value,
        })
    }

    /// Constructs a value in place with a fallible `make`. If `make` fails, its error is returned
    /// and the block is freed.
    ///
    /// # Errors
    /// The error that `make` returned.
    ///
    /// # Panics
    /// As for [`alloc_with`](Self::alloc_with).
    #[inline]
    pub fn alloc_fallible<T, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        const { ReapNoDrop::<T>::CHECK };
        always(self.with_or::<Abort, T, E>(make))
    }

    /// Like [`alloc_fallible`](Self::alloc_fallible), but returns an error instead of aborting: the
    /// outer error is the reap's, the inner one that of `make`.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc). `make` has not been called then.
    #[inline]
    pub fn try_alloc_fallible<T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.with_or::<ReturnError, T, E>(make)
    }

    /// Moves a value into the reap that will never be dropped. This is right for a structure whose
    /// destructor would only free blocks of the same reap, such as a `Vec<_, &Reap>`. Anything else
    /// that the value owns is leaked.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_undropped<T>(&self, value: T) -> &mut T {
        always(self.value_or::<Abort, T>(value))
    }

    /// Like [`alloc_undropped`](Self::alloc_undropped), but returns an error instead of aborting. A
    /// failed call drops the value.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_undropped<T>(&self, value: T) -> Result<&mut T, AllocError> {
        self.value_or::<ReturnError, T>(value)
    }

    /// Allocates a block for one value, for the caller to fill. A value written there is never
    /// dropped.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_uninit<T>(&self) -> &mut MaybeUninit<T> {
        always(self.value_or::<Abort, _>(MaybeUninit::uninit()))
    }

    /// Like [`alloc_uninit`](Self::alloc_uninit), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_uninit<T>(&self) -> Result<&mut MaybeUninit<T>, AllocError> {
        self.value_or::<ReturnError, _>(MaybeUninit::uninit())
    }

    // ---- strings ----

    /// Copies a string, like strdup.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_str(&self, text: &str) -> &mut str {
        let bytes = always(self.copy_or::<Abort, u8>(text.as_bytes()));
        // SAFETY: a copy of a string's bytes, which are UTF-8.
        unsafe { core::str::from_utf8_unchecked_mut(bytes) }
    }

    /// Like [`alloc_str`](Self::alloc_str), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
        let bytes = self.copy_or::<ReturnError, u8>(text.as_bytes())?;
        // SAFETY: a copy of a string's bytes, which are UTF-8.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }

    /// Copies a C string, including its nul.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_c_str(&self, text: &CStr) -> &CStr {
        let bytes = always(self.copy_or::<Abort, u8>(text.to_bytes_with_nul()));
        // SAFETY: a copy of a C string's bytes, including the nul.
        unsafe { CStr::from_bytes_with_nul_unchecked(bytes) }
    }

    /// Like [`alloc_c_str`](Self::alloc_c_str), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_c_str(&self, text: &CStr) -> Result<&CStr, AllocError> {
        let bytes = self.copy_or::<ReturnError, u8>(text.to_bytes_with_nul())?;
        // SAFETY: a copy of a C string's bytes, including the nul.
        Ok(unsafe { CStr::from_bytes_with_nul_unchecked(bytes) })
    }

    // ---- slices ----

    /// Copies a slice, like memdup. An empty slice takes the smallest block.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
        always(self.copy_or::<Abort, T>(values))
    }

    /// Like [`alloc_slice_copy`](Self::alloc_slice_copy), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_slice_copy<T: Copy>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        self.copy_or::<ReturnError, T>(values)
    }

    /// Clones a slice. If a clone panics, the clones made before it are dropped and the block is
    /// freed.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc), and if a clone panics.
    pub fn alloc_slice_clone<T: Clone>(&self, values: &[T]) -> &mut [T] {
        const { ReapNoDrop::<T>::CHECK };
        always(self.fill_always_or::<Abort, T>(values.len(), |index| values[index].clone()))
    }

    /// Like [`alloc_slice_clone`](Self::alloc_slice_clone), but returns an error instead of
    /// aborting.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_clone<T: Clone>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.fill_always_or::<ReturnError, T>(values.len(), |index| values[index].clone())
    }

    /// Makes a slice of `len` values; `make` gets the index of each. If `make` panics, the values
    /// made before are dropped and the block is freed.
    ///
    /// ```
    /// let reap = allotment::Reap::new();
    /// let squares = reap.alloc_slice_with(4, |index| index * index);
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// ```
    ///
    /// # Panics
    /// Aborts if the size overflows, or as for [`alloc`](Self::alloc). Panics if `make` panics.
    pub fn alloc_slice_with<T>(&self, len: usize, make: impl FnMut(usize) -> T) -> &mut [T] {
        const { ReapNoDrop::<T>::CHECK };
        always(self.fill_always_or::<Abort, T>(len, make))
    }

    /// Like [`alloc_slice_with`](Self::alloc_slice_with), but returns an error instead of aborting.
    /// A failed call has not called `make`.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; otherwise as for [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_with<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<&mut [T], AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.fill_always_or::<ReturnError, T>(len, make)
    }

    /// Makes a slice of `len` values with a fallible `make`. The first error of `make` is returned,
    /// and the values made before it are dropped.
    ///
    /// # Errors
    /// The outer error is the reap's, the inner one that of `make`.
    pub fn try_alloc_slice_fallible<T, E>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Result<&mut [T], E>, AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.fill_or::<ReturnError, T, E>(len, make)
    }

    /// Collects an iterator into a slice. The iterator's size hint need not be right, and the
    /// iterator may use the reap itself.
    ///
    /// # Panics
    /// As for [`alloc`](Self::alloc), and if the iterator panics.
    pub fn alloc_slice_from_iter<T>(&self, values: impl IntoIterator<Item = T>) -> &mut [T] {
        const { ReapNoDrop::<T>::CHECK };
        always(self.collect_or::<Abort, T>(values))
    }

    /// Like [`alloc_slice_from_iter`](Self::alloc_slice_from_iter), but returns an error instead of
    /// aborting. A failed call loses the values that it has taken from the iterator.
    ///
    /// # Errors
    /// As for [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_from_iter<T>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<&mut [T], AllocError> {
        const { ReapNoDrop::<T>::CHECK };
        self.collect_or::<ReturnError, T>(values)
    }

    /// Allocates a block for `len` values, for the caller to fill. Values written there are never
    /// dropped.
    ///
    /// # Panics
    /// Aborts if the size overflows, or as for [`alloc`](Self::alloc).
    pub fn alloc_slice_uninit<T>(&self, len: usize) -> &mut [MaybeUninit<T>] {
        always(self.uninit_slice_or::<Abort, T>(len))
    }

    /// Like [`alloc_slice_uninit`](Self::alloc_slice_uninit), but returns an error instead of
    /// aborting.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; otherwise as for [`try_alloc`](Self::try_alloc).
    pub fn try_alloc_slice_uninit<T>(
        &self,
        len: usize,
    ) -> Result<&mut [MaybeUninit<T>], AllocError> {
        self.uninit_slice_or::<ReturnError, T>(len)
    }
}
