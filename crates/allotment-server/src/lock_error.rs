//! Why a shared object could not be locked.

use core::fmt;

/// How many shared objects one thread may have locked at a time.
pub(crate) const MAX_LOCKED: usize = 32;

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
                "is locked by this thread already: pass the locked value to internal methods, by `&mut`",
            ),
            LockErrorKind::OutOfOrder { later } => write!(
                f,
                "must not be waited for while this thread has locked object {later}, which has a higher number: lock both with `lock_all`, or use `try_lock`"
            ),
            LockErrorKind::Twice => f.write_str("was given twice to be locked: give it once"),
            LockErrorKind::TooMany => write!(
                f,
                "would be more than the {MAX_LOCKED} that one thread may have locked at once: unlock some"
            ),
        }
    }
}

impl std::error::Error for LockError {}
