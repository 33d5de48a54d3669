//! A string in an arena, and `format_in!`.

use core::ptr::NonNull;

use super::Arena;
use super::boxed::ArenaBox;
use super::scope::Scope;
use crate::collections::StringIn;

/// A growing string in an [`Arena`]. Its memory behaves like that of an
/// [`ArenaVec`](crate::ArenaVec). Its further methods are those of [`StringIn`].
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
///
/// [`into_str_in`](StringIn::into_str_in) turns a string in a scope into a `str` that lives as long
/// as the scope, so that inner scopes can use it:
///
/// ```
/// use allotment::{Arena, format_in};
///
/// let mut arena = Arena::new();
/// arena.scope(|scope| {
///     let name = format_in!(scope, "chart {}", 7).into_str_in(scope);
///     for _ in 0..3 {
///         scope.scope(|inner| assert_eq!(format_in!(inner, "<{name}>"), "<chart 7>"));
///     }
/// });
/// ```
pub type ArenaString<'a, const MIN_ALIGN: usize = 8> = StringIn<&'a Arena<MIN_ALIGN>>;

impl<'a, const MIN_ALIGN: usize> StringIn<&'a Arena<MIN_ALIGN>> {
    /// The arena that the string allocates from.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<MIN_ALIGN> {
        self.source()
    }

    /// Turns the string into a `str` that lives as long as the arena is borrowed.
    #[must_use]
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: the bytes of a string.
        unsafe { core::str::from_utf8_unchecked_mut(self.into_bytes().into_slice()) }
    }

    /// Turns the string into a box. Its bytes stay where they are.
    ///
    /// ```
    /// let arena = allotment::Arena::new();
    /// let name: allotment::ArenaBox<'_, str> =
    ///     allotment::format_in!(&arena, "chart {}", 7).into_boxed_str();
    /// assert_eq!(&*name, "chart 7");
    /// ```
    #[must_use]
    pub fn into_boxed_str(self) -> ArenaBox<'a, str> {
        // SAFETY: memory of the arena, which is borrowed for `'a`; no other box or reference is made
        // from it.
        unsafe { ArenaBox::from_raw(NonNull::from(self.into_str())) }
    }

    /// Turns the string into a `str` that lives as long as the scope that it was made in, instead
    /// of the borrow of that scope.
    ///
    /// # Panics
    /// If the string is in another arena than the scope.
    #[must_use]
    pub fn into_str_in<'s>(self, scope: &Scope<'s, MIN_ALIGN>) -> &'s mut str {
        // SAFETY: the bytes of a string.
        unsafe { core::str::from_utf8_unchecked_mut(self.into_bytes().into_slice_in(scope)) }
    }
}

impl<'a, const MIN_ALIGN: usize> From<ArenaString<'a, MIN_ALIGN>> for ArenaBox<'a, str> {
    /// As [`ArenaString::into_boxed_str`].
    fn from(string: ArenaString<'a, MIN_ALIGN>) -> Self {
        string.into_boxed_str()
    }
}

impl<const MIN_ALIGN: usize> Clone for ArenaString<'_, MIN_ALIGN> {
    /// Copies the string into the same arena.
    fn clone(&self) -> Self {
        Self::from_str_in(self, self.arena())
    }
}

/// Formats into an arena: like `format!`, with the arena before the format string. Returns an
/// [`ArenaString`], whose capacity is its length if nothing else was allocated while it was
/// formatted.
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
/// As for [`StringIn::push_str`], and if a formatting implementation returns an error.
#[macro_export]
macro_rules! format_in {
    ($arena:expr, $($arguments:tt)*) => {
        $crate::ArenaString::format_in($arena, ::core::format_args!($($arguments)*))
    };
}
