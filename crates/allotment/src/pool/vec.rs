//! A vector in a pool: a [`Buffer`] whose `BlockSource` is a `PoolRef`.

use super::boxed::PoolBox;
use super::drain::PoolDrain;
use super::pool_ref::{PoolRef, current};
use crate::error::{Abort, AllocError, Report, always};
use crate::memory::buffer::Buffer;
use core::ops::RangeBounds;

/// A growable vector in a pool, by default the [`current`](crate::pool::current()) one. It holds an
/// address, a length, a capacity and a [`PoolRef`].
///
/// A vector may be sent to other threads and may outlive its pool. Where the pool cannot be used,
/// the vector grows on the global heap, and its old block goes back to its owner. The capacity
/// doubles.
///
/// ```
/// use allotment::{LocalPool, PoolVec};
///
/// let pool = LocalPool::new();
/// let mut squares: PoolVec<u32> = pool.enter(|| (1..=4).map(|n| n * n).collect());
/// assert_eq!(squares.pool(), pool.reference());
/// drop(pool);
/// squares.extend([25, 36]); // on the global heap
/// assert_eq!(squares, [1, 4, 9, 16, 25, 36]);
/// ```
///
/// A vector may be sent only where its values may be:
///
/// ```compile_fail,E0277
/// let mut counters = allotment::PoolVec::new();
/// counters.push(std::rc::Rc::new(1));
/// std::thread::spawn(move || drop(counters));
/// ```
///
/// ```compile_fail,E0277
/// let cells = allotment::PoolVec::from([std::cell::Cell::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| cells[0].set(2));
/// });
/// ```
///
/// An iterator over the vector borrows it:
///
/// ```compile_fail,E0499
/// let mut numbers = allotment::PoolVec::from([1, 2, 3]);
/// let drain = numbers.drain(..);
/// numbers.push(4);
/// drop(drain);
/// ```
pub struct PoolVec<T> {
    pub(super) values: Buffer<T, PoolRef>,
}

