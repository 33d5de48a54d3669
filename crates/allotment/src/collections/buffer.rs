//! `Buffer`: contiguous values in growing memory; the unsafe core of [`VecIn`](super::VecIn).
//!
//! # Invariants
//!
//! 1. A `RawVec` has memory for `capacity` values, which only its owner may access (`raw_vec.rs`).
//! 2. The first `len <= capacity` values are initialised, and the buffer owns them.

use core::mem::{ManuallyDrop, needs_drop};
use core::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use core::ptr::{self, NonNull};

use super::block_source::BlockSource;
use super::raw_vec::{RawVec, overflow};
use crate::error::{OnFailure, ReturnError};
use crate::memory::layout::MAX_GROWTH;

/// Contiguous values in growing memory.
pub(super) struct Buffer<T, S: BlockSource> {
    /// Dropped after the values, even if the drop of a value unwinds.
    memory: RawVec<T, S>,
    len: usize,
}

impl<T, S: BlockSource> Buffer<T, S> {
    /// An empty buffer, without memory.
    pub(super) const fn new_in(source: S) -> Self {
        Self { memory: RawVec::new_in(source), len: 0 }
    }

    /// An empty buffer with memory for `capacity` values.
    #[inline]
    pub(super) fn with_capacity_in<F: OnFailure>(
        capacity: usize,
        source: S,
    ) -> Result<Self, F::Error> {
        Ok(Self { memory: RawVec::with_capacity_in::<F>(capacity, source)?, len: 0 })
    }

    #[inline]
    pub(super) const fn capacity(&self) -> usize {
        self.memory.capacity
    }

    #[inline]
    pub(super) const fn source(&self) -> &S {
        &self.memory.source
    }

    /// The address of the first value. Its provenance covers the whole capacity.
    #[inline]
    pub(super) const fn first(&self) -> NonNull<T> {
        self.memory.first
    }

