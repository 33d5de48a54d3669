//! `RwShared`: a sealed value that is rarely replaced, under a read-write lock.

use core::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::AllocError;

/// An almost read-only value: readers share a lock, and a writer replaces the whole value by a new
/// one.
///
/// Take a `RwShared` if a writer must get the old value back or know that no thread uses it any
/// more, or if a read must not need memory; otherwise take a `Published<Sealed<T>>`, whose readers
/// never wait and write to no cache line that other readers use.
///
/// The new value is built outside of the lock. The lock is held only for the swap, which can't
/// panic, so it is never poisoned. A read allocates nothing. A writer waits for the readers that
/// hold the lock.
///
/// ```
/// use allotment::RwShared;
///
/// let ports = RwShared::<&'static [u16]>::new(|sealer| sealer.alloc_slice_from_iter([80]));
/// assert_eq!(*ports.read().get(), [80]);
/// ports.replace(|sealer| sealer.alloc_slice_from_iter([80, 443]));
/// assert_eq!(*ports.read().get(), [80, 443]);
/// ```
pub struct RwShared<T: Sealable> {
    current: RwLock<Sealed<T>>,
}

impl<T: Sealable> RwShared<T> {
    /// Builds the first value, as [`Sealed::new`] does.
    ///
    /// # Panics
    /// As [`Sealed::new`].
    #[must_use]
    pub fn new(init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Self {
        Self::from(Sealed::new(init))
    }

    /// Builds the first value, as [`Sealed::try_new`] does.
    ///
    /// # Errors
    /// As [`Sealed::try_new`].
    pub fn try_new<E: From<AllocError>>(
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        Sealed::try_new(init).map(Self::from)
    }

    /// Locks for reading. Waits while a writer swaps the value, or while a writer waits for the
    /// lock.
    ///
    /// A thread that already holds a guard may wait forever for a second one, if a writer starts to
    /// wait for the lock between the two.
    #[must_use = "the value can be read as long as the guard lives"]
    pub fn read(&self) -> RwSharedGuard<'_, T> {
        // A reader that panics does not poison the lock, and nothing panics under the write lock.
        RwSharedGuard { guard: self.current.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Builds a new value, puts it in the place of the old one, and drops the old one. Readers
    /// continue to read while the new value is built; the swap waits for them. If two threads
    /// replace the value at the same time, the value of the later swap stays.
    ///
    /// # Panics
    /// As [`Sealed::new`]. If `init` panics, the old value stays.
    pub fn replace(&self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) {
        drop(self.swap(Sealed::new(init)));
    }

    /// Like [`replace`](Self::replace), with an initialiser that may fail.
    ///
    /// # Errors
    /// As [`Sealed::try_new`]. The old value then stays.
    pub fn try_replace<E: From<AllocError>>(
        &self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<(), E> {
        let new = Sealed::try_new(init)?;
        drop(self.swap(new));
        Ok(())
    }

    /// Puts a value in the place of the current one, and returns the old one, which no other thread
    /// reads any more.
    #[must_use = "the former value"]
    pub fn swap(&self, new: Sealed<T>) -> Sealed<T> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut current, new)
    }

    /// The current value, without the lock.
    #[must_use]
    pub fn into_inner(self) -> Sealed<T> {
        self.current.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Sealable> From<Sealed<T>> for RwShared<T> {
    fn from(first: Sealed<T>) -> Self {
        Self { current: RwLock::new(first) }
    }
}

impl<T: Sealable> fmt::Debug for RwShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwShared").field("current", &self.current).finish()
    }
}

/// The value of a [`RwShared`], locked for reading. A guard can't move to another thread.
pub struct RwSharedGuard<'a, T: Sealable> {
    guard: RwLockReadGuard<'a, Sealed<T>>,
}

impl<T: Sealable> RwSharedGuard<'_, T> {
    /// The value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T::In<'_> {
        self.guard.get()
    }

    /// The [`Sealed`] itself, which has the statistics and the name.
    #[must_use]
    pub fn sealed(&self) -> &Sealed<T> {
        &self.guard
    }
}

impl<T: Sealable> fmt::Debug for RwSharedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwSharedGuard").field(&*self.guard).finish()
    }
}
