//! Locks several shared objects together.

use crate::lock_error::{LockError, LockErrorKind, MAX_LOCKED};
use crate::shared::{Shared, SharedGuard};

/// Locks several shared objects in the order of their numbers, independent of the order of the
/// arguments. Takes a tuple of up to eight references, or a slice of references to objects of one
/// type, and returns the guards in the same form.
///
/// Any number of threads may lock any sets of objects this way without a deadlock.
///
/// ```
/// use allotment_server::{LockErrorKind, Shared, lock_all};
///
/// let (savings, current) = (Shared::new(100), Shared::new(0_i64));
/// {
///     let (mut from, mut to) = lock_all((&savings, &current))?;
///     *from -= 30;
///     *to += 30;
/// }
/// assert_eq!((savings.into_inner(), current.with(|amount| *amount)), (70, 30));
/// assert_eq!(lock_all((&current, &current)).unwrap_err().kind, LockErrorKind::Twice);
/// # Ok::<(), allotment_server::LockError>(())
/// ```
///
/// # Errors
/// When an object is given twice or is poisoned, when this thread would have more than 32 objects
/// locked, or when this thread has already locked one of the objects or one with a higher number
/// than the lowest of them. The call then locks none.
pub fn lock_all<S: LockSet>(objects: S) -> Result<S::Guards, LockError> {
    let order = LockOrder::of(&objects)?;
    let mut guards = objects.no_guards();
    for position in order.positions() {
        objects.lock(&mut guards, position, LockMode::Wait)?;
    }
    Ok(S::finish(guards))
}

/// Locks several shared objects if none of them is locked. Never waits. If one is not available,
/// the call locks none.
///
/// # Errors
/// As for [`lock_all`], but the numbers of other objects that this thread has locked do not matter.
/// [`LockErrorKind::Busy`] for an object that another thread has locked.
pub fn try_lock_all<S: LockSet>(objects: S) -> Result<S::Guards, LockError> {
    LockOrder::of(&objects)?;
    let mut guards = objects.no_guards();
    for position in 0..objects.len() {
        objects.lock(&mut guards, position, LockMode::Try)?;
    }
    Ok(S::finish(guards))
}

/// Shared objects that can be locked together: tuples of up to eight `&Shared<T>`, and
/// `&[&Shared<T>]`.
pub trait LockSet: sealed::LockSet {}

impl<S: sealed::LockSet> LockSet for S {}

/// The positions of a set's objects, sorted by the objects' numbers.
struct LockOrder {
    /// Number and position. The first `count` are in use.
    entries: [(u64, usize); MAX_LOCKED],
    count: usize,
}

impl LockOrder {
    fn of<S: LockSet>(objects: &S) -> Result<Self, LockError> {
        let mut order = Self { entries: [(0, 0); MAX_LOCKED], count: objects.len() };
        let Some(entries) = order.entries.get_mut(..objects.len()) else {
            return Err(objects.error(MAX_LOCKED, LockErrorKind::TooMany));
        };
        for (position, entry) in entries.iter_mut().enumerate() {
            *entry = (objects.number(position), position);
        }
        entries.sort_unstable();
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(objects.error(pair[1].1, LockErrorKind::Twice)),
            None => Ok(order),
        }
    }

    fn positions(&self) -> impl Iterator<Item = usize> {
        self.entries[..self.count].iter().map(|(_, position)| *position)
    }
}

/// How to lock an object.
#[derive(Clone, Copy)]
pub enum LockMode {
    /// Wait for it.
    Wait,
    /// Do not wait.
    Try,
}

fn lock_one<T: ?Sized>(
    object: &Shared<T>,
    mode: LockMode,
) -> Result<SharedGuard<'_, T>, LockError> {
    match mode {
        LockMode::Wait => object.lock_or_error(),
        LockMode::Try => object.try_lock(),
    }
}

mod sealed {
    use super::{LockError, LockErrorKind, LockMode};

    pub trait LockSet {
        /// The guards, in the form of the set.
        type Guards;
        /// The guards while the objects are being locked: `None` for each that is not locked yet.
        type PartialGuards;

        fn len(&self) -> usize;
        fn number(&self, position: usize) -> u64;
        fn error(&self, position: usize, kind: LockErrorKind) -> LockError;
        fn no_guards(&self) -> Self::PartialGuards;
        fn lock(
            &self,
            guards: &mut Self::PartialGuards,
            position: usize,
            mode: LockMode,
        ) -> Result<(), LockError>;
        /// Converts the guards when all objects are locked.
        fn finish(guards: Self::PartialGuards) -> Self::Guards;
    }
}

impl<'s, T: ?Sized> sealed::LockSet for &'s [&'s Shared<T>] {
    type Guards = Vec<SharedGuard<'s, T>>;
    type PartialGuards = Vec<Option<SharedGuard<'s, T>>>;

    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn number(&self, position: usize) -> u64 {
        self[position].number()
    }

    fn error(&self, position: usize, kind: LockErrorKind) -> LockError {
        self[position].error(kind)
    }

    fn no_guards(&self) -> Self::PartialGuards {
        self.iter().map(|_| None).collect()
    }

    fn lock(
        &self,
        guards: &mut Self::PartialGuards,
        position: usize,
        mode: LockMode,
    ) -> Result<(), LockError> {
        guards[position] = Some(lock_one(self[position], mode)?);
        Ok(())
    }

    fn finish(guards: Self::PartialGuards) -> Self::Guards {
        guards.into_iter().flatten().collect()
    }
}

macro_rules! tuples {
    ($($count:literal: $($type:ident $index:tt),+;)+) => { $(
        impl<'s, $($type: ?Sized),+> sealed::LockSet for ($(&'s Shared<$type>,)+) {
            type Guards = ($(SharedGuard<'s, $type>,)+);
            type PartialGuards = ($(Option<SharedGuard<'s, $type>>,)+);

            fn len(&self) -> usize {
                $count
            }

            fn number(&self, position: usize) -> u64 {
                match position {
                    $($index => self.$index.number(),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
            }

            fn error(&self, position: usize, kind: LockErrorKind) -> LockError {
                match position {
                    $($index => self.$index.error(kind),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
            }

            fn no_guards(&self) -> Self::PartialGuards {
                ($(None::<SharedGuard<'s, $type>>,)+)
            }

            fn lock(
                &self,
                guards: &mut Self::PartialGuards,
                position: usize,
                mode: LockMode,
            ) -> Result<(), LockError> {
                match position {
                    $($index => guards.$index = Some(lock_one(self.$index, mode)?),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
                Ok(())
            }

            fn finish(guards: Self::PartialGuards) -> Self::Guards {
                match guards {
                    ($(Some($type),)+) => ($($type,)+),
                    _ => unreachable!("`finish` is called when all are locked"),
                }
            }
        }
    )+ };
}

#[allow(non_snake_case, reason = "a tuple's types name its values")]
mod tuples {
    use super::{LockError, LockErrorKind, LockMode, Shared, SharedGuard, lock_one, sealed};

    tuples! {
        1: A 0;
        2: A 0, B 1;
        3: A 0, B 1, C 2;
        4: A 0, B 1, C 2, D 3;
        5: A 0, B 1, C 2, D 3, E 4;
        6: A 0, B 1, C 2, D 3, E 4, F 5;
        7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
        8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    }
}
