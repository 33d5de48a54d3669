//! A vector in an arena.
//!
//! # Invariants
//!
//! 1. `first` is the start of `capacity` values' memory in `arena`, allocated or last resized with that layout
//!    (or dangling while `capacity * size_of::<T>()` is 0); the vector alone may reach it.
//! 2. The first `len <= capacity` values are initialised and owned by the vector.

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::Arena;
use super::boxed::ArenaBox;
use super::typed::NoDrop;
use crate::error::{Abort, AllocError, ErrorKind, OnFailure, Report, always};
use crate::memory::layout::MAX_GROWTH;

/// A growing vector in an [`Arena`]. While it is the arena's last object it grows in place.
///
/// When it has to move, its old memory stays in the arena until a reset. Dropping it drops its values, and
/// gives its memory back if it is the arena's last object. It stays on the arena's thread.
///
/// ```
/// let arena = allotment::Arena::new();
/// let mut squares = allotment::ArenaVec::new_in(&arena);
/// squares.extend((1..=4).map(|n| n * n));
/// let squares: &mut [i32] = squares.into_slice();
/// assert_eq!(squares, [1, 4, 9, 16]);
/// ```
pub struct ArenaVec<'a, T: 'a, const MIN_ALIGN: usize = 8> {
    first: NonNull<T>,
    len: usize,
    capacity: usize,
    arena: &'a Arena<MIN_ALIGN>,
}

impl<'a, T, const MIN_ALIGN: usize> ArenaVec<'a, T, MIN_ALIGN> {
    /// An empty vector. Takes no memory before its first value.
    #[must_use]
    pub const fn new_in(arena: &'a Arena<MIN_ALIGN>) -> Self {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        Self { first: NonNull::dangling(), len: 0, capacity, arena }
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

    /// [`with_capacity_in`](Self::with_capacity_in), or the reason why not.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; else as [`Arena::try_alloc`].
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
    /// As [`push`](Self::push), and if the iterator does.
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, arena: &'a Arena<MIN_ALIGN>) -> Self {
        always(Self::from_iter_or::<Abort>(values, arena))
    }

    /// [`from_iter_in`](Self::from_iter_in), or the reason why not.
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
        vec.extend_or::<F>(values)?;
        Ok(vec)
    }

    fn extend_or<F: OnFailure>(
        &mut self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), F::Error> {
        let mut values = values.into_iter();
        while let Some(value) = values.next() {
            if self.len == self.capacity {
                // The hint may be wrong: it is believed for a mebibyte, and what can't be had for it is
                // not missed.
                let most = (MAX_GROWTH / size_of::<T>().max(1)).max(self.capacity).max(1);
                let hinted = values.size_hint().0.saturating_add(1).min(most);
                if self.reserve_or::<Report>(hinted).is_err() {
                    self.reserve_or::<F>(1)?;
                }
            }
            self.push_or::<F>(value)?;
        }
        Ok(())
    }

    #[inline]
    fn push_or<F: OnFailure>(&mut self, value: T) -> Result<(), F::Error> {
        if self.len == self.capacity {
            self.reserve_or::<F>(1)?;
        }
        // SAFETY: `len < capacity` (invariant 1).
        unsafe { self.first.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn reserve_or<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        let overflow = || F::fail(AllocError::new(ErrorKind::SizeOverflow, more));
        let needed = self.len.checked_add(more).ok_or_else(overflow)?;
        if needed <= self.capacity {
            return Ok(());
        }
        let least = if size_of::<T>() == 1 { 16 } else { 4 };
        let doubled = self.capacity.saturating_mul(2).max(needed).max(least);
        // Doubling is a wish; what is needed may still be had.
        if doubled > needed && self.resize_or::<Report>(doubled).is_ok() {
            return Ok(());
        }
        self.resize_or::<F>(needed)
    }

    fn resize_or<F: OnFailure>(&mut self, capacity: usize) -> Result<(), F::Error> {
        let new = Layout::array::<T>(capacity)
            .map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, capacity)))?;
        let old = self.layout();
        // SAFETY: the memory is the arena's, live, of the layout `old` (invariant 1), and grows. A size of
        // zero is dangling, of which nothing is copied and nothing freed.
        let grown = unsafe { self.arena.raw.grow::<F, MIN_ALIGN>(self.first.cast(), old, new) }?;
        self.first = grown.cast();
        self.capacity = capacity;
        Ok(())
    }

    fn layout(&self) -> Layout {
        let size = if size_of::<T>() == 0 { 0 } else { self.capacity * size_of::<T>() };
        // SAFETY: the memory was allocated with this size and alignment, so they are valid.
        unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) }
    }

    /// Appends a value.
    ///
    /// # Panics
    /// Aborts where [`try_push`](Self::try_push) returns an error.
    #[inline]
    pub fn push(&mut self, value: T) {
        always(self.push_or::<Abort>(value));
    }

    /// Appends a value, or drops it and says why.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; else as [`Arena::try_alloc`]. The vector is as it was.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        self.push_or::<Report>(value)
    }

    /// Takes the last value off.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: initialised, and no longer counted (invariant 2).
        Some(unsafe { self.first.add(self.len).read() })
    }

    /// Makes room for `more` values beyond those there are.
    ///
    /// # Panics
    /// Aborts where [`try_reserve`](Self::try_reserve) returns an error.
    pub fn reserve(&mut self, more: usize) {
        always(self.reserve_or::<Abort>(more));
    }

    /// [`reserve`](Self::reserve), or the reason why not.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; else as [`Arena::try_alloc`]. The vector is as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.reserve_or::<Report>(more)
    }

    /// Drops all values but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let gone = self.len - len;
            // Before the drops: if one of them unwinds, the rest leaks instead of being dropped twice.
            self.len = len;
            // SAFETY: initialised, and no longer counted (invariant 2).
            unsafe {
                core::ptr::slice_from_raw_parts_mut(self.first.add(len).as_ptr(), gone)
                    .drop_in_place();
            }
        }
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The number of values that there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The arena.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<MIN_ALIGN> {
        self.arena
    }

    /// Gives room that is not used back to the arena, if this is its last object.
    fn shrink(&mut self) {
        if size_of::<T>() == 0 || self.len == self.capacity {
            return;
        }
        let old = self.layout();
        self.capacity = self.len;
        let new = self.layout();
        // SAFETY: as in `reserve_or`; it shrinks at the same alignment, which never moves it unless the
        // arena is watched.
        match unsafe { self.arena.raw.shrink::<Report, MIN_ALIGN>(self.first.cast(), old, new) } {
            Ok(place) => self.first = place.cast(),
            Err(_) => self.capacity = old.size() / size_of::<T>(),
        }
    }

    /// The values as a slice that lives as long as the arena is borrowed. A type that needs drop does not
    /// compile; use [`into_boxed_slice`](Self::into_boxed_slice).
    #[must_use]
    pub fn into_slice(self) -> &'a mut [T] {
        const { NoDrop::<T>::CHECK };
        ArenaBox::leak(self.into_boxed_slice())
    }

    /// The values in a box that drops them.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> ArenaBox<'a, [T]> {
        self.shrink();
        let vec = ManuallyDrop::new(self);
        // SAFETY: `len` values, initialised; the vector that owned them is gone, the memory is the arena's.
        ArenaBox::owning(unsafe { core::slice::from_raw_parts_mut(vec.first.as_ptr(), vec.len) })
    }
}

