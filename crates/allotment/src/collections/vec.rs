//! `VecIn`: a growing vector over any [`BlockSource`].
#![forbid(unsafe_code)]

use core::iter::{repeat_n, repeat_with};
use core::ops::RangeBounds;
use core::ptr::NonNull;

use super::block_source::BlockSource;
use super::buffer::{Buffer, indices};
use super::vec_iterators::Drain;
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always};

/// A growing vector whose memory comes from a [`BlockSource`].
///
/// Use it under the name for its memory: [`ArenaVec`](crate::ArenaVec), [`PoolVec`](crate::PoolVec)
/// or [`SealVec`](crate::SealVec). The capacity doubles when the vector grows, if that much memory
/// is available.
pub struct VecIn<T, S: BlockSource> {
    buffer: Buffer<T, S>,
}

impl<T, S: BlockSource> VecIn<T, S> {
    /// Creates an empty vector in this memory. It allocates nothing before its first value.
    #[inline]
    #[must_use]
    pub const fn new_in(source: S) -> Self {
        Self { buffer: Buffer::new_in(source) }
    }

    #[inline]
    pub(crate) fn with_capacity_in_or<F: OnFailure>(
        capacity: usize,
        source: S,
    ) -> Result<Self, F::Error> {
        Ok(Self { buffer: Buffer::with_capacity_in::<F>(capacity, source)? })
    }

    /// Creates an empty vector with a capacity of `capacity` values.
    ///
    /// # Panics
    /// As for [`reserve_exact`](Self::reserve_exact).
    #[must_use]
    pub fn with_capacity_in(capacity: usize, source: S) -> Self {
        always(Self::with_capacity_in_or::<PanicOrAbort>(capacity, source))
    }

