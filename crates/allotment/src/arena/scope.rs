//! Freeing everything: a reset; and scopes, marks and positions, since some point.
//!
//! # Invariants
//!
//! 1. A [`Mark`] is made from `&mut`, so at that moment no reference to the arena's memory is
//!    alive, except references with a scope's lifetime. While the mark lives, the arena is
//!    reachable through the mark only. Its drop rewinds the arena to where the mark was made. A
//!    forgotten mark rewinds nothing: what was allocated stays until an outer mark or a reset.
//! 2. Values of a [`Scope<'s>`] live for `'s`, which no type outside the closure can name. So
//!    neither the closure's result nor anything that it captured can hold such a value when the
//!    scope's mark is dropped.
//! 3. `Scope::arena` is never lent as `&'s`. A shared borrow of the arena obtained from a scope
//!    lives only as long as a borrow of the scope. An inner scope or mark is made from `&mut`,
//!    which ends that borrow. So no collection of an outer scope can grow in an inner one.

use core::alloc::Layout;
use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use super::boxed::ArenaBox;
use super::position::ArenaPosition;
use super::thin::{ThinBox, ThinRef};
use super::typed::Arena;
use crate::error::AllocError;

/// A guard that frees everything allocated after it was made. It does so when it is dropped, and
/// each time [`rewind`](Self::rewind) is called.
///
/// The mark derefs to the arena; allocate through the mark. A mark in a loop, for example, frees
/// the scratch memory of each round, and the chunks go back warm.
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
/// A collection made before the mark can't grow while the mark is alive:
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let mut outer = allotment::ArenaVec::new_in(&arena);
/// let mark = arena.mark();
/// outer.push(1);
/// ```
///
/// A mark can't move to another thread:
///
/// ```compile_fail,E0277
/// let mut arena = allotment::Arena::new();
/// let mark = arena.mark();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(mark));
/// });
/// ```
pub struct Mark<'a, const MIN_ALIGN: usize = 8> {
    arena: &'a Arena<MIN_ALIGN>,
    position: ArenaPosition,
}

impl<'a, const MIN_ALIGN: usize> Mark<'a, MIN_ALIGN> {
    /// The caller holds a `&mut` of the arena for `'a`, or of the scope or mark that leads to it.
    fn new(arena: &'a Arena<MIN_ALIGN>) -> Self {
        let position = arena.raw.position();
        arena.raw.open_scope(&position);
        Self { arena, position }
    }

    /// Frees everything allocated after the mark was made. The mark stays usable.
    pub fn rewind(&mut self) {
        // SAFETY: the position is the arena's. `&mut self` ends every borrow through the mark,
        // inner marks included. No older position can have been rewound to while this mark borrows
        // the arena (invariant 1).
        unsafe { self.arena.raw.rewind(&self.position) };
        self.arena.raw.open_scope(&self.position);
    }

    /// Makes a mark inside this one.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self.arena)
    }

    /// Runs a scope inside this mark; see [`Arena::scope`].
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

impl<const MIN_ALIGN: usize> fmt::Debug for Mark<'_, MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mark").field("arena", self.arena).finish()
    }
}

impl<const MIN_ALIGN: usize> Drop for Mark<'_, MIN_ALIGN> {
    fn drop(&mut self) {
        // SAFETY: as in `rewind`.
        unsafe { self.arena.raw.rewind(&self.position) };
    }
}

/// The arena inside a closure whose allocations are freed when the closure ends. [`Arena::scope`]
/// makes one.
///
/// Its calls are those of the arena. Their values carry the scope's lifetime and not that of the
/// borrow, so they stay usable while inner scopes begin and end. A scope also derefs to the arena,
/// for collections and for functions that take `&Arena`; those borrow the scope.
pub struct Scope<'s, const MIN_ALIGN: usize = 8> {
    arena: &'s Arena<MIN_ALIGN>,
}

/// # Free everything
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Frees everything at once without dropping it, and keeps the chunks that the
    /// [`Retain`](crate::arena::Retain) policy allows. Takes one step for each chunk and none for
    /// each object.
    #[inline]
    pub fn reset(&mut self) {
        // SAFETY: `&mut self` ends every borrow of allocated memory, and every scope and mark.
        unsafe { self.raw.reset() }
    }
}

