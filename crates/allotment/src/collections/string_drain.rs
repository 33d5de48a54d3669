//! `StringDrain`: the characters that are removed from a string.
//!
//! # Invariant
//!
//! `bytes` holds the UTF-8 of the characters that have not been taken.

use core::fmt;
use core::iter::FusedIterator;

use super::block_source::BlockSource;
use super::vec_iterators::Drain;

/// An iterator over a range of characters that it removes from a [`StringIn`](super::StringIn);
/// made by [`drain`](super::StringIn::drain).
pub struct StringDrain<'s, S: BlockSource> {
    bytes: Drain<'s, u8, S>,
}

impl<'s, S: BlockSource> StringDrain<'s, S> {
    /// # Safety
    /// The bytes are UTF-8.
    pub(super) unsafe fn new(bytes: Drain<'s, u8, S>) -> Self {
        Self { bytes }
    }

    /// Returns the characters that have not been taken.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // SAFETY: the invariant.
        unsafe { core::str::from_utf8_unchecked(self.bytes.as_slice()) }
    }
}

impl<S: BlockSource> Iterator for StringDrain<'_, S> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let character = self.as_str().chars().next()?;
        self.bytes.nth(character.len_utf8() - 1);
        Some(character)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.as_str().chars().size_hint()
    }
}

impl<S: BlockSource> DoubleEndedIterator for StringDrain<'_, S> {
    fn next_back(&mut self) -> Option<char> {
        let character = self.as_str().chars().next_back()?;
        self.bytes.nth_back(character.len_utf8() - 1);
        Some(character)
    }
}

impl<S: BlockSource> FusedIterator for StringDrain<'_, S> {}

impl<S: BlockSource> AsRef<str> for StringDrain<'_, S> {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl<S: BlockSource> fmt::Debug for StringDrain<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StringDrain").field(&self.as_str()).finish()
    }
}
