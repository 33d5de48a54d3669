//! `Arena`: how to make one, and how to put single values in.
//!
//! # Invariant
//!
//! The memory that `RawArena::alloc` returns belongs to the caller alone until a reset, a rewind
//! below it, or the drop of the arena. Each of those takes `&mut self`, or is an unsafe call whose
//! contract rules out later use. So the memory can be lent for as long as `&self` is borrowed.

use core::alloc::Layout;
use core::convert::Infallible;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use core::ptr::NonNull;

use super::boxed::ArenaBox;
use super::builder::ArenaBuilder;
use super::raw::{MAX_MIN_ALIGN, RawArena, unlikely};
use crate::error::{Abort, AllocError, OnFailure, ReturnError, always};
use crate::statistics::Statistics;

/// Memory for objects that die together: a position that moves up through chunks.
///
/// Allocating takes `&self` and returns a `&mut T` that lives as long as the arena is borrowed.
/// [`reset`](Arena::reset) and dropping the arena free everything at once. When memory is
/// exhausted, calls without `try_` end the process, like any other Rust allocation. Their `try_`
/// twins return an [`AllocError`] and leave the arena as it was.
///
/// `MIN_ALIGN` is the alignment of every position: 1, 2, 4, 8 or 16. An object of that alignment or
/// less needs no rounding, and sizes are padded to it. The default, 8, gives pointers and numbers
/// the shortest path. `Arena<1>` packs strings and bytes tightest, and needs some more instructions
/// for objects of larger alignment.
///
/// - **Alignment**: any power of two that the type or layout asks for.
/// - **Cost**: 11 instructions for a `u32`, statistics included, none of them locked. From time to
///   time the arena takes a new chunk, usually from the recycler. The first chunk is 4 KiB (one
///   hardware page); each next one is twice as large, up to 1 MiB. On the default source, chunks of
///   2 MiB follow.
/// - **Threads**: `Send` and not `Sync`: one thread at a time uses an arena.
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
/// A value can't be used after a reset:
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let number = arena.alloc(7);
/// arena.reset();
/// *number += 1;
/// ```
///
/// A value can't outlive the arena, and two threads can't share one arena:
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

/// Refuses a type that needs drop, at compile time.
pub(super) struct NoDrop<T>(core::marker::PhantomData<T>);

impl<T> NoDrop<T> {
    pub(super) const CHECK: () = assert!(
        !needs_drop::<T>(),
        "this type needs drop, and an arena frees its memory without dropping what is in it: \
         use `alloc_boxed`, which owns the value and drops it, \
         or `alloc_undropped`, which says that it is never dropped"
    );
}

/// Frees the memory if the constructor that should fill it unwinds or fails.
struct UnfilledObject<'a, T, const MIN_ALIGN: usize> {
    raw: &'a RawArena,
    memory: NonNull<T>,
}

impl<T, const MIN_ALIGN: usize> Drop for UnfilledObject<'_, T, MIN_ALIGN> {
    fn drop(&mut self) {
        // SAFETY: allocated by `with_or` with this layout; not filled, and not lent to the caller.
        unsafe { self.raw.free::<MIN_ALIGN>(self.memory.cast(), Layout::new::<T>()) };
    }
}

