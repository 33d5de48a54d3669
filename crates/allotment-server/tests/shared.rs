//! Shared objects: locks in order, several together, and no deadlock in any combination.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use allotment_server::{LockError, LockErrorKind, Shared, SharedGuard, lock_all, try_lock_all};

const THREADS: usize = 16;

/// Pseudo-random numbers, the same in each run.
struct PseudoRandom(u64);

impl PseudoRandom {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

fn kind<T>(result: Result<T, LockError>) -> LockErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind,
    }
}

#[test]
fn sixteen_threads_count_without_losing_one() {
    let count = Shared::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..1000).for_each(|_| count.with(|count| *count += 1)));
        }
    });
    assert_eq!(count.into_inner(), THREADS * 1000);
}

#[test]
fn numbers_grow_in_the_order_of_making_and_stay_when_the_object_moves() {
    let (first, second) = (Shared::new(1), Shared::new(2));
    assert!(first.number() < second.number());
    let number = first.number();
    let moved = [first];
    assert_eq!(moved[0].number(), number);
}

#[test]
fn a_thread_that_locks_the_same_object_twice_gets_an_error_and_no_deadlock() {
    let object = Shared::new(0);
    let locked = object.lock();
    assert_eq!(kind(object.lock_or_error()), LockErrorKind::LockedByThisThread);
    assert_eq!(kind(object.try_with(|_| ())), LockErrorKind::LockedByThisThread);
    assert_eq!(kind(object.try_lock()), LockErrorKind::LockedByThisThread);
    assert_eq!(kind(lock_all((&object,))), LockErrorKind::LockedByThisThread);
    assert_eq!(kind(try_lock_all((&object,))), LockErrorKind::LockedByThisThread);
    assert_eq!(kind(object.repair(|_| ())), LockErrorKind::LockedByThisThread);
    let panic = catch_unwind(AssertUnwindSafe(|| object.with(|_| ()))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("by this thread already"));
    drop(locked);
    object.with(|_| ());
}

#[test]
fn waiting_out_of_order_is_an_error_at_once_and_trying_is_not() {
    let (first, second, third) = (Shared::new(1), Shared::new(2), Shared::new(3));
    let guard = second.lock();
    let later = LockErrorKind::OutOfOrder { later: second.number() };
    assert_eq!(kind(first.lock_or_error()), later);
    assert_eq!(kind(lock_all((&third, &first))), later);
    assert_eq!(kind(first.repair(|_| ())), later);
    assert_eq!(third.with(|value| *value), 3);
    drop(try_lock_all((&third, &first)).unwrap());
    drop(first.try_lock().unwrap());
    drop(guard);
    // Guards may go in any order.
    let (one, two, three) = (first.lock(), second.lock(), third.lock());
    drop(two);
    assert_eq!(kind(second.lock_or_error()), LockErrorKind::OutOfOrder { later: third.number() });
    drop(three);
    drop(second.lock());
    drop(one);
    drop(lock_all((&third, &second, &first)).unwrap());
}

#[test]
fn the_same_object_twice_among_several_is_an_error_for_each_way_to_lock_them() {
    let (one, other) = (Shared::new(1), Shared::new(2));
    let (a, b) = (&one, &other);
    for error in [
        lock_all((a, b, a)).map(drop).unwrap_err(),
        try_lock_all((a, a)).map(drop).unwrap_err(),
        try_lock_all((b, a, b)).map(drop).unwrap_err(),
        lock_all(&[a, b, b][..]).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind, LockErrorKind::Twice);
        assert!(error.to_string().contains("given twice"), "{error}");
    }
    drop(lock_all((a, b)).unwrap());
}

#[test]
fn one_thread_has_32_locked_at_most() {
    let objects: Vec<_> = (0..33).map(Shared::new).collect();
    let all: Vec<_> = objects.iter().collect();
    assert_eq!(kind(lock_all(&all[..])), LockErrorKind::TooMany);
    assert_eq!(kind(try_lock_all(&all[..])), LockErrorKind::TooMany);
    let guards = lock_all(&all[..32]).unwrap();
    assert_eq!(guards.iter().map(|value| **value).sum::<i32>(), (0..32).sum());
    assert_eq!(kind(objects[32].lock_or_error()), LockErrorKind::TooMany);
    assert_eq!(kind(objects[32].try_lock()), LockErrorKind::TooMany);
    drop(guards);
    let guards: Vec<_> = objects[..32].iter().map(Shared::lock).collect();
    assert_eq!(kind(objects[32].lock_or_error()), LockErrorKind::TooMany);
    drop(guards);
    drop(objects[32].lock());
}

