//! `BoxIn`: one value with an owner that drops it.
//!
//! # Invariant
//!
//! `value` points to a value that the box alone owns, in a block of `memory` that has the value's
//! layout.

use core::alloc::Layout;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::error::Error;
use core::fmt;
use core::future::Future;
use core::hash::{Hash, Hasher};
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

/// The memory that a [`BoxIn`] or a [`SlotIn`](super::SlotIn) lies in: [`ArenaMemory`],
/// [`PoolMemory`], [`SlabMemory`], [`&Reap`](crate::Reap) or
/// [`&RawFreeList`](crate::RawFreeList).
///
/// # Safety
/// `free` may be called for each block that a box or a slot of this memory owns.
pub unsafe trait BoxMemory: Copy {
    /// Frees a block.
    ///
    /// # Safety
    /// The block is of this memory and has this layout. It was not freed, and is not used any more.
    #[doc(hidden)]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout);
}

/// Memory whose blocks stay valid for `'a` unless they are freed.
///
/// # Safety
/// Nothing but [`BoxMemory::free`] and unsafe calls ends a block before `'a` does. So memory that
/// lends for `'static` can hold pinned values.
pub unsafe trait LendingMemory<'a>: BoxMemory {}

/// Memory that a box need not name: a block is freed by its address, or not at all. A box of this
/// memory takes one word.
pub trait StatelessMemory: BoxMemory {
    /// The memory.
    #[doc(hidden)]
    const MEMORY: Self;
}

/// The memory of an arena that is borrowed for `'a`.
#[derive(Clone, Copy)]
pub struct ArenaMemory<'a>(PhantomData<&'a mut ()>);

#[cfg(system_memory)]
/// The memory of the pools and of the global heap.
#[derive(Clone, Copy)]
pub struct PoolMemory(());

#[cfg(system_memory)]
/// The memory of the slabs.
#[derive(Clone, Copy)]
pub struct SlabMemory(());

impl StatelessMemory for ArenaMemory<'_> {
    const MEMORY: Self = Self(PhantomData);
}

#[cfg(system_memory)]
impl StatelessMemory for PoolMemory {
    const MEMORY: Self = Self(());
}

#[cfg(system_memory)]
impl StatelessMemory for SlabMemory {
    const MEMORY: Self = Self(());
}

/// A value with an owner that drops it. The box takes one word for the value, or two for a slice, a
/// string or a trait object. In a reap or a free list it takes one more, for the allocator.
///
/// Use it under the name for its memory: [`ArenaBox`](crate::ArenaBox),
/// [`ListBox`](crate::ListBox), [`PoolBox`](crate::PoolBox), [`ReapBox`](crate::pool::ReapBox) or
/// [`SlabBox`](crate::SlabBox). [`unsize_box!`](crate::unsize_box) turns it into a box of a trait
/// object or a slice.
pub struct BoxIn<T: ?Sized, M: BoxMemory> {
    value: NonNull<T>,
    memory: M,
    owns: PhantomData<T>,
}

// SAFETY: the box owns its value as a `Box` does (the invariant).
unsafe impl<T: ?Sized + Send, M: BoxMemory + Send> Send for BoxIn<T, M> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, M: BoxMemory + Sync> Sync for BoxIn<T, M> {}

/// Moving the box does not move the value.
impl<T: ?Sized, M: BoxMemory> Unpin for BoxIn<T, M> {}

