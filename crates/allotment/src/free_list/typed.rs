//! `FreeList<T>`: values of one type for one thread.
//!
//! # Invariant
//!
//! `raw` is a list for `T`'s layout. Boxes, slots and runs borrow the list, so it stays where it is, on its thread, while
//! there is one of them.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::boxed::{ListBox, ListRun, ListSlot};
use super::builder::FreeListBuilder;
use super::raw::RawFreeList;
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::statistics::Statistics;

/// Values of one type for one thread; each is owned by a [`ListBox`], which drops it and frees its place.
///
/// The first values lie one behind the other, in the order of their allocation; later ones where others were freed last.
/// [`run`](Self::run) and [`copy_in_order`](Self::copy_in_order) keep the order.
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
/// A list is used by one thread at a time:
///
/// ```compile_fail,E0277
/// let list = allotment::FreeList::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| drop(list.alloc(1)));
///     drop(list.alloc(2));
/// });
/// ```
///
/// A box does not go to another thread, where it would be freed:
///
/// ```compile_fail,E0277
/// let list = allotment::FreeList::new();
/// let value = list.alloc(1);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(value));
/// });
/// ```
///
/// Nothing outlives the list that it lies in:
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
/// After *Fixed size free lists and per-datastructure allocators*.
pub struct FreeList<T> {
    raw: RawFreeList,
    /// It holds no value that it would drop.
    values: PhantomData<*const T>,
}

// SAFETY: as for the raw list. Values whose boxes were turned into addresses may become boxes again on the list's next
// thread, so they must be able to go there.
unsafe impl<T: Send> Send for FreeList<T> {}

impl<T> FreeList<T> {
    /// A list with defaults.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A list with defaults. Takes no slab yet.
    ///
    /// # Errors
    /// A record that can't be had.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::builder().try_build()
    }

    /// Begins a list with options.
    pub const fn builder() -> FreeListBuilder<Self> {
        FreeListBuilder::new(Layout::new::<T>())
    }

    pub(super) fn from_raw_list(raw: RawFreeList) -> Self {
        Self { raw, values: PhantomData }
    }

    /// The list by addresses.
    #[must_use]
    pub fn raw(&self) -> &RawFreeList {
        &self.raw
    }

    /// A box with the value.
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc(&self, value: T) -> ListBox<'_, T> {
        // SAFETY: an object of this list, for a `T`.
        unsafe { ListSlot::new(self.raw.alloc(), self) }.fill(value)
    }

    /// A box with the value.
    ///
    /// # Errors
    /// As [`RawFreeList::try_alloc`], with the value given back.
    #[inline]
    pub fn try_alloc(&self, value: T) -> Result<ListBox<'_, T>, (AllocError, T)> {
        match self.raw.try_alloc() {
            // SAFETY: as above.
            Ok(object) => Ok(unsafe { ListSlot::new(object, self) }.fill(value)),
            Err(error) => Err((error, value)),
        }
    }

    /// A box with what `make` returns, called when its place is there. If it panics, the place is free again.
    ///
    /// # Panics
    /// Aborts where [`try_alloc`](Self::try_alloc) returns an error.
    #[inline]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> ListBox<'_, T> {
        let slot = self.slot();
        let value = make();
        slot.fill(value)
    }

    /// A place without a value.
    ///
    /// # Panics
    /// Aborts where [`try_slot`](Self::try_slot) returns an error.
    #[inline]
    pub fn slot(&self) -> ListSlot<'_, T> {
        // SAFETY: as above.
        unsafe { ListSlot::new(self.raw.alloc(), self) }
    }

    /// A place without a value.
    ///
    /// # Errors
    /// As [`RawFreeList::try_alloc`].
    #[inline]
    pub fn try_slot(&self) -> Result<ListSlot<'_, T>, AllocError> {
        // SAFETY: as above.
        self.raw.try_alloc().map(|object| unsafe { ListSlot::new(object, self) })
    }

    /// A place behind the one that was taken fresh last; see [`RawFreeList::alloc_fresh`].
    pub(super) fn fresh_slot<F: OnFailure>(&self) -> Result<ListSlot<'_, T>, F::Error> {
        let object = self.raw.try_alloc_fresh().map_err(F::fail)?;
        // SAFETY: as above.
        Ok(unsafe { ListSlot::new(object, self) })
    }

    /// Places one behind the other, for so many values.
    ///
    /// # Panics
    /// Aborts where [`try_run`](Self::try_run) returns an error.
    pub fn run(&self, values: usize) -> ListRun<'_, T> {
        always(self.run_or::<Abort>(values))
    }

    /// Places one behind the other, for so many values: an iterator that gives them in that order. Those that are not
    /// taken from it are free again.
    ///
    /// # Errors
    /// As [`RawFreeList::try_alloc_run`].
    pub fn try_run(&self, values: usize) -> Result<ListRun<'_, T>, AllocError> {
        self.run_or::<Report>(values)
    }

    fn run_or<F: OnFailure>(&self, values: usize) -> Result<ListRun<'_, T>, F::Error> {
        let first = self.raw.try_alloc_run(values).map_err(F::fail)?;
        // SAFETY: a run of this list's objects, as many as that.
        Ok(unsafe { ListRun::new(first, values, self) })
    }

    /// The box of a value whose box was turned [into an address](ListBox::into_raw).
    ///
    /// # Safety
    /// The address came from `into_raw` of a box of this very list, and is turned back once.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(&self, value: NonNull<T>) -> ListBox<'_, T> {
        // SAFETY: passed on to the caller.
        unsafe { ListBox::new(value, self) }
    }

    /// As [`RawFreeList::trim`].
    pub fn trim(&self) -> usize {
        self.raw.trim()
    }

    /// As [`RawFreeList::statistics`].
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
