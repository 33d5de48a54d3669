//! Thin handles: one word for a string, a slice or a trait object in an arena.
//!
//! ```text
//! block                value
//! │ padding │ metadata │ the value's bytes │
//!                      ▲
//!                      └── a handle
//! ```
//!
//! A pointer to an unsized value takes two words: the value's address, and its *metadata* (a length
//! or the address of a vtable). Here the metadata lies in the arena, in the word before the value.
//!
//! # Invariants
//!
//! 1. The `value` of a handle is the address of an initialised `T`, aligned for `T` and for a word.
//!    The word before it is in the same block, and the pointer's provenance reaches it. If `T` is
//!    unsized, that word holds the metadata. The block belongs to an arena that is borrowed for
//!    `'a`.
//! 2. A [`ThinBox`] owns its value alone. The value of a [`ThinRef`] has no owner any more: it is
//!    only read, and never dropped.
//! 3. A `NonNull<T>` of an unsized `T` is two words, the address first. The language does not
//!    promise this, so [`metadata`] checks it for each pointer that it takes apart, and [`wide`]
//!    puts together only what `metadata` took apart: the same bits, and the same provenance.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, transmute_copy};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::handle_traits::handle_traits;
use super::typed::Arena;
use crate::collections::BlockSource;
use crate::error::{AllocError, ErrorKind, OnFailure, PanicOrAbort, ReturnError, always};

/// A word of a pointer. A pointer type, so that the provenance of a vtable's address is kept.
type Word = *const ();

/// Whether pointers to `T` take one word or two. Fails to compile for any other size.
struct Width<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Width<T> {
    const IS_WIDE: bool = {
        let size = size_of::<NonNull<T>>();
        assert!(size == size_of::<Word>() || size == 2 * size_of::<Word>());
        size > size_of::<Word>()
    };
}

/// The metadata of a pointer, or null if it has none.
fn metadata<T: ?Sized>(value: NonNull<T>) -> Word {
    if !Width::<T>::IS_WIDE {
        return ptr::null();
    }
    // SAFETY: the pointer is two words long (`IS_WIDE`), and each word is a valid pointer without
    // its target: an address or an integer.
    let [address, metadata] = unsafe { transmute_copy::<NonNull<T>, [Word; 2]>(&value) };
    assert!(ptr::eq(address, value.as_ptr().cast()), "a pointer begins with its address");
    metadata
}

/// The pointer to the value of a handle.
///
/// # Safety
/// `value` meets invariant 1 for `T`, for as long as the word before it is read.
#[inline]
unsafe fn wide<T: ?Sized>(value: NonNull<u8>) -> NonNull<T> {
    // SAFETY: a pointer to a sized value is its address. The words of another pointer are those
    // that `metadata` took apart (invariants 1 and 3).
    unsafe {
        if Width::<T>::IS_WIDE {
            let metadata = value.cast::<Word>().sub(1).read();
            transmute_copy::<[Word; 2], NonNull<T>>(&[value.as_ptr().cast_const().cast(), metadata])
        } else {
            transmute_copy::<NonNull<u8>, NonNull<T>>(&value)
        }
    }
}

