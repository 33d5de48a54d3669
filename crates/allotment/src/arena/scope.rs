//! Scopes, marks and positions: going back.
//!
//! # Invariants
//!
//! 1. A [`Mark`] is made from `&mut`, so nothing that lends memory of the arena without a scope's lifetime is
//!    alive then; and while the mark lives, nothing but the mark reaches the arena. Its drop rewinds to
//!    where it was made. A mark that is forgotten rewinds nothing: what was allocated stays until an outer
//!    mark or a reset.
//! 2. Values of a [`Scope<'s>`] live for `'s`, which no type outside the closure can name: nothing in the
//!    closure's result, and nothing that it captured, can hold one when the scope's mark is dropped.
//! 3. `Scope::arena` is lent as `&'s` to nobody: a shared borrow of the arena out of a scope lives as long as
//!    a borrow of the scope, which an inner scope or mark, made from `&mut`, ends. So no collection of an
//!    outer scope can grow in an inner one.

use core::alloc::Layout;
use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use super::Arena;
use super::boxed::ArenaBox;
use super::rewind::Position;
use crate::error::AllocError;

/// A guard: when it is dropped, or told to [`rewind`](Self::rewind), everything allocated since it was made is
/// freed.
///
/// It derefs to the arena, so allocate through it. A mark in a loop, for example, frees each round's scratch
/// memory; the chunks go back warm.
///
/// ```
/// let mut arena = allotment::Arena::new();
/// let mut mark = arena.mark();
/// for line in ["one", "two"] {
///     let copy = mark.alloc_str(line);
///     copy.make_ascii_uppercase();
///     mark.rewind();
/// }
/// drop(mark);
/// assert_eq!(arena.statistics().live_bytes, 0);
/// ```
///
/// A collection made before the mark can't grow inside it:
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let mut outer = allotment::ArenaVec::new_in(&arena);
/// let mark = arena.mark();
/// outer.push(1);
/// ```
///
/// and it stays on its thread:
///
/// ```compile_fail,E0277
/// let mut arena = allotment::Arena::new();
/// let mark = arena.mark();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(mark));
/// });
/// ```
#[derive(Debug)]
pub struct Mark<'a, const MIN_ALIGN: usize = 8> {
    arena: &'a Arena<MIN_ALIGN>,
    position: Position,
}

impl<'a, const MIN_ALIGN: usize> Mark<'a, MIN_ALIGN> {
    /// The caller holds the arena, or the scope that it is seen through, by `&mut` for `'a`.
    fn new(arena: &'a Arena<MIN_ALIGN>) -> Self {
        let position = arena.raw.position();
        arena.raw.open_scope(&position);
        Self { arena, position }
    }

    /// Frees everything allocated since the mark was made. The mark stays.
    pub fn rewind(&mut self) {
        // SAFETY: the position is the arena's; `&mut self` ends every borrow through the mark, inner marks
        // included, and older positions can't have been rewound to while this mark borrows (invariant 1).
        unsafe { self.arena.raw.rewind(&self.position) };
        self.arena.raw.open_scope(&self.position);
    }

    /// A mark inside this one.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self.arena)
    }

    /// A scope inside this mark; see [`Arena::scope`].
    pub fn scope<R>(&mut self, work: impl for<'s> FnOnce(&mut Scope<'s, MIN_ALIGN>) -> R) -> R {
        let mark = Mark::new(self.arena);
        work(&mut Scope { arena: &mark })
    }
}

impl<const MIN_ALIGN: usize> Deref for Mark<'_, MIN_ALIGN> {
    type Target = Arena<MIN_ALIGN>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.arena
    }
}

impl<const MIN_ALIGN: usize> Drop for Mark<'_, MIN_ALIGN> {
    fn drop(&mut self) {
        // SAFETY: as in `rewind`.
        unsafe { self.arena.raw.rewind(&self.position) };
    }
}