impl<T: ?Sized, M: BoxMemory> BoxIn<T, M> {
    /// Returns the value's address. The value is not dropped, and its block is not freed.
    /// [`from_raw`](Self::from_raw) or [`from_raw_in`](Self::from_raw_in) makes it a box again.
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }

    /// Makes a box from an address and its memory.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw) of a box of this memory, perhaps cast to
    /// another type with the same layout, and no other box is made from it. An arena, a reap or a
    /// free list is still borrowed.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn from_raw_in(value: NonNull<T>, memory: M) -> Self {
        Self { value, memory, owns: PhantomData }
    }

    /// Makes a box from an address.
    ///
    /// # Safety
    /// As for [`from_raw_in`](Self::from_raw_in).
    #[inline(always)]
    #[must_use]
    pub const unsafe fn from_raw(value: NonNull<T>) -> Self
    where
        M: StatelessMemory,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::from_raw_in(value, M::MEMORY) }
    }

    /// For [`unsize_box!`](crate::unsize_box): the address and the memory.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn into_parts(boxed: Self) -> (NonNull<T>, M) {
        let boxed = ManuallyDrop::new(boxed);
        (boxed.value, boxed.memory)
    }

    /// Lends the value for as long as its memory is there, and never drops it. In an arena, a reap
    /// or a free list that is as long as the allocator is borrowed.
    #[inline(always)]
    #[must_use]
    pub fn leak<'a>(boxed: Self) -> &'a mut T
    where
        T: 'a,
        M: LendingMemory<'a>,
    {
        // SAFETY: the box owned the value, and is never used or dropped again, so this borrow is
        // the only one. The block is not freed, so it stays for `'a`.
        unsafe { Self::into_raw(boxed).as_mut() }
    }

    /// Pins the value. Its memory must be there until the program ends, as that of the pools and
    /// slabs is, and that of an allocator borrowed for `'static`: a pinned box may be forgotten,
    /// and its memory may not be used again before the value was dropped.
    ///
    /// An arena that can be reset or dropped pins no value:
    ///
    /// ```compile_fail,E0597
    /// use allotment::ArenaBox;
    ///
    /// let arena = allotment::Arena::new();
    /// let pinned = ArenaBox::into_pin(arena.alloc_boxed(std::marker::PhantomPinned));
    /// ```
    #[inline]
    #[must_use]
    pub fn into_pin(boxed: Self) -> Pin<Self>
    where
        M: LendingMemory<'static>,
    {
        // SAFETY: the value does not move with the box, and the pin doesn't give it out. Its block
        // is freed only after the value was dropped, or never (`LendingMemory`).
        unsafe { Pin::new_unchecked(boxed) }
    }
}

impl<T: ?Sized, M: LendingMemory<'static>> From<BoxIn<T, M>> for Pin<BoxIn<T, M>> {
    /// As [`BoxIn::into_pin`].
    #[inline]
    fn from(boxed: BoxIn<T, M>) -> Self {
        BoxIn::into_pin(boxed)
    }
}

impl<T, M: BoxMemory> BoxIn<T, M> {
    /// Takes the value out and frees its block.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let _block = FreeOnDrop::of(&boxed);
        // SAFETY: the box owned the value (the invariant); it is read once, and before the block is
        // freed.
        unsafe { Self::into_raw(boxed).read() }
    }
}

/// Frees a box's block on drop.
struct FreeOnDrop<M: BoxMemory> {
    block: NonNull<u8>,
    layout: Layout,
    memory: M,
}

impl<M: BoxMemory> FreeOnDrop<M> {
    /// The caller drops this after the last use of the value, and does not drop the box.
    #[inline]
    fn of<T: ?Sized>(boxed: &BoxIn<T, M>) -> Self {
        let layout = Layout::for_value::<T>(boxed);
        Self { block: boxed.value.cast(), layout, memory: boxed.memory }
    }
}

impl<M: BoxMemory> Drop for FreeOnDrop<M> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made from a box, which gave up its block to this value (the invariant).
        unsafe { self.memory.free(self.block, self.layout) };
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

impl<T: ?Sized, M: BoxMemory> fmt::Pointer for BoxIn<T, M> {
    /// Prints the value's address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.value, f)
    }
}

impl<T: ?Sized + Error, M: BoxMemory> Error for BoxIn<T, M> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (**self).source()
    }
}

/// A pinned box of any future is a future too, as [`Pin`] is.
impl<F: ?Sized + Future + Unpin, M: BoxMemory> Future for BoxIn<F, M> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut **self).poll(context)
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

/// Turns an [`ArenaBox`](crate::ArenaBox), a [`PoolBox`](crate::PoolBox) or another
/// [`BoxIn`](crate::collections::BoxIn) into a box of a trait object or a slice, as `Box` converts
/// by itself. The context states the new type.
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
        unsafe { $crate::collections::BoxIn::from_raw_in(value, memory) }
    }};
}
