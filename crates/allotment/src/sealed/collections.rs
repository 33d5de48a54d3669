//! The vector and the string in sealed memory.

use super::read_only::ReadOnly;
use super::sealer::Sealer;
use crate::collections::{StringIn, VecIn};

/// A vector that grows while the initialiser runs, and is read-only once it is sealed. Its methods
/// are those of [`VecIn`].
///
/// While it is the last block that was allocated, and its chunk has room, it grows in place. When
/// it has to move, its old memory stays behind and is sealed too, unless that was the last block of
/// the current chunk, or a block of 32 KiB or more at the end of any chunk. If the length is known,
/// use [`with_capacity_in`](VecIn::with_capacity_in) or [`Sealer::alloc_slice_from_iter`], which
/// leave nothing behind.
///
/// ```
/// use allotment::{SealVec, Sealed};
///
/// let squares = Sealed::<SealVec<'static, u32>>::new(|sealer| {
///     let mut squares = sealer.vec();
///     squares.extend((1..=4).map(|n| n * n));
///     squares
/// });
/// assert_eq!(**squares.get(), [1, 4, 9, 16]);
/// ```
pub type SealVec<'s, T> = VecIn<T, Sealer<'s>>;

impl<'s, T: ReadOnly> VecIn<T, Sealer<'s>> {
    /// The values as a slice. Unused capacity is given back if the vector is the last block that
    /// was allocated.
    #[must_use]
    pub fn into_slice(self) -> &'s [T] {
        Sealer::lend(self)
    }
}

// SAFETY: its memory comes from the sealer and is sealed with it. No method writes through a shared
// reference.
unsafe impl<T: ReadOnly> ReadOnly for SealVec<'_, T> {}

/// A string that grows while the initialiser runs, and is read-only once it is sealed. Its memory
/// behaves like that of a [`SealVec`]. Its methods are those of [`StringIn`].
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
/// assert_eq!(*line.get(), "port 443");
/// ```
pub type SealString<'s> = StringIn<Sealer<'s>>;

impl<'s> StringIn<Sealer<'s>> {
    /// The string as a `&str`. Unused capacity is given back if the string is the last block that
    /// was allocated.
    #[must_use]
    pub fn into_str(self) -> &'s str {
        Sealer::lend_str(self)
    }
}

// SAFETY: as for the vector.
unsafe impl ReadOnly for SealString<'_> {}