/// The arena as a closure sees it whose allocations end with it. [`Arena::scope`] makes one.
///
/// Its calls are the arena's; their values carry the scope's lifetime, not that of the borrow, so they stay
/// usable while an inner scope comes and goes. It also derefs to the arena, for collections and whatever
/// else takes `&Arena`; those borrow the scope.
pub struct Scope<'s, const MIN_ALIGN: usize = 8> {
    arena: &'s Arena<MIN_ALIGN>,
}

/// A place in an arena to go back to by hand; see [`Arena::rewind`].
#[derive(Clone, Copy, Debug)]
pub struct ArenaPosition(Position);

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Runs `work` with the arena, and frees what it allocated when it returns or panics.
    ///
    /// Scopes nest, and values of the outer one stay usable in the inner:
    ///
    /// ```
    /// let mut arena = allotment::Arena::new();
    /// let sum = arena.scope(|outer| {
    ///     let kept = outer.alloc(1);
    ///     for number in 0..10 {
    ///         *kept += outer.scope(|inner| *inner.alloc(number));
    ///     }
    ///     *kept
    /// });
    /// assert_eq!((sum, arena.statistics().live_objects), (46, 0));
    /// ```
    ///
    /// A value can't leave its scope:
    ///
    /// ```compile_fail
    /// let mut arena = allotment::Arena::new();
    /// let escaped = arena.scope(|scope| scope.alloc(7));
    /// ```
    ///
    /// nor can a collection of an outer scope grow in an inner one:
    ///
    /// ```compile_fail,E0502
    /// let mut arena = allotment::Arena::new();
    /// arena.scope(|outer| {
    ///     let mut vec = allotment::ArenaVec::new_in(&**outer);
    ///     outer.scope(|_inner| vec.push(7));
    /// });
    /// ```
    pub fn scope<R>(&mut self, work: impl for<'s> FnOnce(&mut Scope<'s, MIN_ALIGN>) -> R) -> R {
        let mark = self.mark();
        work(&mut Scope { arena: &mark })
    }

    /// Marks where the arena stands. What was lent until now is over: use [`scope`](Self::scope) where outer
    /// values must stay usable.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self)
    }

    /// Where the arena stands, to go back to with [`rewind`](Self::rewind): for callers that no scope fits.
    #[must_use]
    pub fn position(&self) -> ArenaPosition {
        ArenaPosition(self.raw.position())
    }

    /// [`position`](Self::position), and an open scope from there on, for C: until [`rewind`](Self::rewind) to it, objects
    /// that were there before are neither freed nor changed in place.
    #[doc(hidden)]
    #[must_use]
    pub fn position_in_scope(&self) -> ArenaPosition {
        let position = self.raw.position();
        self.raw.open_scope(&position);
        ArenaPosition(position)
    }

    /// Frees everything allocated since `position` was taken.
    ///
    /// # Safety
    /// The position came from this arena. Since then there was no reset and no rewind to an older position,
    /// and every scope and mark made since has ended. Nothing allocated since is used any more, and no
    /// object or collection that was there before has been freed, shrunk or grown since.
    pub unsafe fn rewind(&self, position: &ArenaPosition) {
        // SAFETY: passed on to the caller.
        unsafe { self.raw.rewind(&position.0) }
    }
}

impl<const MIN_ALIGN: usize> Deref for Scope<'_, MIN_ALIGN> {
    type Target = Arena<MIN_ALIGN>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.arena
    }
}

impl<const MIN_ALIGN: usize> fmt::Debug for Scope<'_, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("arena", self.arena).finish()
    }
}

/// The arena's calls again, with values that live for the scope instead of the borrow.
macro_rules! for_the_scope {
    ($(fn $name:ident $(<$($of:ident $(: $bound:ident)?),*>)? ($($arg:ident: $type:ty),*) -> $value:ty;)*) => {$(
        #[doc = concat!("[`Arena::", stringify!($name), "`]; the value lives as long as the scope.")]
        #[inline]
        #[allow(clippy::missing_errors_doc, reason = "they are the arena's")]
        pub fn $name $(<$($of $(: $bound)?),*>)? (&self, $($arg: $type),*) -> $value {
            self.arena.$name($($arg),*)
        }
    )*};
}