/// A value in an [`Arena`] with an owner that drops it, in one word: a string, a slice, or a trait
/// object. An [`ArenaBox`](crate::ArenaBox) of these takes two words.
///
/// The other word (the length, or the address of the vtable) lies in the arena, before the value.
/// So a value with one handle takes as much memory as with an `ArenaBox`, if its alignment is at most
/// that of a word. A thin box saves memory
/// where most places for a handle are empty, such as an `Option<ThinBox<_>>` in each node, and
/// where a handle has to fit a register or an atomic. To use the value, it reads one word more, on
/// the value's cache line or the one before it.
///
/// - **Made by**: [`Arena::alloc_thin_slice_boxed`],
///   [`ArenaVec::into_thin_slice`](crate::ArenaVec::into_thin_slice), and for trait objects
///   [`Arena::alloc_thin_boxed`] with [`unsize_thin_box!`](crate::unsize_thin_box).
/// - **Memory**: a word more than the value, which is aligned at least to a word; or its alignment
///   more, if that is larger than a word.
/// - **Drop**: runs the value's destructor and frees no memory, as for an `ArenaBox`.
/// - **Threads**: `Send` and `Sync` where the value is.
///
/// ```
/// use allotment::arena::ThinBox;
/// use allotment::{Arena, unsize_thin_box};
/// use std::fmt::Display;
///
/// let arena = Arena::new();
/// let mut names = arena.alloc_thin_slice_boxed(2, |n| format!("name {n}"));
/// names[1].push('!');
/// assert_eq!(*names, ["name 0", "name 1!"]);
///
/// let shown: [ThinBox<'_, dyn Display>; 2] = [
///     unsize_thin_box!(arena.alloc_thin_boxed(String::from("ten"))),
///     unsize_thin_box!(arena.alloc_thin_boxed(10)),
/// ];
/// assert_eq!(format!("{} is {}", shown[0], shown[1]), "ten is 10");
/// assert_eq!(size_of::<Option<ThinBox<'_, dyn Display>>>(), size_of::<usize>());
/// ```
///
/// A box can't outlive its arena, and a trait object can't outlive what its value borrows:
///
/// ```compile_fail,E0505
/// let arena = allotment::Arena::new();
/// let boxed = arena.alloc_thin_slice_boxed(2, |n| n);
/// drop(arena);
/// assert_eq!(boxed.len(), 2);
/// ```
///
/// ```compile_fail,E0597
/// use allotment::{arena::ThinBox, unsize_thin_box};
/// let arena = allotment::Arena::new();
/// let shown: ThinBox<'_, dyn std::fmt::Display + '_> = {
///     let text = String::from("short-lived");
///     unsize_thin_box!(arena.alloc_thin_boxed(text.as_str()))
/// };
/// println!("{shown}");
/// ```
///
/// ```compile_fail,E0597
/// use allotment::{arena::ThinBox, unsize_thin_box};
/// let shown: ThinBox<'_, dyn std::fmt::Display> = {
///     let arena = allotment::Arena::new();
///     unsize_thin_box!(arena.alloc_thin_boxed(7))
/// };
/// println!("{shown}");
/// ```
///
/// It can be sent only where its value may be:
///
/// ```compile_fail,E0277
/// let arena = allotment::Arena::new();
/// let boxed = arena.alloc_thin_boxed(std::rc::Rc::new(1));
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(boxed));
/// });
/// ```
pub struct ThinBox<'a, T: ?Sized> {
    value: NonNull<u8>,
    owns: PhantomData<T>,
    arena: PhantomData<&'a mut ()>,
}

// SAFETY: the box owns its value as a `Box` does (invariant 2).
unsafe impl<T: ?Sized + Send> Send for ThinBox<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for ThinBox<'_, T> {}

/// Moving the box does not move the value.
impl<T: ?Sized> Unpin for ThinBox<'_, T> {}

