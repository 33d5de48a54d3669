//! The box that owns a value in a free list, and slots without a value.
//!
//! # Invariant
//!
//! A `ListRun` points to `remaining` objects of its list next to each other, which hold no value,
//! and exclusively owns them.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::raw::RawFreeList;
use crate::collections::{BoxIn, BoxMemory, LendingMemory, SlotIn};

/// An owned value in a [`FreeList`](crate::FreeList). The box borrows the list. Dropping it drops
/// the value and frees its slot. It is two words large. Its methods are those of [`BoxIn`].
///
/// [`into_raw`](BoxIn::into_raw) gives the value's address, for structures that have no room for a
/// box. [`FreeList::from_raw`](crate::FreeList::from_raw) makes it a box again.
///
/// A forgotten box keeps its slot until the list is dropped. Its value is never dropped.
pub type ListBox<'l, T> = BoxIn<T, &'l RawFreeList>;

/// A slot in a [`FreeList`](crate::FreeList) without a value. Dropping it frees the slot.
///
/// ```
/// let list = allotment::FreeList::new();
/// let slot = list.alloc_slot();
/// let address = slot.as_ptr();
/// let value = slot.fill(7);
/// assert_eq!(address.as_ptr().cast_const(), std::ptr::from_ref(&*value));
/// drop(list.alloc_slot());
/// assert_eq!(list.statistics().live_objects, 1);
/// ```
pub type ListSlot<'l, T> = SlotIn<T, &'l RawFreeList>;

// SAFETY: a box or a slot owns an object of the list, and frees it once.
unsafe impl BoxMemory for &RawFreeList {
    #[inline(always)]
    unsafe fn free(self, object: NonNull<u8>, _layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { RawFreeList::free(self, object) };
    }
}

// SAFETY: an object stays valid until it is freed or the list is dropped, which ends `'l`.
unsafe impl<'l> LendingMemory<'l> for &'l RawFreeList {}

/// An iterator over adjacent slots, in the order of their addresses. Slots that are not taken are
/// freed when it is dropped.
///
/// ```
/// let list = allotment::FreeList::new();
/// let values: Vec<_> = list.alloc_run(3).zip([10, 20, 30]).map(|(slot, value)| slot.fill(value)).collect();
/// let address = |index: usize| std::ptr::from_ref(&*values[index]).addr();
/// assert_eq!(address(2) - address(1), address(1) - address(0));
/// ```
#[must_use = "slots that are not taken are free again"]
pub struct ListRun<'l, T: 'l> {
    next: NonNull<u8>,
    remaining: usize,
    list: &'l RawFreeList,
    slots: PhantomData<ListSlot<'l, T>>,
}

impl<'l, T> ListRun<'l, T> {
    /// # Safety
    /// The caller owns `remaining` adjacent objects of this list, starting at `next`.
    pub(super) unsafe fn new(next: NonNull<u8>, remaining: usize, list: &'l RawFreeList) -> Self {
        Self { next, remaining, list, slots: PhantomData }
    }
}

impl<'l, T> Iterator for ListRun<'l, T> {
    type Item = ListSlot<'l, T>;

    fn next(&mut self) -> Option<ListSlot<'l, T>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let object = self.next;
        let stride = self.list.stride();
        self.next = NonNull::new(object.as_ptr().wrapping_add(stride)).unwrap_or(object);
        // SAFETY: the run owns the object (the invariant), and gives it up here.
        Some(unsafe { ListSlot::new(object, self.list) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<T> ExactSizeIterator for ListRun<'_, T> {}
impl<T> core::iter::FusedIterator for ListRun<'_, T> {}

impl<T> Drop for ListRun<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> fmt::Debug for ListRun<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRun")
            .field("next", &self.next)
            .field("remaining", &self.remaining)
            .finish()
    }
}