/// Writes a value to memory and lends it.
///
/// # Safety
/// The memory has room for one `T`, and belongs to the borrower alone for `'a`.
#[inline(always)]
unsafe fn lend<'a, T>(memory: NonNull<u8>, value: T) -> &'a mut T {
    let memory = memory.cast::<T>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        memory.write(value);
        &mut *memory.as_ptr()
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

    /// Allocates memory for a value, then writes the value there. The slow path returns an address
    /// and takes no value: a value that is passed to it would have to lie in memory before, and
    /// would then be written twice, also on the fast path.
    #[inline(always)]
    pub(super) fn value_or<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        if size_of::<T>() <= size_of::<usize>() {
            return self.word_or::<F, T>(value);
        }
        // The slow path does not unwind. But the compiler does not know that: to drop the value, it
        // would need its address, and so a copy in memory.
        let value = ManuallyDrop::new(value);
        match self.raw.alloc::<F, MIN_ALIGN>(Layout::new::<T>()) {
            // SAFETY: memory for one `T`, lent by the module's invariant.
            Ok(memory) => Ok(unsafe { lend(memory, ManuallyDrop::into_inner(value)) }),
            Err(error) => {
                drop(ManuallyDrop::into_inner(value));
                Err(error)
            }
        }
    }

    /// [`value_or`](Self::value_or) for a value of at most a word, which is passed in a register.
    /// It is passed on to the slow path, so that the fast path need not keep it across a call, for
    /// which it would save and restore a register.
    #[inline(always)]
    fn word_or<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        match self.raw.alloc_fast::<MIN_ALIGN>(Layout::new::<T>()) {
            // SAFETY: memory for one `T`, lent by the module's invariant.
            Some(memory) => Ok(unsafe { lend(memory, value) }),
            None => {
                unlikely();
                self.word_slow::<F, T>(value)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn word_slow<F: OnFailure, T>(&self, value: T) -> Result<&mut T, F::Error> {
        let memory = self.raw.alloc_slow::<F, MIN_ALIGN>(Layout::new::<T>())?;
        // SAFETY: as above.
        Ok(unsafe { lend(memory, value) })
    }

    #[inline]
    pub(super) fn with_or<F: OnFailure, T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, F::Error> {
        let memory = self.raw.alloc::<F, MIN_ALIGN>(Layout::new::<T>())?.cast::<T>();
        let unfilled = UnfilledObject::<T, MIN_ALIGN> { raw: &self.raw, memory };
        Ok(match make() {
            Ok(value) => {
                core::mem::forget(unfilled);
                // SAFETY: memory for one `T`, lent by the module's invariant.
                unsafe {
                    memory.write(value);
                    Ok(&mut *memory.as_ptr())
                }
            }
            Err(error) => Err(error),
        })
    }

    #[inline]
    pub(super) fn uninit_or<F: OnFailure, T>(&self) -> Result<&mut MaybeUninit<T>, F::Error> {
        let memory = self.raw.alloc::<F, MIN_ALIGN>(Layout::new::<T>())?;
        // SAFETY: memory for one `T`, possibly uninitialised; lent by the module's invariant.
        Ok(unsafe { &mut *memory.cast::<MaybeUninit<T>>().as_ptr() })
    }

    /// Moves a value into the arena and returns a reference to it.
    ///
    /// The arena frees memory and drops nothing. So this does not compile for a type that needs
    /// drop. The compiler checks this when it generates code, so `cargo check` alone does not
    /// report it.
    ///
    /// ```compile_fail
    /// let arena = allotment::Arena::new();
    /// arena.alloc(String::from("nothing would drop this"));
    /// ```
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        const { NoDrop::<T>::CHECK };
        always(self.value_or::<Abort, T>(value))
    }

    /// Like [`alloc`](Self::alloc), but returns an error instead of aborting. A failed call drops
    /// the value.
    ///
    /// # Errors
    /// If a new chunk is needed and the budget or the source refuses it.
    #[inline]
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.value_or::<ReturnError, T>(value)
    }

    /// Allocates memory, then calls `make` to construct the value in it. If `make` panics, the
    /// memory is freed and no partial value is left. `make` may use the arena itself.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc), and if `make` panics.
    #[inline]
    pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
        const { NoDrop::<T>::CHECK };
        match always(self.with_or::<Abort, T, Infallible>(|| Ok(make()))) {
            Ok(value) => value,
        }
    }

    /// Like [`alloc_with`](Self::alloc_with), but returns an error instead of aborting. A failed
    /// call has not called `make`.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_with<T>(&self, make: impl FnOnce() -> T) -> Result<&mut T, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.with_or::<ReturnError, T, Infallible>(|| Ok(make())).map(|made| match made {
            Ok(value) => value,
        })
    }

    /// Constructs a value in place with a fallible `make`. If `make` fails, its error is returned
    /// and the memory is freed.
    ///
    /// # Errors
    /// The error that `make` returned.
    ///
    /// # Panics
    /// As [`alloc_with`](Self::alloc_with).
    #[inline]
    pub fn alloc_fallible<T, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        const { NoDrop::<T>::CHECK };
        always(self.with_or::<Abort, T, E>(make))
    }

    /// Like [`alloc_fallible`](Self::alloc_fallible), but returns an error instead of aborting: the
    /// outer error is the arena's, the inner one that of `make`.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc). `make` has not been called then.
    #[inline]
    pub fn try_alloc_fallible<T, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<&mut T, E>, AllocError> {
        const { NoDrop::<T>::CHECK };
        self.with_or::<ReturnError, T, E>(make)
    }

    /// Moves a value into the arena and returns a box that drops it, for types that need drop.
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
        always(self.boxed_value_or::<Abort, T>(value))
    }

    /// Like [`alloc_boxed`](Self::alloc_boxed), but returns an error instead of aborting. A failed
    /// call drops the value.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_boxed<T>(&self, value: T) -> Result<ArenaBox<'_, T>, AllocError> {
        self.boxed_value_or::<ReturnError, T>(value)
    }

    #[inline(always)]
    fn boxed_value_or<F: OnFailure, T>(&self, value: T) -> Result<ArenaBox<'_, T>, F::Error> {
        let value = NonNull::from(self.value_or::<F, T>(value)?);
        // SAFETY: a block of this arena with the value's layout, which nothing else owns. The arena
        // is borrowed as long as the box is.
        Ok(unsafe { ArenaBox::from_raw(value) })
    }

    /// Moves a value into the arena that will never be dropped. This is right for a structure whose
    /// destructor would only give memory back to the same arena, such as a `Vec<_, &Arena>`.
    /// Anything else that the value owns is leaked.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_undropped<T>(&self, value: T) -> &mut T {
        always(self.value_or::<Abort, T>(value))
    }

    /// Like [`alloc_undropped`](Self::alloc_undropped), but returns an error instead of aborting. A
    /// failed call drops the value.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_undropped<T>(&self, value: T) -> Result<&mut T, AllocError> {
        self.value_or::<ReturnError, T>(value)
    }

    /// Allocates memory for one value, for the caller to fill. A value written there is never
    /// dropped.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_uninit<T>(&self) -> &mut MaybeUninit<T> {
        always(self.uninit_or::<Abort, T>())
    }

    /// Like [`alloc_uninit`](Self::alloc_uninit), but returns an error instead of aborting.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_uninit<T>(&self) -> Result<&mut MaybeUninit<T>, AllocError> {
        self.uninit_or::<ReturnError, T>()
    }

    /// Frees everything at once without dropping it, and keeps the chunks that the
    /// [`Retain`](crate::Retain) policy allows. Takes one step for each chunk and none for each
    /// object.
    #[inline]
    pub fn reset(&mut self) {
        // SAFETY: `&mut self` ends every borrow of allocated memory, and every scope and mark.
        unsafe { self.raw.reset() }
    }

    /// The arena's current figures.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.raw.record().statistics()
    }

    /// The arena's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.raw.settings().name.as_deref()
    }
}

