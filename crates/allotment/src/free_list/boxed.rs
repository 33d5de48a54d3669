//! The box that owns a value in a free list, and slots without a value.
//!
//! # Invariants
//!
//! 1. A `ListBox` points to a value in an object of its list, and exclusively owns both.
//! 2. A `ListSlot` points to an object of its list without a value, and exclusively owns the
//!    object. A `ListRun` points to `remaining` such objects next to each other, and exclusively owns
//!    them.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::raw::RawFreeList;

/// An owned value in a [`FreeList`](crate::FreeList). The box borrows the list. Dropping it drops the value and
/// frees its slot. It is two words large.
///
/// A forgotten box keeps its slot until the list is dropped. Its value is never dropped.
pub struct ListBox<'l, T: 'l> {
    value: NonNull<T>,
    list: &'l RawFreeList,
    owns: PhantomData<T>,
}

impl<'l, T> ListBox<'l, T> {
    /// # Safety
    /// The value lies in an object of this list, and the caller owns both.
    #[inline]
    pub(super) unsafe fn new(value: NonNull<T>, list: &'l RawFreeList) -> Self {
        Self { value, list, owns: PhantomData }
    }

    /// The slot without the value. The caller has already moved the value out or disposed of it.
    #[inline]
    fn into_slot(self) -> ListSlot<'l, T> {
        let boxed = ManuallyDrop::new(self);
        ListSlot { object: boxed.value, list: boxed.list }
    }

    /// Moves the value out of the box and frees its slot.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        // SAFETY: the box owns the value (1). The value is read once, and the box no longer exists
        // after that.
        let value = unsafe { boxed.value.read() };
        drop(boxed.into_slot());
        value
    }

    /// Leaks the box: lends the value for as long as the list is borrowed. The value is never
    /// dropped. Its slot is freed with the list.
    #[inline]
    #[must_use]
    pub fn leak(boxed: Self) -> &'l mut T {
        let mut boxed = ManuallyDrop::new(boxed);
        // SAFETY: the box owns the value (1) and no longer exists. The list stays while it is
        // borrowed.
        unsafe { boxed.value.as_mut() }
    }

    /// Returns the value's address, for structures that have no room for a box.
    /// [`FreeList::from_raw`](crate::FreeList::from_raw) makes it a box again.
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }
}

impl<T> Drop for ListBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Frees the slot even if the value's destructor panics.
        let _slot = ListSlot { object: self.value, list: self.list };
        // SAFETY: the box owns the value (1), which is dropped once.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T> Deref for ListBox<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns the value (1).
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for ListBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value (1), and is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T> AsRef<T> for ListBox<'_, T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> AsMut<T> for ListBox<'_, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T> Borrow<T> for ListBox<'_, T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T> BorrowMut<T> for ListBox<'_, T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: fmt::Debug> fmt::Debug for ListBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: fmt::Display> fmt::Display for ListBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// A slot in a [`FreeList`](crate::FreeList) without a value. Dropping it frees the slot.
///
/// ```
/// let list = allotment::FreeList::new();
/// let slot = list.slot();
/// let address = slot.as_ptr();
/// let value = slot.fill(7);
/// assert_eq!(address.as_ptr().cast_const(), std::ptr::from_ref(&*value));
/// drop(list.slot());
/// assert_eq!(list.statistics().live_objects, 1);
/// ```
#[must_use = "a slot that is dropped is free again"]
pub struct ListSlot<'l, T: 'l> {
    object: NonNull<T>,
    list: &'l RawFreeList,
}

impl<'l, T> ListSlot<'l, T> {
    /// # Safety
    /// The object belongs to this list, and the caller owns it.
    #[inline(always)]
    pub(super) unsafe fn new(object: NonNull<u8>, list: &'l RawFreeList) -> Self {
        Self { object: object.cast(), list }
    }

    /// Puts a value into the slot.
    #[inline(always)]
    pub fn fill(self, value: T) -> ListBox<'l, T> {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the object (2), which has room and alignment for a `T`. The box
        // owns it from here on.
        unsafe {
            slot.object.write(value);
            ListBox::new(slot.object, slot.list)
        }
    }

    /// The address that the value will have.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<T> {
        self.object
    }
}

impl<T> Drop for ListSlot<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slot owns its object (2), which belongs to the list.
        unsafe { self.list.free(self.object.cast()) };
    }
}

impl<T> fmt::Debug for ListSlot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListSlot").field(&self.object).finish()
    }
}

/// An iterator over adjacent slots, in the order of their addresses. Slots that are not taken are
/// freed when it is dropped.
///
/// ```
/// let list = allotment::FreeList::new();
/// let values: Vec<_> = list.run(3).zip([10, 20, 30]).map(|(slot, value)| slot.fill(value)).collect();
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
        // SAFETY: the run owns the object (2), and gives it up here.
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
