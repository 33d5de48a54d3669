//! A string in sealed memory.
//!
//! # Invariant
//!
//! The bytes are UTF-8: only whole strings and characters are appended, and the string is shortened
//! only between characters.

use core::fmt::{self, Write};
use core::ops::Deref;

use super::read_only::ReadOnly;
use super::sealer::Sealer;
use super::vec::SealVec;
use crate::error::{Abort, AllocError, OnFailure, Report, always};

/// A string that grows while the initialiser runs, and is read-only once it is sealed. Its memory
/// is that of a [`SealVec`].
///
/// ```
/// use std::fmt::Write;
///
/// use allotment::{SealString, Sealed};
///
/// let line = Sealed::<SealString<'static>>::new(|sealer| {
///     let mut line = sealer.string();
///     line.push_str("port ");
///     write!(line, "{}", 443).unwrap();
///     line
/// });
/// assert_eq!(&**line.get(), "port 443");
/// ```
pub struct SealString<'s> {
    bytes: SealVec<'s, u8>,
}

impl<'s> SealString<'s> {
    /// An empty string. It takes no memory before its first character.
    #[must_use]
    pub const fn new_in(sealer: Sealer<'s>) -> Self {
        Self { bytes: SealVec::new_in(sealer) }
    }

    /// An empty string with room for `capacity` bytes.
    ///
    /// # Panics
    /// As [`SealVec::with_capacity_in`].
    #[must_use]
    pub fn with_capacity_in(capacity: usize, sealer: Sealer<'s>) -> Self {
        Self { bytes: SealVec::with_capacity_in(capacity, sealer) }
    }

    fn push_str_or<F: OnFailure>(&mut self, text: &str) -> Result<(), F::Error> {
        self.bytes.extend_from_slice_or::<F>(text.as_bytes())
    }

    /// Appends a string.
    ///
    /// # Panics
    /// Aborts where [`try_push_str`](Self::try_push_str) returns an error.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        always(self.push_str_or::<Abort>(text));
    }

    /// Like [`push_str`](Self::push_str), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`SealVec::try_push`]. The string is then as it was.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.push_str_or::<Report>(text)
    }

    /// Appends a character.
    ///
    /// # Panics
    /// As [`push_str`](Self::push_str).
    #[inline]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Removes the last character and returns it.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Shortens the string to its first `len` bytes.
    ///
    /// # Panics
    /// If byte `len` is inside a character.
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

    /// The number of bytes that the memory has room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The string as a `&str`. Unused capacity is given back if the string is the last block that
    /// was allocated.
    #[must_use]
    pub fn into_str(self) -> &'s str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(self.bytes.into_slice()) }
    }
}

// SAFETY: its memory comes from the sealer and is sealed with it. No method writes through a shared
// reference.
unsafe impl ReadOnly for SealString<'_> {}

impl Deref for SealString<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(&self.bytes) }
    }
}

impl Write for SealString<'_> {
    /// Fails if there is no memory; nothing is appended then.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl PartialEq for SealString<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SealString<'_> {}

impl core::hash::Hash for SealString<'_> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl core::borrow::Borrow<str> for SealString<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Debug for SealString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for SealString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
