//! Shared objects, each under a lock of its own.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::lock_error::{LockError, LockErrorKind};
use crate::locked_numbers;

/// The category *shared*: an object that several threads use, one at a time.
///
/// # Thread-safe interface
///
/// There are two kinds of operations. External operations may be called by any thread, and take the
/// lock. Internal operations work on the locked object. The compiler separates them: external
/// operations are methods of a type that contains a `Shared<T>`, and internal operations are
/// methods of `T` on `&mut self`, which cannot reach the lock.
///
/// ```
/// use allotment_server::Shared;
/// use std::collections::HashMap;
///
/// #[derive(Default)]
/// pub struct Sessions(Shared<List>);
///
/// #[derive(Default)]
/// struct List(HashMap<String, u32>);
///
/// impl Sessions {
///     pub fn visit(&self, user: &str) -> u32 { self.0.with(|list| list.visit(user)) } // takes the lock
/// }
///
/// impl List {
///     fn visit(&mut self, user: &str) -> u32 { // runs under the lock
///         let visits = self.0.entry(user.to_owned()).or_default();
///         *visits += 1;
///         *visits
///     }
/// }
///
/// let sessions = Sessions::default();
/// assert_eq!((sessions.visit("ada"), sessions.visit("ada")), (1, 2));
/// ```
///
/// # Without deadlocks
///
/// Each object gets a [`number`](Self::number) when it is made. A thread may wait for a lock only
/// if all objects that it has locked have lower numbers, so threads cannot wait for each other in a
/// circle. A call that breaks this order, or locks the same object twice, always returns an error
/// at once. It never leads to a deadlock. [`lock_all`](crate::lock_all()) locks several objects in
/// the right order. One thread may have 32 objects locked at a time.
///
/// # Panics while locked
///
/// A panic may leave the locked object half changed, so the object is *poisoned*. From then on
/// [`with`](Self::with) panics, which ends only the calling request, and its `try_` twins return an
/// error, until [`repair`](Self::repair) succeeds.
pub struct Shared<T: ?Sized> {
    number: u64,
    value: Mutex<T>,
}

/// A locked shared object. Dropping this guard unlocks it.
#[must_use = "dropping it unlocks"]
pub struct SharedGuard<'s, T: ?Sized> {
    number: u64,
    value: MutexGuard<'s, T>,
}

impl<T> Shared<T> {
    /// Puts a value under a lock. Its number is higher than the number of each object made before.
    #[must_use]
    pub fn new(value: T) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { number, value: Mutex::new(value) }
    }

    /// Returns the value, poisoned or not.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Shared<T> {
    /// Returns the object's number, which orders all shared objects of the process.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Runs a closure with the object locked.
    ///
    /// # Panics
    /// Where [`try_with`](Self::try_with) returns an error.
    #[inline]
    pub fn with<U>(&self, run: impl FnOnce(&mut T) -> U) -> U {
        run(&mut *self.lock())
    }

    /// Runs a closure with the object locked.
    ///
    /// # Errors
    /// When the object is poisoned, when this thread has locked this object or one with a higher
    /// number, or when this thread has 32 objects locked.
    #[inline]
    pub fn try_with<U>(&self, run: impl FnOnce(&mut T) -> U) -> Result<U, LockError> {
        Ok(run(&mut *self.lock_or_error()?))
    }

    /// Locks the object until the guard is dropped.
    ///
    /// # Panics
    /// Where [`lock_or_error`](Self::lock_or_error) returns an error.
    #[inline]
    pub fn lock(&self) -> SharedGuard<'_, T> {
        match self.lock_or_error() {
            Ok(guard) => guard,
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks the object until the guard is dropped.
    ///
    /// # Errors
    /// As for [`try_with`](Self::try_with).
    pub fn lock_or_error(&self) -> Result<SharedGuard<'_, T>, LockError> {
        locked_numbers::check_wait(self.number).map_err(|kind| self.error(kind))?;
        match self.value.lock() {
            Ok(value) => Ok(self.guard(value)),
            Err(_) => Err(self.error(LockErrorKind::Poisoned)),
        }
    }

    /// Locks the object if it is not locked. Never waits, so the order does not matter.
    ///
    /// # Errors
    /// When another thread has locked the object, when the object is poisoned, when this thread has
    /// locked it, or when this thread has 32 objects locked.
    pub fn try_lock(&self) -> Result<SharedGuard<'_, T>, LockError> {
        locked_numbers::check_try(self.number).map_err(|kind| self.error(kind))?;
        match self.value.try_lock() {
            Ok(value) => Ok(self.guard(value)),
            Err(TryLockError::WouldBlock) => Err(self.error(LockErrorKind::Busy)),
            Err(TryLockError::Poisoned(_)) => Err(self.error(LockErrorKind::Poisoned)),
        }
    }

    fn guard<'s>(&'s self, value: MutexGuard<'s, T>) -> SharedGuard<'s, T> {
        locked_numbers::add(self.number);
        SharedGuard { number: self.number, value }
    }

    pub(crate) fn error(&self, kind: LockErrorKind) -> LockError {
        LockError { kind, number: self.number, type_name: core::any::type_name::<T>() }
    }

    /// Returns the value. `&mut self` ensures that no other thread uses it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread has panicked while the object was locked, and the object has not been
    /// repaired.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.value.is_poisoned()
    }

    /// Runs a closure with the object locked, poisoned or not, and then clears the poison. If the
    /// closure panics, the object is poisoned.
    ///
    /// # Errors
    /// As for [`try_with`](Self::try_with), except for poison.
    pub fn repair<U>(&self, run: impl FnOnce(&mut T) -> U) -> Result<U, LockError> {
        locked_numbers::check_wait(self.number).map_err(|kind| self.error(kind))?;
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = self.guard(value);
        let result = run(&mut *guard);
        self.value.clear_poison();
        Ok(result)
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Shared");
        debug.field("number", &self.number);
        match self.value.try_lock() {
            Ok(value) => debug.field("value", &&*value),
            Err(TryLockError::Poisoned(_)) => debug.field("value", &"(poisoned)"),
            Err(TryLockError::WouldBlock) => debug.field("value", &"(locked)"),
        };
        debug.finish()
    }
}

impl<T: ?Sized> Deref for SharedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for SharedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized> Drop for SharedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        locked_numbers::remove(self.number);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SharedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedGuard").field(&&*self.value).finish()
    }
}
