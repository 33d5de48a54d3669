//! `StringIn`: a growing string over any [`BlockSource`].
//!
//! # Invariant
//!
//! The bytes are UTF-8: only whole strings and characters are added, and a cut falls between two
//! characters.

use core::fmt;
use core::mem;
use core::ops::{Deref, DerefMut, RangeBounds};
use core::str::Utf8Error;

use super::block_source::BlockSource;
use super::buffer::indices;
use super::string_drain::StringDrain;
use super::vec::VecIn;
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always};

/// The capacity with which a formatted string begins, in bytes.
const FORMATTED: usize = 64;

/// A growing string whose memory comes from a [`BlockSource`].
///
/// Use it under the name for its memory: [`ArenaString`](crate::ArenaString),
/// [`PoolString`](crate::PoolString) or [`SealString`](crate::SealString). Its memory behaves like
/// that of a [`VecIn`].
pub struct StringIn<S: BlockSource> {
    bytes: VecIn<u8, S>,
}

impl<S: BlockSource> StringIn<S> {
    /// Creates an empty string in this memory. It allocates nothing before its first character.
    #[inline]
    #[must_use]
    pub const fn new_in(source: S) -> Self {
        Self { bytes: VecIn::new_in(source) }
    }

    /// Creates an empty string with a capacity of `capacity` bytes.
    ///
    /// # Panics
    /// As for [`VecIn::reserve_exact`].
    #[must_use]
    pub fn with_capacity_in(capacity: usize, source: S) -> Self {
        Self { bytes: VecIn::with_capacity_in(capacity, source) }
    }

    /// Fallible version of [`with_capacity_in`](Self::with_capacity_in).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`].
    pub fn try_with_capacity_in(capacity: usize, source: S) -> Result<Self, AllocError> {
        Ok(Self { bytes: VecIn::try_with_capacity_in(capacity, source)? })
    }

    fn from_str_in_or<F: OnFailure>(text: &str, source: S) -> Result<Self, F::Error> {
        let mut bytes = VecIn::with_capacity_in_or::<F>(text.len(), source)?;
        bytes.extend_copied_or::<F>(text.as_bytes())?;
        Ok(Self { bytes })
    }

    /// Copies `text` into this memory, as a string that can grow.
    ///
    /// # Panics
    /// As for [`VecIn::reserve_exact`].
    #[must_use]
    pub fn from_str_in(text: &str, source: S) -> Self {
        always(Self::from_str_in_or::<PanicOrAbort>(text, source))
    }

    /// Fallible version of [`from_str_in`](Self::from_str_in).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`].
    pub fn try_from_str_in(text: &str, source: S) -> Result<Self, AllocError> {
        Self::from_str_in_or::<ReturnError>(text, source)
    }