    /// Fallible version of [`with_capacity_in`](Self::with_capacity_in).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity_in(capacity: usize, source: S) -> Result<Self, AllocError> {
        Self::with_capacity_in_or::<ReturnError>(capacity, source)
    }

    pub(super) fn from_iter_in_or<F: OnFailure>(
        values: impl IntoIterator<Item = T>,
        source: S,
    ) -> Result<Self, F::Error> {
        let mut vec = Self::new_in(source);
        vec.buffer.extend::<F>(values)?;
        Ok(vec)
    }

    /// Collects an iterator.
    ///
    /// # Panics
    /// As for [`push`](Self::push), and if the iterator panics.
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, source: S) -> Self {
        always(Self::from_iter_in_or::<PanicOrAbort>(values, source))
    }

    /// Fallible version of [`from_iter_in`](Self::from_iter_in).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_from_iter_in(
        values: impl IntoIterator<Item = T>,
        source: S,
    ) -> Result<Self, AllocError> {
        Self::from_iter_in_or::<ReturnError>(values, source)
    }

    /// What the vector allocates from.
    #[inline]
    pub(crate) const fn source(&self) -> &S {
        self.buffer.source()
    }

    /// Returns the number of values that the vector can hold without growing.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the values.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.buffer
    }

    /// Returns the values.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.buffer
    }

    // ---- capacity ----

    /// Makes the capacity sufficient for `more` further values. A vector that has to grow doubles
    /// its capacity if that much memory is available.
    ///
    /// # Panics
    /// If the values would take more than `isize::MAX` bytes. Panics or ends the process if
    /// [`try_reserve`](Self::try_reserve) returns another error: see
    /// [`AllocError`](crate::AllocError).
    pub fn reserve(&mut self, more: usize) {
        always(self.buffer.reserve::<PanicOrAbort>(more));
    }

    /// Fallible version of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind); otherwise the errors of the memory that the
    /// vector is in: those of [`Arena::try_alloc`](crate::Arena::try_alloc),
    /// [`PoolRef::try_alloc_layout`](crate::PoolRef::try_alloc_layout) or
    /// [`Sealer::try_alloc_str`](crate::Sealer::try_alloc_str). The vector is then unchanged.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.buffer.reserve::<ReturnError>(more)
    }

    /// Makes the capacity sufficient for exactly `more` further values, without doubling.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve).
    pub fn reserve_exact(&mut self, more: usize) {
        always(self.buffer.reserve_exact::<PanicOrAbort>(more));
    }

    /// Fallible version of [`reserve_exact`](Self::reserve_exact).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), AllocError> {
        self.buffer.reserve_exact::<ReturnError>(more)
    }

    /// Gives back unused capacity.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_shrink_to_fit`](Self::try_shrink_to_fit) returns an
    /// error: see [`AllocError`](crate::AllocError).
    pub fn shrink_to_fit(&mut self) {
        always(self.buffer.shrink::<PanicOrAbort>(0));
    }

    /// Fallible version of [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Errors
    /// When the values have to move and there is no memory for that, as for
    /// [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    pub fn try_shrink_to_fit(&mut self) -> Result<(), AllocError> {
        self.buffer.shrink::<ReturnError>(0)
    }

    /// Gives back unused capacity, but keeps a capacity of at least `least` values if there is one.
    ///
    /// # Panics
    /// As for [`shrink_to_fit`](Self::shrink_to_fit).
    pub fn shrink_to(&mut self, least: usize) {
        always(self.buffer.shrink::<PanicOrAbort>(least));
    }

    /// Fallible version of [`shrink_to`](Self::shrink_to).
    ///
    /// # Errors
    /// As for [`try_shrink_to_fit`](Self::try_shrink_to_fit).
    pub fn try_shrink_to(&mut self, least: usize) -> Result<(), AllocError> {
        self.buffer.shrink::<ReturnError>(least)
    }

    pub(super) fn shrink_or<F: OnFailure>(&mut self) -> Result<(), F::Error> {
        self.buffer.shrink::<F>(0)
    }

    // ---- single values ----

    /// Appends a value.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve).
    #[inline]
    pub fn push(&mut self, value: T) {
        always(self.buffer.push::<PanicOrAbort>(value));
    }

    /// Fallible version of [`push`](Self::push). On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        self.buffer.push::<ReturnError>(value)
    }

    /// Removes the last value and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.buffer.pop()
    }

    /// Inserts a value at this index. The values from there on move back by one.
    ///
    /// # Panics
    /// If the index is greater than the length; otherwise as for [`reserve`](Self::reserve).
    pub fn insert(&mut self, index: usize, value: T) {
        always(self.buffer.insert::<PanicOrAbort>(index, value));
    }

    /// Fallible version of [`insert`](Self::insert). On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    ///
    /// # Panics
    /// If the index is greater than the length.
    pub fn try_insert(&mut self, index: usize, value: T) -> Result<(), AllocError> {
        self.buffer.insert::<ReturnError>(index, value)
    }

    /// Removes the value at this index and returns it. The values behind it move up.
    ///
    /// # Panics
    /// If the index is not less than the length.
    pub fn remove(&mut self, index: usize) -> T {
        self.buffer.remove(index)
    }

    /// Removes the value at this index and returns it. The last value takes its place.
    ///
    /// # Panics
    /// If the index is not less than the length.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.len().saturating_sub(1);
        self.swap(index, last);
        self.buffer.remove(last)
    }

    // ---- many values ----

    /// Drops all values after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        self.buffer.truncate(0);
    }

    /// Drops the values for which `keeps` returns `false`.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.buffer.retain(|value| keeps(value));
    }

    /// As [`retain`](Self::retain), but `keeps` may change the values.
    pub fn retain_mut(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        self.buffer.retain(keeps);
    }

    /// Drops all but the first of consecutive equal values.
    pub fn dedup(&mut self)
    where
        T: PartialEq,
    {
        self.dedup_by(|value, before| value == before);
    }

    /// Drops all but the first of consecutive values with equal keys.
    pub fn dedup_by_key<K: PartialEq>(&mut self, mut key: impl FnMut(&mut T) -> K) {
        self.dedup_by(|value, before| key(value) == key(before));
    }

    /// Drops each value for which `same` returns `true`; `same` gets the value and the last value
    /// kept before it. If `same` panics, the values stay, in any order.
    pub fn dedup_by(&mut self, mut same: impl FnMut(&mut T, &mut T) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut kept = 1;
        for index in 1..self.len() {
            let (before, rest) = self.split_at_mut(index);
            if !same(&mut rest[0], &mut before[kept - 1]) {
                self.swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Removes a range of values and returns an iterator over them. Values that are not taken are
    /// dropped with the iterator. If the iterator is forgotten, the values of the range and those
    /// behind it leak.
    ///
    /// # Panics
    /// If the range ends before it begins, or beyond the length.
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, T, S> {
        Drain::new(&mut self.buffer, range)
    }

    pub(crate) fn extend_or<F: OnFailure>(
        &mut self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), F::Error> {
        self.buffer.extend::<F>(values)
    }

    /// Appends the values of an iterator until memory is refused. The values appended before that
    /// stay.
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), AllocError> {
        self.extend_or::<ReturnError>(values)
    }

    /// Appends clones of these values.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve), and if a clone panics.
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        always(self.buffer.extend_cloned::<PanicOrAbort>(values));
    }

    /// Fallible version of [`extend_from_slice`](Self::extend_from_slice).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    #[inline]
    pub fn try_extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.buffer.extend_cloned::<ReturnError>(values)
    }

    /// Appends copies with a single copy of the bytes.
    #[inline]
    pub(crate) fn extend_copied_or<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Copy,
    {
        self.buffer.extend_copied::<F>(values)
    }

    /// Inserts copies at this index.
    pub(super) fn insert_copied_or<F: OnFailure>(
        &mut self,
        index: usize,
        values: &[T],
    ) -> Result<(), F::Error>
    where
        T: Copy,
    {
        self.buffer.insert_copied::<F>(index, values)
    }

    fn resize_or<F: OnFailure>(&mut self, len: usize, value: T) -> Result<(), F::Error>
    where
        T: Clone,
    {
        let more = len.saturating_sub(self.len());
        self.truncate(len);
        self.buffer.reserve::<F>(more)?;
        self.buffer.extend::<F>(repeat_n(value, more))
    }

    /// Gives the vector this length: drops the values beyond it, or appends clones of `value`.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve), and if a clone panics.
    pub fn resize(&mut self, len: usize, value: T)
    where
        T: Clone,
    {
        always(self.resize_or::<PanicOrAbort>(len, value));
    }

    /// Fallible version of [`resize`](Self::resize).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    pub fn try_resize(&mut self, len: usize, value: T) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.resize_or::<ReturnError>(len, value)
    }

    fn resize_with_or<F: OnFailure>(
        &mut self,
        len: usize,
        make: impl FnMut() -> T,
    ) -> Result<(), F::Error> {
        let more = len.saturating_sub(self.len());
        self.truncate(len);
        self.buffer.reserve::<F>(more)?;
        self.buffer.extend::<F>(repeat_with(make).take(more))
    }

    /// Gives the vector this length: drops the values beyond it, or appends values that `make`
    /// returns.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve), and if `make` panics.
    pub fn resize_with(&mut self, len: usize, make: impl FnMut() -> T) {
        always(self.resize_with_or::<PanicOrAbort>(len, make));
    }

    /// Fallible version of [`resize_with`](Self::resize_with).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    pub fn try_resize_with(
        &mut self,
        len: usize,
        make: impl FnMut() -> T,
    ) -> Result<(), AllocError> {
        self.resize_with_or::<ReturnError>(len, make)
    }

    fn extend_from_within_or<F: OnFailure>(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<(), F::Error>
    where
        T: Clone,
    {
        let range = indices(range, self.len());
        self.buffer.extend_from_within::<F>(range)
    }

    /// Appends clones of the vector's own values in this range.
    ///
    /// # Panics
    /// If the range ends before it begins, or beyond the length, and if a clone panics; otherwise
    /// as for [`reserve`](Self::reserve).
    pub fn extend_from_within(&mut self, range: impl RangeBounds<usize>)
    where
        T: Clone,
    {
        always(self.extend_from_within_or::<PanicOrAbort>(range));
    }

    /// Fallible version of [`extend_from_within`](Self::extend_from_within).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    ///
    /// # Panics
    /// If the range ends before it begins, or beyond the length, and if a clone panics.
    pub fn try_extend_from_within(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.extend_from_within_or::<ReturnError>(range)
    }

    /// Moves all values of another vector, of any memory, to the end of this one.
    ///
    /// # Panics
    /// As for [`reserve`](Self::reserve).
    pub fn append<R: BlockSource>(&mut self, other: &mut VecIn<T, R>) {
        always(other.buffer.move_tail::<PanicOrAbort, S>(0, &mut self.buffer));
    }

    /// Fallible version of [`append`](Self::append).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). Both vectors are then unchanged.
    pub fn try_append<R: BlockSource>(
        &mut self,
        other: &mut VecIn<T, R>,
    ) -> Result<(), AllocError> {
        other.buffer.move_tail::<ReturnError, S>(0, &mut self.buffer)
    }

    fn split_off_or<F: OnFailure>(&mut self, index: usize) -> Result<Self, F::Error> {
        let mut tail = Self::new_in(*self.source());
        self.buffer.move_tail::<F, S>(index, &mut tail.buffer)?;
        Ok(tail)
    }

    /// Moves the values from `index` on to a new vector in the same memory.
    ///
    /// # Panics
    /// If the index is greater than the length; otherwise as for [`reserve`](Self::reserve).
    #[must_use = "use `truncate` to drop the values"]
    pub fn split_off(&mut self, index: usize) -> Self {
        always(self.split_off_or::<PanicOrAbort>(index))
    }

    /// Fallible version of [`split_off`](Self::split_off).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve). The vector is then unchanged.
    ///
    /// # Panics
    /// If the index is greater than the length.
    pub fn try_split_off(&mut self, index: usize) -> Result<Self, AllocError> {
        self.split_off_or::<ReturnError>(index)
    }

    // ---- the end ----

    /// Gives up the values and the memory of the whole capacity.
    pub(crate) fn into_raw(self) -> NonNull<[T]> {
        self.buffer.into_raw()
    }

    pub(super) fn into_buffer(self) -> Buffer<T, S> {
        self.buffer
    }
}

impl<T, S: BlockSource + Default> VecIn<T, S> {
    /// Creates an empty vector in the current pool. It allocates no memory before its first value.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::new_in(S::default())
    }

    /// Creates an empty vector in the current pool with a capacity of `capacity` values.
    ///
    /// # Panics
    /// As for [`reserve_exact`](Self::reserve_exact).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity, S::default())
    }

    /// Fallible version of [`with_capacity`](Self::with_capacity).
    ///
    /// # Errors
    /// As for [`try_reserve`](Self::try_reserve).
    pub fn try_with_capacity(capacity: usize) -> Result<Self, AllocError> {
        Self::try_with_capacity_in(capacity, S::default())
    }
}
