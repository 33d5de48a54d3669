//! Bytes and the arena that they lie in, as one value.
//!
//! # Invariant
//!
//! `bytes` lie in memory of `_arena` (or are its name, in a box of its own), or are `'static`, and stay there and as they are while `_arena` is neither reset nor dropped, wherever it is moved: the
//! closure that rendered them got the arena for a lifetime of the caller's choice, and nothing else lives that long. Nobody
//! uses the arena any more: it is private.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::Arena;

/// Bytes that were rendered in an arena, together with it: a reply that owns its memory, of which nothing was copied. It may go to
/// another thread; dropping it frees the arena.
///
/// ```
/// use allotment::phases::ArenaBytes;
/// use allotment::{Arena, ArenaString};
/// use std::fmt::Write;
///
/// let bytes = ArenaBytes::new(Arena::new(), |arena| {
///     let mut text = ArenaString::new_in(arena);
///     let _ = write!(text, "{} charts", 3);
///     text.into_str().as_bytes()
/// });
/// std::thread::spawn(move || assert_eq!(&*bytes, b"3 charts")).join().unwrap();
/// ```
///
/// Only what lies in the arena, or is static, can be kept so:
///
/// ```compile_fail
/// use allotment::{Arena, phases::ArenaBytes};
/// let text = String::from("elsewhere");
/// let bytes = ArenaBytes::new(Arena::new(), |_| text.as_bytes());
/// ```
pub struct ArenaBytes {
    bytes: NonNull<[u8]>,
    /// Kept for its memory alone.
    _arena: Arena,
}

// SAFETY: owns its arena, which is `Send`.
unsafe impl Send for ArenaBytes {}
// SAFETY: by shared reference it gives out bytes alone, which nobody changes.
unsafe impl Sync for ArenaBytes {}

impl ArenaBytes {
    /// Renders bytes in an arena, and keeps both.
    #[must_use]
    pub fn new(arena: Arena, render: impl for<'a> FnOnce(&'a Arena) -> &'a [u8]) -> Self {
        let bytes = NonNull::from(render(&arena));
        Self { bytes, _arena: arena }
    }

    /// Renders bytes in an arena, and keeps both if that went well.
    ///
    /// # Errors
    /// The closure's.
    pub fn try_new<E>(
        arena: Arena,
        render: impl for<'a> FnOnce(&'a Arena) -> Result<&'a [u8], E>,
    ) -> Result<Self, E> {
        let bytes = NonNull::from(render(&arena)?);
        Ok(Self { bytes, _arena: arena })
    }
}

impl Deref for ArenaBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: by the module's invariant.
        unsafe { self.bytes.as_ref() }
    }
}

impl AsRef<[u8]> for ArenaBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ArenaBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}