    /// Formats into a new string, for [`format_in!`](crate::format_in).
    ///
    /// # Panics
    /// As for [`push_str`](Self::push_str), and if a formatting implementation returns an error.
    #[doc(hidden)]
    #[must_use]
    pub fn format_in(source: S, arguments: fmt::Arguments<'_>) -> Self {
        /// Fails as an infallible call does: [`fmt::Error`] can't carry the error.
        struct Infallible<S: BlockSource>(StringIn<S>);
        impl<S: BlockSource> fmt::Write for Infallible<S> {
            #[inline]
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.push_str(text);
                Ok(())
            }
        }
        // Most strings fit, so they need not grow. An arena takes back what its last object does
        // not need; another object keeps it.
        let roomy = Self::try_with_capacity_in(FORMATTED, source);
        let mut string = Infallible(roomy.unwrap_or_else(|_| Self::new_in(source)));
        fmt::write(&mut string, arguments).expect("a formatting implementation returned an error");
        let _ = string.0.try_shrink_to_fit();
        string.0
    }

    /// Turns bytes into a string.
    ///
    /// # Errors
    /// When the bytes are not UTF-8. The error contains the bytes.
    pub fn from_utf8(bytes: VecIn<u8, S>) -> Result<Self, (VecIn<u8, S>, Utf8Error)> {
        match core::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self { bytes }),
            Err(error) => Err((bytes, error)),
        }
    }

    /// What the string allocates from.
    #[inline]
    pub(crate) const fn source(&self) -> &S {
        self.bytes.source()
    }

    /// Returns the number of bytes that the string can hold without growing.
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

    /// Returns the string slice.
    #[inline]
    #[must_use]
    pub fn as_mut_str(&mut self) -> &mut str {
        self
    }

    // ---- capacity ----

    /// Makes the capacity sufficient for `more` further bytes.
    ///
    /// # Panics
    /// As for [`VecIn::reserve`].
    pub fn reserve(&mut self, more: usize) {
        self.bytes.reserve(more);
    }

    /// Fallible version of [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`].
    pub fn try_reserve(&mut self, more: usize) -> Result<(), AllocError> {
        self.bytes.try_reserve(more)
    }

    /// Makes the capacity sufficient for exactly `more` further bytes, without doubling.
    ///
    /// # Panics
    /// As for [`VecIn::reserve`].
    pub fn reserve_exact(&mut self, more: usize) {
        self.bytes.reserve_exact(more);
    }

    /// Fallible version of [`reserve_exact`](Self::reserve_exact).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`].
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), AllocError> {
        self.bytes.try_reserve_exact(more)
    }

    /// Gives back unused capacity.
    ///
    /// # Panics
    /// As for [`VecIn::shrink_to_fit`].
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Fallible version of [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Errors
    /// As for [`VecIn::try_shrink_to_fit`].
    pub fn try_shrink_to_fit(&mut self) -> Result<(), AllocError> {
        self.bytes.try_shrink_to_fit()
    }

    /// Gives back unused capacity, but keeps a capacity of at least `least` bytes if there is one.
    ///
    /// # Panics
    /// As for [`VecIn::shrink_to_fit`].
    pub fn shrink_to(&mut self, least: usize) {
        self.bytes.shrink_to(least);
    }

    /// Fallible version of [`shrink_to`](Self::shrink_to).
    ///
    /// # Errors
    /// As for [`VecIn::try_shrink_to_fit`].
    pub fn try_shrink_to(&mut self, least: usize) -> Result<(), AllocError> {
        self.bytes.try_shrink_to(least)
    }

    // ---- adding ----

    #[inline(always)]
    fn push_str_or<F: OnFailure>(&mut self, text: &str) -> Result<(), F::Error> {
        self.bytes.extend_copied_or::<F>(text.as_bytes())
    }

    /// Appends a string slice.
    ///
    /// # Panics
    /// As for [`VecIn::reserve`].
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        always(self.push_str_or::<PanicOrAbort>(text));
    }

    /// Fallible version of [`push_str`](Self::push_str).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`]. The string is then unchanged.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.push_str_or::<ReturnError>(text)
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

    fn insert_str_or<F: OnFailure>(&mut self, index: usize, text: &str) -> Result<(), F::Error> {
        assert!(
            self.is_char_boundary(index),
            "byte {index} is inside a character or beyond the end"
        );
        self.bytes.insert_copied_or::<F>(index, text.as_bytes())
    }

    /// Inserts a string slice at this byte.
    ///
    /// # Panics
    /// If the byte is inside a character or beyond the end; otherwise as for [`VecIn::reserve`].
    pub fn insert_str(&mut self, index: usize, text: &str) {
        always(self.insert_str_or::<PanicOrAbort>(index, text));
    }

    /// Fallible version of [`insert_str`](Self::insert_str).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`]. The string is then unchanged.
    ///
    /// # Panics
    /// If the byte is inside a character or beyond the end.
    pub fn try_insert_str(&mut self, index: usize, text: &str) -> Result<(), AllocError> {
        self.insert_str_or::<ReturnError>(index, text)
    }

    /// Inserts a character at this byte.
    ///
    /// # Panics
    /// As for [`insert_str`](Self::insert_str).
    pub fn insert(&mut self, index: usize, character: char) {
        self.insert_str(index, character.encode_utf8(&mut [0; 4]));
    }

    /// Fallible version of [`insert`](Self::insert).
    ///
    /// # Errors
    /// As for [`try_insert_str`](Self::try_insert_str).
    ///
    /// # Panics
    /// If the byte is inside a character or beyond the end.
    pub fn try_insert(&mut self, index: usize, character: char) -> Result<(), AllocError> {
        self.try_insert_str(index, character.encode_utf8(&mut [0; 4]))
    }

    // ---- removing ----

    /// Removes the last character and returns it.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Removes the character at this byte and returns it.
    ///
    /// # Panics
    /// If the byte is inside a character, or not less than the length.
    pub fn remove(&mut self, index: usize) -> char {
        let Some(character) = self[index..].chars().next() else {
            panic!("byte {index} is not below the length {}", self.len())
        };
        self.bytes.drain(index..index + character.len_utf8());
        character
    }

    /// Removes the characters for which `keeps` returns `false`. If `keeps` panics, the string is
    /// empty afterwards.
    pub fn retain(&mut self, mut keeps: impl FnMut(char) -> bool) {
        let empty = VecIn::new_in(*self.source());
        let mut bytes = mem::replace(&mut self.bytes, empty);
        let (mut kept, mut next) = (0, 0);
        loop {
            // SAFETY: the bytes from `next` on are as they were, and `next` is between two
            // characters (the invariant).
            let rest = unsafe { core::str::from_utf8_unchecked(&bytes[next..]) };
            let Some(character) = rest.chars().next() else { break };
            let len = character.len_utf8();
            if keeps(character) {
                bytes.copy_within(next..next + len, kept);
                kept += len;
            }
            next += len;
        }
        bytes.truncate(kept);
        self.bytes = bytes;
    }

    /// Removes the characters of a range of bytes and returns an iterator over them. Characters
    /// that are not taken are removed too. If the iterator is forgotten, the string ends where the
    /// range began.
    ///
    /// # Panics
    /// If an end of the range is inside a character or beyond the length, or if the range ends
    /// before it begins.
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> StringDrain<'_, S> {
        let range = indices(range, self.len());
        for end in [range.start, range.end] {
            assert!(self.is_char_boundary(end), "byte {end} is inside a character");
        }
        // SAFETY: both cuts are between characters, so the removed bytes are UTF-8. So are those
        // before them, which are all that the string has while the iterator exists or if it is
        // forgotten, and those with the bytes behind the range (the invariant).
        unsafe { StringDrain::new(self.bytes.drain(range)) }
    }

    /// Shortens the string to `len` bytes. Does nothing if it is not longer than that.
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

    /// Moves the characters from this byte on to a new string in the same memory.
    ///
    /// # Panics
    /// If the byte is inside a character or beyond the end; otherwise as for [`VecIn::reserve`].
    #[must_use = "use `truncate` to remove the characters"]
    pub fn split_off(&mut self, index: usize) -> Self {
        assert!(
            self.is_char_boundary(index),
            "byte {index} is inside a character or beyond the end"
        );
        Self { bytes: self.bytes.split_off(index) }
    }

    /// Fallible version of [`split_off`](Self::split_off).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`]. The string is then unchanged.
    ///
    /// # Panics
    /// If the byte is inside a character or beyond the end.
    pub fn try_split_off(&mut self, index: usize) -> Result<Self, AllocError> {
        assert!(
            self.is_char_boundary(index),
            "byte {index} is inside a character or beyond the end"
        );
        Ok(Self { bytes: self.bytes.try_split_off(index)? })
    }

    /// Turns the string into its bytes.
    #[must_use]
    pub fn into_bytes(self) -> VecIn<u8, S> {
        self.bytes
    }
}

