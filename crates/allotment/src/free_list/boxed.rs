//! A value in a free list that its owner drops, and places for values to come.
//!
//! # Invariants
//!
//! 1. A `ListBox` points to a value in an object of its list that it alone owns.
//! 2. A `ListSlot` points to an object of its list that it alone owns, without a value; a `ListRun` to `left` of them, one
//!    behind the other.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::typed::FreeList;

/// A value in a [`FreeList`], which it borrows: dropping the box drops the value and frees its place. Two words.
///
/// A forgotten box keeps its place until the list is dropped, and its value is not dropped then.
pub struct ListBox<'l, T> {
    value: NonNull<T>,
    list: &'l FreeList<T>,
    owns: PhantomData<T>,
}

impl<'l, T> ListBox<'l, T> {
    /// # Safety
    /// The value lies in an object of this list, and is the caller's to give away.
    #[inline]
    pub(super) unsafe fn new(value: NonNull<T>, list: &'l FreeList<T>) -> Self {
        Self { value, list, owns: PhantomData }
    }

    /// The place, without the value, which the caller has taken care of.
    #[inline]
    fn into_slot(self) -> ListSlot<'l, T> {
        let boxed = ManuallyDrop::new(self);
        ListSlot { place: boxed.value, list: boxed.list }
    }

    /// Takes the value out, and frees its place.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        // SAFETY: the box owns the value (1); it is read once, and the box is no more.
        let value = unsafe { boxed.value.read() };
        drop(boxed.into_slot());
        value
    }

    /// Lends the value for as long as the list is borrowed. It is never dropped, and its place goes with the list.
    #[inline]
    #[must_use]
    pub fn leak(boxed: Self) -> &'l mut T {
        let mut boxed = ManuallyDrop::new(boxed);
        // SAFETY: the box owns the value (1) and is no more; the list stays while it is borrowed.
        unsafe { boxed.value.as_mut() }
    }

    /// The value's address, for structures that have no room for a box: see [`FreeList::from_raw`].
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }
}

impl<T> Drop for ListBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The place is freed even if the value's destructor panics.
        let _slot = ListSlot { place: self.value, list: self.list };
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
        // SAFETY: as above, and the box is borrowed alone.
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

/// A place in a [`FreeList`] without a value. Dropped, it is free again.
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
pub struct ListSlot<'l, T> {
    place: NonNull<T>,
    list: &'l FreeList<T>,
}

impl<'l, T> ListSlot<'l, T> {
    /// # Safety
    /// The object is one of this list's, and the caller's to give away.
    #[inline(always)]
    pub(super) unsafe fn new(object: NonNull<u8>, list: &'l FreeList<T>) -> Self {
        Self { place: object.cast(), list }
    }

    /// Puts a value in.
    #[inline(always)]
    pub fn fill(self, value: T) -> ListBox<'l, T> {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the place (2), which has room and alignment for a `T`; it is the box's now.
        unsafe {
            slot.place.write(value);
            ListBox::new(slot.place, slot.list)
        }
    }

    /// Where the value will be.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<T> {
        self.place
    }
}

impl<T> Drop for ListSlot<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slot owns the place (2), an object of the list.
        unsafe { self.list.raw().free(self.place.cast()) };
    }
}

impl<T> fmt::Debug for ListSlot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListSlot").field(&self.place).finish()
    }
}

/// Places one behind the other, in the order of their addresses. Those that are not taken are free again.
///
/// ```
/// let list = allotment::FreeList::new();
/// let values: Vec<_> = list.run(3).zip([10, 20, 30]).map(|(slot, value)| slot.fill(value)).collect();
/// let address = |index: usize| std::ptr::from_ref(&*values[index]).addr();
/// assert_eq!(address(2) - address(1), address(1) - address(0));
/// ```
#[must_use = "places that are not taken are free again"]
pub struct ListRun<'l, T> {
    next: NonNull<u8>,
    left: usize,
    list: &'l FreeList<T>,
}

impl<'l, T> ListRun<'l, T> {
    /// # Safety
    /// `left` objects of this list, one behind the other, are the caller's to give away.
    pub(super) unsafe fn new(next: NonNull<u8>, left: usize, list: &'l FreeList<T>) -> Self {
        Self { next, left, list }
    }
}

impl<'l, T> Iterator for ListRun<'l, T> {
    type Item = ListSlot<'l, T>;

    fn next(&mut self) -> Option<ListSlot<'l, T>> {
        self.left = self.left.checked_sub(1)?;
        let object = self.next;
        let stride = self.list.raw().stride();
        self.next = NonNull::new(object.as_ptr().wrapping_add(stride)).unwrap_or(object);
        // SAFETY: the run owns it (2), and gives it away.
        Some(unsafe { ListSlot::new(object, self.list) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
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
        f.debug_struct("ListRun").field("next", &self.next).field("left", &self.left).finish()
    }
}
