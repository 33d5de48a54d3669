//! `Slab<T>`: values of one type.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use super::boxed::{SlabBox, SlabSlot};
use super::lifetime::Lifetime;
use super::raw::{RawSlab, RawSlabHandle};
use crate::collections::{SlabMemory, StatelessMemory, slot_calls};
use crate::error::{AllocError, OnFailure, or_fail};
use crate::options::new_calls;
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

/// # Create
impl<T> Slab<T> {
    new_calls! {
        "slab";
        /// Same as [`RawSlab::try_new`].
    }
}

/// # Allocate
impl<T> Slab<T> {
    pub(super) fn from_raw(raw: RawSlab) -> Self {
        Self { raw, values: PhantomData }
    }

    #[inline(always)]
    fn slot_or<F: OnFailure>(&self) -> Result<SlabSlot<T>, F::Error> {
        // SAFETY: a slot of this slab, which is for values of this type.
        self.raw.alloc_or::<F>().map(|slot| unsafe { SlabSlot::new(slot, SlabMemory::MEMORY) })
    }

    #[inline(always)]
    fn slot_fast(&self) -> Option<SlabSlot<T>> {
        // SAFETY: as above.
        self.raw.alloc_fast().map(|slot| unsafe { SlabSlot::new(slot, SlabMemory::MEMORY) })
    }

    slot_calls!(SlabSlot<T>, SlabBox<T>, "RawSlab");

    fn try_slot_for(&self, lifetime: Lifetime) -> Result<SlabSlot<T>, AllocError> {
        let slot = self.raw.try_alloc_for(lifetime)?;
        // SAFETY: as above.
        Ok(unsafe { SlabSlot::new(slot, SlabMemory::MEMORY) })
    }

    /// Allocates a box for a value of this expected lifetime.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_for`](Self::try_alloc_for) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[track_caller]
    pub fn alloc_for(&self, lifetime: Lifetime, value: T) -> SlabBox<T> {
        // The call does not unwind, but the compiler does not know that. To be dropped if it did,
        // the value would need an address, and so a copy in memory.
        let value = ManuallyDrop::new(value);
        match self.try_slot_for(lifetime) {
            Ok(slot) => slot.fill(ManuallyDrop::into_inner(value)),
            Err(error) => {
                drop(ManuallyDrop::into_inner(value));
                or_fail(Err(error))
            }
        }
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
        let value = ManuallyDrop::new(value);
        let slot = self.try_slot_for(lifetime);
        let value = ManuallyDrop::into_inner(value);
        match slot {
            Ok(slot) => Ok(slot.fill(value)),
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
    /// Panics or ends the process if [`try_reserve`](Self::try_reserve) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[track_caller]
    pub fn reserve(&self, values: usize) {
        self.raw.reserve(values);
    }

    /// Same as [`RawSlab::try_reserve`].
    ///
    /// # Errors
    /// Same as [`RawSlab::try_reserve`].
    pub fn try_reserve(&self, values: usize) -> Result<(), AllocError> {
        self.raw.try_reserve(values)
    }
}

/// # Free
///
/// The drop of a box frees its slot.
impl<T> Slab<T> {
    /// Same as [`RawSlab::trim`].
    pub fn trim(&self) -> usize {
        self.raw.trim()
    }

    /// Same as [`RawSlab::flush`].
    pub fn flush(&self) {
        self.raw.flush();
    }
}

/// # Name and statistics
impl<T> Slab<T> {
    /// The untyped slab beneath this one, for statistics, limits and switches.
    #[must_use]
    pub fn raw(&self) -> &RawSlab {
        &self.raw
    }

    /// The slab's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.raw.name()
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

/// One thread's direct access to a [`Slab`]. Its calls are those of the slab, by the shortest path.
pub struct SlabHandle<'s, T> {
    raw: RawSlabHandle<'s>,
    values: PhantomData<fn(T) -> T>,
}

impl<T> fmt::Debug for SlabHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlabHandle").field(&self.raw).finish()
    }
}

impl<T> SlabHandle<'_, T> {
    #[inline(always)]
    fn slot_or<F: OnFailure>(&self) -> Result<SlabSlot<T>, F::Error> {
        // SAFETY: a slot of a slab for values of this type.
        self.raw.alloc_or::<F>().map(|slot| unsafe { SlabSlot::new(slot, SlabMemory::MEMORY) })
    }

    #[inline(always)]
    fn slot_fast(&self) -> Option<SlabSlot<T>> {
        // SAFETY: as above.
        self.raw.alloc_fast().map(|slot| unsafe { SlabSlot::new(slot, SlabMemory::MEMORY) })
    }

    slot_calls!(SlabSlot<T>, SlabBox<T>, "RawSlab");
}
