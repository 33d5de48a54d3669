//! `Published` and sealed values in the destructors of thread-locals, in each other's destructors,
//! and with hazard records that are given up early.
#![cfg(system_memory)]

mod support;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, OnceLock, Weak};

use allotment::sealed::PublishedGuard;
use allotment::{Published, Sealed};
use support::child::{self, Child};

/// A value that detects use after its drop, and counts the live values.
struct Canary<'c> {
    number: usize,
    check: usize,
    living: &'c AtomicUsize,
}

impl<'c> Canary<'c> {
    fn new(number: usize, living: &'c AtomicUsize) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self { number, check: !number, living }
    }

    fn is_alive(&self) -> bool {
        self.check == !self.number
    }
}

impl Drop for Canary<'_> {
    fn drop(&mut self) {
        assert!(self.is_alive(), "dropped twice");
        self.check = 0;
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn twenty_readings_between_publications_end_in_any_order_and_each_generation_once() {
    let living = AtomicUsize::new(0);
    let published = Published::new(Canary::new(0, &living));
    for step in 1..20 {
        let first = published.read().number;
        let mut readings = Vec::new();
        for number in 1..=20 {
            readings.push(published.read());
            readings.push(published.read());
            published.publish(Canary::new(first + number, &living));
        }
        assert_eq!(published.retired(), 20);
        let mut index = 0;
        while !readings.is_empty() {
            index = (index + step) % readings.len();
            let reading = readings.swap_remove(index);
            assert!(reading.is_alive() && readings.iter().all(|reading| reading.is_alive()));
            drop(reading);
            let mut held: Vec<_> = readings.iter().map(|reading| reading.number).collect();
            held.sort_unstable();
            held.dedup();
            assert_eq!(published.retired(), held.len());
            assert_eq!(living.load(Ordering::Relaxed), held.len() + 1);
        }
    }
    drop(published);
    assert_eq!(living.into_inner(), 0);
}

#[test]
fn readings_among_a_threads_values_stay_when_its_record_is_given_up_and_threads_come_after_it() {
    static LIVING: AtomicUsize = AtomicUsize::new(0);
    static CHECKED: AtomicUsize = AtomicUsize::new(0);
    static PUBLISHED: OnceLock<Published<Canary<'static>>> = OnceLock::new();
    type Kept = Vec<PublishedGuard<'static, Canary<'static>>>;
    /// Dropped after the library's own thread-local, which was made later.
    struct Late(RefCell<Kept>);
    impl Drop for Late {
        fn drop(&mut self) {
            let published = PUBLISHED.get().unwrap();
            let mut readings = self.0.take();
            // Another thread adopts the records that are free, and replaces the generation.
            let next = std::thread::spawn(move || {
                let own: Vec<_> = (0..20).map(|_| published.read()).collect();
                published.publish(Canary::new(own[0].number + 1, &LIVING));
                assert!(own.iter().all(|reading| reading.is_alive()));
            });
            // At the same time this thread reads, and owns no record any more.
            for _ in 0..20 {
                readings.push(published.read());
            }
            next.join().unwrap();
            while !readings.is_empty() {
                assert!(readings.iter().all(|reading| reading.is_alive()));
                drop(readings.swap_remove(readings.len() / 3));
            }
            CHECKED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LATE: Late = const { Late(RefCell::new(Vec::new())) };
    }
    let published = PUBLISHED.get_or_init(|| Published::new(Canary::new(0, &LIVING)));
    for round in 0..50 {
        let thread = std::thread::spawn(move || {
            LATE.with(|late| {
                late.0.borrow_mut().extend((0..=round % 20).map(|_| published.read()));
            });
        });
        thread.join().unwrap();
    }
    assert_eq!(CHECKED.load(Ordering::Relaxed), 50);
    assert_eq!((published.generation(), published.retired()), (51, 0));
    assert_eq!(LIVING.load(Ordering::Relaxed), 1);
}

/// Its destructor publishes in the other `Published`, as long as rounds are left.
struct Volley {
    rounds: usize,
    other: Weak<Published<Self>>,
    ends: Arc<AtomicUsize>,
}

impl Drop for Volley {
    fn drop(&mut self) {
        self.ends.fetch_add(1, Ordering::Relaxed);
        let Some(rounds) = self.rounds.checked_sub(1) else { return };
        if let Some(other) = self.other.upgrade() {
            let (ends, back) = (self.ends.clone(), other.read().other.clone());
            other.publish(Self { rounds, other: back, ends });
        }
    }
}

#[test]
fn destructors_that_publish_into_each_others_publications_come_to_an_end() {
    let ends = Arc::new(AtomicUsize::new(0));
    let volley = |rounds, other| Volley { rounds, other, ends: ends.clone() };
    let first = Arc::new(Published::new(volley(0, Weak::new())));
    let second = Arc::new(Published::new(volley(0, Arc::downgrade(&first))));
    first.publish(volley(100, Arc::downgrade(&second)));
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (first, second, volley, barrier) = (&first, &second, &volley, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..50 {
                    let (here, there) =
                        if thread % 2 == 0 { (first, second) } else { (second, first) };
                    let reading = here.read();
                    here.publish(volley(20, Arc::downgrade(there)));
                    assert!(reading.rounds <= 100);
                }
            });
        }
    });
    assert_eq!((first.retired(), second.retired()), (0, 0));
    let made = (first.generation() + second.generation()) as usize;
    assert_eq!(ends.load(Ordering::Relaxed), made - 2);
    // Dropping `first` may publish once more in `second`. Each live value holds a reference.
    drop((first, second));
    assert_eq!(Arc::strong_count(&ends), 1);
}

#[test]
fn two_destructors_that_panic_in_one_call_abort_the_process() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("loud");
        }
    }
    let test = "two_destructors_that_panic_in_one_call_abort_the_process";
    if child::is(test) {
        let published = Published::new(Loud);
        // A leaked reading keeps the first generation, so both are dropped in one call.
        std::mem::forget(published.read());
        published.publish(Loud);
        drop(published);
        return;
    }
    assert_eq!(Child::new(test, test).aborts().matches("loud").count(), 2);
}

#[test]
fn values_are_sealed_read_and_dropped_in_the_destructors_of_a_threads_values() {
    struct Seals(RefCell<Option<Sealed<&'static str>>>);
    static DONE: AtomicUsize = AtomicUsize::new(0);
    impl Drop for Seals {
        fn drop(&mut self) {
            let old = self.0.take().unwrap();
            let new = Sealed::<&'static str>::new(|sealer| {
                sealer.alloc_format(format_args!("{} and {}", old.get(), "new"))
            });
            drop(old);
            assert_eq!(*new.get(), "old and new");
            let published = Published::new(new);
            published.publish(Sealed::new(|sealer| sealer.alloc_str("newer")));
            assert_eq!(
                (published.read().statistics().held_bytes as usize > 0, published.retired()),
                (true, 0)
            );
            DONE.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static SEALS: Seals = const { Seals(RefCell::new(None)) };
    }
    for _ in 0..20 {
        let thread = std::thread::spawn(|| {
            SEALS.with(|seals| {
                *seals.0.borrow_mut() = Some(Sealed::new(|sealer| sealer.alloc_str("old")));
            });
        });
        thread.join().unwrap();
    }
    assert_eq!(DONE.load(Ordering::Relaxed), 20);
}
