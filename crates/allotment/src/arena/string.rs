//! A string in an arena, and `format_in!`.
//!
//! # Invariant
//!
//! The bytes are UTF-8: only whole strings and characters are appended, and the string is cut only
//! between characters.

use core::fmt::{self, Write};
use core::ops::{Deref, DerefMut};

use super::Arena;
use super::vec::ArenaVec;
use crate::error::{Abort, AllocError, OnFailure, Report, always};

/// A growing string in an [`Arena`]. Its memory behaves like that of an [`ArenaVec`].
///
/// ```
/// use std::fmt::Write;
///
/// let arena = allotment::Arena::new();
/// let mut reply = allotment::ArenaString::new_in(&arena);
/// reply.push_str("points: ");
/// write!(reply, "{}", 10).unwrap();
/// assert_eq!(reply.into_str(), "points: 10");
/// ```
pub struct ArenaString<'a, const MIN_ALIGN: usize = 8> {
    bytes: ArenaVec<'a, u8, MIN_ALIGN>,
}

impl<'a, const MIN_ALIGN: usize> ArenaString<'a, MIN_ALIGN> {
    /// An empty string. It takes no memory before its first character.
    #[must_use]
    pub const fn new_in(arena: &'a Arena<MIN_ALIGN>) -> Self {
        Self { bytes: ArenaVec::new_in(arena) }
    }

    /// An empty string with room for `capacity` bytes.
    ///
    /// # Panics
    /// As [`ArenaVec::with_capacity_in`].
    #[must_use]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena<MIN_ALIGN>) -> Self {
        Self { bytes: ArenaVec::with_capacity_in(capacity, arena) }
    }

    /// A growable copy of `text`.
    ///
    /// # Panics
    /// As [`push_str`](Self::push_str).
    #[must_use]
    pub fn from_str_in(text: &str, arena: &'a Arena<MIN_ALIGN>) -> Self {
        let mut string = Self::new_in(arena);
        string.push_str(text);
        string
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

    /// Appends a string, or returns the reason why it failed.
    ///
    /// # Errors
    /// As [`ArenaVec::try_extend_from_slice`]. The string is then as it was.
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

    /// Cuts the string to its first `len` bytes. Does nothing if it is not longer than that.
    ///
    /// # Panics
    /// If byte `len` is inside a character.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            assert!(self.is_char_boundary(len), "byte {len} is inside a character");
            self.bytes.truncate(len);
        }
    }

    /// Removes all characters and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The number of bytes that the string has room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Turns the string into a `str` that lives as long as the arena is borrowed.
    #[must_use]
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked_mut(self.bytes.into_slice()) }
    }
}

impl<const MIN_ALIGN: usize> Deref for ArenaString<'_, MIN_ALIGN> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(&self.bytes) }
    }
}

impl<const MIN_ALIGN: usize> DerefMut for ArenaString<'_, MIN_ALIGN> {
    #[inline]
    fn deref_mut(&mut self) -> &mut str {
        // SAFETY: the invariant, which `&mut str` keeps.
        unsafe { core::str::from_utf8_unchecked_mut(&mut self.bytes) }
    }
}

impl<const MIN_ALIGN: usize> Write for ArenaString<'_, MIN_ALIGN> {
    /// Appends `text`. Fails and appends nothing if memory is exhausted.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl<const MIN_ALIGN: usize> fmt::Debug for ArenaString<'_, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<const MIN_ALIGN: usize> fmt::Display for ArenaString<'_, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Formats into an arena: like `format!`, with the arena before the format string. Returns an
/// [`ArenaString`].
///
/// ```
/// use allotment::{Arena, format_in};
///
/// let arena = Arena::new();
/// let line = format_in!(&arena, "{} of {}", 3, "ten");
/// assert_eq!(&*line, "3 of ten");
/// ```
///
/// # Panics
/// If memory is exhausted, or a formatting implementation returns an error.
#[macro_export]
macro_rules! format_in {
    ($arena:expr, $($arguments:tt)*) => {{
        let mut string = $crate::ArenaString::new_in($arena);
        ::core::fmt::Write::write_fmt(&mut string, ::core::format_args!($($arguments)*))
            .expect("no memory, or a formatting implementation returned an error");
        string
    }};
}
