//! `Arena`: making one, and putting single values in.
//!
//! # Invariant
//!
//! The memory that `RawArena::alloc` returns is the caller's alone until a reset, a rewind below it, or the
//! arena's drop, each of which takes `&mut self`: so it can be lent as long as `&self` is.

use core::alloc::Layout;
use core::convert::Infallible;
use core::fmt;
use core::mem::{MaybeUninit, needs_drop};
use core::ptr::NonNull;

use super::boxed::ArenaBox;
use super::builder::ArenaBuilder;
use super::raw::{MAX_MIN_ALIGN, RawArena, unlikely};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::statistics::Statistics;

/// Memory for objects that die together: a position that moves up through chunks.
///
/// Allocating takes `&self` and lends a `&mut T` as long as the arena is borrowed; [`reset`](Arena::reset) and
/// dropping free everything at once. The calls without `try_` never fail to their caller: when memory is
/// exhausted they end the process like any other Rust allocation; their twins return a typed error and
/// leave the arena as it was.
///
/// `MIN_ALIGN` is the alignment that every position has, at most 16: an object of that alignment or less
/// needs no rounding, and sizes are padded to it. The default, 8, serves pointers and numbers on the shortest
/// path; `Arena<1>` packs strings and bytes tightest, and takes some instructions more for the rest.
///
/// **Alignment**: any power of two that the type or layout asks for. **Cost**: eleven instructions for a
/// small value, statistics included, none of them locked; a chunk from the recycler every so often, 4 KiB at
/// first, doubling up to 1 MiB, then of 2 MiB. **Threads**: `Send` and not `Sync`: one thread at a time uses it.
///
/// ```
/// use allotment::Arena;
///
/// let mut arena = Arena::new();
/// let point = arena.alloc((3, 4));
/// point.0 += 1;
/// let name = arena.alloc_str("system.cpu");
/// assert_eq!((point.0, &*name), (4, "system.cpu"));
/// assert_eq!(arena.statistics().live_objects, 2);
/// arena.reset();
/// assert_eq!(arena.statistics().live_objects, 0);
/// ```
///
/// What was allocated can't outlive a reset:
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let number = arena.alloc(7);
/// arena.reset();
/// *number += 1;
/// ```
///
/// nor the arena, and two threads can't share one:
///
/// ```compile_fail,E0597
/// let number = {
///     let arena = allotment::Arena::new();
///     arena.alloc(7)
/// };
/// *number += 1;
/// ```
///
/// ```compile_fail,E0277
/// let arena = allotment::Arena::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| arena.alloc(7));
/// });
/// ```
#[repr(transparent)]
pub struct Arena<const MIN_ALIGN: usize = 8> {
    pub(super) raw: RawArena,
}

/// Refuses a type with a destructor at compile time.
pub(super) struct NoDrop<T>(core::marker::PhantomData<T>);

impl<T> NoDrop<T> {
    pub(super) const CHECK: () = assert!(
        !needs_drop::<T>(),
        "this type needs drop, and an arena frees its memory without dropping what is in it: \
         use `alloc_boxed`, which owns the value and drops it, \
         or `alloc_undropped`, which says that it is never dropped"
    );
}

/// Gives memory back if the constructor that should fill it unwinds or fails.
struct Reserved<'a, T, const MIN_ALIGN: usize> {
    raw: &'a RawArena,
    place: NonNull<T>,
}

impl<T, const MIN_ALIGN: usize> Drop for Reserved<'_, T, MIN_ALIGN> {
    fn drop(&mut self) {
        // SAFETY: allocated by `reserve` with this layout, not filled, and lent to nobody.
        unsafe { self.raw.free::<MIN_ALIGN>(self.place.cast(), Layout::new::<T>()) };
    }
}

