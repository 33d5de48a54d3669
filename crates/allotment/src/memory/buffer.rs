//! `Buffer`: contiguous values in growing memory; the unsafe core of the vectors in arenas and
//! pools.
//!
//! # Invariants
//!
//! 1. A `RawVec` has memory for `capacity` values, which only the `RawVec` may access (`room.rs`).
//! 2. The first `len <= capacity` values of a buffer are initialised, and the buffer owns them.
//! 3. The values `next..end` of a `Values` are initialised, and the `Values` owns them; `next <=
//!    end <= capacity`.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::block_source::BlockSource;
use super::layout::MAX_GROWTH;
use super::raw_vec::RawVec;
use crate::error::{AllocError, ErrorKind, OnFailure, Report};

/// Contiguous values in growing memory.
pub(crate) struct Buffer<T, H: BlockSource> {
    /// Dropped after the values, even if the drop of a value unwinds.
    room: RawVec<T, H>,
    len: usize,
}

impl<T, H: BlockSource> Buffer<T, H> {
    /// An empty buffer, without memory.
    pub(crate) const fn new_in(home: H) -> Self {
        Self { room: RawVec::new_in(home), len: 0 }
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.room.capacity
    }

    pub(crate) const fn home(&self) -> &H {
        &self.room.home
    }

    /// The address of the first value. Its provenance covers the whole capacity.
    #[inline]
    pub(crate) const fn first(&self) -> NonNull<T> {
        self.room.first
    }

    /// # Safety
    /// The first `len` values are initialised, and the buffer owns them (invariant 2).
    #[inline]
    pub(crate) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len;
    }

    // ---- room ----

    /// Makes room for `more` further values.
    #[inline]
    pub(crate) fn reserve<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        if more <= self.room.capacity - self.len { Ok(()) } else { self.grow::<F>(more) }
    }

    #[cold]
    #[inline(never)]
    fn grow<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        let overflow = || F::fail(AllocError::new(ErrorKind::SizeOverflow, more));
        let needed = self.len.checked_add(more).ok_or_else(overflow)?;
        let least = match size_of::<T>() {
            1 => 16,
            ..=1024 => 4,
            _ => 1,
        };
        let doubled = self.room.capacity.saturating_mul(2).max(needed).max(least);
        // Doubling is optional. If it fails, try just what is needed.
        if doubled > needed && self.room.resize::<Report>(doubled).is_ok() {
            return Ok(());
        }
        self.room.resize::<F>(needed)
    }

    /// As [`reserve`](Self::reserve), but without extra capacity.
    pub(crate) fn reserve_exact<F: OnFailure>(&mut self, more: usize) -> Result<(), F::Error> {
        let overflow = || F::fail(AllocError::new(ErrorKind::SizeOverflow, more));
        let needed = self.len.checked_add(more).ok_or_else(overflow)?;
        if needed <= self.room.capacity { Ok(()) } else { self.room.resize::<F>(needed) }
    }

    /// Gives back the memory that holds no value.
    pub(crate) fn shrink<F: OnFailure>(&mut self) -> Result<(), F::Error> {
        if size_of::<T>() == 0 { Ok(()) } else { self.room.resize::<F>(self.len) }
    }

    // ---- values ----

    #[inline]
    pub(crate) fn push<F: OnFailure>(&mut self, value: T) -> Result<(), F::Error> {
        if self.len == self.room.capacity {
            self.grow::<F>(1)?;
        }
        // SAFETY: `len < capacity` (invariant 1).
        unsafe { self.first().add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: initialised, and no longer counted (invariant 2).
        Some(unsafe { self.first().add(self.len).read() })
    }

    /// Inserts a value before the value at `index`, which is at most the length.
    pub(crate) fn insert<F: OnFailure>(&mut self, index: usize, value: T) -> Result<(), F::Error> {
        assert!(index <= self.len, "index {index} is beyond the length {}", self.len);
        self.reserve::<F>(1)?;
        // SAFETY: there is room for one more value (invariant 1), and nothing unwinds.
        unsafe {
            let place = self.first().add(index);
            place.add(1).copy_from(place, self.len - index);
            place.write(value);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the value at this index and returns it.
    pub(crate) fn remove(&mut self, index: usize) -> T {
        assert!(index < self.len, "index {index} is not below the length {}", self.len);
        self.len -= 1;
        // SAFETY: the value is initialised and is moved out; the values behind it close the gap
        // (invariant 2).
        unsafe {
            let place = self.first().add(index);
            let value = place.read();
            place.copy_from(place.add(1), self.len - index);
            value
        }
    }

    /// Drops all values after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len < self.len {
            let gone = self.len - len;
            // Set the length before the drops. If a drop unwinds, the other values are dropped, and
            // none twice.
            self.len = len;
            // SAFETY: initialised, and no longer counted (invariant 2).
            unsafe {
                ptr::slice_from_raw_parts_mut(self.first().add(len).as_ptr(), gone).drop_in_place()
            };
        }
    }

    /// Keeps the values for which `keeps` returns `true`. If it unwinds, the values that it has not
    /// seen stay.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&mut T) -> bool) {
        /// `keeps` has seen the first `seen` of `len` values. The first `kept` stay; the gap lies
        /// between.
        struct Closes<'b, T, H: BlockSource> {
            buffer: &'b mut Buffer<T, H>,
            kept: usize,
            seen: usize,
            len: usize,
        }
        impl<T, H: BlockSource> Drop for Closes<'_, T, H> {
            fn drop(&mut self) {
                let left = self.len - self.seen;
                let first = self.buffer.first();
                // SAFETY: `left` initialised values lie behind the gap, and close it.
                unsafe { first.add(self.kept).copy_from(first.add(self.seen), left) };
                self.buffer.len = self.kept + left;
            }
        }
        let len = core::mem::take(&mut self.len);
        let mut closes = Closes { buffer: self, kept: 0, seen: 0, len };
        while closes.seen < len {
            let first = closes.buffer.first();
            // SAFETY: initialised, and counted only by the guard. A value counts as seen before it
            // is dropped.
            unsafe {
                let mut value = first.add(closes.seen);
                let keep = keeps(value.as_mut());
                closes.seen += 1;
                if keep {
                    first.add(closes.kept).copy_from(value, 1);
                    closes.kept += 1;
                } else {
                    value.drop_in_place();
                }
            }
        }
    }

    pub(crate) fn extend<F: OnFailure>(
        &mut self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), F::Error> {
        let mut values = values.into_iter();
        while let Some(value) = values.next() {
            if self.len == self.room.capacity {
                // The size hint may be wrong. Follow it up to 1 MiB, and go on without it if that
                // fails.
                let most = (MAX_GROWTH / size_of::<T>().max(1)).max(self.room.capacity).max(1);
                let hinted = values.size_hint().0.saturating_add(1).min(most);
                if self.reserve::<Report>(hinted).is_err() {
                    self.reserve::<F>(1)?;
                }
            }
            self.push::<F>(value)?;
        }
        Ok(())
    }

    /// Appends clones. If a clone unwinds, the clones before it stay.
    pub(crate) fn extend_cloned<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Clone,
    {
        /// Counts in a register, so that clones that are plain copies become one copy.
        struct Counts<'l>(&'l mut usize, usize);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                *self.0 += self.1;
            }
        }
        self.reserve::<F>(values.len())?;
        // SAFETY: there is room behind `len` (invariant 1).
        let behind = unsafe { self.first().add(self.len) };
        let mut counts = Counts(&mut self.len, 0);
        for value in values {
            // SAFETY: as above, for each of the `values.len()` values.
            unsafe { behind.add(counts.1).write(value.clone()) };
            counts.1 += 1;
        }
        Ok(())
    }

    /// Appends copies.
    #[inline]
    pub(crate) fn extend_copied<F: OnFailure>(&mut self, values: &[T]) -> Result<(), F::Error>
    where
        T: Copy,
    {
        self.reserve::<F>(values.len())?;
        // SAFETY: there is room behind `len` (invariant 1), and the borrowed values lie elsewhere.
        unsafe {
            self.first()
                .add(self.len)
                .copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
        Ok(())
    }

    // ---- the end ----

    /// Returns the values, with the memory of the whole capacity; the caller owns both.
    pub(crate) fn into_raw(self) -> NonNull<[T]> {
        let buffer = ManuallyDrop::new(self);
        NonNull::slice_from_raw_parts(buffer.first(), buffer.len)
    }

    /// An iterator that takes the values one by one.
    pub(crate) fn into_values(self) -> Values<T, H> {
        let buffer = ManuallyDrop::new(self);
        // SAFETY: read once, and the buffer is not used or dropped any more.
        let room = unsafe { ptr::from_ref(&buffer.room).read() };
        Values { next: 0, end: buffer.len, room }
    }
}

