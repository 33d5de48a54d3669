//! An owned value in a pool, dropped with its box.
//!
//! # Invariant
//!
//! `value` points to a value that the box alone owns. It lies in a block of a pool or of the global
//! heap that has the value's layout. If the value has no bytes, the pointer is dangling, and
//! nothing is freed.

use core::alloc::Layout;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::NonNull;

use super::pool_ref::{PoolRef, current};
use crate::error::{Abort, AllocError, OnFailure, Report, always};
use crate::memory::block_source::BlockSource;

/// An owned value in a pool, by default the [`current`](crate::pool::current()) one. One word (two for
/// slices), like a `Box`.
///
/// A box may be sent to other threads and may outlive its pool. It carries no reference to the
/// pool: the free finds the owner by the value's address. The memory stays valid until the box is
/// dropped, so the value may be pinned.
///
/// ```
/// use allotment::{LocalPool, PoolBox};
///
/// let pool = LocalPool::new();
/// let boxed = pool.enter(|| PoolBox::new([1, 2, 3]));
/// assert_eq!(PoolBox::pool(&boxed), pool.reference());
/// drop(pool);
/// std::thread::spawn(move || assert_eq!(boxed.len(), 3)).join().unwrap();
/// ```
///
/// A box may be sent only where its value may be:
///
/// ```compile_fail,E0277
/// let boxed = allotment::PoolBox::new(std::rc::Rc::new(1));
/// std::thread::spawn(move || drop(boxed));
/// ```
///
/// To box a trait object, convert the address:
/// `PoolBox::from_raw(PoolBox::into_raw(boxed) as NonNull<dyn Trait>)`.
pub struct PoolBox<T: ?Sized> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: the box alone owns its value (the invariant), and its memory may be freed on any thread.
unsafe impl<T: ?Sized + Send> Send for PoolBox<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for PoolBox<T> {}

/// Moving the box does not move the value.
impl<T: ?Sized> Unpin for PoolBox<T> {}

/// Frees a box's block, if it has one.
struct Place {
    block: NonNull<u8>,
    layout: Layout,
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: made from a box, which gave up its block to this value (the box's invariant).
            unsafe { PoolRef::free_anywhere(self.block, self.layout) };
        }
    }
}

impl<T> PoolBox<T> {
    /// Allocates a value in the current pool.
    ///
    /// # Panics
    /// Aborts where [`try_new`](Self::try_new) returns an error.
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::new_in(value, current())
    }

    /// Allocates a value in the current pool. On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`PoolRef::try_alloc_layout`].
    #[inline]
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::try_new_in(value, current())
    }

    /// Allocates a value in the given pool.
    ///
    /// # Panics
    /// Aborts where [`try_new_in`](Self::try_new_in) returns an error.
    #[inline]
    #[must_use]
    pub fn new_in(value: T, pool: PoolRef) -> Self {
        always(Self::new_or::<Abort>(value, pool))
    }

    /// Allocates a value in the given pool. On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`PoolRef::try_alloc_layout`].
    #[inline]
    pub fn try_new_in(value: T, pool: PoolRef) -> Result<Self, AllocError> {
        Self::new_or::<Report>(value, pool)
    }

    #[inline(always)]
    fn new_or<F: OnFailure>(value: T, pool: PoolRef) -> Result<Self, F::Error> {
        let layout = Layout::new::<T>();
        let place = match layout.size() {
            0 => NonNull::dangling(),
            _ => BlockSource::alloc::<F>(pool, layout)?.cast::<T>(),
        };
        // SAFETY: a block of this layout that nothing else uses; or no byte is written.
        unsafe { place.write(value) };
        Ok(Self { value: place, owns: PhantomData })
    }

    /// Allocates a pinned value in the current pool.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    #[must_use]
    pub fn pin(value: T) -> Pin<Self> {
        Self::into_pin(Self::new(value))
    }

    /// Takes the value out and frees its block.
    #[inline]
    #[must_use]
    pub fn into_inner(boxed: Self) -> T {
        let place = boxed.into_place();
        // SAFETY: the box owned the value (the invariant); it is read once.
        unsafe { place.block.cast::<T>().read() }
    }
}

impl<T: ?Sized> PoolBox<T> {
    /// Turns the box into its block, which is freed when the result is dropped. The value is not
    /// dropped.
    #[inline]
    fn into_place(self) -> Place {
        let boxed = ManuallyDrop::new(self);
        Place { block: boxed.value.cast(), layout: Layout::for_value::<T>(&boxed) }
    }

    /// Returns the pool that owns the value's memory. This is the global heap if no pool owns it,
    /// if the value has no bytes, or if the pool has ended.
    ///
    /// A later pool, perhaps of another thread, may take over an ended pool's memory. Then this
    /// returns the later pool.
    #[must_use]
    pub fn pool(boxed: &Self) -> PoolRef {
        match size_of_val::<T>(boxed) {
            0 => PoolRef::GLOBAL,
            _ => PoolRef::of_block(boxed.value.cast()),
        }
    }

    /// Leaks the value and returns a reference to it. The value is never dropped.
    #[inline]
    #[must_use]
    pub fn leak<'a>(boxed: Self) -> &'a mut T
    where
        T: 'a,
    {
        // SAFETY: the box owned the value (the invariant), and its memory is never freed.
        unsafe { Self::into_raw(boxed).as_mut() }
    }

    /// Returns the value's address, for [`from_raw`](Self::from_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(boxed: Self) -> NonNull<T> {
        ManuallyDrop::new(boxed).value
    }

    /// Makes a box from an address.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), perhaps cast to another type with the
    /// same layout, and no other box is made from it.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self { value, owns: PhantomData }
    }

    /// Pins the value. It stays where it is.
    #[must_use]
    pub fn into_pin(boxed: Self) -> Pin<Self> {
        // SAFETY: the value's memory is not reused before the value is dropped, even if the box is
        // forgotten, and no call that takes a pinned box moves the value out.
        unsafe { Pin::new_unchecked(boxed) }
    }
}

impl<T: ?Sized> Drop for PoolBox<T> {
    #[inline]
    fn drop(&mut self) {
        // The block is freed even if the value's destructor unwinds.
        let _place = Place { block: self.value.cast(), layout: Layout::for_value::<T>(self) };
        // SAFETY: the box owns the value (the invariant), and drops it once.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T: ?Sized> Deref for PoolBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the invariant.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for PoolBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the invariant.
        unsafe { self.value.as_mut() }
    }
}

impl<T: Default> Default for PoolBox<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Clone> Clone for PoolBox<T> {
    /// Clones the value into the current pool.
    fn clone(&self) -> Self {
        Self::new((**self).clone())
    }
}

impl<T> From<T> for PoolBox<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized> From<PoolBox<T>> for Pin<PoolBox<T>> {
    fn from(boxed: PoolBox<T>) -> Self {
        PoolBox::into_pin(boxed)
    }
}

impl<T: ?Sized> AsRef<T> for PoolBox<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> AsMut<T> for PoolBox<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for PoolBox<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized> BorrowMut<T> for PoolBox<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + PartialEq> PartialEq for PoolBox<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for PoolBox<T> {}

impl<T: ?Sized + PartialOrd> PartialOrd for PoolBox<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(other)
    }
}

impl<T: ?Sized + Ord> Ord for PoolBox<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl<T: ?Sized + Hash> Hash for PoolBox<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PoolBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for PoolBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