/// Puts a value into memory and lends it.
///
/// # Safety
/// The memory is for one `T` and the borrower's alone for `'a`.
#[inline(always)]
unsafe fn lend<'a, T>(place: NonNull<u8>, value: T) -> &'a mut T {
    let place = place.cast::<T>();
    // SAFETY: passed on to the caller.
    unsafe {
        place.write(value);
        &mut *place.as_ptr()
    }
}

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    const VALID_MIN_ALIGN: () = assert!(
        MIN_ALIGN.is_power_of_two() && MIN_ALIGN <= MAX_MIN_ALIGN,
        "MIN_ALIGN must be 1, 2, 4, 8 or 16"
    );

    #[inline]
    pub(super) fn from_raw(raw: RawArena) -> Self {
        const { Self::VALID_MIN_ALIGN };
        Self { raw }
    }

    #[inline(always)]
    pub(super) fn value_or<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        match self.raw.alloc_fast::<MIN_ALIGN>(Layout::new::<T>()) {
            // SAFETY: memory for one `T`, lent by the module's invariant.
            Some(place) => Ok(unsafe { lend(place, value) }),
            // The value goes along, so that the fast path need not keep it over a call.
            None => {
                unlikely();
                self.value_slow::<F, T>(value)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn value_slow<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        let place = self.raw.alloc_slow::<F, MIN_ALIGN>(Layout::new::<T>())?;
        // SAFETY: as above.
        Ok(unsafe { lend(place, value) })
    }

    #[inline]
    pub(super) fn with_or<F: OnFailure, T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, F::Error> {
        let place = self.raw.alloc::<F, MIN_ALIGN>(Layout::new::<T>())?.cast::<T>();
        let reserved = Reserved::<T, MIN_ALIGN> { raw: &self.raw, place };
        Ok(match make() {
            Ok(value) => {
                core::mem::forget(reserved);
                // SAFETY: memory for one `T`, lent by the module's invariant.
                unsafe {
                    place.write(value);
                    Ok(&mut *place.as_ptr())
                }
            }
            Err(error) => Err(error),
        })
    }

    #[inline]
    pub(super) fn uninit_or<F: OnFailure, T>(&self) -> Result<&mut MaybeUninit<T>, F::Error> {
        let place = self.raw.alloc::<F, MIN_ALIGN>(Layout::new::<T>())?;
        // SAFETY: memory for one `T`, of which nothing is assumed; lent by the module's invariant.
        Ok(unsafe { &mut *place.cast::<MaybeUninit<T>>().as_ptr() })
    }

    /// Moves a value in and lends it.
    ///
    /// Does not compile for a type that needs drop (`cargo check` alone does not show it, since the check
    /// comes when code is generated): the arena frees memory and drops nothing.
    ///
    /// ```compile_fail
    /// let arena = allotment::Arena::new();
    /// arena.alloc(String::from("who would drop this?"));
    /// ```
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        const { NoDrop::<T>::CHECK };
        always(self.value_or::<Abort, T>(value))
    }

    /// [`alloc`](Self::alloc), or the reason why not. The value is dropped then.
    ///
    /// # Errors
    /// When a new chunk is needed and the budget or the source refuses it.
    #[inline]
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.value_or::<Report, T>(value)
    }

    /// Makes a value in place: `make` runs when its memory is there. If it panics, the memory is given back
    /// and nothing half-made is left. `make` may use the arena itself.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and if `make` does.
    #[inline]
    pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
        const { NoDrop::<T>::CHECK };
        match always(self.with_or::<Abort, T, Infallible>(|| Ok(make()))) {
            Ok(value) => value,
        }
    }

    /// [`alloc_with`](Self::alloc_with), or the reason why not; `make` has not run then.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_with<T>(&self, make: impl FnOnce() -> T) -> Result<&mut T, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.with_or::<Report, T, Infallible>(|| Ok(make())).map(|made| match made {
            Ok(value) => value,
        })
    }

    /// Makes a value in place that may fail: its error comes back, and its memory is given back.
    ///
    /// # Errors
    /// What `make` returned.
    ///
    /// # Panics
    /// As [`alloc_with`](Self::alloc_with).
    #[inline]
    pub fn alloc_fallible<T, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        const { NoDrop::<T>::CHECK };
        always(self.with_or::<Abort, T, E>(make))
    }

    /// [`alloc_fallible`](Self::alloc_fallible), with the arena's own failure outside and `make`'s inside.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc); `make` has not run then.
    #[inline]
    pub fn try_alloc_fallible<T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.with_or::<Report, T, E>(make)
    }

    /// Moves a value in that will be dropped when the box is: for types that need drop.
    ///
    /// ```
    /// let arena = allotment::Arena::new();
    /// let names = arena.alloc_boxed(vec![String::from("dropped with the box")]);
    /// assert_eq!(names.len(), 1);
    /// ```
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_boxed<T>(&self, value: T) -> ArenaBox<'_, T> {
        ArenaBox::owning(always(self.value_or::<Abort, T>(value)))
    }

    /// [`alloc_boxed`](Self::alloc_boxed), or the reason why not.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_boxed<T>(&self, value: T) -> Result<ArenaBox<'_, T>, AllocError> {
        self.value_or::<Report, T>(value).map(ArenaBox::owning)
    }

    /// Moves a value in that will never be dropped: right for structures whose destructors would only give
    /// memory back to this same arena, like a `Vec<_, &Arena>`; a leak of whatever else they hold.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_undropped<T>(&self, value: T) -> &mut T {
        always(self.value_or::<Abort, T>(value))
    }

    /// [`alloc_undropped`](Self::alloc_undropped), or the reason why not. The value is dropped then.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_undropped<T>(&self, value: T) -> Result<&mut T, AllocError> {
        self.value_or::<Report, T>(value)
    }

    /// Memory for one value, to be filled by the caller. What is written there is never dropped.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_uninit<T>(&self) -> &mut MaybeUninit<T> {
        always(self.uninit_or::<Abort, T>())
    }

    /// [`alloc_uninit`](Self::alloc_uninit), or the reason why not.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_uninit<T>(&self) -> Result<&mut MaybeUninit<T>, AllocError> {
        self.uninit_or::<Report, T>()
    }

    /// Frees everything at once, without dropping it, and keeps the chunks that the
    /// [`Retain`](crate::Retain) policy says. Costs a step for each chunk, none for each object.
    #[inline]
    pub fn reset(&mut self) {
        // SAFETY: `&mut self` ends every borrow of what was allocated, and every scope and mark.
        unsafe { self.raw.reset() }
    }

    /// What the arena holds now.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.raw.record().statistics()
    }

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.raw.settings().name.as_deref()
    }
}