    /// # Safety
    /// The first `len` values are initialised, and the buffer owns them (invariant 2).
    #[inline]
    pub(super) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len;
    }

    // ---- capacity ----

    /// Makes the capacity sufficient for `more` further values.
    #[inline]
    pub(super) fn reserve<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        if more <= self.memory.capacity - self.len { Ok(()) } else { self.grow::<F>(more) }
    }

    #[cold]
    #[inline(never)]
    fn grow<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        let needed = self.len.checked_add(more).ok_or_else(|| F::fail(overflow(more)))?;
        let least = match size_of::<T>() {
            1 => 16,
            ..=1024 => 4,
            _ => 1,
        };
        let doubled = self.memory.capacity.saturating_mul(2).max(needed).max(least);
        // Doubling is optional. If it fails, try just what is needed.
        if doubled > needed && self.memory.resize::<ReturnError>(doubled).is_ok() {
            return Ok(());
        }
        self.memory.resize::<F>(needed)
    }

    /// As [`reserve`](Self::reserve), but without extra capacity.
    pub(super) fn reserve_exact<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        let needed = self.len.checked_add(more).ok_or_else(|| F::fail(overflow(more)))?;
        if needed <= self.memory.capacity { Ok(()) } else { self.memory.resize::<F>(needed) }
    }

    /// Gives back the memory that holds no value, but keeps a capacity of `least` if there is one.
    pub(super) fn shrink<F: OnFailure>(&mut self, least: usize) -> Result<(), F::Error> {
        let needed = self.len.max(least);
        if size_of::<T>() == 0 || needed >= self.memory.capacity {
            return Ok(());
        }
        self.memory.resize::<F>(needed)
    }

    // ---- single values ----

    #[inline]
    pub(super) fn push<F: OnFailure>(&mut self, value: T) -> Result<(), F::Error> {
        // If `grow` unwound and the value had to be dropped here, the value would have to lie in
        // memory. So `push_slow` gets a value that needs drop. Any other is forgotten.
        let value = ManuallyDrop::new(value);
        if self.len == self.memory.capacity {
            if needs_drop::<T>() {
                return self.push_slow::<F>(ManuallyDrop::into_inner(value));
            }
            self.grow::<F>(1)?;
        }
        // SAFETY: `len < capacity` (invariant 1).
        unsafe { self.first().add(self.len).cast().write(value) };
        self.len += 1;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn push_slow<F: OnFailure>(&mut self, value: T) -> Result<(), F::Error> {
        self.grow::<F>(1)?;
        // SAFETY: `len < capacity` after `grow` (invariant 1).
        unsafe { self.first().add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: initialised, and no longer counted (invariant 2).
        Some(unsafe { self.first().add(self.len).read() })
    }

    /// Inserts a value before the value at `index`, which is at most the length.
    pub(super) fn insert<F: OnFailure>(&mut self, index: usize, value: T) -> Result<(), F::Error> {
        assert!(index <= self.len, "index {index} is beyond the length {}", self.len);
        self.reserve::<F>(1)?;
        // SAFETY: the capacity suffices for one more value (invariant 1), and nothing unwinds.
        unsafe {
            let address = self.first().add(index);
            address.add(1).copy_from(address, self.len - index);
            address.write(value);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the value at this index and returns it.
    pub(super) fn remove(&mut self, index: usize) -> T {
        assert!(index < self.len, "index {index} is not below the length {}", self.len);
        self.len -= 1;
        // SAFETY: the value is initialised and is moved out; the values behind it close the gap
        // (invariant 2).
        unsafe {
            let address = self.first().add(index);
            let value = address.read();
            address.copy_from(address.add(1), self.len - index);
            value
        }
    }

    // ---- many values ----

    /// Drops all values after the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.len {
            let removed = self.len - len;
            // Set the length before the drops. If a drop unwinds, the other values are dropped, and
            // none twice.
            self.len = len;
            // SAFETY: initialised, and no longer counted (invariant 2).
            unsafe {
                let first = self.first().add(len).as_ptr();
                ptr::slice_from_raw_parts_mut(first, removed).drop_in_place();
            };
        }
    }

    /// Keeps the values for which `keeps` returns `true`. If it unwinds, the values that it has not
    /// seen stay.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&mut T) -> bool) {
        let end = core::mem::take(&mut self.len);
        // SAFETY: the gap is empty at first, and the values behind it are all values.
        let mut gap = unsafe { CloseGap::new(self, 0, end) };
        while gap.tail < end {
            let first = gap.buffer.first();
            // SAFETY: the value at `tail` is initialised. It leaves the tail before it joins the
            // buffer's values or is dropped.
            unsafe {
                let mut value = first.add(gap.tail);
                let keep = keeps(value.as_mut());
                gap.tail += 1;
                if keep {
                    first.add(gap.buffer.len).copy_from(value, 1);
                    gap.buffer.len += 1;
                } else {
                    value.drop_in_place();
                }
            }
        }
    }

    pub(super) fn extend<F: OnFailure>(
        &mut self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), F::Error> {
        let mut values = values.into_iter();
        while let Some(value) = values.next() {
            if self.len == self.memory.capacity {
                // The size hint may be wrong. Follow it up to 1 MiB, and go on without it if that
                // fails.
                let most = (MAX_GROWTH / size_of::<T>().max(1)).max(self.memory.capacity).max(1);
                let hinted = values.size_hint().0.saturating_add(1).min(most);
                if self.reserve::<ReturnError>(hinted).is_err() {
                    self.reserve::<F>(1)?;
                }
            }
            self.push::<F>(value)?;
        }
        Ok(())
    }

    /// Appends clones. If a clone unwinds, the clones before it stay.
    pub(super) fn extend_cloned<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Clone,
    {
        /// Counts in a register, so that clones that are plain copies become one copy.
        struct AddToLen<'l>(&'l mut usize, usize);
        impl Drop for AddToLen<'_> {
            fn drop(&mut self) {
                *self.0 += self.1;
            }
        }
        self.reserve::<F>(values.len())?;
        // SAFETY: the capacity reaches beyond `len` (invariant 1).
        let end = unsafe { self.first().add(self.len) };
        let mut added = AddToLen(&mut self.len, 0);
        for value in values {
            // SAFETY: as above, for each of the `values.len()` values.
            unsafe { end.add(added.1).write(value.clone()) };
            added.1 += 1;
        }
        Ok(())
    }

    /// Appends clones of the buffer's own values in `range`, as
    /// [`extend_cloned`](Self::extend_cloned).
    pub(super) fn extend_from_within<F: OnFailure>(
        &mut self,
        range: Range<usize>,
    ) -> Result<(), F::Error>
    where
        T: Clone,
    {
        let (start, len) = (range.start, self[range].len());
        self.reserve::<F>(len)?;
        // SAFETY: initialised values (invariant 2). `extend_cloned` finds enough capacity, so they
        // don't move; it writes behind them only.
        let values = unsafe { core::slice::from_raw_parts(self.first().add(start).as_ptr(), len) };
        self.extend_cloned::<F>(values)
    }

    /// Inserts copies before the value at `index`, which is at most the length.
    #[inline]
    pub(super) fn insert_copied<F: OnFailure>(
        &mut self,
        index: usize,
        values: &[T],
    ) -> Result<(), F::Error>
    where
        T: Copy,
    {
        assert!(index <= self.len, "index {index} is beyond the length {}", self.len);
        self.reserve::<F>(values.len())?;
        // SAFETY: the capacity suffices for the further values (invariant 1). The values from
        // `index` on move behind the new ones. The borrowed values lie elsewhere.
        unsafe {
            let address = self.first().add(index);
            address.add(values.len()).copy_from(address, self.len - index);
            address.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
        Ok(())
    }

    /// Appends copies.
    #[inline]
    pub(super) fn extend_copied<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Copy,
    {
        if values.len() > self.memory.capacity - self.len {
            return self.grow_and_extend_copied::<F>(values);
        }
        // SAFETY: the capacity suffices for the further values (invariant 1), and the borrowed
        // values lie elsewhere. The length is set first, which a copy that never unwinds allows, so
        // that nothing is kept in registers across it.
        unsafe {
            let end = self.first().add(self.len);
            self.len += values.len();
            end.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        Ok(())
    }

    /// A function of its own, so that the path above needs no stack frame.
    #[cold]
    #[inline(never)]
    fn grow_and_extend_copied<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Copy,
    {
        self.grow::<F>(values.len())?;
        self.extend_copied::<F>(values)
    }

    /// Moves the values from `index` on to the end of another buffer.
    pub(super) fn move_tail<F: OnFailure, R: BlockSource>(
        &mut self,
        index: usize,
        to: &mut Buffer<T, R>,
    ) -> Result<(), F::Error> {
        assert!(index <= self.len, "index {index} is beyond the length {}", self.len);
        let moved = self.len - index;
        to.reserve::<F>(moved)?;
        // SAFETY: the other buffer's capacity suffices (invariant 1). The values are counted there
        // from here on, and no longer here (invariant 2). Two buffers don't overlap.
        unsafe {
            let end = to.first().add(to.len);
            end.copy_from_nonoverlapping(self.first().add(index), moved);
        }
        self.len = index;
        to.len += moved;
        Ok(())
    }

    // ---- the end ----

    /// Returns the values, with the memory of the whole capacity; the caller owns both.
    pub(super) fn into_raw(self) -> NonNull<[T]> {
        let buffer = ManuallyDrop::new(self);
        NonNull::slice_from_raw_parts(buffer.first(), buffer.len)
    }

    /// Returns the memory. Its first `len` values are initialised, and the caller owns them.
    pub(super) fn into_memory(self) -> (RawVec<T, S>, usize) {
        let buffer = ManuallyDrop::new(self);
        // SAFETY: read once, and the buffer is not used or dropped any more.
        (unsafe { ptr::from_ref(&buffer.memory).read() }, buffer.len)
    }
}

impl<T, S: BlockSource> Drop for Buffer<T, S> {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

impl<T, S: BlockSource> Deref for Buffer<T, S> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts(self.first().as_ptr(), self.len) }
    }
}

