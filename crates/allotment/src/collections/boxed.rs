//! `BoxIn`: one value with an owner that drops it.
//!
//! # Invariant
//!
//! `value` points to a value that the box alone owns, in a block of memory `M` that has the value's
//! layout. A value without bytes may lie at a dangling address; nothing is freed for it.

use core::alloc::Layout;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::block_source::BlockSource;
use crate::error::OnFailure;

/// The memory that a [`BoxIn`] lies in: [`ArenaMemory`] or [`PoolMemory`].
///
/// # Safety
/// `free` may be called for each block that a box of this memory owns.
pub unsafe trait BoxMemory {
    /// Frees a block.
    ///
    /// # Safety
    /// The block is of this memory and has this layout, which is not of size zero. It was not
    /// freed, and is not used any more.
    #[doc(hidden)]
    unsafe fn free(block: NonNull<u8>, layout: Layout);
}

/// The memory of an arena that is borrowed for `'a`.
pub struct ArenaMemory<'a>(PhantomData<&'a mut ()>);

/// The memory of the pools and of the global heap.
pub struct PoolMemory(());

/// A value with an owner that drops it. The box takes one word, or two for a slice, a string or a
/// trait object.
///
/// Use it under the name for its memory: [`ArenaBox`](crate::ArenaBox) or
/// [`PoolBox`](crate::PoolBox). [`unsize_box!`](crate::unsize_box) turns it into a box of a trait
/// object or a slice.
pub struct BoxIn<T: ?Sized, M: BoxMemory> {
    value: NonNull<T>,
    owns: PhantomData<(M, T)>,
}

// SAFETY: the box owns its value as a `Box` does (the invariant).
unsafe impl<T: ?Sized + Send, M: BoxMemory + Send> Send for BoxIn<T, M> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, M: BoxMemory + Sync> Sync for BoxIn<T, M> {}

/// Moving the box does not move the value.
impl<T: ?Sized, M: BoxMemory> Unpin for BoxIn<T, M> {}

impl<T: ?Sized, M: BoxMemory> BoxIn<T, M> {
    /// Returns the value's address, for [`from_raw`](Self::from_raw). The value is not dropped.
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }

    /// Makes a box from an address.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw) of a box of the same memory, perhaps cast
    /// to another type with the same layout, and no other box is made from it. An arena is still
    /// borrowed.
    #[inline]
    #[must_use]
    pub const unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self { value, owns: PhantomData }
    }

    /// For [`unsize_box!`](crate::unsize_box): the address and the memory.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn into_parts(boxed: Self) -> (NonNull<T>, PhantomData<M>) {
        (Self::into_raw(boxed), PhantomData)
    }

    /// For [`unsize_box!`](crate::unsize_box).
    ///
    /// # Safety
    /// The arguments came from [`into_parts`](Self::into_parts), and the address was at most
    /// coerced.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub unsafe fn from_parts(value: NonNull<T>, _: PhantomData<M>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::from_raw(value) }
    }
}

impl<T, M: BoxMemory> BoxIn<T, M> {
    /// # Safety
    /// Blocks of the source are of the memory `M`.
    #[inline(always)]
    pub(crate) unsafe fn new_in_or<F: OnFailure>(
        value: T,
        source: impl BlockSource,
    ) -> Result<Self, F::Error> {
        let layout = Layout::new::<T>();
        let address = match layout.size() {
            0 => NonNull::dangling(),
            _ => source.alloc::<F>(layout)?.cast::<T>(),
        };
        // SAFETY: a block of this layout that nothing else uses, or no byte is written; the box
        // alone owns it.
        unsafe {
            address.write(value);
            Ok(Self::from_raw(address))
        }
    }

    /// Takes the value out and frees its block.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let block = FreeOnDrop::<M>::of::<T>(&boxed);
        let value = Self::into_raw(boxed);
        // SAFETY: the box owned the value (the invariant); it is read once, and before the block is
        // freed.
        let value = unsafe { value.read() };
        drop(block);
        value
    }
}

/// Frees a box's block on drop, if it has one.
struct FreeOnDrop<M: BoxMemory> {
    block: NonNull<u8>,
    layout: Layout,
    memory: PhantomData<M>,
}

impl<M: BoxMemory> FreeOnDrop<M> {
    /// The caller drops this after the last use of the value, and does not drop the box.
    #[inline]
    fn of<T: ?Sized>(boxed: &BoxIn<T, M>) -> Self {
        let layout = Layout::for_value::<T>(boxed);
        Self { block: boxed.value.cast(), layout, memory: PhantomData }
    }
}

