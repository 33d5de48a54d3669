//! `RwShared`: a sealed value that is replaced now and then, under a read-write lock.

use core::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::sealable::Sealable;
use super::sealer::Sealer;
use super::typed::Sealed;
use crate::error::AllocError;

/// An almost read-only object: readers share a lock, and now and then it is replaced by one that was built anew.
///
/// **When**: reads may wait for a moment, and a writer should know that nobody uses the old value any more once it has
/// replaced it. **When not**: where readers must not wait, nor write to a line that all readers share (as each does to take
/// the lock): swap generations with a `Published<Sealed<T>>` then.
///
/// The new value is built outside of the lock, which is held for the swap alone; nothing that could panic runs then, so
/// that it is never poisoned. A read allocates nothing. Whoever replaces the value waits for the readers that are there.
///
/// ```
/// use allotment::RwShared;
///
/// let ports = RwShared::<&'static [u16]>::new(|sealer| sealer.slice([80]));
/// assert_eq!(*ports.read().get(), [80]);
/// ports.replace(|sealer| sealer.slice([80, 443]));
/// assert_eq!(*ports.read().get(), [80, 443]);
/// ```
pub struct RwShared<T: Sealable> {
    current: RwLock<Sealed<T>>,
}

impl<T: Sealable> RwShared<T> {
    /// Builds the first value, as [`Sealed::new`] does.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn new(init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) -> Self {
        Self::from(Sealed::new(init))
    }

    /// Builds the first value, as [`Sealed::try_build`] does.
    ///
    /// # Errors
    /// As there.
    pub fn try_build<E: From<AllocError>>(
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<Self, E> {
        Sealed::try_build(init).map(Self::from)
    }

    /// Locks for reading. Waits while the value is being swapped, or while somebody waits to do that.
    ///
    /// A thread that has a guard already may wait for ever for a second one, if another thread waits to replace the
    /// value in between.
    #[must_use = "the value can be read as long as the guard lives"]
    pub fn read(&self) -> RwSharedGuard<'_, T> {
        // A reader that panics poisons nothing, and under the write lock nothing panics.
        RwSharedGuard { guard: self.current.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Builds a new value and puts it in the place of the old one, which is dropped. Readers read on while it is built;
    /// the swap waits for them. Of two threads that do this at once, the one that swaps last wins.
    ///
    /// # Panics
    /// If `init` does, and as [`Sealed::new`]; the old value stays then.
    pub fn replace(&self, init: impl for<'s> FnOnce(Sealer<'s>) -> T::In<'s>) {
        drop(self.swap(Sealed::new(init)));
    }

    /// Builds a new value with an initialiser that may fail, and puts it in the place of the old one.
    ///
    /// # Errors
    /// As [`Sealed::try_build`]; the old value stays then.
    pub fn try_replace<E: From<AllocError>>(
        &self,
        init: impl for<'s> FnOnce(Sealer<'s>) -> Result<T::In<'s>, E>,
    ) -> Result<(), E> {
        let new = Sealed::try_build(init)?;
        drop(self.swap(new));
        Ok(())
    }

    /// Puts a value in the place of the current one, which comes back: nobody else reads it any more.
    #[must_use = "the former value"]
    pub fn swap(&self, new: Sealed<T>) -> Sealed<T> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut current, new)
    }

    /// The value itself.
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

/// A [`RwShared`]'s value, locked for reading. It stays on its thread.
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

    /// The sealed value with its figures and its name.
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
