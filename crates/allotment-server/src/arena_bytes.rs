//! Bytes together with the arena that they lie in.
//!
//! # Invariant
//!
//! `bytes` are `'static`, or lie in memory of `_arena` (in its chunks, or in the box that holds its
//! name). They stay valid and unchanged while `_arena` is neither reset nor dropped, even if it is
//! moved: the closure that renders them must work for every lifetime of its arena reference, and
//! only the arena and `'static` values live that long. The arena is private, and nothing uses it
//! after the closure.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use allotment::Arena;

/// Bytes together with the arena that they were rendered in: a reply that owns its memory, without
/// a copy. It may go to another thread. Dropping it frees the arena.
///
/// ```
/// use allotment::{Arena, ArenaString};
/// use allotment_server::ArenaBytes;
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
/// Only bytes that lie in the arena or are `'static` can be kept this way:
///
/// ```compile_fail
/// use allotment::Arena;
/// use allotment_server::ArenaBytes;
/// let text = String::from("elsewhere");
/// let bytes = ArenaBytes::new(Arena::new(), |_| text.as_bytes());
/// ```
pub struct ArenaBytes {
    bytes: NonNull<[u8]>,
    /// Owns the memory of `bytes`. Never read.
    _arena: Arena,
}

// SAFETY: it owns its arena, which is `Send`.
unsafe impl Send for ArenaBytes {}
// SAFETY: a shared reference gives access only to the bytes, which never change.
unsafe impl Sync for ArenaBytes {}

impl ArenaBytes {
    /// Renders bytes in an arena, and keeps both.
    #[must_use]
    pub fn new(arena: Arena, render: impl for<'a> FnOnce(&'a Arena) -> &'a [u8]) -> Self {
        let bytes = NonNull::from(render(&arena));
        Self { bytes, _arena: arena }
    }

    /// Renders bytes in an arena, and keeps both if the closure succeeds.
    ///
    /// # Errors
    /// The closure's error.
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
