//! The standard traits of `PoolVec`.
#![forbid(unsafe_code)]

use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};
use core::slice;
use std::io;

use super::boxed::PoolBox;
use super::drain::PoolIntoIter;
use super::vec::PoolVec;
use crate::error::{Abort, always};

impl<T> Deref for PoolVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for PoolVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T> Default for PoolVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Clone for PoolVec<T> {
    /// Clones the values into the current pool.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T: Clone> Clone for PoolBox<[T]> {
    /// Clones the values into the current pool.
    fn clone(&self) -> Self {
        PoolVec::from(&**self).into_boxed_slice()
    }
}

impl<T> Extend<T> for PoolVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        always(self.values.extend::<Abort>(values));
    }
}

impl<'a, T: Copy + 'a> Extend<&'a T> for PoolVec<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T> FromIterator<T> for PoolVec<T> {
    /// Collects in the current pool.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut vec = Self::new();
        vec.extend(values);
        vec
    }
}

impl<T> FromIterator<T> for PoolBox<[T]> {
    /// Collects in the current pool.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        PoolVec::from_iter(values).into_boxed_slice()
    }
}

impl<T: Clone> From<&[T]> for PoolVec<T> {
    fn from(values: &[T]) -> Self {
        let mut vec = Self::with_capacity(values.len());
        vec.extend_from_slice(values);
        vec
    }
}

impl<T, const N: usize> From<[T; N]> for PoolVec<T> {
    fn from(values: [T; N]) -> Self {
        let mut vec = Self::with_capacity(N);
        vec.extend(values);
        vec
    }
}

impl<T> From<PoolVec<T>> for PoolBox<[T]> {
    fn from(vec: PoolVec<T>) -> Self {
        vec.into_boxed_slice()
    }
}

impl<T> IntoIterator for PoolVec<T> {
    type Item = T;
    type IntoIter = PoolIntoIter<T>;

    fn into_iter(self) -> PoolIntoIter<T> {
        PoolIntoIter(self.values.into_values())
    }
}

impl<'v, T> IntoIterator for &'v PoolVec<T> {
    type Item = &'v T;
    type IntoIter = slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v, T> IntoIterator for &'v mut PoolVec<T> {
    type Item = &'v mut T;
    type IntoIter = slice::IterMut<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T> AsRef<[T]> for PoolVec<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for PoolVec<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Borrow<[T]> for PoolVec<T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T> BorrowMut<[T]> for PoolVec<T> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self
    }
}

macro_rules! equals_slices {
    ($([$($generics:tt)*] $left:ty, $right:ty;)*) => {$(
        impl<T: PartialEq<U>, U $($generics)*> PartialEq<$right> for $left {
            fn eq(&self, other: &$right) -> bool {
                self[..] == other[..]
            }
        }
    )*};
}
equals_slices! {
    [] PoolVec<T>, PoolVec<U>;
    [] PoolVec<T>, [U];
    [] PoolVec<T>, &[U];
    [, const N: usize] PoolVec<T>, [U; N];
    [] PoolVec<T>, Vec<U>;
    [] Vec<T>, PoolVec<U>;
}

impl<T: Eq> Eq for PoolVec<T> {}

impl<T: PartialOrd> PartialOrd for PoolVec<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(other)
    }
}

impl<T: Ord> Ord for PoolVec<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl<T: Hash> Hash for PoolVec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for PoolVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl io::Write for PoolVec<u8> {
    /// Appends the bytes. Fails with nothing appended when memory is not available.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_extend_from_slice(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
