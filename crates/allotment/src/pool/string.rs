//! A string in a pool.
//!
//! # Invariant
//!
//! The bytes are UTF-8: only whole strings and characters are appended, and a cut falls between two
//! characters.

use core::fmt::{self, Write};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::str::Utf8Error;

use super::boxed::PoolBox;
use super::pool_ref::PoolRef;
use super::vec::PoolVec;
use crate::error::{Abort, AllocError, OnFailure, Report, always};

/// A growable string in a pool, by default the [`current`](crate::pool::current()) one. See [`PoolVec`] for
/// its memory, and for its use on another thread or after the pool's end.
///
/// After the `String` of the *Thread-local Memory Pool* pattern, "whose default allocator is the
/// current one".
///
/// ```
/// use std::fmt::Write;
///
/// use allotment::{LocalPool, PoolString};
///
/// let pool = LocalPool::new();
/// let reply = pool.enter(|| {
///     let mut reply = PoolString::from("points: ");
///     write!(reply, "{}", 10).unwrap();
///     reply
/// });
/// assert_eq!(reply, "points: 10");
/// assert_eq!(reply.pool(), pool.reference());
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolString {
    bytes: PoolVec<u8>,
}

impl PoolString {
    /// Creates an empty string in the current pool. It allocates no memory before its first
    /// character.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: PoolVec::new() }
    }

    /// Creates an empty string in the given pool. It allocates no memory before its first
    /// character.
    #[inline]
    #[must_use]
    pub const fn new_in(pool: PoolRef) -> Self {
        Self { bytes: PoolVec::new_in(pool) }
    }

    /// Creates an empty string in the current pool with room for `capacity` bytes.
    ///
    /// # Panics
    /// As for [`PoolVec::with_capacity`].
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: PoolVec::with_capacity(capacity) }
    }

    /// Fallible version of [`with_capacity`](Self::with_capacity).
    ///
    /// # Errors
    /// As for [`PoolVec::try_reserve`].
    pub fn try_with_capacity(capacity: usize) -> Result<Self, AllocError> {
        Ok(Self { bytes: PoolVec::try_with_capacity(capacity)? })
    }

    /// Creates an empty string in the given pool with room for `capacity` bytes.
    ///
    /// # Panics
    /// As for [`PoolVec::with_capacity_in`].
    #[must_use]
    pub fn with_capacity_in(capacity: usize, pool: PoolRef) -> Self {
        Self { bytes: PoolVec::with_capacity_in(capacity, pool) }
    }

    /// Fallible version of [`with_capacity_in`](Self::with_capacity_in).
    ///
    /// # Errors
    /// As for [`PoolVec::try_reserve`].
    pub fn try_with_capacity_in(capacity: usize, pool: PoolRef) -> Result<Self, AllocError> {
        Ok(Self { bytes: PoolVec::try_with_capacity_in(capacity, pool)? })
    }

    /// Copies `text` into the given pool. `from` copies it into the current pool.
    ///
    /// # Panics
    /// Aborts where [`try_from_str_in`](Self::try_from_str_in) returns an error.
    #[must_use]
    pub fn from_str_in(text: &str, pool: PoolRef) -> Self {
        let mut string = Self::with_capacity_in(text.len(), pool);
        string.push_str(text);
        string
    }

    /// Fallible version of [`from_str_in`](Self::from_str_in).
    ///
    /// # Errors
    /// As for [`PoolVec::try_reserve`].
    pub fn try_from_str_in(text: &str, pool: PoolRef) -> Result<Self, AllocError> {
        let mut string = Self::try_with_capacity_in(text.len(), pool)?;
        string.try_push_str(text)?;
        Ok(string)
    }

    /// Turns bytes into a string.
    ///
    /// # Errors
    /// When the bytes are not UTF-8. The error contains the bytes.
    pub fn from_utf8(bytes: PoolVec<u8>) -> Result<Self, (PoolVec<u8>, Utf8Error)> {
        match core::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self { bytes }),
            Err(error) => Err((bytes, error)),
        }
    }

    /// Returns the pool that the string was created with. The string allocates from it while it can
    /// be used.
    #[inline]
    #[must_use]
    pub const fn pool(&self) -> PoolRef {
        self.bytes.pool()
    }

    /// Returns the number of bytes that the string has room for.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the string slice.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        self
    }

    /// Makes room for `more` further bytes.
    ///
    /// # Panics
    /// As for [`PoolVec::reserve`].
    pub fn reserve(&mut self, more: usize) {
        self.bytes.reserve(more);
    }

    /// Fallible version of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// As for [`PoolVec::try_reserve`].
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.bytes.try_reserve(more)
    }

    /// Gives back unused capacity.
    ///
    /// # Panics
    /// As for [`PoolVec::shrink_to_fit`].
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Fallible version of [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Errors
    /// As for [`PoolVec::try_shrink_to_fit`].
    pub fn try_shrink_to_fit(&mut self) -> Result<(), AllocError> {
        self.bytes.try_shrink_to_fit()
    }

    #[inline(always)]
    fn push_str_or<F: OnFailure>(&mut self, text: &str) -> Result<(), F::Error> {
        self.bytes.values.extend_copied::<F>(text.as_bytes())
    }

    /// Appends a string slice.
    ///
    /// # Panics
    /// Aborts where [`try_push_str`](Self::try_push_str) returns an error.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        always(self.push_str_or::<Abort>(text));
    }

    /// Fallible version of [`push_str`](Self::push_str).
    ///
    /// # Errors
    /// As for [`PoolVec::try_reserve`]. The string is then unchanged.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.push_str_or::<Report>(text)
    }

    /// Appends a character.
    ///
    /// # Panics
    /// As for [`push_str`](Self::push_str).
    #[inline]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Fallible version of [`push`](Self::push).
    ///
    /// # Errors
    /// As for [`try_push_str`](Self::try_push_str).
    #[inline]
    pub fn try_push(&mut self, character: char) -> Result<(), AllocError> {
        self.try_push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// Removes the last character and returns it.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Shortens the string to `len` bytes.
    ///
    /// # Panics
    /// If the cut is inside a character.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            assert!(self.is_char_boundary(len), "byte {len} is inside a character");
            self.bytes.truncate(len);
        }
    }

    /// Empties the string and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Turns the string into its bytes.
    #[must_use]
    pub fn into_bytes(self) -> PoolVec<u8> {
        self.bytes
    }

    /// Turns the string into a box.
    ///
    /// # Panics
    /// As for [`PoolVec::into_boxed_slice`].
    #[must_use]
    pub fn into_boxed_str(self) -> PoolBox<str> {
        let bytes = PoolBox::into_raw(self.bytes.into_boxed_slice()).as_ptr();
        // SAFETY: the same bytes, which are UTF-8 (the invariant), at an address that is not null;
        // no other box is made from it.
        unsafe { PoolBox::from_raw(NonNull::new_unchecked(bytes as *mut str)) }
    }
}

impl Deref for PoolString {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(&self.bytes) }
    }
}

impl DerefMut for PoolString {
    #[inline]
    fn deref_mut(&mut self) -> &mut str {
        // SAFETY: the invariant, which `&mut str` keeps.
        unsafe { core::str::from_utf8_unchecked_mut(&mut self.bytes) }
    }
}

impl Write for PoolString {
    /// Appends. Fails with nothing appended when memory is not available.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}
