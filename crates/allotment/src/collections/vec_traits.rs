//! The standard traits of `VecIn`.
#![forbid(unsafe_code)]

use alloc::vec::Vec;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};
use core::slice;
#[cfg(feature = "std")]
use std::io;

use super::block_source::BlockSource;
use super::vec::VecIn;
use super::vec_iterators::IntoIter;
use crate::error::{PanicOrAbort, always};

impl<T, S: BlockSource> Deref for VecIn<T, S> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T, S: BlockSource> DerefMut for VecIn<T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

// ---- where there is a default memory: the current pool ----

impl<T, S: BlockSource + Default> Default for VecIn<T, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, S: BlockSource + Default> Clone for VecIn<T, S> {
    /// Clones the values into the current pool.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T, S: BlockSource + Default> FromIterator<T> for VecIn<T, S> {
    /// Collects in the current pool.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::from_iter_in(values, S::default())
    }
}

impl<T: Clone, S: BlockSource + Default> From<&[T]> for VecIn<T, S> {
    /// Clones the values into the current pool.
    fn from(values: &[T]) -> Self {
        let mut vec = Self::with_capacity(values.len());
        vec.extend_from_slice(values);
        vec
    }
}

impl<T, S: BlockSource + Default, const N: usize> From<[T; N]> for VecIn<T, S> {
    /// Moves the values into the current pool.
    fn from(values: [T; N]) -> Self {
        let mut vec = Self::with_capacity(N);
        vec.extend(values);
        vec
    }
}

// ---- iteration ----

impl<T, S: BlockSource> Extend<T> for VecIn<T, S> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        always(self.extend_or::<PanicOrAbort>(values));
    }
}

impl<'a, T: Copy + 'a, S: BlockSource> Extend<&'a T> for VecIn<T, S> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T, S: BlockSource> IntoIterator for VecIn<T, S> {
    type Item = T;
    type IntoIter = IntoIter<T, S>;

    fn into_iter(self) -> IntoIter<T, S> {
        IntoIter::new(self.into_buffer())
    }
}

impl<'v, T, S: BlockSource> IntoIterator for &'v VecIn<T, S> {
    type Item = &'v T;
    type IntoIter = slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v, T, S: BlockSource> IntoIterator for &'v mut VecIn<T, S> {
    type Item = &'v mut T;
    type IntoIter = slice::IterMut<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

// ---- as a slice ----

impl<T, S: BlockSource> AsRef<[T]> for VecIn<T, S> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T, S: BlockSource> AsMut<[T]> for VecIn<T, S> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T, S: BlockSource> Borrow<[T]> for VecIn<T, S> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T, S: BlockSource> BorrowMut<[T]> for VecIn<T, S> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self
    }
}

macro_rules! equals_slices {
    ($([$($generics:tt)*] $left:ty, $right:ty;)*) => {$(
        impl<T: PartialEq<U>, U, S: BlockSource $($generics)*> PartialEq<$right> for $left {
            fn eq(&self, other: &$right) -> bool {
                self[..] == other[..]
            }
        }
    )*};
}
equals_slices! {
    [, R: BlockSource] VecIn<T, S>, VecIn<U, R>;
    [] VecIn<T, S>, [U];
    [] VecIn<T, S>, &[U];
    [] VecIn<T, S>, &mut [U];
    [, const N: usize] VecIn<T, S>, [U; N];
    [, const N: usize] VecIn<T, S>, &[U; N];
    [] VecIn<T, S>, Vec<U>;
    [] [T], VecIn<U, S>;
    [] &[T], VecIn<U, S>;
    [] &mut [T], VecIn<U, S>;
    [] Vec<T>, VecIn<U, S>;
}

impl<T: Eq, S: BlockSource> Eq for VecIn<T, S> {}

impl<T: PartialOrd, S: BlockSource, R: BlockSource> PartialOrd<VecIn<T, R>> for VecIn<T, S> {
    fn partial_cmp(&self, other: &VecIn<T, R>) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord, S: BlockSource> Ord for VecIn<T, S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Hash, S: BlockSource> Hash for VecIn<T, S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: fmt::Debug, S: BlockSource> fmt::Debug for VecIn<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(feature = "std")]
impl<S: BlockSource> io::Write for VecIn<u8, S> {
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
