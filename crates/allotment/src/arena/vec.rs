//! A vector in an arena: a [`Buffer`] that allocates from the arena.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::Arena;
use super::boxed::ArenaBox;
use super::typed::NoDrop;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::buffer::Buffer;

/// A growing vector in an [`Arena`]. While it is the arena's last object, it grows in place.
///
/// When the vector has to move, its old memory stays in the arena until a reset. Dropping the
/// vector drops its values, and gives its memory back if it is the arena's last object. A vector
/// can't move to another thread.
///
/// ```
/// let arena = allotment::Arena::new();
/// let mut squares = allotment::ArenaVec::new_in(&arena);
/// squares.extend((1..=4).map(|n| n * n));
/// let squares: &mut [i32] = squares.into_slice();
/// assert_eq!(squares, [1, 4, 9, 16]);
/// ```
pub struct ArenaVec<'a, T: 'a, const MIN_ALIGN: usize = 8> {
    values: Buffer<T, &'a Arena<MIN_ALIGN>>,
}

impl<'a, T, const MIN_ALIGN: usize> ArenaVec<'a, T, MIN_ALIGN> {
    /// An empty vector. It takes no memory before its first value.
    #[must_use]
    pub const fn new_in(arena: &'a Arena<MIN_ALIGN>) -> Self {
        Self { values: Buffer::new_in(arena) }
    }

    /// An empty vector with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity_in`](Self::try_with_capacity_in) returns an error.
    #[must_use]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena<MIN_ALIGN>) -> Self {
        let mut vec = Self::new_in(arena);
        vec.reserve(capacity);
        vec
    }

    /// Like [`with_capacity_in`](Self::with_capacity_in), but returns an error instead of aborting.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Arena::try_alloc`].
    pub fn try_with_capacity_in(
        capacity: usize,
        arena: &'a Arena<MIN_ALIGN>,
    ) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(arena);
        vec.try_reserve(capacity)?;
        Ok(vec)
    }

    /// Collects an iterator.
    ///
    /// # Panics
    /// As [`push`](Self::push), and if the iterator panics.
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, arena: &'a Arena<MIN_ALIGN>) -> Self {
        always(Self::from_iter_or::<Abort>(values, arena))
    }

    /// Like [`from_iter_in`](Self::from_iter_in), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`try_push`](Self::try_push).
    pub fn try_from_iter_in(
        values: impl IntoIterator<Item = T>,
        arena: &'a Arena<MIN_ALIGN>,
    ) -> Result<Self, AllocError> {
        Self::from_iter_or::<Report>(values, arena)
    }

    fn from_iter_or<F: OnFailure>(
        values: impl IntoIterator<Item = T>,
        arena: &'a Arena<MIN_ALIGN>,
    ) -> Result<Self, F::Error> {
        let mut vec = Self::new_in(arena);
        vec.values.extend::<F>(values)?;
        Ok(vec)
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
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Arena::try_alloc`]. The vector
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
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Arena::try_alloc`]. The vector
    /// is then as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve::<Report>(more)
    }

    /// Drops all values after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The number of values that the vector has room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.values.capacity()
    }

    /// The arena that the vector allocates from.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<MIN_ALIGN> {
        self.values.home()
    }

    /// Turns the vector into a slice that lives as long as the arena is borrowed. Does not compile
    /// for a type that needs drop; use [`into_boxed_slice`](Self::into_boxed_slice) for those.
    #[must_use]
    pub fn into_slice(self) -> &'a mut [T] {
        const { NoDrop::<T>::CHECK };
        ArenaBox::leak(self.into_boxed_slice())
    }

    /// Turns the vector into a box that drops the values.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> ArenaBox<'a, [T]> {
        // Give unused capacity back if this is the arena's last object. Otherwise it stays, which
        // is fine.
        let _ = self.values.shrink::<Report>();
        // SAFETY: initialised, and owned by the box from here on; the memory belongs to the arena.
        ArenaBox::owning(unsafe { self.values.into_raw().as_mut() })
    }
}

impl<T: Copy, const MIN_ALIGN: usize> ArenaVec<'_, T, MIN_ALIGN> {
    #[inline]
    pub(super) fn extend_from_slice_or<F: OnFailure>(
        &mut self,
        values: &[T],
    ) -> Result<(), F::Error> {
        self.values.extend_copied::<F>(values)
    }

    /// Appends copies of `values`.
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
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as [`Arena::try_alloc`]. The vector
    /// is then as it was.
    #[inline]
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError> {
        self.extend_from_slice_or::<Report>(values)
    }
}

impl<T, const MIN_ALIGN: usize> Deref for ArenaVec<'_, T, MIN_ALIGN> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T, const MIN_ALIGN: usize> DerefMut for ArenaVec<'_, T, MIN_ALIGN> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T, const MIN_ALIGN: usize> Extend<T> for ArenaVec<'_, T, MIN_ALIGN> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        always(self.values.extend::<Abort>(values));
    }
}

impl<T: fmt::Debug, const MIN_ALIGN: usize> fmt::Debug for ArenaVec<'_, T, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// An iterator over the values of an [`ArenaVec`]. Dropping it drops the values that are left.
pub struct IntoIter<'a, T: 'a> {
    /// The values not yet taken are `boxed[next..]`; those before were moved out.
    boxed: ManuallyDrop<ArenaBox<'a, [T]>>,
    next: usize,
}

impl<T> Iterator for IntoIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let value = self.boxed.get(self.next)?;
        self.next += 1;
        // SAFETY: initialised, and counted as taken from here on.
        Some(unsafe { core::ptr::from_ref(value).read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.boxed.len() - self.next;
        (left, Some(left))
    }
}

impl<T> ExactSizeIterator for IntoIter<'_, T> {}

impl<T> Drop for IntoIter<'_, T> {
    fn drop(&mut self) {
        let left = &mut self.boxed[self.next..];
        // SAFETY: initialised, not taken, and dropped only here.
        unsafe { core::ptr::from_mut(left).drop_in_place() }
    }
}

impl<'a, T, const MIN_ALIGN: usize> IntoIterator for ArenaVec<'a, T, MIN_ALIGN> {
    type Item = T;
    type IntoIter = IntoIter<'a, T>;

    fn into_iter(self) -> IntoIter<'a, T> {
        IntoIter { boxed: ManuallyDrop::new(self.into_boxed_slice()), next: 0 }
    }
}

impl<'v, T, const MIN_ALIGN: usize> IntoIterator for &'v ArenaVec<'_, T, MIN_ALIGN> {
    type Item = &'v T;
    type IntoIter = core::slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
