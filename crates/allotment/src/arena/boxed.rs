//! A value in an arena that is dropped by its owner.
//!
//! # Invariant
//!
//! `value` points to a value in an arena's memory that is borrowed for `'a`, that this box alone may reach,
//! and that nobody else drops.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A value in an [`Arena`](crate::Arena), dropped with the box. One word (two for slices).
///
/// The memory stays the arena's: dropping the box runs the value's destructor and frees nothing. There is
/// no way to a `Pin`: a box that is forgotten has its memory reused without a drop, which pinning forbids.
///
/// ```compile_fail,E0277
/// let arena = allotment::Arena::new();
/// let boxed = arena.alloc_boxed(7);
/// let pinned: std::pin::Pin<allotment::ArenaBox<'_, i32>> = boxed.into();
/// ```
pub struct ArenaBox<'a, T: ?Sized + 'a> {
    value: NonNull<T>,
    owns: PhantomData<(&'a mut (), T)>,
}

// SAFETY: the box owns its value like a `Box` does.
unsafe impl<T: ?Sized + Send> Send for ArenaBox<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for ArenaBox<'_, T> {}

impl<'a, T: ?Sized> ArenaBox<'a, T> {
    /// Takes over a value that will not be dropped otherwise.
    #[inline]
    pub(super) fn owning(value: &'a mut T) -> Self {
        Self { value: NonNull::from(value), owns: PhantomData }
    }

    /// Lends the value for as long as the arena is borrowed, and never drops it.
    #[inline]
    #[must_use]
    pub fn leak(boxed: Self) -> &'a mut T {
        let mut boxed = ManuallyDrop::new(boxed);
        // SAFETY: the invariant; the box is gone, so the borrow is the only one.
        unsafe { boxed.value.as_mut() }
    }
}

impl<T> ArenaBox<'_, T> {
    /// Takes the value out.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let boxed = ManuallyDrop::new(boxed);
        // SAFETY: the invariant; the box is gone, so the value is read once.
        unsafe { boxed.value.read() }
    }
}

impl<T: ?Sized> Drop for ArenaBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the invariant: reached and dropped here alone.
        unsafe { self.value.drop_in_place() }
    }
}

impl<T: ?Sized> Deref for ArenaBox<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the invariant.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for ArenaBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the invariant.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> AsRef<T> for ArenaBox<'_, T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> AsMut<T> for ArenaBox<'_, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for ArenaBox<'_, T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized> BorrowMut<T> for ArenaBox<'_, T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ArenaBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for ArenaBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
