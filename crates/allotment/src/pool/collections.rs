//! The collections whose memory is a pool's: `PoolVec`, `PoolString` and `PoolBox`.

use core::alloc::Layout;
use core::mem::{ManuallyDrop, needs_drop};
use core::pin::Pin;
use core::ptr::NonNull;

use super::pool_ref::{PoolRef, current};
use crate::collections::{BoxIn, BoxMemory, LendingMemory, PoolMemory, StringIn, VecIn};
use crate::error::{AllocError, OnFailure, PanicOrAbort, ReturnError, always};

/// A growing vector in a pool, by default the [`current`](crate::pool::current()) one. It holds an
/// address, a length, a capacity and a [`PoolRef`]. Its methods are those of [`VecIn`].
///
/// A vector may be sent to other threads and may outlive its pool. Where the pool cannot be used,
/// the vector grows on the global heap, and its old block goes back to its owner.
///
/// ```
/// use allotment::{LocalPool, PoolVec};
///
/// let pool = LocalPool::new();
/// let mut squares: PoolVec<u32> = pool.enter(|| (1..=4).map(|n| n * n).collect());
/// assert_eq!(squares.pool(), pool.reference());
/// drop(pool);
/// squares.extend([25, 36]); // on the global heap
/// assert_eq!(squares, [1, 4, 9, 16, 25, 36]);
/// ```
///
/// A vector may be sent only where its values may be:
///
/// ```compile_fail,E0277
/// let mut counters = allotment::PoolVec::new();
/// counters.push(std::rc::Rc::new(1));
/// std::thread::spawn(move || drop(counters));
/// ```
///
/// ```compile_fail,E0277
/// let cells = allotment::PoolVec::from([std::cell::Cell::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| cells[0].set(2));
/// });
/// ```
///
/// An iterator over the vector borrows it:
///
/// ```compile_fail,E0499
/// let mut numbers = allotment::PoolVec::from([1, 2, 3]);
/// let drain = numbers.drain(..);
/// numbers.push(4);
/// drop(drain);
/// ```
pub type PoolVec<T> = VecIn<T, PoolRef>;

impl<T> VecIn<T, PoolRef> {
    /// Returns the pool that the vector was created with. The vector allocates from it while it can
    /// be used.
    #[inline]
    #[must_use]
    pub const fn pool(&self) -> PoolRef {
        *self.source()
    }

    /// Turns the vector into a box. The values move if there is unused capacity.
    ///
    /// # Panics
    /// As for [`shrink_to_fit`](Self::shrink_to_fit); never after
    /// [`try_shrink_to_fit`](Self::try_shrink_to_fit) has succeeded.
    #[must_use]
    pub fn into_boxed_slice(mut self) -> PoolBox<[T]> {
        self.shrink_to_fit();
        // SAFETY: the block has exactly the values' layout after `shrink_to_fit`, and the box alone
        // owns it; the free finds the block's owner by its address.
        unsafe { BoxIn::from_raw(self.into_raw()) }
    }

    /// Leaks the values and returns a reference to them. The values are never dropped.
    #[must_use]
    pub fn leak<'a>(self) -> &'a mut [T]
    where
        T: 'a,
    {
        // SAFETY: initialised, no longer owned by the vector, and their memory is never freed.
        unsafe { self.into_raw().as_mut() }
    }
}

/// A growing string in a pool, by default the [`current`](crate::pool::current()) one. See
/// [`PoolVec`] for its memory, and for its use on another thread or after the pool's end. Its
/// methods are those of [`StringIn`].
///
/// After the `String` of the *Thread-local Memory Pool* pattern, "whose default allocator is the
/// current one".
///
/// ```
/// use std::fmt::Write;
///
/// use allotment::{LocalPool, PoolString};
///
/// let pool = LocalPool::new();
/// let reply = pool.enter(|| {
///     let mut reply = PoolString::from("points: ");
///     write!(reply, "{}", 10).unwrap();
///     reply
/// });
/// assert_eq!(reply, "points: 10");
/// assert_eq!(reply.pool(), pool.reference());
/// ```
pub type PoolString = StringIn<PoolRef>;

impl StringIn<PoolRef> {
    /// Returns the pool that the string was created with. The string allocates from it while it can
    /// be used.
    #[inline]
    #[must_use]
    pub const fn pool(&self) -> PoolRef {
        *self.source()
    }

    /// Turns the string into a box.
    ///
    /// # Panics
    /// As for [`PoolVec::into_boxed_slice`].
    #[must_use]
    pub fn into_boxed_str(self) -> PoolBox<str> {
        let bytes = BoxIn::into_raw(self.into_bytes().into_boxed_slice()).as_ptr();
        // SAFETY: the same bytes, which are UTF-8, at an address that is not null; no other box is
        // made from it.
        unsafe { BoxIn::from_raw(NonNull::new_unchecked(bytes as *mut str)) }
    }
}