impl<M: BoxMemory> Drop for FreeOnDrop<M> {
    #[inline]
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: made from a box, which gave up its block to this value (the invariant).
            unsafe { M::free(self.block, self.layout) };
        }
    }
}

impl<T: ?Sized, M: BoxMemory> Drop for BoxIn<T, M> {
    #[inline]
    fn drop(&mut self) {
        // The block is freed even if the value's destructor unwinds.
        let _block = FreeOnDrop::of(self);
        // SAFETY: the box owns the value (the invariant), and drops it once.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T: ?Sized, M: BoxMemory> Deref for BoxIn<T, M> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the invariant.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, M: BoxMemory> DerefMut for BoxIn<T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the invariant.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized, M: BoxMemory> AsRef<T> for BoxIn<T, M> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized, M: BoxMemory> AsMut<T> for BoxIn<T, M> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized, M: BoxMemory> Borrow<T> for BoxIn<T, M> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized, M: BoxMemory> BorrowMut<T> for BoxIn<T, M> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + PartialEq, M: BoxMemory> PartialEq for BoxIn<T, M> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq, M: BoxMemory> Eq for BoxIn<T, M> {}

impl<T: ?Sized + PartialOrd, M: BoxMemory> PartialOrd for BoxIn<T, M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: ?Sized + Ord, M: BoxMemory> Ord for BoxIn<T, M> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: ?Sized + Hash, M: BoxMemory> Hash for BoxIn<T, M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: ?Sized + fmt::Debug, M: BoxMemory> fmt::Debug for BoxIn<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display, M: BoxMemory> fmt::Display for BoxIn<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl<I: ?Sized + Iterator, M: BoxMemory> Iterator for BoxIn<I, M> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        (**self).next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (**self).size_hint()
    }
}

impl<I: ?Sized + DoubleEndedIterator, M: BoxMemory> DoubleEndedIterator for BoxIn<I, M> {
    fn next_back(&mut self) -> Option<I::Item> {
        (**self).next_back()
    }
}

impl<I: ?Sized + ExactSizeIterator, M: BoxMemory> ExactSizeIterator for BoxIn<I, M> {}
impl<I: ?Sized + FusedIterator, M: BoxMemory> FusedIterator for BoxIn<I, M> {}

/// Turns an [`ArenaBox`](crate::ArenaBox) or [`PoolBox`](crate::PoolBox) into a box of a trait
/// object or a slice, as `Box` converts by itself. The context states the new type.
///
/// ```
/// #![forbid(unsafe_code)]
/// use allotment::{Arena, ArenaBox, unsize_box};
/// use std::fmt::Display;
///
/// let arena = Arena::new();
/// let values: [ArenaBox<'_, dyn Display>; 2] = [
///     unsize_box!(arena.alloc_boxed(String::from("ten"))),
///     unsize_box!(arena.alloc_boxed(10)),
/// ];
/// assert_eq!(format!("{} is {}", values[0], values[1]), "ten is 10");
/// let digits: ArenaBox<'_, [u8]> = unsize_box!(arena.alloc_boxed([1, 2, 3]));
/// assert_eq!(digits.len(), 3);
/// ```
///
/// Only the conversions of `Box` are possible:
///
/// ```compile_fail,E0277
/// let number = allotment::PoolBox::new(7u32);
/// let iterator: allotment::PoolBox<dyn Iterator<Item = u32>> = allotment::unsize_box!(number);
/// ```
///
/// ```compile_fail,E0308
/// let number = allotment::PoolBox::new(7u32);
/// let other: allotment::PoolBox<i32> = allotment::unsize_box!(number);
/// ```
///
/// The box's memory stays the same:
///
/// ```compile_fail,E0308
/// let arena = allotment::Arena::new();
/// let pooled: allotment::PoolBox<[i32]> = allotment::unsize_box!(arena.alloc_boxed([1]));
/// ```
#[macro_export]
macro_rules! unsize_box {
    ($boxed:expr) => {{
        let (value, memory) = $crate::collections::BoxIn::into_parts($boxed);
        // SAFETY: both came from `into_parts`. A `NonNull` as an argument coerces only to the same
        // address of a type that the value's type unsizes to.
        unsafe { $crate::collections::BoxIn::from_parts(value, memory) }
    }};
}