impl<'a, T: ?Sized> ThinBox<'a, T> {
    /// Returns the value's address. The value is not dropped. [`from_raw`](Self::from_raw) makes it
    /// a box again.
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        // SAFETY: invariant 1.
        unsafe { wide(ManuallyDrop::new(boxed).value) }
    }

    /// Makes a box from an address.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw) of a thin box, and was perhaps coerced to
    /// a type that the value's type unsizes to. An address that was made from a reference to the
    /// value does not meet this requirement, because it may not access the word before the value.
    /// No other box or reference is made from it, and the box's arena is borrowed for `'a`.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(value: NonNull<T>) -> Self {
        let metadata = metadata(value);
        let value = value.cast::<u8>();
        if Width::<T>::IS_WIDE {
            // SAFETY: the word before the value is in its block (invariant 1), and this box alone
            // has access to both (guaranteed by the caller).
            unsafe { value.cast::<Word>().sub(1).write(metadata) };
        }
        Self { value, owns: PhantomData, arena: PhantomData }
    }

    /// For [`unsize_thin_box!`](crate::unsize_thin_box): the address and the arena's lifetime.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn into_parts(boxed: Self) -> (NonNull<T>, PhantomData<&'a mut ()>) {
        let arena = boxed.arena;
        (Self::into_raw(boxed), arena)
    }

    /// For [`unsize_thin_box!`](crate::unsize_thin_box).
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), with the lifetime from
    /// [`into_parts`](Self::into_parts).
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub unsafe fn from_parts(value: NonNull<T>, _arena: PhantomData<&'a mut ()>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::from_raw(value) }
    }

    /// Lends the value for as long as the arena is borrowed, and never drops it.
    #[inline]
    #[must_use]
    pub fn leak(boxed: Self) -> &'a mut T
    where
        T: 'a,
    {
        // SAFETY: the box owned the value (invariant 2), and is never used or dropped again. The
        // memory stays for `'a` (invariant 1).
        unsafe { Self::into_raw(boxed).as_mut() }
    }

    /// Turns the box into a handle that can be copied, and that never drops the value.
    #[inline]
    #[must_use]
    pub fn into_ref(boxed: Self) -> ThinRef<'a, T>
    where
        T: 'a,
    {
        ThinRef { value: ManuallyDrop::new(boxed).value, lends: PhantomData }
    }
}

impl<T: ?Sized> Drop for ThinBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the box owns the value (invariant 2), and drops it once.
        unsafe { wide::<T>(self.value).drop_in_place() };
    }
}

impl<T: ?Sized> Deref for ThinBox<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariants 1 and 2.
        unsafe { wide::<T>(self.value).as_ref() }
    }
}

impl<T: ?Sized> DerefMut for ThinBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariants 1 and 2.
        unsafe { wide::<T>(self.value).as_mut() }
    }
}

impl<T: ?Sized> AsMut<T> for ThinBox<'_, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

handle_traits!([T: ?Sized] ThinBox<'_, T>);

/// A shared reference to a value in an [`Arena`] in one word: to a string, a slice, or a trait
/// object. A `&str` takes two words.
///
/// The other word lies in the arena, before the value; see [`ThinBox`]. Several handles to one value
/// share that word. So a key that is held in several places, such as an interned name, takes less
/// memory than with a `&str` in each place.
///
/// - **Made by**: [`Arena::alloc_thin_str`], [`Arena::alloc_thin_slice_copy`],
///   [`ThinBox::into_ref`].
/// - **Drop**: the value is never dropped.
/// - **Threads**: `Send` and `Sync` where the value is `Sync`.
///
/// ```
/// use allotment::Arena;
/// use allotment::arena::ThinRef;
///
/// let arena = Arena::new();
/// let name: ThinRef<'_, str> = arena.alloc_thin_str("system.cpu");
/// let again = name;
/// assert_eq!((&*name, again.len()), ("system.cpu", 10));
/// assert_eq!(size_of::<ThinRef<'_, str>>(), size_of::<usize>());
/// ```
///
/// A handle can't outlive its arena:
///
/// ```compile_fail,E0597
/// let name = {
///     let arena = allotment::Arena::new();
///     arena.alloc_thin_str("system.cpu")
/// };
/// assert_eq!(name.len(), 10);
/// ```
///
/// ```compile_fail,E0502
/// let mut arena = allotment::Arena::new();
/// let name = arena.alloc_thin_str("system.cpu").get();
/// arena.reset();
/// assert_eq!(name.len(), 10);
/// ```
pub struct ThinRef<'a, T: ?Sized> {
    value: NonNull<u8>,
    lends: PhantomData<&'a T>,
}

// SAFETY: the handle only reads the value, as a `&T` does (invariant 2).
unsafe impl<T: ?Sized + Sync> Send for ThinRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for ThinRef<'_, T> {}

impl<'a, T: ?Sized> ThinRef<'a, T> {
    /// Returns the ordinary reference, which lives as long as the arena is borrowed.
    #[inline]
    #[must_use]
    pub fn get(self) -> &'a T {
        // SAFETY: invariants 1 and 2.
        unsafe { wide::<T>(self.value).as_ref() }
    }
}