impl<'s, const MIN_ALIGN: usize> Scope<'s, MIN_ALIGN> {
    /// A scope inside this one. Values of this scope stay usable.
    pub fn scope<R>(&mut self, work: impl for<'i> FnOnce(&mut Scope<'i, MIN_ALIGN>) -> R) -> R {
        let mark = Mark::new(self.arena);
        work(&mut Scope { arena: &mark })
    }

    /// A mark inside this scope. Values of the scope stay usable.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self.arena)
    }

    for_the_scope! {
        fn alloc<T>(value: T) -> &'s mut T;
        fn try_alloc<T>(value: T) -> Result<&'s mut T, AllocError>;
        fn alloc_with<T>(make: impl FnOnce() -> T) -> &'s mut T;
        fn try_alloc_with<T>(make: impl FnOnce() -> T) -> Result<&'s mut T, AllocError>;
        fn alloc_fallible<T, E>(make: impl FnOnce() -> Result<T, E>) -> Result<&'s mut T, E>;
        fn try_alloc_fallible<T, E>(
            make: impl FnOnce() -> Result<T, E>
        ) -> Result<Result<&'s mut T, E>, AllocError>;
        fn alloc_boxed<T>(value: T) -> ArenaBox<'s, T>;
        fn try_alloc_boxed<T>(value: T) -> Result<ArenaBox<'s, T>, AllocError>;
        fn alloc_undropped<T>(value: T) -> &'s mut T;
        fn try_alloc_undropped<T>(value: T) -> Result<&'s mut T, AllocError>;
        fn alloc_uninit<T>() -> &'s mut MaybeUninit<T>;
        fn try_alloc_uninit<T>() -> Result<&'s mut MaybeUninit<T>, AllocError>;
        fn alloc_str(text: &str) -> &'s mut str;
        fn try_alloc_str(text: &str) -> Result<&'s mut str, AllocError>;
        fn alloc_c_str(text: &CStr) -> &'s CStr;
        fn try_alloc_c_str(text: &CStr) -> Result<&'s CStr, AllocError>;
        fn alloc_slice_copy<T: Copy>(values: &[T]) -> &'s mut [T];
        fn try_alloc_slice_copy<T: Copy>(values: &[T]) -> Result<&'s mut [T], AllocError>;
        fn alloc_slice_clone<T: Clone>(values: &[T]) -> &'s mut [T];
        fn try_alloc_slice_clone<T: Clone>(values: &[T]) -> Result<&'s mut [T], AllocError>;
        fn alloc_slice_with<T>(len: usize, make: impl FnMut(usize) -> T) -> &'s mut [T];
        fn try_alloc_slice_with<T>(
            len: usize,
            make: impl FnMut(usize) -> T
        ) -> Result<&'s mut [T], AllocError>;
        fn try_alloc_slice_fallible<T, E>(
            len: usize,
            make: impl FnMut(usize) -> Result<T, E>
        ) -> Result<Result<&'s mut [T], E>, AllocError>;
        fn alloc_slice_from_iter<T>(values: impl IntoIterator<Item = T>) -> &'s mut [T];
        fn try_alloc_slice_from_iter<T>(
            values: impl IntoIterator<Item = T>
        ) -> Result<&'s mut [T], AllocError>;
        fn alloc_slice_boxed<T>(len: usize, make: impl FnMut(usize) -> T) -> ArenaBox<'s, [T]>;
        fn try_alloc_slice_boxed<T>(
            len: usize,
            make: impl FnMut(usize) -> T
        ) -> Result<ArenaBox<'s, [T]>, AllocError>;
        fn alloc_slice_uninit<T>(len: usize) -> &'s mut [MaybeUninit<T>];
        fn try_alloc_slice_uninit<T>(len: usize) -> Result<&'s mut [MaybeUninit<T>], AllocError>;
        fn alloc_layout(layout: Layout) -> NonNull<u8>;
        fn try_alloc_layout(layout: Layout) -> Result<NonNull<u8>, AllocError>;
        fn calloc(count: usize, size: usize) -> &'s mut [u8];
        fn try_calloc(count: usize, size: usize) -> Result<&'s mut [u8], AllocError>;
    }
}
