//! The iterators that take values out of a `PoolVec`.
//!
//! # Invariants
//!
//! 1. The buffer of a `PoolDrain` counts only the values before the range. Of those behind,
//!    `next..end` are initialised, and the drain owns them and may give them away;
//!    `tail..tail + behind` are initialised, and go back to the buffer when the drain ends.
//! 2. `len <= next <= end <= tail`, where `len` is the buffer's length.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Bound, RangeBounds};
use core::ptr;

use super::pool_ref::PoolRef;
use crate::memory::buffer::{Buffer, Values};

/// An iterator over a range of values that it removes from a [`PoolVec`](crate::PoolVec); made by
/// [`drain`](crate::PoolVec::drain).
pub struct PoolDrain<'v, T> {
    buffer: &'v mut Buffer<T, PoolRef>,
    next: usize,
    end: usize,
    tail: usize,
    behind: usize,
}

impl<'v, T> PoolDrain<'v, T> {
    pub(super) fn new(buffer: &'v mut Buffer<T, PoolRef>, range: impl RangeBounds<usize>) -> Self {
        let len = buffer.len();
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
        // SAFETY: fewer values than before. The drain owns the others (invariant 1); if it is
        // forgotten, they leak.
        unsafe { buffer.set_len(start) };
        Self { buffer, next: start, end, tail: end, behind: len - end }
    }

    /// Returns the values that have not been taken.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: initialised and owned by the drain (invariant 1).
        unsafe {
            let first = self.buffer.first().add(self.next);
            core::slice::from_raw_parts(first.as_ptr(), self.end - self.next)
        }
    }
}

impl<T> Iterator for PoolDrain<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        // SAFETY: initialised, and given away once (invariant 1).
        Some(unsafe { self.buffer.first().add(self.next - 1).read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<T> DoubleEndedIterator for PoolDrain<'_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        self.end -= 1;
        // SAFETY: initialised, and given away once (invariant 1).
        Some(unsafe { self.buffer.first().add(self.end).read() })
    }
}

impl<T> ExactSizeIterator for PoolDrain<'_, T> {}
impl<T> FusedIterator for PoolDrain<'_, T> {}

impl<T> Drop for PoolDrain<'_, T> {
    fn drop(&mut self) {
        /// Closes the gap, even if a value's destructor unwinds.
        struct Closes<'b, T>(&'b mut Buffer<T, PoolRef>, usize, usize);
        impl<T> Drop for Closes<'_, T> {
            fn drop(&mut self) {
                let Self(buffer, tail, behind) = self;
                let len = buffer.len();
                // SAFETY: the tail moves down to the end of the buffer's values, and belongs to the
                // buffer again (invariant 1).
                unsafe {
                    let first = buffer.first();
                    first.add(len).copy_from(first.add(*tail), *behind);
                    buffer.set_len(len + *behind);
                }
            }
        }
        let closes = Closes(self.buffer, self.tail, self.behind);
        // SAFETY: initialised, not given away (invariant 1), and dropped only here.
        unsafe {
            let first = closes.0.first().add(self.next);
            ptr::slice_from_raw_parts_mut(first.as_ptr(), self.end - self.next).drop_in_place();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PoolDrain<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolDrain").field(&self.as_slice()).finish()
    }
}

/// An iterator over the values of a [`PoolVec`](crate::PoolVec). Values that are not taken are
/// dropped with it.
pub struct PoolIntoIter<T>(pub(super) Values<T, PoolRef>);

impl<T> PoolIntoIter<T> {
    /// Returns the values that have not been taken.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        self.0.as_slice()
    }
}

impl<T> Iterator for PoolIntoIter<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> DoubleEndedIterator for PoolIntoIter<T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        self.0.next_back()
    }
}

impl<T> ExactSizeIterator for PoolIntoIter<T> {}
impl<T> FusedIterator for PoolIntoIter<T> {}

impl<T: fmt::Debug> fmt::Debug for PoolIntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolIntoIter").field(&self.as_slice()).finish()
    }
}