impl<T: ?Sized> Copy for ThinRef<'_, T> {}

impl<T: ?Sized> Clone for ThinRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Deref for ThinRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

handle_traits!([T: ?Sized] ThinRef<'_, T>);

impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Memory for a value of this layout with a word before it. Returns the value's address, which
    /// is aligned to a word too.
    fn thin_block_or<F: OnFailure>(&self, value: Layout) -> Result<NonNull<u8>, F::Error> {
        let (block, offset) = Layout::new::<Word>()
            .extend(value)
            .map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, value.size())))?;
        // SAFETY: the value lies in the block, behind the word.
        BlockSource::alloc::<F>(self, block).map(|block| unsafe { block.add(offset) })
    }

    fn thin_boxed_or<F: OnFailure, T>(&self, value: T) -> Result<ThinBox<'_, T>, F::Error> {
        let block = self.thin_block_or::<F>(Layout::new::<T>())?.cast::<T>();
        // SAFETY: a block for the value and a word before it, which belongs to this call alone and
        // is lent for as long as the arena is borrowed.
        unsafe {
            block.write(value);
            Ok(ThinBox::from_raw(block))
        }
    }

    /// If `make` unwinds, the box drops the values that were made.
    fn thin_slice_or<F: OnFailure, T>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<ThinBox<'_, [T]>, F::Error> {
        let layout = Layout::array::<T>(len)
            .map_err(|_| F::fail(AllocError::new(ErrorKind::SizeOverflow, len)))?;
        let first = self.thin_block_or::<F>(layout)?.cast::<T>();
        // SAFETY: as in `thin_boxed_or`, for a slice whose values are made below.
        let mut boxed = unsafe { ThinBox::from_raw(NonNull::slice_from_raw_parts(first, 0)) };
        for index in 0..len {
            let value = make(index);
            // SAFETY: memory for `len` values. With this one, the first `index + 1` are initialised,
            // and the box that knew of the ones before it is forgotten.
            unsafe {
                first.add(index).write(value);
                let made = NonNull::slice_from_raw_parts(first, index + 1);
                core::mem::forget(core::mem::replace(&mut boxed, ThinBox::from_raw(made)));
            }
        }
        Ok(boxed)
    }

    fn thin_copy_or<F: OnFailure, T: Copy>(
        &self,
        values: &[T],
    ) -> Result<ThinBox<'_, [T]>, F::Error> {
        let first = self.thin_block_or::<F>(Layout::for_value(values))?.cast::<T>();
        // SAFETY: as in `thin_boxed_or`, for a slice; the new block overlaps nothing borrowed.
        unsafe {
            first.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
            Ok(ThinBox::from_raw(NonNull::slice_from_raw_parts(first, values.len())))
        }
    }

    fn thin_str_or<F: OnFailure>(&self, text: &str) -> Result<ThinRef<'_, str>, F::Error> {
        let bytes = ThinBox::into_ref(self.thin_copy_or::<F, u8>(text.as_bytes())?);
        // A slice of bytes and a `str` have the same metadata, the length: invariant 1 holds for
        // the `str`, and the bytes are UTF-8.
        Ok(ThinRef { value: bytes.value, lends: PhantomData })
    }

    /// Moves the values of a vector to a block with a word before them.
    pub(super) fn thin_slice_from_or<F: OnFailure, T>(
        &self,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<ThinBox<'_, [T]>, F::Error> {
        let len = values.len();
        let mut values = values;
        self.thin_slice_or::<F, T>(len, |_| values.next().expect("the iterator knows its length"))
    }
}

