//! Locks several shared objects together.

use crate::locked_numbers as held;
use crate::shared::{LockError, LockErrorKind, Locked, Shared};

/// How many rounds of trying come before the fixed order.
const ROUNDS: usize = 8;

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
pub fn lock_all<S: LockSet>(objects: S) -> Result<S::Locked, LockError> {
    let order = Order::of(&objects)?;
    let mut slots = objects.slots();
    for at in order.positions() {
        objects.lock(&mut slots, at, Manner::Wait)?;
    }
    Ok(S::finish(slots))
}

/// Locks several shared objects if none of them is locked. Never waits. If one is not available,
/// the call locks none.
///
/// # Errors
/// As for [`lock_all`], but the numbers of other objects that this thread has locked do not matter.
/// [`LockErrorKind::Busy`] for an object that another thread has locked.
pub fn try_lock_all<S: LockSet>(objects: S) -> Result<S::Locked, LockError> {
    Order::of(&objects)?;
    let mut slots = objects.slots();
    for at in 0..objects.len() {
        objects.lock(&mut slots, at, Manner::Try)?;
    }
    Ok(S::finish(slots))
}

/// Locks several shared objects by trying. If one is not available, the call unlocks all, waits for
/// that one while it holds no lock, and then tries the others. After eight such rounds it locks in
/// the fixed order, so that it ends in any case. This is the paper's second strategy, for
/// comparison: [`lock_all`] takes fewer steps.
///
/// # Errors
/// As for [`lock_all`]. [`LockErrorKind::Busy`] if an object is locked by another thread while this
/// thread has other objects locked, because it must not wait then.
pub fn lock_all_in_any_order<S: LockSet>(objects: S) -> Result<S::Locked, LockError> {
    Order::of(&objects)?;
    let mut waited_for = 0;
    for _ in 0..ROUNDS {
        let mut slots = objects.slots();
        let alone = held::count() == 0;
        if alone && objects.len() > 0 {
            objects.lock(&mut slots, waited_for, Manner::Wait)?;
        }
        let mut failed = None;
        for at in (0..objects.len()).filter(|at| !(alone && *at == waited_for)) {
            match objects.lock(&mut slots, at, Manner::Try) {
                Ok(()) => {}
                Err(error) if alone && error.kind == LockErrorKind::Busy => {
                    failed = Some(at);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        match failed {
            None => return Ok(S::finish(slots)),
            Some(at) => waited_for = at,
        }
    }
    lock_all(objects)
}

/// Shared objects that can be locked together: tuples of up to eight `&Shared<T>`, and
/// `&[&Shared<T>]`.
pub trait LockSet: sealed::LockSet {}

impl<S: sealed::LockSet> LockSet for S {}

/// The positions of a set's objects, sorted by the objects' numbers.
struct Order {
    places: [(u64, usize); held::MOST],
    count: usize,
}

impl Order {
    fn of<S: LockSet>(objects: &S) -> Result<Self, LockError> {
        let mut order = Self { places: [(0, 0); held::MOST], count: objects.len() };
        let Some(places) = order.places.get_mut(..objects.len()) else {
            return Err(objects.error(held::MOST, LockErrorKind::TooMany));
        };
        for (at, place) in places.iter_mut().enumerate() {
            *place = (objects.number(at), at);
        }
        places.sort_unstable();
        match places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(objects.error(pair[1].1, LockErrorKind::Twice)),
            None => Ok(order),
        }
    }

    fn positions(&self) -> impl Iterator<Item = usize> {
        self.places[..self.count].iter().map(|(_, at)| *at)
    }
}

/// How to lock an object.
#[derive(Clone, Copy)]
pub enum Manner {
    /// Wait for it.
    Wait,
    /// Do not wait.
    Try,
}

fn lock_one<T: ?Sized>(object: &Shared<T>, manner: Manner) -> Result<Locked<'_, T>, LockError> {
    match manner {
        Manner::Wait => object.lock_or_error(),
        Manner::Try => object.try_lock(),
    }
}

mod sealed {
    use super::{LockError, LockErrorKind, Manner};

    pub trait LockSet {
        /// The guards, in the form of the set.
        type Locked;
        /// The guards while the objects are being locked.
        type Slots;

        fn len(&self) -> usize;
        fn number(&self, at: usize) -> u64;
        fn error(&self, at: usize, kind: LockErrorKind) -> LockError;
        fn slots(&self) -> Self::Slots;
        fn lock(&self, slots: &mut Self::Slots, at: usize, manner: Manner)
        -> Result<(), LockError>;
        /// Converts the guards when all objects are locked.
        fn finish(slots: Self::Slots) -> Self::Locked;
    }
}

impl<'s, T: ?Sized> sealed::LockSet for &'s [&'s Shared<T>] {
    type Locked = Vec<Locked<'s, T>>;
    type Slots = Vec<Option<Locked<'s, T>>>;

    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn number(&self, at: usize) -> u64 {
        self[at].number()
    }

    fn error(&self, at: usize, kind: LockErrorKind) -> LockError {
        self[at].error(kind)
    }

    fn slots(&self) -> Self::Slots {
        self.iter().map(|_| None).collect()
    }

    fn lock(&self, slots: &mut Self::Slots, at: usize, manner: Manner) -> Result<(), LockError> {
        slots[at] = Some(lock_one(self[at], manner)?);
        Ok(())
    }

    fn finish(slots: Self::Slots) -> Self::Locked {
        slots.into_iter().flatten().collect()
    }
}

macro_rules! tuples {
    ($($count:literal: $($type:ident $at:tt),+;)+) => { $(
        impl<'s, $($type: ?Sized),+> sealed::LockSet for ($(&'s Shared<$type>,)+) {
            type Locked = ($(Locked<'s, $type>,)+);
            type Slots = ($(Option<Locked<'s, $type>>,)+);

            fn len(&self) -> usize {
                $count
            }

            fn number(&self, at: usize) -> u64 {
                match at {
                    $($at => self.$at.number(),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
            }

            fn error(&self, at: usize, kind: LockErrorKind) -> LockError {
                match at {
                    $($at => self.$at.error(kind),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
            }

            fn slots(&self) -> Self::Slots {
                ($(None::<Locked<'s, $type>>,)+)
            }

            fn lock(
                &self,
                slots: &mut Self::Slots,
                at: usize,
                manner: Manner,
            ) -> Result<(), LockError> {
                match at {
                    $($at => slots.$at = Some(lock_one(self.$at, manner)?),)+
                    _ => unreachable!("a tuple of {}", $count),
                }
                Ok(())
            }

            fn finish(slots: Self::Slots) -> Self::Locked {
                match slots {
                    ($(Some($type),)+) => ($($type,)+),
                    _ => unreachable!("all were locked"),
                }
            }
        }
    )+ };
}

#[allow(non_snake_case, reason = "a tuple's types name its values")]
mod tuples {
    use super::{LockError, LockErrorKind, Locked, Manner, Shared, lock_one, sealed};

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
