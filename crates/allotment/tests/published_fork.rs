//! `Published` in a child made by fork, while other threads of the parent read and publish.
//!
//! Generations that those threads read at the fork stay in the child until the `Published` is
//! dropped. Generations that one of them had taken off the list leak in the child: a few, once. The
//! child's own readings and publications work as in the parent.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use allotment::Published;
use allotment::sealed::PublishedGuard;
use support::fork::forked;

/// Counts the live values.
struct Value<'c>(usize, &'c AtomicUsize);

impl<'c> Value<'c> {
    fn new(number: usize, living: &'c AtomicUsize) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self(number, living)
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        self.0 = usize::MAX;
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads, publishes and reads again; then on several threads.
fn reads_and_publishes<'c>(
    published: &Published<Value<'c>>,
    living: &'c AtomicUsize,
    most_retired: usize,
) {
    for round in 0..100 {
        let before = published.read();
        let number = published.publish(Value::new(round, living));
        assert!(number > PublishedGuard::generation(&before));
        assert_ne!(before.0, usize::MAX, "what is read has not ended");
        assert_eq!(published.read().0, round);
    }
    // More readings at a time than there are free records.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let readings: Vec<_> = (0..10).map(|_| published.read()).collect();
                    assert!(readings.iter().all(|reading| reading.0 < 1000));
                    drop(readings);
                    published.publish(Value::new(1, living));
                }
            });
        }
    });
    let retired = published.retired();
    assert!(retired <= most_retired, "{retired} generations stayed");
}

#[test]
fn a_forked_child_reads_and_publishes_while_the_parents_threads_were_inside() {
    const READERS: usize = 3;
    const WRITERS: usize = 2;
    let living = AtomicUsize::new(0);
    let published = Published::new(Value::new(0, &living));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (published, stop) = (&published, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reading = published.read();
                    (0..reader * 10).for_each(|_| std::hint::spin_loop());
                    assert!(reading.0 < 1000);
                }
            });
        }
        for _ in 0..WRITERS {
            let (published, stop, living) = (&published, &stop, &living);
            scope.spawn(move || {
                for number in 0.. {
                    published.publish(Value::new(number % 1000, living));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let stops = Stops(&stop);
        for _ in 0..20 {
            let held = published.read();
            // Per thread that the child lacks: a reader announces one generation. A writer
            // announces one, may have taken one off the list, and may have made one.
            let most = READERS + 3 * WRITERS + 1;
            let work = || {
                reads_and_publishes(&published, &living, most);
                assert!(held.0 < 1000, "the forking thread's own reading holds");
                drop(held);
                let own = AtomicUsize::new(0);
                let another = Published::new(Value::new(0, &own));
                reads_and_publishes(&another, &own, 0);
                drop(another);
                assert_eq!(own.load(Ordering::Relaxed), 0);
            };
            // SAFETY: `Published`, threads and malloc alone.
            assert_eq!(unsafe { forked(work) }, 0, "the child neither hung nor failed");
        }
        drop(stops);
    });
    assert_eq!(published.retired(), 0, "the parent lost nothing");
    assert_eq!(living.load(Ordering::Relaxed), 1);
}

/// Stops the other threads, also when the test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_of_a_quiet_parent_keeps_nothing_and_so_does_its_child() {
    let living = AtomicUsize::new(0);
    let published = Published::new(Value::new(0, &living));
    drop(published.read());
    let work = || {
        reads_and_publishes(&published, &living, 0);
        let work = || reads_and_publishes(&published, &living, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { forked(work) }, 0);
        assert_eq!(living.load(Ordering::Relaxed), 1);
    };
    // SAFETY: as above.
    assert_eq!(unsafe { forked(work) }, 0);
    assert_eq!((published.read().0, published.generation()), (0, 1));
}

#[test]
fn what_another_thread_reads_at_the_fork_stays_in_the_child_until_the_published_is_dropped() {
    let living = AtomicUsize::new(0);
    let published = Published::new(Value::new(0, &living));
    let reading = AtomicBool::new(false);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (published, reading, stop) = (&published, &reading, &stop);
        scope.spawn(move || {
            let _read = published.read();
            reading.store(true, Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        let stops = Stops(stop);
        while !reading.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let living = &living;
        let dropped = Cell::new(false);
        let work = || {
            published.publish(Value::new(1, living));
            published.publish(Value::new(2, living));
            assert_eq!((published.retired(), living.load(Ordering::Relaxed)), (1, 2));
            // SAFETY: the child has a copy of its own, which it drops once.
            drop(unsafe { core::ptr::read(published) });
            dropped.set(true);
            assert_eq!(living.load(Ordering::Relaxed), 0);
        };
        // SAFETY: as above.
        assert_eq!(unsafe { forked(work) }, 0);
        assert!(!dropped.get(), "in the child alone");
        drop(stops);
    });
    assert_eq!(published.publish(Value::new(1, &living)), 2);
    assert_eq!((published.retired(), living.load(Ordering::Relaxed)), (0, 1));
}