/// # Allocate for thin handles
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// Copies a string, and returns a handle of one word.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_thin_str(&self, text: &str) -> ThinRef<'_, str> {
        always(self.thin_str_or::<PanicOrAbort>(text))
    }

    /// Like [`alloc_thin_str`](Self::alloc_thin_str), but returns an error instead of panicking or
    /// ending the process.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_thin_str(&self, text: &str) -> Result<ThinRef<'_, str>, AllocError> {
        self.thin_str_or::<ReturnError>(text)
    }

    /// Copies a slice, and returns a handle of one word.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_thin_slice_copy<T: Copy>(&self, values: &[T]) -> ThinRef<'_, [T]> {
        ThinBox::into_ref(always(self.thin_copy_or::<PanicOrAbort, T>(values)))
    }

    /// Like [`alloc_thin_slice_copy`](Self::alloc_thin_slice_copy), but returns an error instead of
    /// panicking or ending the process.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_thin_slice_copy<T: Copy>(
        &self,
        values: &[T],
    ) -> Result<ThinRef<'_, [T]>, AllocError> {
        self.thin_copy_or::<ReturnError, T>(values).map(ThinBox::into_ref)
    }

    /// Makes a slice of `len` values in a box of one word, which drops them. If `make` panics, the
    /// values made before are dropped, and the memory stays allocated until a reset.
    ///
    /// # Panics
    /// As [`alloc_slice_boxed`](Self::alloc_slice_boxed).
    pub fn alloc_thin_slice_boxed<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> ThinBox<'_, [T]> {
        always(self.thin_slice_or::<PanicOrAbort, T>(len, make))
    }

    /// Like [`alloc_thin_slice_boxed`](Self::alloc_thin_slice_boxed), but returns an error instead
    /// of panicking or ending the process. A failed call has not called `make`.
    ///
    /// # Errors
    /// As [`try_alloc_slice_boxed`](Self::try_alloc_slice_boxed).
    pub fn try_alloc_thin_slice_boxed<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<ThinBox<'_, [T]>, AllocError> {
        self.thin_slice_or::<ReturnError, T>(len, make)
    }

    /// Moves a value into the arena, with a word before it, and returns a box that
    /// [`unsize_thin_box!`](crate::unsize_thin_box) turns into a trait object of one word.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_thin_boxed<T>(&self, value: T) -> ThinBox<'_, T> {
        always(self.thin_boxed_or::<PanicOrAbort, T>(value))
    }

    /// Like [`alloc_thin_boxed`](Self::alloc_thin_boxed), but returns an error instead of panicking
    /// or ending the process. A failed call drops the value.
    ///
    /// # Errors
    /// As [`try_alloc`](Self::try_alloc).
    #[inline]
    pub fn try_alloc_thin_boxed<T>(&self, value: T) -> Result<ThinBox<'_, T>, AllocError> {
        self.thin_boxed_or::<ReturnError, T>(value)
    }
}

/// Turns a [`ThinBox`](crate::arena::ThinBox) into a thin box of a trait object or a slice, as
/// [`unsize_box!`](crate::unsize_box) does with other boxes. The context states the new type.
///
/// ```
/// #![forbid(unsafe_code)]
/// use allotment::arena::ThinBox;
/// use allotment::{Arena, unsize_thin_box};
///
/// let arena = Arena::new();
/// let shape: ThinBox<'_, dyn Fn(f64) -> f64> =
///     unsize_thin_box!(arena.alloc_thin_boxed(|side| side * side));
/// assert_eq!(shape(3.0), 9.0);
/// ```
///
/// Only the conversions of `Box` are possible:
///
/// ```compile_fail,E0277
/// let arena = allotment::Arena::new();
/// let iterator: allotment::arena::ThinBox<'_, dyn Iterator<Item = u32>> =
///     allotment::unsize_thin_box!(arena.alloc_thin_boxed(7u32));
/// ```
///
/// ```compile_fail,E0308
/// let arena = allotment::Arena::new();
/// let other: allotment::arena::ThinBox<'_, i32> =
///     allotment::unsize_thin_box!(arena.alloc_thin_boxed(7u32));
/// ```
#[macro_export]
macro_rules! unsize_thin_box {
    ($boxed:expr) => {{
        let (value, lifetime) = $crate::arena::ThinBox::into_parts($boxed);
        // SAFETY: both came from `into_parts`. A `NonNull` as an argument coerces only to the same
        // address of a type that the value's type unsizes to.
        unsafe { $crate::arena::ThinBox::from_parts(value, lifetime) }
    }};
}
