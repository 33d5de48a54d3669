//! The iterators that take values out of a vector.
//!
//! # Invariants
//!
//! 1. The values `next..end` of an [`IntoIter`] are initialised, and the iterator owns them;
//!    `next <= end <= capacity`.
//! 2. The buffer of a [`Drain`] counts only the values before the range. Of those behind,
//!    `next..end` are initialised, and the drain owns them and may give them away;
//!    `tail..tail + tail_len` are initialised, and go back to the buffer when the drain ends.
//! 3. For a drain, `len <= next <= end <= tail`, where `len` is the buffer's length.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Range, RangeBounds};
use core::ptr;

use super::block_source::BlockSource;
use super::buffer::{Buffer, CloseGap, indices};
use super::raw_vec::RawVec;

/// An iterator over the values of a [`VecIn`](super::VecIn). Values that are not taken are dropped
/// with it; then the memory is freed.
pub struct IntoIter<T, S: BlockSource> {
    next: usize,
    end: usize,
    /// Dropped after the values, even if the drop of a value unwinds.
    memory: RawVec<T, S>,
}

impl<T, S: BlockSource> IntoIter<T, S> {
    pub(super) fn new(buffer: Buffer<T, S>) -> Self {
        let (memory, end) = buffer.into_memory();
        Self { next: 0, end, memory }
    }

    /// Returns the values that have not been taken.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: initialised and owned by the iterator (invariant 1).
        unsafe {
            let first = self.memory.first.add(self.next);
            core::slice::from_raw_parts(first.as_ptr(), self.end - self.next)
        }
    }
}

impl<T, S: BlockSource> Drop for IntoIter<T, S> {
    fn drop(&mut self) {
        // SAFETY: initialised and owned (invariant 1), and dropped only here.
        unsafe {
            let first = self.memory.first.add(self.next);
            ptr::slice_from_raw_parts_mut(first.as_ptr(), self.end - self.next).drop_in_place();
        }
    }
}

/// An iterator over a range of values that it removes from a [`VecIn`](super::VecIn); made by
/// [`drain`](super::VecIn::drain).
pub struct Drain<'v, T, S: BlockSource> {
    buffer: &'v mut Buffer<T, S>,
    next: usize,
    end: usize,
    tail: usize,
    tail_len: usize,
}

impl<'v, T, S: BlockSource> Drain<'v, T, S> {
    pub(super) fn new(buffer: &'v mut Buffer<T, S>, range: impl RangeBounds<usize>) -> Self {
        let len = buffer.len();
        let Range { start, end } = indices(range, len);
        // SAFETY: fewer values than before. The drain owns the others (invariant 2); if it is
        // forgotten, they leak.
        unsafe { buffer.set_len(start) };
        Self { buffer, next: start, end, tail: end, tail_len: len - end }
    }

    /// Returns the values that have not been taken.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: initialised and owned by the drain (invariant 2).
        unsafe {
            let first = self.buffer.first().add(self.next);
            core::slice::from_raw_parts(first.as_ptr(), self.end - self.next)
        }
    }
}

impl<T, S: BlockSource> Drop for Drain<'_, T, S> {
    fn drop(&mut self) {
        // SAFETY: the values of the tail are initialised and the drain's (invariants 2 and 3).
        let gap = unsafe { CloseGap::new(self.buffer, self.tail, self.tail + self.tail_len) };
        // SAFETY: initialised, not given away (invariant 2), and dropped only here.
        unsafe {
            let first = gap.buffer.first().add(self.next);
            ptr::slice_from_raw_parts_mut(first.as_ptr(), self.end - self.next).drop_in_place();
        }
    }
}

/// The traits that both iterators have alike. `$first` is the address of the memory's first value.
macro_rules! iterators {
    ($([$($lifetime:lifetime)?] $iterator:ident, |$self:ident| $first:expr;)*) => {$(
        impl<$($lifetime,)? T, S: BlockSource> Iterator for $iterator<$($lifetime,)? T, S> {
            type Item = T;

            #[inline]
            fn next(&mut $self) -> Option<T> {
                if $self.next == $self.end {
                    return None;
                }
                $self.next += 1;
                // SAFETY: initialised, and given away once (invariants 1 and 2).
                Some(unsafe { $first.add($self.next - 1).read() })
            }

            #[inline]
            fn size_hint(&self) -> (usize, Option<usize>) {
                let left = self.end - self.next;
                (left, Some(left))
            }
        }

        impl<$($lifetime,)? T, S: BlockSource> DoubleEndedIterator
            for $iterator<$($lifetime,)? T, S>
        {
            #[inline]
            fn next_back(&mut $self) -> Option<T> {
                if $self.next == $self.end {
                    return None;
                }
                $self.end -= 1;
                // SAFETY: initialised, and given away once (invariants 1 and 2).
                Some(unsafe { $first.add($self.end).read() })
            }
        }

        impl<$($lifetime,)? T, S: BlockSource> ExactSizeIterator
            for $iterator<$($lifetime,)? T, S> {}
        impl<$($lifetime,)? T, S: BlockSource> FusedIterator for $iterator<$($lifetime,)? T, S> {}

        impl<$($lifetime,)? T: fmt::Debug, S: BlockSource> fmt::Debug
            for $iterator<$($lifetime,)? T, S>
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($iterator)).field(&self.as_slice()).finish()
            }
        }
    )*};
}
iterators! {
    [] IntoIter, |self| self.memory.first;
    ['v] Drain, |self| self.buffer.first();
}
