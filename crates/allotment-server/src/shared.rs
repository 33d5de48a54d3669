//! Shared objects, each under a lock of its own.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::locked_numbers::{self as held, Against};

/// The category *shared*: an object that several threads use, one at a time.
///
/// # Thread-safe interface
///
/// Operations are of two sorts: external ones, which any thread may call and which take the lock,
/// and internal ones, which work on the locked object. Here the compiler separates them. The
/// external ones are methods of a type that holds a `Shared<T>`. The internal ones are methods of
/// `T` on `&mut self`, and cannot reach the lock.
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
///     fn visit(&mut self, user: &str) -> u32 { // has it
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
pub struct Locked<'s, T: ?Sized> {
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
    /// Returns the object's place in the order of all shared objects of the process.
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
    pub fn lock(&self) -> Locked<'_, T> {
        match self.lock_or_error() {
            Ok(locked) => locked,
            Err(error) => panic!("{error}"),
        }
    }

    /// Locks the object until the guard is dropped.
    ///
    /// # Errors
    /// As for [`try_with`](Self::try_with).
    pub fn lock_or_error(&self) -> Result<Locked<'_, T>, LockError> {
        held::may_wait(self.number).map_err(|against| self.refuse(against))?;
        match self.value.lock() {
            Ok(value) => Ok(self.locked(value)),
            Err(_) => Err(self.error(LockErrorKind::Poisoned)),
        }
    }

    /// Locks the object if it is not locked. Never waits, so the order does not matter.
    ///
    /// # Errors
    /// When another thread has locked the object, when the object is poisoned, when this thread has
    /// locked it, or when this thread has 32 objects locked.
    pub fn try_lock(&self) -> Result<Locked<'_, T>, LockError> {
        held::may_try(self.number).map_err(|against| self.refuse(against))?;
        match self.value.try_lock() {
            Ok(value) => Ok(self.locked(value)),
            Err(TryLockError::WouldBlock) => Err(self.error(LockErrorKind::Busy)),
            Err(TryLockError::Poisoned(_)) => Err(self.error(LockErrorKind::Poisoned)),
        }
    }

    fn locked<'s>(&'s self, value: MutexGuard<'s, T>) -> Locked<'s, T> {
        held::add(self.number);
        Locked { number: self.number, value }
    }

    fn refuse(&self, against: Against) -> LockError {
        self.error(match against {
            Against::Same => LockErrorKind::LockedByThisThread,
            Against::Later(later) => LockErrorKind::OutOfOrder { later },
            Against::Full => LockErrorKind::TooMany,
        })
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
        held::may_wait(self.number).map_err(|against| self.refuse(against))?;
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let mut locked = self.locked(value);
        let done = run(&mut *locked);
        self.value.clear_poison();
        Ok(done)
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

impl<T: ?Sized> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        held::remove(self.number);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Locked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locked").field(&&*self.value).finish()
    }
}

/// The reason why an object could not be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockError {
    /// The reason.
    pub kind: LockErrorKind,
    /// The object's number.
    pub number: u64,
    /// The name of the object's type.
    pub type_name: &'static str,
}

/// Why an object could not be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// A thread panicked while the object was locked.
    Poisoned,
    /// Another thread has locked the object. Only calls that never wait return this.
    Busy,
    /// This thread has already locked the object.
    LockedByThisThread,
    /// This thread has locked an object with a higher number, so it must not wait for this one.
    OutOfOrder {
        /// The number of that object.
        later: u64,
    },
    /// The same object is given more than once to be locked together.
    Twice,
    /// More than 32 objects locked by one thread.
    TooMany,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, number, type_name } = self;
        write!(f, "shared object {number} ({type_name}) ")?;
        match kind {
            LockErrorKind::Poisoned => f.write_str(
                "is poisoned: a panic happened while it was locked; `repair` makes it good",
            ),
            LockErrorKind::Busy => f.write_str("is locked by another thread: try again later"),
            LockErrorKind::LockedByThisThread => f.write_str(
                "is locked by this thread already: give what is locked to internal methods, by `&mut`",
            ),
            LockErrorKind::OutOfOrder { later } => write!(
                f,
                "must not be waited for while this thread has object {later}, which comes later: lock both with `lock_all`, or try"
            ),
            LockErrorKind::Twice => f.write_str("was given twice to be locked: give it once"),
            LockErrorKind::TooMany => write!(
                f,
                "would be more than the {} that one thread may have locked at once: unlock some",
                held::MOST
            ),
        }
    }
}

impl std::error::Error for LockError {}
