//! A vector in an arena.

use core::ptr;

use super::Arena;
use super::boxed::ArenaBox;
use super::scope::Scope;
use super::thin::ThinBox;
use crate::collections::{NoDrop, VecIn};
use crate::error::{AllocError, PanicOrAbort, ReturnError, always};

/// A growing vector in an [`Arena`]. While it is the arena's last object, it grows in place. Its
/// further methods are those of [`VecIn`].
///
/// When the vector has to move, its old memory stays in the arena until a reset. Dropping the
/// vector drops its values, and gives its memory back if it is the arena's last object. A vector
/// can't move to another thread.
///
/// ```
/// let arena = allotment::Arena::new();
/// let mut squares = allotment::ArenaVec::new_in(&arena);
/// squares.extend((1..=4).map(|n| n * n));
/// let squares: &mut [i32] = squares.into_slice();
/// assert_eq!(squares, [1, 4, 9, 16]);
/// ```
///
/// A vector in a scope borrows the scope, so it can't grow while an inner scope runs.
/// [`into_slice_in`](VecIn::into_slice_in) turns it into a slice that lives as long as the scope:
///
/// ```
/// use allotment::{Arena, ArenaVec};
///
/// let mut arena = Arena::new();
/// arena.scope(|scope| {
///     let squares = ArenaVec::from_iter_in((1..=4).map(|n| n * n), scope);
///     let squares = squares.into_slice_in(scope);
///     let sum = scope.scope(|inner| {
///         let shifted = ArenaVec::from_iter_in(squares.iter().map(|n| n + 1), inner);
///         shifted.iter().sum::<i32>()
///     });
///     squares[0] = sum;
///     assert_eq!(squares, [34, 4, 9, 16]);
/// });
/// ```
pub type ArenaVec<'a, T, const MIN_ALIGN: usize = 8> = VecIn<T, &'a Arena<MIN_ALIGN>>;

impl<'a, T, const MIN_ALIGN: usize> VecIn<T, &'a Arena<MIN_ALIGN>> {
    /// The arena that the vector allocates from.
    #[must_use]
    pub const fn arena(&self) -> &'a Arena<MIN_ALIGN> {
        self.source()
    }

    /// Turns the vector into a slice that lives as long as the arena is borrowed. Does not compile
    /// for a type that needs drop; use [`into_boxed_slice`](Self::into_boxed_slice) for those.
    #[must_use]
    pub fn into_slice(self) -> &'a mut [T] {
        const { NoDrop::<T>::CHECK };
        ArenaBox::leak(self.into_boxed_slice())
    }

    /// Turns the vector into a box that drops the values.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> ArenaBox<'a, [T]> {
        // Give unused capacity back if this is the arena's last object. Otherwise it stays, which
        // is fine.
        let _ = self.try_shrink_to_fit();
        // SAFETY: initialised, and owned by the box from here on; the memory belongs to the arena,
        // which is borrowed for `'a`.
        unsafe { ArenaBox::from_raw(self.into_raw()) }
    }

    /// Turns the vector into a box of one word that drops the values. They move to a new block,
    /// which has room for their number. An [`into_boxed_slice`](Self::into_boxed_slice) leaves them
    /// where they are.
    ///
    /// ```
    /// use allotment::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let names = ArenaVec::from_iter_in(["one", "two"].map(String::from), &arena).into_thin_slice();
    /// assert_eq!(*names, ["one", "two"]);
    /// assert_eq!(size_of_val(&names), size_of::<usize>());
    /// ```
    ///
    /// # Panics
    /// As [`Arena::alloc`].
    #[must_use]
    pub fn into_thin_slice(self) -> ThinBox<'a, [T]> {
        let arena = self.arena();
        always(arena.thin_slice_from_or::<PanicOrAbort, T>(self.into_iter()))
    }

    /// Fallible version of [`into_thin_slice`](Self::into_thin_slice). A failed call drops the
    /// vector.
    ///
    /// # Errors
    /// As [`Arena::try_alloc`].
    pub fn try_into_thin_slice(self) -> Result<ThinBox<'a, [T]>, AllocError> {
        let arena = self.arena();
        arena.thin_slice_from_or::<ReturnError, T>(self.into_iter())
    }

    /// Turns the vector into a slice that lives as long as the scope that it was made in, instead
    /// of the borrow of that scope. Does not compile for a type that needs drop; use
    /// [`into_boxed_slice_in`](Self::into_boxed_slice_in) for those.
    ///
    /// ```compile_fail,E0502
    /// let mut arena = allotment::Arena::new();
    /// arena.scope(|outer| {
    ///     let mark = outer.mark();
    ///     let freed_with_the_mark = allotment::ArenaVec::from_iter_in(0..3, &*mark);
    ///     let slice = freed_with_the_mark.into_slice_in(outer);
    ///     drop(mark);
    ///     assert_eq!(slice, [0, 1, 2]);
    /// });
    /// ```
    ///
    /// ```compile_fail
    /// let mut arena = allotment::Arena::new();
    /// let escaped = arena.scope(|scope| {
    ///     allotment::ArenaVec::from_iter_in(0..3, scope).into_slice_in(scope)
    /// });
    /// ```
    ///
    /// # Panics
    /// If the vector is in another arena than the scope.
    #[must_use]
    pub fn into_slice_in<'s>(self, scope: &Scope<'s, MIN_ALIGN>) -> &'s mut [T]
    where
        T: 's,
    {
        const { NoDrop::<T>::CHECK };
        ArenaBox::leak(self.into_boxed_slice_in(scope))
    }

    /// Turns the vector into a box that lives as long as the scope that it was made in, instead of
    /// the borrow of that scope.
    ///
    /// # Panics
    /// If the vector is in another arena than the scope.
    #[must_use]
    pub fn into_boxed_slice_in<'s>(self, scope: &Scope<'s, MIN_ALIGN>) -> ArenaBox<'s, [T]>
    where
        T: 's,
    {
        assert!(ptr::eq(self.arena(), &**scope), "the vector is in another arena than the scope");
        // SAFETY: the memory was allocated from the scope's arena. That arena frees it when the
        // innermost scope or mark ends that was open when the vector was made. An inner scope or
        // mark of `scope` borrows `scope` mutably, and a vector made in it borrows it in turn; so
        // with `scope` borrowed here, no such vector exists. The memory was allocated in `scope`,
        // or in a scope around it, and stays valid for `'s`.
        unsafe { ArenaBox::from_raw(ArenaBox::into_raw(self.into_boxed_slice())) }
    }
}

impl<'a, T, const MIN_ALIGN: usize> From<ArenaVec<'a, T, MIN_ALIGN>> for ArenaBox<'a, [T]> {
    /// As [`ArenaVec::into_boxed_slice`].
    fn from(vec: ArenaVec<'a, T, MIN_ALIGN>) -> Self {
        vec.into_boxed_slice()
    }
}

impl<T: Clone, const MIN_ALIGN: usize> Clone for ArenaVec<'_, T, MIN_ALIGN> {
    /// Clones the values into the same arena.
    fn clone(&self) -> Self {
        let mut clone = Self::with_capacity_in(self.len(), self.arena());
        clone.extend_from_slice(self);
        clone
    }
}
