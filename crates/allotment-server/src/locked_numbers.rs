//! The numbers of the shared objects that the calling thread has locked.
//!
//! They are in a thread-local without initialisation or destructor: it can be read at any time in a
//! thread's life, and takes no heap memory.

use core::cell::Cell;

use crate::lock_error::{LockErrorKind, MAX_LOCKED};

thread_local! {
    static LOCKED_NUMBERS: LockedNumbers = const {
        LockedNumbers { count: Cell::new(0), numbers: [const { Cell::new(0) }; MAX_LOCKED] }
    };
}

/// The first `count` numbers are those of the locked objects, in no order.
struct LockedNumbers {
    count: Cell<usize>,
    numbers: [Cell<u64>; MAX_LOCKED],
}

impl LockedNumbers {
    fn iter(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().take(self.count.get()).map(Cell::get)
    }

    fn check_capacity(&self) -> Result<(), LockErrorKind> {
        if self.count.get() < MAX_LOCKED { Ok(()) } else { Err(LockErrorKind::TooMany) }
    }
}

/// Checks that the thread may wait for this object's lock: all objects that it has locked have
/// lower numbers.
pub(crate) fn check_wait(number: u64) -> Result<(), LockErrorKind> {
    LOCKED_NUMBERS.with(|locked| {
        if locked.iter().any(|other| other == number) {
            return Err(LockErrorKind::LockedByThisThread);
        }
        match locked.iter().max() {
            Some(later) if later > number => Err(LockErrorKind::OutOfOrder { later }),
            _ => locked.check_capacity(),
        }
    })
}

/// Checks that the thread may try this object's lock: it has not locked this object yet.
pub(crate) fn check_try(number: u64) -> Result<(), LockErrorKind> {
    LOCKED_NUMBERS.with(|locked| match locked.iter().any(|other| other == number) {
        true => Err(LockErrorKind::LockedByThisThread),
        false => locked.check_capacity(),
    })
}

/// Records that the thread has locked this object. The array has space for its number, because
/// `check_wait` or `check_try` succeeded.
pub(crate) fn add(number: u64) {
    LOCKED_NUMBERS.with(|locked| {
        let count = locked.count.get();
        locked.numbers[count].set(number);
        locked.count.set(count + 1);
    });
}

/// Records that the thread unlocks this object.
pub(crate) fn remove(number: u64) {
    LOCKED_NUMBERS.with(|locked| {
        let last = locked.count.get() - 1;
        if let Some(position) = locked.iter().position(|other| other == number) {
            locked.numbers[position].set(locked.numbers[last].get());
            locked.count.set(last);
        }
    });
}
