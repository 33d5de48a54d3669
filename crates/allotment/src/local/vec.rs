//! A vector in a pool: a [`Buffer`] whose home is a `PoolRef`.

use super::boxed::PoolBox;
use super::drain::PoolDrain;
use super::pool_ref::{PoolRef, current};
use crate::error::{Abort, AllocError, Report, always};
use crate::memory::buffer::Buffer;
use core::ops::RangeBounds;

/// A growing vector in a pool: by default in the [`current`](crate::current) one. Address, length, capacity and a [`PoolRef`].
///
/// It may be sent to other threads and outlive its pool. Where the pool can't be used it grows on the global heap; what it leaves is
/// freed where it belongs. Capacities double.
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
/// It is sent where its values may be:
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
/// What is lent of it is borrowed:
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
    /// An empty vector of the current pool. Takes no memory before its first value.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::new_in(current())
    }

    /// An empty vector of this pool. Takes no memory before its first value.
    #[inline]
    #[must_use]
    pub const fn new_in(pool: PoolRef) -> Self {
        Self { values: Buffer::new_in(pool) }
    }

    /// An empty vector of the current pool with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity`](Self::try_with_capacity) returns an error.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity, current())
    }

    /// [`with_capacity`](Self::with_capacity), or the reason why not.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity(capacity: usize) -> Result<Self, AllocError> {
        Self::try_with_capacity_in(capacity, current())
    }

    /// An empty vector of this pool with room for `capacity` values.
    ///
    /// # Panics
    /// Aborts where [`try_with_capacity_in`](Self::try_with_capacity_in) returns an error.
    #[must_use]
    pub fn with_capacity_in(capacity: usize, pool: PoolRef) -> Self {
        let mut vec = Self::new_in(pool);
        vec.reserve_exact(capacity);
        vec
    }

    /// [`with_capacity_in`](Self::with_capacity_in), or the reason why not.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity_in(capacity: usize, pool: PoolRef) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(pool);
        vec.try_reserve_exact(capacity)?;
        Ok(vec)
    }

    /// Collects an iterator in this pool; `collect` does so in the current one.
    ///
    /// # Panics
    /// As [`push`](Self::push), and if the iterator does.
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, pool: PoolRef) -> Self {
        let mut vec = Self::new_in(pool);
        vec.extend(values);
        vec
    }

    /// [`from_iter_in`](Self::from_iter_in), or the reason why not.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve).
    pub fn try_from_iter_in(
        values: impl IntoIterator<Item = T>,
        pool: PoolRef,
    ) -> Result<Self, AllocError> {
        let mut vec = Self::new_in(pool);
        vec.try_extend(values)?;
        Ok(vec)
    }

    /// The pool that it was made with, and takes memory from while that can be used.
    #[inline]
    #[must_use]
    pub const fn pool(&self) -> PoolRef {
        *self.values.home()
    }

    /// The number of values that there is room for.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.values.capacity()
    }

    /// The values.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.values
    }

    /// The values.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.values
    }

    // ---- room ----

    /// Makes room for `more` values beyond those there are, and for twice as many as there was if that can be had.
    ///
    /// # Panics
    /// Aborts where [`try_reserve`](Self::try_reserve) returns an error.
    pub fn reserve(&mut self, more: usize) {
        always(self.values.reserve::<Abort>(more));
    }

    /// [`reserve`](Self::reserve), or the reason why not.
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); else as [`PoolRef::try_alloc_layout`]. The vector is as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve::<Report>(more)
    }

    /// Makes room for `more` values beyond those there are, and for no others.
    ///
    /// # Panics
    /// Aborts where [`try_reserve_exact`](Self::try_reserve_exact) returns an error.
    pub fn reserve_exact(&mut self, more: usize) {
        always(self.values.reserve_exact::<Abort>(more));
    }

    /// [`reserve_exact`](Self::reserve_exact), or the reason why not.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve).
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), AllocError> {
        self.values.reserve_exact::<Report>(more)
    }

    /// Gives room back that no value has.
    ///
    /// # Panics
    /// Aborts where [`try_shrink_to_fit`](Self::try_shrink_to_fit) returns an error.
    pub fn shrink_to_fit(&mut self) {
        always(self.values.shrink::<Abort>());
    }

    /// [`shrink_to_fit`](Self::shrink_to_fit), or the reason why not.
    ///
    /// # Errors
    /// When the values have to move, and there is no memory for that: as [`PoolRef::try_alloc_layout`]. The vector is as it was.
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

    /// Appends a value, or drops it and says why.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve). The vector is as it was.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        self.values.push::<Report>(value)
    }

    /// Takes the last value off.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.values.pop()
    }

    /// Puts a value before that of this index, or behind the last.
    ///
    /// # Panics
    /// If the index is beyond the length. Aborts where [`try_insert`](Self::try_insert) returns an error.
    pub fn insert(&mut self, index: usize, value: T) {
        always(self.values.insert::<Abort>(index, value));
    }

    /// [`insert`](Self::insert), or drops the value and says why.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve). The vector is as it was.
    ///
    /// # Panics
    /// If the index is beyond the length.
    pub fn try_insert(&mut self, index: usize, value: T) -> Result<(), AllocError> {
        self.values.insert::<Report>(index, value)
    }

    /// Takes the value of this index out; those behind it move up.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, index: usize) -> T {
        self.values.remove(index)
    }

    /// Takes the value of this index out; the last one takes its place.
    ///
    /// # Panics
    /// If there is none.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.len().saturating_sub(1);
        self.swap(index, last);
        self.values.remove(last)
    }

    /// Drops all values but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.values.truncate(0);
    }

    /// Drops those values of which `keeps` says that they don't stay.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.values.retain(|value| keeps(value));
    }

    /// [`retain`](Self::retain) by a function that may change what stays.
    pub fn retain_mut(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        self.values.retain(keeps);
    }

    /// Takes a range of values out, one by one; what is not taken is dropped with the iterator. If that is forgotten, the values of
    /// the range and those behind it leak.
    ///
    /// # Panics
    /// If the range ends before it begins, or beyond the length.
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> PoolDrain<'_, T> {
        PoolDrain::new(&mut self.values, range)
    }

    /// Appends what an iterator gives, until memory is refused: what it gave before that is there.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve).
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

    /// [`extend_from_slice`](Self::extend_from_slice), or the reason why not.
    ///
    /// # Errors
    /// As [`try_reserve`](Self::try_reserve). The vector is as it was.
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.values.extend_cloned::<Report>(values)
    }

    /// The values in a box. They move if there is room that they don't use.
    ///
    /// # Panics
    /// As [`shrink_to_fit`](Self::shrink_to_fit); never after [`try_shrink_to_fit`](Self::try_shrink_to_fit) has succeeded.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> PoolBox<[T]> {
        self.shrink_to_fit();
        // SAFETY: the values' block has their layout now, and is the caller's: it is freed by its address.
        unsafe { PoolBox::from_raw(self.values.into_raw()) }
    }

    /// Lends the values for ever. They are never dropped.
    #[must_use]
    pub fn leak<'a>(self) -> &'a mut [T]
    where
        T: 'a,
    {
        // SAFETY: initialised, nobody else's from now on, and their memory stays.
        unsafe { self.values.into_raw().as_mut() }
    }
}
