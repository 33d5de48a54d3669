//! A value in an arena with an owner that drops it.
//!
//! # Invariant
//!
//! `value` points to a value in the memory of an arena that is borrowed for `'a`. Only this box may
//! reach the value, and nothing else drops it.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A value in an [`Arena`](crate::Arena) that is dropped with the box. The box takes one word (two
/// for slices).
///
/// The memory belongs to the arena: dropping the box runs the value's destructor and frees no
/// memory. A box can't be turned into a `Pin`. If a box is forgotten, its memory is reused without
/// a drop, which pinning forbids.
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
    /// Takes ownership of a value that nothing else will drop.
    #[inline]
    pub(super) fn owning(value: &'a mut T) -> Self {
        Self { value: NonNull::from(value), owns: PhantomData }
    }

    /// Returns the value for as long as the arena is borrowed, and never drops it.
    #[inline]
    #[must_use]
    pub fn leak(boxed: Self) -> &'a mut T {
        let mut boxed = ManuallyDrop::new(boxed);
        // SAFETY: the invariant; the box is never used or dropped again, so this borrow is the only
        // one.
        unsafe { boxed.value.as_mut() }
    }
}

impl<T> ArenaBox<'_, T> {
    /// Moves the value out of the box.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let boxed = ManuallyDrop::new(boxed);
        // SAFETY: the invariant; the box is never used or dropped again, so the value is read once.
        unsafe { boxed.value.read() }
    }
}

impl<T: ?Sized> Drop for ArenaBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the invariant: only this box reaches the value, and it is dropped once, here.
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