/// An owned value in a pool, by default the [`current`](crate::pool::current()) one. One word (two
/// for slices), like a `Box`. Its further methods are those of [`BoxIn`].
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
/// [`unsize_box!`](crate::unsize_box) makes a box of a trait object.
pub type PoolBox<T> = BoxIn<T, PoolMemory>;

// SAFETY: a box's block is a pool's or the global heap's, and its owner is found by its address. A
// value without bytes has no block.
unsafe impl BoxMemory for PoolMemory {
    #[inline]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: guaranteed by the caller.
            unsafe { PoolRef::free_anywhere(block, layout) };
        }
    }
}

// SAFETY: a block stays valid until it is freed, even after its pool's end.
unsafe impl LendingMemory<'_> for PoolMemory {}

impl<T> BoxIn<T, PoolMemory> {
    /// Allocates a value in the current pool.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_new`](Self::try_new) returns an error: see
    /// [`AllocError`](crate::AllocError).
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
    /// Panics or ends the process if [`try_new_in`](Self::try_new_in) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[inline]
    #[must_use]
    pub fn new_in(value: T, pool: PoolRef) -> Self {
        always(Self::new_in_or::<PanicOrAbort>(value, pool))
    }

    /// Allocates a value in the given pool. On failure the value is dropped.
    ///
    /// # Errors
    /// As for [`PoolRef::try_alloc_layout`].
    #[inline]
    pub fn try_new_in(value: T, pool: PoolRef) -> Result<Self, AllocError> {
        Self::new_in_or::<ReturnError>(value, pool)
    }

    #[inline(always)]
    fn new_in_or<F: OnFailure>(value: T, pool: PoolRef) -> Result<Self, F::Error> {
        let layout = Layout::new::<T>();
        // If the slow path unwound and the value had to be dropped here, the value would have to
        // lie in memory. So the slow path gets a value that needs drop. Any other is forgotten.
        let value = ManuallyDrop::new(value);
        let block = if layout.size() == 0 {
            NonNull::<T>::dangling().cast()
        } else if needs_drop::<T>() {
            match pool.alloc_fast(layout) {
                Some(block) => block,
                None => return Self::new_in_slow::<F>(ManuallyDrop::into_inner(value), pool),
            }
        } else {
            pool.alloc_or::<F>(layout)?
        };
        // SAFETY: a block of this layout that nothing else uses, or no byte is written; the box
        // alone owns it.
        unsafe {
            block.cast().write(value);
            Ok(Self::from_raw(block.cast()))
        }
    }

    #[cold]
    #[inline(never)]
    fn new_in_slow<F: OnFailure>(value: T, pool: PoolRef) -> Result<Self, F::Error> {
        let block = pool.alloc_or::<F>(Layout::new::<T>())?.cast::<T>();
        // SAFETY: as in `new_in_or`.
        unsafe {
            block.write(value);
            Ok(Self::from_raw(block))
        }
    }

    /// Allocates a pinned value in the current pool.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    #[must_use]
    pub fn pin(value: T) -> Pin<Self> {
        Self::into_pin(Self::new(value))
    }
}

impl<T: ?Sized> BoxIn<T, PoolMemory> {
    /// Returns the pool that owns the value's memory. This is the global heap if no pool owns it,
    /// if the value has no bytes, or if the pool has ended.
    ///
    /// A later pool, perhaps of another thread, may take over an ended pool's memory. Then this
    /// returns the later pool.
    #[must_use]
    pub fn pool(boxed: &Self) -> PoolRef {
        match size_of_val::<T>(boxed) {
            0 => PoolRef::GLOBAL,
            _ => PoolRef::of_block(NonNull::from(&**boxed).cast()),
        }
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

impl<T: Clone> Clone for PoolBox<[T]> {
    /// Clones the values into the current pool.
    fn clone(&self) -> Self {
        PoolVec::from(&**self).into_boxed_slice()
    }
}

impl Clone for PoolBox<str> {
    /// Clones the string into the current pool.
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T> From<T> for PoolBox<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T> From<PoolVec<T>> for PoolBox<[T]> {
    fn from(vec: PoolVec<T>) -> Self {
        vec.into_boxed_slice()
    }
}

impl<T> FromIterator<T> for PoolBox<[T]> {
    /// Collects in the current pool.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        PoolVec::from_iter(values).into_boxed_slice()
    }
}

impl From<&str> for PoolBox<str> {
    fn from(text: &str) -> Self {
        PoolString::from(text).into_boxed_str()
    }
}

impl From<PoolString> for PoolBox<str> {
    fn from(string: PoolString) -> Self {
        string.into_boxed_str()
    }
}