impl<T> PoolVec<T> {
    /// Creates an empty vector in the current pool. It allocates no memory before its first value.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::new_in(current())
    }

    /// Creates an empty vector in the given pool. It allocates no memory before its first value.
    #[inline]
    #[must_use]
    pub const fn new_in(pool: PoolRef) -> Self {
        Self { values: Buffer::new_in(pool) }
    }

    /// Creates an empty vector in the current pool with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity`](Self::try_with_capacity) returns an error.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity, current())
    }

    /// Fallible version of [`with_capacity`](Self::with_capacity).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity(capacity: usize) -> Result<Self, AllocError> {
        Self::try_with_capacity_in(capacity, current())
    }

    /// Creates an empty vector in the given pool with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity_in`](Self::try_with_capacity_in) returns an error.
    #[must_use]
    pub fn with_capacity_in(capacity: usize, pool: PoolRef) -> Self {
        let mut vec = Self::new_in(pool);
        vec.reserve_exact(capacity);
        vec
    }

    /// Fallible version of [`with_capacity_in`](Self::with_capacity_in).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity_in(capacity: usize, pool: PoolRef) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(pool);
        vec.try_reserve_exact(capacity)?;
        Ok(vec)
    }

    /// Collects an iterator in the given pool. `collect` does the same in the current pool.
    ///
    /// # Panics
    /// As for [`push`](Self::push), and if the iterator panics.
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, pool: PoolRef) -> Self {
        let mut vec = Self::new_in(pool);
        vec.extend(values);
        vec
    }

    /// Fallible version of [`from_iter_in`](Self::from_iter_in).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_from_iter_in(
        values: impl IntoIterator<Item = T>,
        pool: PoolRef,
    ) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(pool);
        vec.try_extend(values)?;
        Ok(vec)
    }

    /// Returns the pool that the vector was created with. The vector allocates from it while it can
    /// be used.
    #[inline]
    #[must_use]
    pub const fn pool(&self) -> PoolRef {
        *self.values.home()
    }

    /// Returns the number of values that the vector has room for.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.values.capacity()
    }

    /// Returns the values.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.values
    }

    /// Returns the values.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.values
    }

    // ---- room ----

    /// Makes room for `more` further values. A vector that has to grow doubles its capacity if that
    /// much memory is available.
    ///
    /// # Panics
    /// Aborts where [`try_reserve`](Self::try_reserve) returns an error.
    pub fn reserve(&mut self, more: usize) {
        always(self.values.reserve::<Abort>(more));
    }

    /// Fallible version of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise as for
    /// [`PoolRef::try_alloc_layout`]. The vector is then unchanged.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve::<Report>(more)
    }

    /// Makes room for exactly `more` further values, without doubling.
    ///
    /// # Panics
    /// Aborts where [`try_reserve_exact`](Self::try_reserve_exact) returns an error.
    pub fn reserve_exact(&mut self, more: usize) {
        always(self.values.reserve_exact::<Abort>(more));
    }

    /// Fallible version of [`reserve_exact`](Self::reserve_exact).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve_exact::<Report>(more)
    }

    /// Gives back unused capacity.
    ///
    /// # Panics
    /// Aborts where [`try_shrink_to_fit`](Self::try_shrink_to_fit) returns an error.
    pub fn shrink_to_fit(&mut self) {
        always(self.values.shrink::<Abort>());
    }

    /// Fallible version of [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Errors
    /// When the values have to move and there is no memory for that, as for
    /// [`PoolRef::try_alloc_layout`]. The vector is then unchanged.
    pub fn try_shrink_to_fit(&mut self) -> Result<(), AllocError> {
        self.values.shrink::<Report>()
    }

    // ---- values ----

    /// Appends a value.
    ///
    /// # Panics
    /// Aborts where [`try_push`](Self::try_push) returns an error.
    #[inline]
    pub fn push(&mut self, value: T) {
        always(self.values.push::<Abort>(value));
    }

    /// Fallible version of [`push`](Self::push). On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        self.values.push::<Report>(value)
    }

    /// Removes the last value and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.values.pop()
    }

    /// Inserts a value at this index. The values from there on move back by one.
    ///
    /// # Panics
    /// If the index is greater than the length. Aborts where [`try_insert`](Self::try_insert)
    /// returns an error.
    pub fn insert(&mut self, index: usize, value: T) {
        always(self.values.insert::<Abort>(index, value));
    }

    /// Fallible version of [`insert`](Self::insert). On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    ///
    /// # Panics
    /// If the index is greater than the length.
    pub fn try_insert(&mut self, index: usize, value: T) -> Result<(), AllocError> {
        self.values.insert::<Report>(index, value)
    }

    /// Removes the value at this index and returns it. The values behind it move up.
    ///
    /// # Panics
    /// If the index is not less than the length.
    pub fn remove(&mut self, index: usize) -> T {
        self.values.remove(index)
    }

    /// Removes the value at this index and returns it. The last value takes its place.
    ///
    /// # Panics
    /// If the index is not less than the length.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.len().saturating_sub(1);
        self.swap(index, last);
        self.values.remove(last)
    }

    /// Drops all values after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.values.truncate(0);
    }

    /// Drops the values for which `keeps` returns `false`.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.values.retain(|value| keeps(value));
    }

    /// As [`retain`](Self::retain), but `keeps` may change the values.
    pub fn retain_mut(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        self.values.retain(keeps);
    }

    /// Removes a range of values and returns an iterator over them. Values that are not taken are
    /// dropped with the iterator. If the iterator is forgotten, the values of the range and those
    /// behind it leak.
    ///
    /// # Panics
    /// If the range ends before it begins, or beyond the length.
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> PoolDrain<'_, T> {
        PoolDrain::new(&mut self.values, range)
    }

    /// Appends the values of an iterator until memory is refused. The values appended before that
    /// stay.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), AllocError> {
        self.values.extend::<Report>(values)
    }

    /// Appends clones of these values.
    ///
    /// # Panics
    /// Aborts where [`try_extend_from_slice`](Self::try_extend_from_slice) returns an error.
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        always(self.values.extend_cloned::<Abort>(values));
    }

    /// Fallible version of [`extend_from_slice`](Self::extend_from_slice).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.values.extend_cloned::<Report>(values)
    }

    /// Turns the vector into a box. The values move if there is unused capacity.
    ///
    /// # Panics
    /// As for [`shrink_to_fit`](Self::shrink_to_fit); never after
    /// [`try_shrink_to_fit`](Self::try_shrink_to_fit) has succeeded.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> PoolBox<[T]> {
        self.shrink_to_fit();
        // SAFETY: the block has exactly the values' layout after `shrink_to_fit`, and the box alone
        // owns it; the free finds the block's owner by its address.
        unsafe { PoolBox::from_raw(self.values.into_raw()) }
    }

    /// Leaks the values and returns a reference to them. The values are never dropped.
    #[must_use]
    pub fn leak<'a>(self) -> &'a mut [T]
    where
        T: 'a,
    {
        // SAFETY: initialised, no longer owned by the vector, and their memory is never freed.
        unsafe { self.values.into_raw().as_mut() }
    }
}