impl Arena {
    /// An empty arena. It takes no memory before the first object. The first chunk is one hardware
    /// page, or more if the first object needs more.
    ///
    /// # Panics
    /// Aborts if the table of statistics can't grow. The table takes 16 KiB for the first 64
    /// allocators that are alive at one time; each further block of it is twice as large as the one
    /// before.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        always(RawArena::new(0, None).map(Self::from_raw).map_err(Abort::fail))
    }

    /// An arena that takes its first chunk immediately. The chunk has room for `bytes` bytes and
    /// for the padding of one object of ordinary alignment. A hint of 0 is the same as
    /// [`new`](Self::new).
    ///
    /// # Panics
    /// Aborts where [`try_with_hint`](Self::try_with_hint) returns an error.
    #[inline]
    #[must_use]
    pub fn with_hint(bytes: usize) -> Self {
        always(RawArena::new(bytes, None).map(Self::from_raw).map_err(Abort::fail))
    }

    /// Like [`with_hint`](Self::with_hint), but returns an error instead of aborting.
    ///
    /// # Errors
    /// If the hint overflows, or the system refuses the chunk.
    #[inline]
    pub fn try_with_hint(bytes: usize) -> Result<Self, AllocError> {
        RawArena::new(bytes, None).map(Self::from_raw)
    }

    /// Returns a builder for an arena with options.
    pub const fn builder() -> ArenaBuilder {
        ArenaBuilder::new()
    }
}

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// An empty arena with this minimum alignment.
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

    /// Returns a builder for an arena with this minimum alignment and options.
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
