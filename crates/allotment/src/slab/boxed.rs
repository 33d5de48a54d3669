//! `SlabBox`: a value in a slab that its box owns, and `SlabSlot`: a slot without a value.
//!
//! # Invariants
//!
//! 1. A `SlabBox` exclusively owns one slot of a slab made for values of its type, and the slot
//!    holds a value.
//! 2. A `SlabSlot` exclusively owns one slot of a slab made for values of its type. The slot holds
//!    no value.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::slow_paths;

/// An owned value in a slab. The box is one word; any thread may drop it, even after its
/// [`Slab`](super::Slab).
///
/// It dereferences to the value, and is `Send` and `Sync` if the value is. Dropping it frees the
/// slot by the address alone.
pub struct SlabBox<T> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: the box owns its value as a `Box` does, and any thread may free a slot.
unsafe impl<T: Send> Send for SlabBox<T> {}
// SAFETY: sharing the box shares the value and nothing else.
unsafe impl<T: Sync> Sync for SlabBox<T> {}

impl<T> SlabBox<T> {
    /// Moves the value out of the box and frees its slot.
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let boxed = ManuallyDrop::new(boxed);
        let _slot = SlabSlot { address: boxed.value };
        // SAFETY: the value is read once (invariant 1). The slot owns the memory from here on.
        unsafe { boxed.value.read() }
    }

    /// Returns the value's address. The caller then owns the slot and the value.
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }

    /// Makes a box of an address.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and is made into a box once.
    #[must_use]
    pub unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self { value, owns: PhantomData }
    }
}

impl<T> Drop for SlabBox<T> {
    #[inline]
    fn drop(&mut self) {
        // Frees the memory even if the value's own drop panics.
        let _slot = SlabSlot { address: self.value };
        // SAFETY: the box owns the value, which is dropped once.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T> Deref for SlabBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for SlabBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1.
        unsafe { self.value.as_mut() }
    }
}

impl<T> AsRef<T> for SlabBox<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> AsMut<T> for SlabBox<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T> Borrow<T> for SlabBox<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T> BorrowMut<T> for SlabBox<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: fmt::Debug> fmt::Debug for SlabBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for SlabBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A slot of a slab that holds no value yet. It is one word; any thread may fill or drop it, even
/// after its [`Slab`](super::Slab). Dropping it frees the slot.
///
/// ```
/// let slab = allotment::Slab::new();
/// let slot = slab.slot();
/// let address = slot.as_ptr();
/// let value = slot.fill(7);
/// assert_eq!(address.as_ptr().cast_const(), std::ptr::from_ref(&*value));
/// drop(slab.slot());
/// assert_eq!(slab.statistics().live_objects, 1);
/// ```
#[must_use = "a slot that is dropped is free again"]
pub struct SlabSlot<T> {
    address: NonNull<T>,
}

// SAFETY: the slot owns memory and no value, and any thread may free a slot.
unsafe impl<T> Send for SlabSlot<T> {}
// SAFETY: a shared slot gives its address and nothing else.
unsafe impl<T> Sync for SlabSlot<T> {}

impl<T> SlabSlot<T> {
    /// # Safety
    /// The caller owns the slot, and its slab is for this type's layout.
    #[inline(always)]
    pub(super) unsafe fn new(slot: NonNull<u8>) -> Self {
        Self { address: slot.cast() }
    }

    /// Puts a value into the slot.
    #[inline(always)]
    pub fn fill(self, value: T) -> SlabBox<T> {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot is owned (2), and has room and alignment for a `T`. The box owns it from
        // here on.
        unsafe { slot.address.write(value) };
        SlabBox { value: slot.address, owns: PhantomData }
    }

    /// The address that the value will have.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<T> {
        self.address
    }
}

impl<T> Drop for SlabSlot<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot is owned (2), and freed once.
        unsafe { slow_paths::free_by_address(self.address.cast()) };
    }
}

impl<T> fmt::Debug for SlabSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlabSlot").field(&self.address).finish()
    }
}
