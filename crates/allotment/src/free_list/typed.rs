//! `FreeList<T>`: values of one type for one thread.
//!
//! # Invariant
//!
//! `raw` is a list for `T`'s layout. Boxes, slots and runs borrow the list. While one of them
//! exists, the list stays where it is and on its thread.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::boxed::{ListBox, ListRun, ListSlot};
use super::raw::RawFreeList;
use crate::collections::slot_calls;
use crate::error::{AllocError, OnFailure, or_fail};
use crate::options::new_calls;
use crate::statistics::Statistics;

/// Values of one type for one thread. A [`ListBox`] owns each value: dropping the box drops the
/// value and frees its slot.
///
/// The first values lie next to each other, in the order of their allocation. Later values reuse
/// the slots that were freed last. [`alloc_run`](Self::alloc_run) and
/// [`copy_in_order`](Self::copy_in_order) keep the order.
///
/// ```
/// let list = allotment::FreeList::new();
/// let first = list.alloc([1, 2, 3]);
/// let second = list.alloc([4, 5, 6]);
/// assert_eq!(first[0] + second[2], 7);
/// drop(first);
/// assert_eq!(list.statistics().live_objects, 1);
/// ```
///
/// One thread at a time uses a list:
///
/// ```compile_fail,E0277
/// let list = allotment::FreeList::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| drop(list.alloc(1)));
///     drop(list.alloc(2));
/// });
/// ```
///
/// A box can't move to another thread, which would free it there:
///
/// ```compile_fail,E0277
/// let list = allotment::FreeList::new();
/// let value = list.alloc(1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(value));
/// });
/// ```
///
/// A box can't outlive its list:
///
/// ```compile_fail,E0597
/// let value;
/// {
///     let list = allotment::FreeList::new();
///     value = list.alloc(1);
/// }
/// assert_eq!(*value, 1);
/// ```
///
/// The idea comes from *Fixed size free lists and per-datastructure allocators*.
pub struct FreeList<T> {
    raw: RawFreeList,
    /// The list itself owns no value that it would drop.
    values: PhantomData<*const T>,
}

// SAFETY: as for the raw list. A value whose box was turned into an address may become a box again
// on the list's next thread, so `T` must be `Send`.
unsafe impl<T: Send> Send for FreeList<T> {}

/// # Create
impl<T> FreeList<T> {
    new_calls! {
        "list";
        /// If there is no memory for the statistics record.
    }
}

/// # Allocate
impl<T> FreeList<T> {
    pub(super) fn from_raw_list(raw: RawFreeList) -> Self {
        Self { raw, values: PhantomData }
    }

    #[inline(always)]
    fn slot_or<F: OnFailure>(&self) -> Result<ListSlot<'_, T>, F::Error> {
        // SAFETY: an object of this list, for a `T`.
        self.raw.alloc_or::<F>().map(|object| unsafe { ListSlot::new(object, &self.raw) })
    }

    #[inline(always)]
    fn slot_fast(&self) -> Option<ListSlot<'_, T>> {
        // SAFETY: as above.
        self.raw.alloc_fast().map(|object| unsafe { ListSlot::new(object, &self.raw) })
    }

    slot_calls!(ListSlot<'_, T>, ListBox<'_, T>, "RawFreeList");

    /// Allocates the slot after the fresh one taken last; see [`RawFreeList::alloc_fresh`].
    pub(super) fn fresh_slot<F: OnFailure>(&self) -> Result<ListSlot<'_, T>, F::Error> {
        let object = self.raw.try_alloc_fresh().map_err(F::fail)?;
        // SAFETY: as above.
        Ok(unsafe { ListSlot::new(object, &self.raw) })
    }

    /// Allocates adjacent slots for this number of values.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_alloc_run`](Self::try_alloc_run) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[track_caller]
    pub fn alloc_run(&self, values: usize) -> ListRun<'_, T> {
        or_fail(self.try_alloc_run(values))
    }

    /// Allocates adjacent slots for this number of values. The iterator yields them in the order of
    /// their addresses. Slots that are not taken from it are freed when it is dropped.
    ///
    /// # Errors
    /// Same as [`RawFreeList::try_alloc_run`].
    pub fn try_alloc_run(&self, values: usize) -> Result<ListRun<'_, T>, AllocError> {
        let first = self.raw.try_alloc_run(values)?;
        // SAFETY: a run of `values` objects of this list.
        Ok(unsafe { ListRun::new(first, values, &self.raw) })
    }
}

/// # Free
///
/// The drop of a box frees its slot.
impl<T> FreeList<T> {
    /// Makes a box of a value's address; the reverse of [`ListBox::into_raw`].
    ///
    /// # Safety
    /// The address came from `into_raw` of a box of this very list, and is made into a box once.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(&self, value: NonNull<T>) -> ListBox<'_, T> {
        // SAFETY: the caller upholds the contract.
        unsafe { ListBox::from_raw_in(value, &self.raw) }
    }

    /// Same as [`RawFreeList::trim`].
    pub fn trim(&self) -> usize {
        self.raw.trim()
    }
}

/// # Name and statistics
impl<T> FreeList<T> {
    /// The untyped list beneath this one, which hands out addresses.
    #[must_use]
    pub fn raw(&self) -> &RawFreeList {
        &self.raw
    }

    /// The list's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.raw.name()
    }

    /// Same as [`RawFreeList::statistics`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.raw.statistics()
    }
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for FreeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FreeList").field(&self.raw).finish()
    }
}