impl Arena {
    /// An empty arena. Takes no memory before the first object; then one hardware page.
    ///
    /// # Panics
    /// Aborts when the table of statistics can't grow, which takes a page for every 64 living allocators
    /// at first.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        always(RawArena::new(0, None).map(Self::from_raw).map_err(Abort::fail))
    }

    /// An arena whose first chunk, taken now, has room for `bytes` and the padding that one object of
    /// ordinary alignment may need. 0 is [`new`](Self::new).
    ///
    /// # Panics
    /// Aborts where [`try_with_hint`](Self::try_with_hint) returns an error.
    #[inline]
    #[must_use]
    pub fn with_hint(bytes: usize) -> Self {
        always(RawArena::new(bytes, None).map(Self::from_raw).map_err(Abort::fail))
    }

    /// [`with_hint`](Self::with_hint), or the reason why not.
    ///
    /// # Errors
    /// A hint that overflows or is more than the system has.
    #[inline]
    pub fn try_with_hint(bytes: usize) -> Result<Self, AllocError> {
        RawArena::new(bytes, None).map(Self::from_raw)
    }

    /// Begins an arena with options.
    pub const fn builder() -> ArenaBuilder {
        ArenaBuilder::new()
    }
}

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// An empty arena of this minimum alignment.
    ///
    /// ```
    /// let arena = allotment::Arena::<1>::with_min_align();
    /// let flags: [usize; 3] = [true, false, true].map(|flag| std::ptr::from_ref(arena.alloc(flag)).addr());
    /// assert_eq!(flags[2], flags[1] + 1);
    /// ```
    ///
    /// # Panics
    /// As [`Arena::new`].
    #[inline]
    #[must_use]
    pub fn with_min_align() -> Self {
        always(RawArena::new(0, None).map(Self::from_raw).map_err(Abort::fail))
    }

    /// Begins an arena of this minimum alignment with options.
    pub const fn builder_with_min_align() -> ArenaBuilder<MIN_ALIGN> {
        ArenaBuilder::new()
    }
}

impl<const MIN_ALIGN: usize> Default for Arena<MIN_ALIGN> {
    fn default() -> Self {
        Self::with_min_align()
    }
}

impl<const MIN_ALIGN: usize> fmt::Debug for Arena<MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish()
    }
}
