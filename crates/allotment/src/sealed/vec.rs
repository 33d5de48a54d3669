//! A vector in sealed memory: a [`Buffer`] that allocates from a [`Sealer`].

use core::fmt;
use core::ops::{Deref, DerefMut};

use super::read_only::ReadOnly;
use super::sealer::Sealer;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::buffer::Buffer;

/// A vector that grows while the initialiser runs, and is read-only once it is sealed.
///
/// While it is the last block that was allocated, and its chunk has room, it grows in place. When
/// it has to move, its old memory stays behind and is sealed too, unless that was the last block of
/// the current chunk, or a block of 32 KiB or more at the end of any chunk. If the length is known,
/// use [`with_capacity_in`](Self::with_capacity_in) or [`Sealer::slice`], which leave nothing
/// behind.
///
/// ```
/// use allotment::{SealVec, Sealed};
///
/// let squares = Sealed::<SealVec<'static, u32>>::new(|sealer| {
///     let mut squares = sealer.vec();
///     squares.extend((1..=4).map(|n| n * n));
///     squares
/// });
/// assert_eq!(**squares.get(), [1, 4, 9, 16]);
/// ```
pub struct SealVec<'s, T> {
    values: Buffer<T, Sealer<'s>>,
}

impl<'s, T> SealVec<'s, T> {
    /// An empty vector. It takes no memory before its first value.
    #[must_use]
    pub const fn new_in(sealer: Sealer<'s>) -> Self {
        Self { values: Buffer::new_in(sealer) }
    }

    /// An empty vector with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity_in`](Self::try_with_capacity_in) returns an error.
    #[must_use]
    pub fn with_capacity_in(capacity: usize, sealer: Sealer<'s>) -> Self {
        let mut vec = Self::new_in(sealer);
        always(vec.reserve_exact_or::<Abort>(capacity));
        vec
    }

    /// Like [`with_capacity_in`](Self::with_capacity_in), but returns an error instead of aborting.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Sealer::try_str`].
    pub fn try_with_capacity_in(capacity: usize, sealer: Sealer<'s>) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(sealer);
        vec.reserve_exact_or::<Report>(capacity)?;
        Ok(vec)
    }

    pub(super) fn reserve_exact_or<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        self.values.reserve_exact::<F>(more)
    }

    pub(super) fn extend_or<F: OnFailure>(
        &mut self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), F::Error> {
        self.values.extend::<F>(values)
    }

    /// Appends a value.
    ///
    /// # Panics
    /// Aborts where [`try_push`](Self::try_push) returns an error.
    #[inline]
    pub fn push(&mut self, value: T) {
        always(self.values.push::<Abort>(value));
    }

    /// Appends a value, or drops it and returns the reason why it failed.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Sealer::try_str`]. The vector
    /// is then as it was.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        self.values.push::<Report>(value)
    }

    /// Removes the last value and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.values.pop()
    }

    /// Inserts a value before the value at `index`.
    ///
    /// # Panics
    /// If the index is greater than the length. Aborts where [`try_push`](Self::try_push) returns
    /// an error.
    pub fn insert(&mut self, index: usize, value: T) {
        always(self.values.insert::<Abort>(index, value));
    }

    /// Removes the value at `index` and returns it.
    ///
    /// # Panics
    /// If the index is not less than the length.
    pub fn remove(&mut self, index: usize) -> T {
        self.values.remove(index)
    }

    /// Makes room for at least `more` further values.
    ///
    /// # Panics
    /// Aborts where [`try_reserve`](Self::try_reserve) returns an error.
    pub fn reserve(&mut self, more: usize) {
        always(self.values.reserve::<Abort>(more));
    }

    /// Like [`reserve`](Self::reserve), but returns an error instead of aborting.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Sealer::try_str`]. The vector
    /// is then as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve::<Report>(more)
    }

    /// Appends these values, or returns the reason why a value could not be appended.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Sealer::try_str`]. The values
    /// before the one that failed stay.
    pub fn try_extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), AllocError> {
        self.extend_or::<Report>(values)
    }

    /// Keeps the values for which `keeps` returns `true`.
    pub fn retain(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        self.values.retain(keeps);
    }

    /// Drops all values after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The number of values that the memory has room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.values.capacity()
    }

    /// The values as a slice. Unused capacity is given back if the vector is the last block that
    /// was allocated.
    #[must_use]
    pub fn into_slice(self) -> &'s [T]
    where
        T: ReadOnly,
    {
        self.leak()
    }

    pub(super) fn leak(mut self) -> &'s [T] {
        let _ = self.values.shrink::<Report>();
        // SAFETY: initialised, and the memory belongs to this vector alone for `'s` (the sealer's
        // invariant 2).
        unsafe { self.values.into_raw().as_ref() }
    }
}

impl<T: Copy> SealVec<'_, T> {
    #[inline]
    pub(super) fn extend_from_slice_or<F: OnFailure>(
        &mut self,
        values: &[T],
    ) -> Result<(), F::Error> {
        self.values.extend_copied::<F>(values)
    }

    /// Appends copies of these values.
    ///
    /// # Panics
    /// Aborts where [`try_extend_from_slice`](Self::try_extend_from_slice) returns an error.
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T]) {
        always(self.extend_from_slice_or::<Abort>(values));
    }

    /// Like [`extend_from_slice`](Self::extend_from_slice), but returns an error instead of
    /// aborting.
    ///
    /// # Errors
    /// As [`try_push`](Self::try_push).
    #[inline]
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError> {
        self.extend_from_slice_or::<Report>(values)
    }
}

// SAFETY: its memory comes from the sealer and is sealed with it. No method writes through a shared
// reference.
unsafe impl<T: ReadOnly> ReadOnly for SealVec<'_, T> {}

impl<T> Deref for SealVec<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for SealVec<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T> Extend<T> for SealVec<'_, T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        always(self.values.extend::<Abort>(values));
    }
}

impl<T: PartialEq> PartialEq for SealVec<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for SealVec<'_, T> {}

impl<T: core::hash::Hash> core::hash::Hash for SealVec<'_, T> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T> core::borrow::Borrow<[T]> for SealVec<'_, T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T: fmt::Debug> fmt::Debug for SealVec<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'v, T> IntoIterator for &'v SealVec<'_, T> {
    type Item = &'v T;
    type IntoIter = core::slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