impl<S: BlockSource + Default> StringIn<S> {
    /// Creates an empty string in the current pool. It allocates no memory before its first
    /// character.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::new_in(S::default())
    }

    /// Creates an empty string in the current pool with a capacity of `capacity` bytes.
    ///
    /// # Panics
    /// As for [`VecIn::reserve_exact`].
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_in(capacity, S::default())
    }

    /// Fallible version of [`with_capacity`](Self::with_capacity).
    ///
    /// # Errors
    /// As for [`VecIn::try_reserve`].
    pub fn try_with_capacity(capacity: usize) -> Result<Self, AllocError> {
        Self::try_with_capacity_in(capacity, S::default())
    }
}

impl<S: BlockSource> Deref for StringIn<S> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(&self.bytes) }
    }
}

impl<S: BlockSource> DerefMut for StringIn<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut str {
        // SAFETY: the invariant, which `&mut str` keeps.
        unsafe { core::str::from_utf8_unchecked_mut(&mut self.bytes) }
    }
}

/// The failure of a call of [`fmt::Write`]. Its error is empty, so the result fits a register.
enum ReturnFormatError {}

impl OnFailure for ReturnFormatError {
    type Error = fmt::Error;

    fn fail(_: AllocError) -> fmt::Error {
        fmt::Error
    }
}

impl<S: BlockSource> fmt::Write for StringIn<S> {
    /// Appends. Fails with nothing appended when memory is not available.
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str_or::<ReturnFormatError>(text)
    }
}