impl<T: Copy, const MIN_ALIGN: usize> ArenaVec<'_, T, MIN_ALIGN> {
    #[inline]
    pub(super) fn extend_from_slice_or<F: OnFailure>(
        &mut self,
        values: &[T],
    ) -> Result<(), F::Error> {
        if values.len() > self.capacity - self.len {
            self.reserve_or::<F>(values.len())?;
        }
        // SAFETY: there is room behind `len` (invariant 1), and what is borrowed lies elsewhere.
        unsafe {
            self.first
                .add(self.len)
                .copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
        Ok(())
    }

    /// Appends copies of these values.
    ///
    /// # Panics
    /// Aborts where [`try_extend_from_slice`](Self::try_extend_from_slice) returns an error.
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T]) {
        always(self.extend_from_slice_or::<Abort>(values));
    }

    /// [`extend_from_slice`](Self::extend_from_slice), or the reason why not.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`]; else as [`Arena::try_alloc`]. The vector is as it was.
    #[inline]
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError> {
        self.extend_from_slice_or::<Report>(values)
    }
}

impl<T, const MIN_ALIGN: usize> Drop for ArenaVec<'_, T, MIN_ALIGN> {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: the memory is of this layout (invariant 1) and reached by nobody else.
        unsafe { self.arena.raw.free::<MIN_ALIGN>(self.first.cast(), self.layout()) };
    }
}

impl<T, const MIN_ALIGN: usize> Deref for ArenaVec<'_, T, MIN_ALIGN> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T, const MIN_ALIGN: usize> DerefMut for ArenaVec<'_, T, MIN_ALIGN> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T, const MIN_ALIGN: usize> Extend<T> for ArenaVec<'_, T, MIN_ALIGN> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        always(self.extend_or::<Abort>(values));
    }
}

impl<T: fmt::Debug, const MIN_ALIGN: usize> fmt::Debug for ArenaVec<'_, T, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The values of an [`ArenaVec`], one by one; what is left is dropped with it.
pub struct IntoIter<'a, T: 'a> {
    /// The values not taken yet are `[next, boxed.len())`; those before were read out.
    boxed: ManuallyDrop<ArenaBox<'a, [T]>>,
    next: usize,
}

impl<T> Iterator for IntoIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let value = self.boxed.get(self.next)?;
        self.next += 1;
        // SAFETY: initialised, and counted as taken from now on.
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
        // SAFETY: initialised, not taken, and dropped here alone.
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
