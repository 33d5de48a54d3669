//! What every allocator of objects of one size must do, or a row of it means nothing.

use std::alloc::Layout;
use std::sync::{Barrier, mpsc};
use std::thread;

use bench::peers::{About, FixedSize, FixedSizeLocal, FixedSizeVisitor, OBJECT, Service, known};

const OBJECTS: u64 = 5_000;

/// Runs a claim with each allocator that serves objects of one size and that `serves` this claim.
fn for_each<V: FixedSizeVisitor + Copy>(claim: V, serves: impl Fn(&About) -> bool) {
    let mut served = 0;
    for about in known().iter().filter(|about| about.serves(Service::FixedSize) && serves(about)) {
        eprintln!("{}", about.name);
        claim.with(about.name).unwrap();
        served += 1;
    }
    assert!(served > 0);
}

fn any(_: &About) -> bool {
    true
}

fn several_threads(about: &About) -> bool {
    about.several_threads
}

fn every_layout(about: &About) -> bool {
    about.every_layout
}

/// The word of an object.
fn word<L: FixedSizeLocal>(local: &L, object: L::Object) -> u64 {
    // SAFETY: the tests ask for objects of theirs that are live; the word was written.
    unsafe { local.bytes(object).cast::<u64>().read() }
}

/// Writes every byte of an object, its word in the first of them.
fn write_all<L: FixedSizeLocal>(local: &L, object: L::Object, layout: Layout, word: u64) {
    // SAFETY: as above; an object is as long as its layout.
    unsafe {
        let bytes = local.bytes(object);
        bytes.write_bytes(word as u8, layout.size());
        bytes.cast::<u64>().write(word);
    }
}

/// Frees an object that still has its word, and the bytes behind it.
fn free<L: FixedSizeLocal>(local: &L, object: L::Object, layout: Layout, expected: u64) {
    assert_eq!(word(local, object), expected);
    // SAFETY: as above; `write_all` has written every byte; the object is not used after.
    unsafe {
        let last = local.bytes(object).add(layout.size() - 1).read();
        assert!(layout.size() == 8 || last == expected as u8);
        local.free(object);
    }
}

fn work<L: FixedSizeLocal>(local: &L, layout: Layout, seed: u64) {
    let mut objects: Vec<_> = (0..OBJECTS)
        .map(|number| {
            let object = local.alloc(seed + number);
            assert_eq!(word(local, object), seed + number, "the word is written");
            write_all(local, object, layout, seed + number);
            (object, seed + number)
        })
        .collect();
    // Where they are now: a store of values may have moved them.
    let mut places: Vec<_> = objects
        .iter()
        .map(|(object, _)| {
            // SAFETY: the object is live.
            let at = unsafe { local.bytes(*object) }.addr().get();
            assert!(at.is_multiple_of(layout.align()));
            at
        })
        .collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0] + layout.size() <= pair[1]), "they overlap");
    // Every other one is replaced.
    for round in 1..3 {
        for (object, word) in objects.iter_mut().step_by(2) {
            free(local, *object, layout, *word);
            *word += round * OBJECTS;
            *object = local.alloc(*word);
            write_all(local, *object, layout, *word);
        }
    }
    for (object, word) in objects {
        free(local, object, layout, word);
    }
}

#[test]
fn objects_are_apart_and_keep_what_was_written() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, _: &'static About) {
            let allocator = A::new(OBJECT);
            work(&allocator.local(), OBJECT, 1);
            // The thread may leave it and come back.
            work(&allocator.local(), OBJECT, 2);
        }
    }

    for_each(Claim, any);
}

#[test]
fn every_layout_of_a_word_and_more_is_served_where_they_say_so() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, _: &'static About) {
            for size in [8, 12, 24, 64, 384, 1000, 2048, 4096] {
                let layout = Layout::from_size_align(size, 8).unwrap();
                work(&A::new(layout).local(), layout, size as u64);
                work(&A::by_size(layout).local(), layout, size as u64);
            }
        }
    }

    for_each(Claim, every_layout);
}

#[test]
fn several_threads_use_one_allocator_where_they_say_so() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, _: &'static About) {
            const THREADS: u64 = 4;
            let allocator = A::new(OBJECT);
            let barrier = Barrier::new(THREADS as usize);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (allocator, barrier) = (&allocator, &barrier);
                    scope.spawn(move || {
                        let local = allocator.local();
                        barrier.wait();
                        for round in 0..3 {
                            work(&local, OBJECT, (thread * 3 + round) * 100 * OBJECTS);
                        }
                    });
                }
            });
        }
    }

    for_each(Claim, several_threads);
}

#[test]
fn any_thread_frees_what_another_one_allocated_even_after_its_end() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, _: &'static About) {
            let allocator = A::new(OBJECT);
            let (sender, receiver) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let local = allocator.local();
                    for word in 0..OBJECTS {
                        let object = local.alloc(word);
                        write_all(&local, object, OBJECT, word);
                        sender.send((object, word)).unwrap();
                    }
                });
            });
            drop(sender);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let local = allocator.local();
                    for (object, word) in receiver {
                        free(&local, object, OBJECT, word);
                    }
                });
            });
            // What was freed can be had again.
            work(&allocator.local(), OBJECT, 7);
        }
    }

    for_each(Claim, several_threads);
}

#[test]
fn trimming_and_reserving_lose_nothing() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, about: &'static About) {
            let allocator = A::new(OBJECT);
            allocator.reserve(OBJECTS as usize);
            let local = allocator.local();
            let kept = local.alloc(42);
            write_all(&local, kept, OBJECT, 42);
            work(&local, OBJECT, 1);
            let trims = local.trim();
            assert_eq!(word(&local, kept), 42, "{}", about.name);
            work(&local, OBJECT, 2);
            assert_eq!(local.trim(), trims);
            free(&local, kept, OBJECT, 42);
        }
    }

    for_each(Claim, any);
}

#[test]
fn what_serves_one_thread_refuses_a_second_one() {
    #[derive(Clone, Copy)]
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = ();

        fn visit<A: FixedSize>(self, _: &'static About) {
            let allocator = A::new(OBJECT);
            let first = allocator.local();
            let second =
                thread::scope(|scope| scope.spawn(|| allocator.local().alloc(1)).join().map(drop));
            assert!(second.is_err(), "a second thread");
            drop(first);
            work(&allocator.local(), OBJECT, 3);
        }
    }

    for_each(Claim, |about| !several_threads(about));
}

#[test]
fn what_holds_values_refuses_other_layouts() {
    struct Claim;

    impl FixedSizeVisitor for Claim {
        type Output = bool;

        fn visit<A: FixedSize>(self, _: &'static About) -> bool {
            thread::spawn(|| drop(A::new(Layout::new::<[u64; 6]>()))).join().is_err()
        }
    }

    for about in known().iter().filter(|about| about.serves(Service::FixedSize)) {
        let refused = Claim.with(about.name).unwrap();
        assert_eq!(refused, !every_layout(about), "{}", about.name);
    }
}
