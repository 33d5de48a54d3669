//! Boxes and vectors in a pool whose values panic in constructors, clones and destructors: each
//! value is dropped once, and the memory is freed.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::cell::Cell;

use allotment::{LocalPool, PoolBox, PoolVec};
use support::program::{caught, throw};

/// A pool that reports its live blocks at its end. It takes over no live block of an ended pool, so
/// its statistics are exact.
fn counted(hardened: bool) -> LocalPool {
    LocalPool::builder().report_live(true).hardened(hardened).build()
}

/// A pool with default options, and a hardened one.
fn pools() -> [LocalPool; 2] {
    [false, true].map(counted)
}

fn live(pool: &LocalPool) -> u64 {
    pool.statistics().live_objects
}

/// Counts drops, and may throw in one.
#[derive(Debug)]
struct Counted<'c> {
    number: u32,
    drops: &'c Cell<usize>,
    throws: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        if self.throws {
            throw();
        }
    }
}

#[test]
fn a_panicking_destructor_drops_the_others_once_and_frees_the_memory() {
    for pool in pools() {
        for bad in 0..6 {
            let drops = Cell::new(0);
            let fill = || {
                drops.set(0);
                let made = |number| Counted { number, drops: &drops, throws: number == bad };
                PoolVec::from_iter_in((0..6).map(made), pool.reference())
            };
            let vec = fill();
            assert!(caught(|| drop(vec)).is_none());
            assert_eq!((drops.get(), live(&pool)), (6, 0), "a vector");

            let mut vec = fill();
            assert!(caught(|| vec.clear()).is_none());
            assert_eq!((drops.get(), vec.len()), (6, 0), "cleared");
            drop(vec);

            let mut vec = fill();
            assert!(caught(|| vec.retain(|value| value.number != bad)).is_none());
            assert_eq!((drops.get(), vec.len()), (1, 5), "retained");
            assert!(vec.iter().map(|value| value.number).eq((0..6).filter(|n| *n != bad)));
            drop(vec);
            assert_eq!(drops.get(), 6);

            let mut vec = fill();
            let whole = (1..5).contains(&bad);
            assert_eq!(caught(|| drop(vec.drain(1..5))).is_none(), whole);
            assert_eq!((drops.get(), vec.len()), (4, 2), "drained");
            assert_eq!((vec[0].number, vec[1].number), (0, 5));
            assert_eq!(caught(|| drop(vec)).is_none(), !whole);
            assert_eq!(drops.get(), 6);

            let mut values = fill().into_iter();
            let taken = (bad != 0 && bad != 5).then(|| (values.next(), values.next_back()));
            assert!(caught(|| drop(values)).is_none());
            assert_eq!(drops.get(), if taken.is_some() { 4 } else { 6 }, "an iterator");
            assert_eq!(live(&pool), 0);
            drop(taken);

            let boxed = fill().into_boxed_slice();
            assert!(caught(|| drop(boxed)).is_none());
            assert_eq!((drops.get(), live(&pool)), (6, 0), "a box");
        }
    }
}

#[test]
fn a_panicking_clone_leaves_those_before_it_and_loses_none() {
    struct Clones<'c>(u32, &'c Cell<isize>);
    impl Clone for Clones<'_> {
        fn clone(&self) -> Self {
            if self.0 == 3 {
                throw();
            }
            self.1.set(self.1.get() + 1);
            Self(self.0, self.1)
        }
    }
    impl Drop for Clones<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() - 1);
        }
    }
    for pool in pools() {
        let living = Cell::new(6);
        let source: Vec<_> = (0..6).map(|number| Clones(number, &living)).collect();
        pool.enter(|| {
            let mut vec = PoolVec::new();
            assert!(caught(|| vec.extend_from_slice(&source)).is_none());
            assert!(vec.iter().map(|value| value.0).eq(0..3));
            assert_eq!(living.get(), 9);
            vec.push(Clones(3, &living));
            living.set(living.get() + 1);
            assert!(caught(|| vec.clone()).is_none());
            assert!(caught(|| vec.into_boxed_slice().clone()).is_none());
            living.set(living.get() + 1);
            let boxed = PoolBox::new(Clones(3, &living));
            assert!(caught(|| boxed.clone()).is_none());
        });
        assert_eq!((living.get(), live(&pool)), (6, 0));
    }
}

#[test]
fn values_before_an_iterators_panic_stay() {
    for pool in pools() {
        let drops = Cell::new(0);
        pool.enter(|| {
            let values = |end: u32| {
                let drops = &drops;
                (0..).map(move |number| {
                    if number == end {
                        throw();
                    }
                    Counted { number, drops, throws: false }
                })
            };
            let mut vec = PoolVec::new();
            assert!(caught(|| vec.extend(values(40))).is_none());
            assert_eq!((vec.len(), drops.get()), (40, 0));
            assert!(caught(|| PoolVec::from_iter(values(9))).is_none());
            assert_eq!(drops.get(), 9);
            assert!(
                caught(|| vec.retain_mut(|value| if value.number == 30 {
                    throw()
                } else {
                    value.number % 2 == 0
                }))
                .is_none()
            );
            let left = (0..30).filter(|n| n % 2 == 0).chain(30..40);
            assert!(vec.iter().map(|value| value.number).eq(left));
            assert_eq!(drops.get(), 9 + 15);
        });
        assert_eq!((drops.get(), live(&pool)), (49, 0));
    }
}

#[test]
fn a_forgotten_drain_leaks_and_breaks_nothing() {
    let drops = Cell::new(0);
    let made = |number| Counted { number, drops: &drops, throws: false };
    let mut vec: PoolVec<_> = (0..10).map(made).collect();
    let mut drain = vec.drain(2..5);
    drop(drain.next());
    std::mem::forget(drain);
    assert_eq!((vec.len(), drops.get()), (2, 1));
    vec.push(made(99));
    assert!(vec.iter().map(|value| value.number).eq([0, 1, 99]));
    drop(vec);
    assert_eq!(drops.get(), 4);
}