#[test]
fn tuples_and_slices_give_their_guards_in_the_callers_order() {
    let (c, b, a) = (Shared::new('c'), Shared::new(2), Shared::new("a"));
    let (mut first, second, third) = lock_all((&a, &b, &c)).unwrap();
    *first = "changed";
    assert_eq!((*first, *second, *third), ("changed", 2, 'c'));
    drop((first, second, third));
    let numbers: Vec<_> = (0..8).map(Shared::new).collect();
    let [n0, n1, n2, n3, n4, n5, n6, n7] = &numbers[..] else { panic!("eight") };
    let all = lock_all((n7, n6, n5, n4, n3, n2, n1, n0)).unwrap();
    assert_eq!((*all.0, *all.3, *all.7), (7, 4, 0));
    drop(all);
    let backwards: Vec<_> = numbers.iter().rev().collect();
    let all = lock_all(&backwards[..]).unwrap();
    assert_eq!(all.iter().map(|n| **n).collect::<Vec<_>>(), (0..8).rev().collect::<Vec<_>>());
    drop(all);
    assert!(lock_all::<&[&Shared<u8>]>(&[]).unwrap().is_empty());
    assert!(try_lock_all::<&[&Shared<u8>]>(&[]).unwrap().is_empty());
}

#[test]
fn trying_fails_on_a_busy_one_and_leaves_none_locked() {
    let (one, other) = (Shared::new(1), Shared::new(2));
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let other = &other;
        scope.spawn(move || {
            other.with(|_| {
                enter.send(()).unwrap();
                released.recv().unwrap();
            });
        });
        entered.recv().unwrap();
        let error = try_lock_all((&one, other)).unwrap_err();
        assert_eq!((error.kind, error.number), (LockErrorKind::Busy, other.number()));
        assert_eq!(kind(other.try_lock()), LockErrorKind::Busy);
        // The first one was unlocked again.
        scope.spawn(|| drop(one.try_lock().unwrap())).join().unwrap();
        // The same with another one locked, whatever its number.
        let third = Shared::new(3);
        let guard = third.lock();
        assert_eq!(kind(try_lock_all((&one, other))), LockErrorKind::Busy);
        drop(guard);
        release.send(()).unwrap();
    });
}

/// Tries to lock both until that succeeds.
fn lock_by_trying<'s>(
    one: &'s Shared<i64>,
    other: &'s Shared<i64>,
) -> (SharedGuard<'s, i64>, SharedGuard<'s, i64>) {
    loop {
        match try_lock_all((one, other)) {
            Ok(guards) => return guards,
            Err(error) => assert_eq!(error.kind, LockErrorKind::Busy),
        }
        thread::yield_now();
    }
}