impl<T, S: BlockSource> DerefMut for Buffer<T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts_mut(self.first().as_ptr(), self.len) }
    }
}

/// The indices of a range of `len` values. Panics as the standard library does.
pub(super) fn indices(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    let (Some(start), Some(end)) = (start, end) else { panic!("a range beyond all indices") };
    assert!(start <= end, "the range begins at {start} and ends at {end}");
    assert!(end <= len, "the range ends at {end}, beyond the length {len}");
    start..end
}

/// Moves the values behind a gap down to the buffer's values on drop, even if a closure or a
/// value's destructor unwinds.
///
/// The buffer counts only the values before the gap. The values `tail..end` behind the gap are
/// initialised, and this guard owns them; `len <= tail <= end <= capacity`.
pub(super) struct CloseGap<'b, T, S: BlockSource> {
    pub(super) buffer: &'b mut Buffer<T, S>,
    tail: usize,
    end: usize,
}

impl<'b, T, S: BlockSource> CloseGap<'b, T, S> {
    /// # Safety
    /// The values `tail..end` are initialised, and the caller gives them away;
    /// `len <= tail <= end <= capacity`.
    pub(super) unsafe fn new(buffer: &'b mut Buffer<T, S>, tail: usize, end: usize) -> Self {
        Self { buffer, tail, end }
    }
}

impl<T, S: BlockSource> Drop for CloseGap<'_, T, S> {
    fn drop(&mut self) {
        let (left, len) = (self.end - self.tail, self.buffer.len);
        let first = self.buffer.first();
        // SAFETY: `left` initialised values lie behind the gap. They move down to the buffer's
        // values, and belong to the buffer.
        unsafe { first.add(len).copy_from(first.add(self.tail), left) };
        self.buffer.len = len + left;
    }
}