/// # Scopes
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Runs `work` with the arena, and frees what `work` allocated when it returns or panics.
    ///
    /// Scopes nest. Values of the outer scope stay usable in the inner one:
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
    /// A collection of an outer scope can't grow in an inner one:
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

    /// Makes a mark at the arena's current position. This ends all borrows of the arena. Use
    /// [`scope`](Self::scope) where values of an outer scope must stay usable.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self)
    }

    /// The arena's current position, for a later [`rewind`](Self::rewind). Use this where no scope
    /// fits.
    #[must_use]
    pub fn position(&self) -> ArenaPosition {
        self.raw.position()
    }

    /// For C: [`position`](Self::position), and opens a scope there. Until the
    /// [`rewind`](Self::rewind) to it, older objects are neither freed nor changed in place.
    #[doc(hidden)]
    #[must_use]
    pub fn position_in_scope(&self) -> ArenaPosition {
        let position = self.raw.position();
        self.raw.open_scope(&position);
        position
    }

    /// Frees everything allocated after `position` was taken.
    ///
    /// # Safety
    /// - `position` came from this arena.
    /// - After it was taken, the arena was not reset and not rewound to an older position.
    /// - Every scope and mark made after it has ended.
    /// - Nothing allocated after it is used any more.
    /// - No object or collection older than it was freed, shrunk or grown after it was taken.
    pub unsafe fn rewind(&self, position: &ArenaPosition) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.raw.rewind(position) }
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

/// The arena's calls again, with values that live as long as the scope instead of the borrow.
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
    /// Runs a scope inside this one. Values of this scope stay usable.
    pub fn scope<R>(&mut self, work: impl for<'i> FnOnce(&mut Scope<'i, MIN_ALIGN>) -> R) -> R {
        let mark = Mark::new(self.arena);
        work(&mut Scope { arena: &mark })
    }

    /// Makes a mark inside this scope. Values of this scope stay usable.
    pub fn mark(&mut self) -> Mark<'_, MIN_ALIGN> {
        Mark::new(self.arena)
    }

    for_the_scope! {
        fn alloc<T>(value: T) -> &'s mut T;
        fn try_alloc<T>(value: T) -> Result<&'s mut T, AllocError>;
        fn alloc_with<T>(make: impl FnOnce() -> T) -> &'s mut T;
        fn try_alloc_with<T>(make: impl FnOnce() -> T) -> Result<&'s mut T, AllocError>;
        fn alloc_try_with<T, E>(make: impl FnOnce() -> Result<T, E>) -> Result<&'s mut T, E>;
        fn try_alloc_try_with<T, E>(
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
        fn alloc_slice_try_with<T, E>(
            len: usize,
            make: impl FnMut(usize) -> Result<T, E>
        ) -> Result<&'s mut [T], E>;
        fn try_alloc_slice_try_with<T, E>(
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
        fn alloc_thin_str(text: &str) -> ThinRef<'s, str>;
        fn try_alloc_thin_str(text: &str) -> Result<ThinRef<'s, str>, AllocError>;
        fn alloc_thin_slice_copy<T: Copy>(values: &[T]) -> ThinRef<'s, [T]>;
        fn try_alloc_thin_slice_copy<T: Copy>(
            values: &[T]
        ) -> Result<ThinRef<'s, [T]>, AllocError>;
        fn alloc_thin_slice_boxed<T>(
            len: usize,
            make: impl FnMut(usize) -> T
        ) -> ThinBox<'s, [T]>;
        fn try_alloc_thin_slice_boxed<T>(
            len: usize,
            make: impl FnMut(usize) -> T
        ) -> Result<ThinBox<'s, [T]>, AllocError>;
        fn alloc_thin_boxed<T>(value: T) -> ThinBox<'s, T>;
        fn try_alloc_thin_boxed<T>(value: T) -> Result<ThinBox<'s, T>, AllocError>;
        fn alloc_layout(layout: Layout) -> NonNull<u8>;
        fn try_alloc_layout(layout: Layout) -> Result<NonNull<u8>, AllocError>;
        fn alloc_layout_zeroed(layout: Layout) -> NonNull<u8>;
        fn try_alloc_layout_zeroed(layout: Layout) -> Result<NonNull<u8>, AllocError>;
        fn calloc(count: usize, size: usize) -> &'s mut [u8];
        fn try_calloc(count: usize, size: usize) -> Result<&'s mut [u8], AllocError>;
    }
}