/// Each of sixteen threads moves amounts between two of sixteen accounts, in any order, and locks
/// all accounts in every fiftieth round to check their sum.
fn transfers(transfer: impl Fn(&mut PseudoRandom, &[Shared<i64>], usize, usize) + Sync) {
    let accounts: Vec<_> = (0..THREADS).map(|_| Shared::new(1000_i64)).collect();
    let checks = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (accounts, checks, transfer) = (&accounts, &checks, &transfer);
            scope.spawn(move || {
                let mut random = PseudoRandom(thread as u64);
                for round in 0..500 {
                    let from = random.below(THREADS);
                    let to = (from + 1 + random.below(THREADS - 1)) % THREADS;
                    transfer(&mut random, accounts, from, to);
                    if round % 50 == 0 {
                        let all: Vec<_> = accounts.iter().collect();
                        let all = lock_all(&all[..]).unwrap();
                        assert_eq!(all.iter().map(|account| **account).sum::<i64>(), 16_000);
                        checks.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(checks.into_inner(), THREADS * 10);
    assert_eq!(accounts.into_iter().map(Shared::into_inner).sum::<i64>(), 16_000);
}

#[test]
fn sixteen_threads_that_lock_in_their_own_orders_by_lock_all_do_not_deadlock() {
    transfers(|random, accounts, from, to| {
        let (mut from, mut to) = lock_all((&accounts[from], &accounts[to])).unwrap();
        if random.below(4) == 0 {
            thread::yield_now();
        }
        *from -= 1;
        *to += 1;
    });
}

#[test]
fn sixteen_threads_that_lock_by_trying_do_not_deadlock_and_all_get_through() {
    transfers(|random, accounts, from, to| {
        let (mut from, mut to) = lock_by_trying(&accounts[from], &accounts[to]);
        if random.below(4) == 0 {
            thread::yield_now();
        }
        *from -= 1;
        *to += 1;
    });
}

#[test]
fn sixteen_threads_in_all_ways_at_once_do_not_deadlock() {
    transfers(|random, accounts, from, to| {
        let (from, to) = (&accounts[from], &accounts[to]);
        match random.below(3) {
            0 => {
                let (mut from, mut to) = lock_all((from, to)).unwrap();
                (*from, *to) = (*from - 1, *to + 1);
            }
            1 => {
                let (mut from, mut to) = lock_by_trying(from, to);
                (*from, *to) = (*from - 1, *to + 1);
            }
            // One lock while the other is locked: in half of the cases that is out of order, and an
            // error at once.
            _ => {
                let mut first = from.lock();
                match to.lock_or_error() {
                    Ok(mut second) => (*first, *second) = (*first - 1, *second + 1),
                    Err(error) => {
                        let later = LockErrorKind::OutOfOrder { later: from.number() };
                        assert_eq!(error.kind, later);
                    }
                }
            }
        }
    });
}

#[test]
fn a_panic_while_locked_poisons_until_the_object_is_repaired() {
    let object = Shared::new(vec![1, 2, 3]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        object.with(|values| {
            values.clear();
            panic!("half way");
        })
    }));
    assert!(panicked.is_err() && object.is_poisoned());
    assert_eq!(kind(object.try_with(|_| ())), LockErrorKind::Poisoned);
    assert_eq!(kind(object.try_lock()), LockErrorKind::Poisoned);
    assert_eq!(kind(lock_all((&object,))), LockErrorKind::Poisoned);
    let panic = catch_unwind(AssertUnwindSafe(|| object.with(|_| ()))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("is poisoned") && text.contains("`repair` makes it good"), "{text}");
    assert!(format!("{object:?}").contains("(poisoned)"));

    let again = catch_unwind(AssertUnwindSafe(|| object.repair(|_| panic!("not yet"))));
    assert!(again.is_err() && object.is_poisoned());
    object.repair(|values| *values = vec![1]).unwrap();
    assert_eq!(object.with(|values| values.len()), 1);
    assert_eq!(format!("{:?}", object.lock()), "SharedGuard([1])");
    // The thread's record of locked objects is empty again.
    let others: Vec<_> = (0..32).map(Shared::new).collect();
    let all: Vec<_> = others.iter().collect();
    drop(lock_all(&all[..]).unwrap());
}

#[test]
fn a_panic_with_several_locked_poisons_each_and_frees_all() {
    let (one, other) = (Shared::new(1), Shared::new(2));
    let panicked = thread::scope(|scope| {
        let locking = scope.spawn(|| {
            let _both = lock_all((&one, &other)).unwrap();
            panic!("with both");
        });
        locking.join().is_err()
    });
    assert!(panicked && one.is_poisoned() && other.is_poisoned());
    let error = lock_all((&other, &one)).map(drop).unwrap_err();
    assert_eq!((error.kind, error.number), (LockErrorKind::Poisoned, one.number()));
    for object in [&one, &other] {
        object.repair(|_| ()).unwrap();
    }
    let both = lock_all((&one, &other)).unwrap();
    assert_eq!((*both.0, *both.1), (1, 2));
}

#[test]
fn an_object_without_a_size_can_be_shared() {
    let boxed: Box<Shared<[u8]>> = Box::new(Shared::new([1_u8, 2, 3]));
    boxed.with(|bytes| bytes.reverse());
    assert_eq!(*boxed.lock(), [3, 2, 1]);
    let flag = Shared::new(true);
    let (mut bytes, flag) = lock_all((&*boxed, &flag)).unwrap();
    bytes[0] = u8::from(*flag);
    assert_eq!(*bytes, [1, 2, 1]);
}
