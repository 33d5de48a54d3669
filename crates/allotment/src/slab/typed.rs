//! `Slab<T>`: values of one type.
//!
//! # Invariants
//!
//! 1. A `SlabBox` exclusively owns one slot of a slab made for values of its type, and the slot
//!    holds a value.

use core::alloc::Layout;
use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::builder::SlabBuilder;
use super::lifetime::Lifetime;
use super::raw::{RawSlab, RawSlabHandle};
use super::slow_paths;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::statistics::Statistics;

/// Values of one type. Any thread makes them, and any thread drops them. [`RawSlab`] describes how
/// it works.
///
/// ```
/// let slab = allotment::Slab::new();
/// let mut item = slab.alloc((1, String::from("one")));
/// item.0 += 1;
/// std::thread::spawn(move || assert_eq!(item.0, 2)).join().unwrap();
/// assert_eq!(slab.statistics().live_objects, 0);
/// ```
pub struct Slab<T> {
    raw: RawSlab,
    values: PhantomData<fn(T) -> T>,
}

impl<T> Slab<T> {
    /// Makes a slab with default options.
    ///
    /// # Panics
    /// Aborts if [`try_build`](SlabBuilder::try_build) returns an error.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts building a slab with options.
    pub const fn builder() -> SlabBuilder<Self> {
        SlabBuilder::new(Layout::new::<T>())
    }

    pub(super) fn from_raw(raw: RawSlab) -> Self {
        Self { raw, values: PhantomData }
    }

    /// The untyped slab beneath this one, for statistics, limits and switches.
    #[must_use]
    pub fn raw(&self) -> &RawSlab {
        &self.raw
    }

    /// Allocates a box that holds `value`.
    ///
    /// # Panics
    /// Aborts if [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc(&self, value: T) -> SlabBox<T> {
        // SAFETY: a slot of this slab, which is for values of this type.
        unsafe { SlabBox::fill(always(self.raw.alloc_or::<Abort>()), value) }
    }

    /// Allocates a box that holds `value`.
    ///
    /// # Errors
    /// Same as [`RawSlab::try_alloc`]. The error carries `value` back to the caller.
    #[inline]
    pub fn try_alloc(&self, value: T) -> Result<SlabBox<T>, (AllocError, T)> {
        match self.raw.alloc_or::<Report>() {
            // SAFETY: as above.
            Ok(slot) => Ok(unsafe { SlabBox::fill(slot, value) }),
            Err(error) => Err((error, value)),
        }
    }

    /// Allocates a box for a value of this expected lifetime.
    ///
    /// # Panics
    /// Aborts if [`try_alloc_for`](Self::try_alloc_for) returns an error.
    pub fn alloc_for(&self, lifetime: Lifetime, value: T) -> SlabBox<T> {
        let slot = always(self.raw.try_alloc_for(lifetime).map_err(Abort::fail));
        // SAFETY: as above.
        unsafe { SlabBox::fill(slot, value) }
    }

    /// Allocates a box for a value of this expected lifetime.
    ///
    /// # Errors
    /// Same as [`RawSlab::try_alloc`]. The error carries `value` back to the caller.
    pub fn try_alloc_for(
        &self,
        lifetime: Lifetime,
        value: T,
    ) -> Result<SlabBox<T>, (AllocError, T)> {
        match self.raw.try_alloc_for(lifetime) {
            // SAFETY: as above.
            Ok(slot) => Ok(unsafe { SlabBox::fill(slot, value) }),
            Err(error) => Err((error, value)),
        }
    }

    /// Returns a handle to the calling thread's cache. Calls on the handle skip the lookup in the
    /// thread's table.
    #[must_use]
    pub fn handle(&self) -> SlabHandle<'_, T> {
        SlabHandle { raw: self.raw.handle(), values: PhantomData }
    }

    /// Same as [`RawSlab::reserve`].
    ///
    /// # Panics
    /// Aborts if [`RawSlab::try_reserve`] returns an error.
    pub fn reserve(&self, values: usize) {
        self.raw.reserve(values);
    }

    /// Same as [`RawSlab::trim`].
    pub fn trim(&self) -> usize {
        self.raw.trim()
    }

    /// Same as [`RawSlab::flush`].
    pub fn flush(&self) {
        self.raw.flush();
    }

    /// Same as [`RawSlab::statistics`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.raw.statistics()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slab").field(&self.raw).finish()
    }
}

/// One thread's direct access to a [`Slab`].
#[derive(Debug)]
pub struct SlabHandle<'s, T> {
    raw: RawSlabHandle<'s>,
    values: PhantomData<fn(T) -> T>,
}

impl<T> SlabHandle<'_, T> {
    /// Allocates a box that holds `value`: [`Slab::alloc`] by the shortest path.
    ///
    /// # Panics
    /// Aborts if [`Slab::try_alloc`] returns an error.
    #[inline]
    pub fn alloc(&self, value: T) -> SlabBox<T> {
        // SAFETY: a slot of a slab for values of this type.
        unsafe { SlabBox::fill(self.raw.alloc(), value) }
    }

    /// Allocates a box that holds `value`.
    ///
    /// # Errors
    /// Same as [`RawSlab::try_alloc`]. The error carries `value` back to the caller.
    #[inline]
    pub fn try_alloc(&self, value: T) -> Result<SlabBox<T>, (AllocError, T)> {
        match self.raw.try_alloc() {
            // SAFETY: as above.
            Ok(slot) => Ok(unsafe { SlabBox::fill(slot, value) }),
            Err(error) => Err((error, value)),
        }
    }
}

/// An owned value in a slab. The box is one word; any thread may drop it, even after its [`Slab`].
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
    /// Writes a value into a slot and makes a box of it.
    ///
    /// # Safety
    /// The caller owns the slot, and its slab is for this type's layout.
    #[inline(always)]
    unsafe fn fill(slot: NonNull<u8>, value: T) -> Self {
        let target = slot.cast::<T>();
        // SAFETY: the caller owns the slot, and it fits a `T`.
        unsafe { target.write(value) };
        Self { value: target, owns: PhantomData }
    }

    /// Moves the value out of the box and frees its slot.
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let boxed = ManuallyDrop::new(boxed);
        // SAFETY: the value is read once, and its slot is freed once (invariant 1).
        unsafe {
            let value = boxed.value.read();
            slow_paths::free_by_address(boxed.value.cast());
            value
        }
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
        /// Frees the slot even if the value's own drop panics.
        struct FreeOnDrop(NonNull<u8>);
        impl Drop for FreeOnDrop {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: the box's slot, freed once (invariant 1).
                unsafe { slow_paths::free_by_address(self.0) }
            }
        }
        let slot = FreeOnDrop(self.value.cast());
        // SAFETY: the box owns the value, which is dropped once.
        unsafe { self.value.drop_in_place() };
        drop(slot);
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