impl<T, H: BlockSource> Drop for Buffer<T, H> {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

impl<T, H: BlockSource> Deref for Buffer<T, H> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts(self.first().as_ptr(), self.len) }
    }
}

impl<T, H: BlockSource> DerefMut for Buffer<T, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised values (invariant 2).
        unsafe { core::slice::from_raw_parts_mut(self.first().as_ptr(), self.len) }
    }
}

/// An iterator over the values of a buffer. Its drop drops the values that are left, then frees the
/// memory.
pub(crate) struct Values<T, H: BlockSource> {
    next: usize,
    end: usize,
    room: RawVec<T, H>,
}

impl<T, H: BlockSource> Values<T, H> {
    /// The values that are left.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: initialised (invariant 3).
        unsafe {
            let first = self.room.first.add(self.next);
            core::slice::from_raw_parts(first.as_ptr(), self.end - self.next)
        }
    }
}

impl<T, H: BlockSource> Iterator for Values<T, H> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        // SAFETY: initialised, and given away from here on (invariant 3).
        Some(unsafe { self.room.first.add(self.next - 1).read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<T, H: BlockSource> DoubleEndedIterator for Values<T, H> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        self.end -= 1;
        // SAFETY: initialised, and given away from here on (invariant 3).
        Some(unsafe { self.room.first.add(self.end).read() })
    }
}

impl<T, H: BlockSource> Drop for Values<T, H> {
    fn drop(&mut self) {
        // SAFETY: initialised and owned (invariant 3), and dropped only here.
        unsafe {
            let first = self.room.first.add(self.next);
            ptr::slice_from_raw_parts_mut(first.as_ptr(), self.end - self.next).drop_in_place();
        }
    }
}
