//! Sealed memory with hostile initialisers: wrong length hints, panics, nested builds, sealers used
//! on other threads and after the end.
#![cfg(system_memory)]

mod support;

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use allotment::sealed::Sealable;
use allotment::{
    AllocError, Budget, ErrorKind, Published, ReadOnly, SealVec, Sealed, Sealer, owner_of,
};
use support::kernel::page_size;

/// An iterator of `length` numbers that claims to have `claimed`.
struct Liar {
    next: u32,
    length: u32,
    claimed: usize,
}

impl Iterator for Liar {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        (self.next < self.length).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.claimed, Some(self.claimed))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn an_iterator_that_lies_about_its_length_is_sealed_as_it_is() {
    let budget = Budget::new(8 << 20);
    for length in [0, 1, 1000, 100_000] {
        for claimed in [0, 1, 999, 150_000] {
            let liar = Liar { next: 0, length, claimed };
            let builder = Sealed::<(&'static [u32], &'static str)>::builder().budget(&budget);
            let sealed = builder
                .build(|sealer| (sealer.alloc_slice_from_iter(liar), sealer.alloc_str("behind")));
            assert!(sealed.get().0.iter().copied().eq(0..length), "{length} as {claimed}");
            assert_eq!(sealed.get().1, "behind");
            assert_eq!(budget.used(), sealed.statistics().held_bytes as usize);
        }
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_iterator_that_claims_more_than_there_can_be_is_refused_and_not_asked() {
    for (claimed, kind) in [
        (usize::MAX, ErrorKind::SizeOverflow),
        (isize::MAX as usize / 4 + 1, ErrorKind::SizeOverflow),
        (1 << 40, ErrorKind::BudgetExceeded),
    ] {
        let budget = Budget::new(1 << 20);
        let sealed = Sealed::<()>::builder().budget(&budget).build(|sealer| {
            let refused =
                sealer.try_alloc_slice_from_iter(Liar { next: 0, length: 3, claimed }).unwrap_err();
            assert_eq!(refused.kind(), kind, "{claimed}");
            assert_eq!(sealer.alloc_slice_from_iter([1, 2]), [1, 2], "the next one has memory");
        });
        assert!(budget.used() > 0);
        drop(sealed);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_wrong_length_of_values_without_bytes_does_no_harm() {
    struct Nothings(usize);
    impl Iterator for Nothings {
        type Item = ();
        fn next(&mut self) -> Option<()> {
            self.0 = self.0.checked_sub(1)?;
            Some(())
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX, Some(usize::MAX))
        }
    }
    impl ExactSizeIterator for Nothings {}
    let sealed = Sealed::<&'static [()]>::new(|sealer| sealer.alloc_slice_from_iter(Nothings(5)));
    assert_eq!(sealed.get().len(), 5);
}

/// Puts something into the sealer's memory when it is dropped.
struct PutsMore<'s, 'c>(Sealer<'s>, &'c AtomicUsize);

impl Drop for PutsMore<'_, '_> {
    fn drop(&mut self) {
        let text = self.0.alloc_format(format_args!("{:5000}", self.1.load(Ordering::Relaxed)));
        self.1.fetch_add(text.len(), Ordering::Relaxed);
    }
}

#[test]
fn a_sealer_works_in_destructors_that_unwind_and_all_memory_comes_back() {
    let (budget, put) = (Budget::new(8 << 20), AtomicUsize::new(0));
    for depth in 1..=20 {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let builder = Sealed::<&'static str>::builder().budget(&budget);
            builder.build(|sealer| {
                let mut held = sealer.vec();
                held.extend(iter::repeat_with(|| PutsMore(sealer, &put)).take(depth));
                // The values of a slice whose iterator panics are dropped during the unwinding too.
                sealer.alloc_slice_from_iter(
                    (0..4u8).map(|at| if at == 3 { panic!("three") } else { at }),
                );
                sealer.alloc_str("not reached")
            })
        }));
        assert!(ended.is_err());
        assert_eq!(budget.used(), 0);
    }
    assert_eq!(put.into_inner(), 5000 * (1..=20).sum::<usize>());
}

#[test]
fn destructors_that_panic_in_a_vector_lose_nothing_and_the_build_goes_on() {
    struct Loud<'c>(&'c AtomicUsize, bool);
    impl Drop for Loud<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "loud");
        }
    }
    let dropped = AtomicUsize::new(0);
    let sealed = Sealed::<&'static str>::new(|sealer| {
        let mut vec = sealer.vec();
        vec.extend((0..100).map(|at| Loud(&dropped, at == 50)));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(vec))).is_err());
        sealer.alloc_str("after that")
    });
    assert_eq!((*sealed.get(), dropped.into_inner()), ("after that", 100));
}

/// Builds a value inside the initialiser of another, `depth` levels deep. The innermost one panics;
/// the outer sealers stay usable.
fn nested(depth: u32, budget: &Budget) -> Sealed<&'static [u32]> {
    Sealed::<&'static [u32]>::builder().budget(budget).build(|sealer| {
        let mut numbers = sealer.vec();
        numbers.push(depth);
        if depth == 0 {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                Sealed::<&'static str>::builder().budget(budget).build(|inner| {
                    numbers.extend([7; 3]);
                    inner.alloc_str("at the bottom");
                    panic!("at the bottom")
                })
            }));
            assert!(ended.is_err());
        } else {
            let inner = nested(depth - 1, budget);
            numbers.extend_from_slice(inner.get());
        }
        numbers.into_slice()
    })
}

#[test]
fn values_are_built_within_values_at_any_depth_and_a_panic_at_the_bottom_ends_one() {
    let budget = Budget::new(8 << 20);
    let sealed = nested(40, &budget);
    assert!(sealed.get().iter().copied().eq((0..=40).rev().chain([7; 3])));
    assert_eq!(budget.used(), sealed.statistics().held_bytes as usize);
    drop(sealed);
    assert_eq!(budget.used(), 0);
}

/// Holds its sealer, and a vector that would grow.
struct Keeps<'s> {
    sealer: Sealer<'s>,
    vec: SealVec<'s, u8>,
}

// SAFETY: a sealer and a vector, both read-only.
unsafe impl ReadOnly for Keeps<'_> {}
impl Sealable for Keeps<'static> {
    type In<'s> = Keeps<'s>;
}

#[test]
fn a_sealer_that_is_sealed_itself_gives_no_memory_and_frees_none_for_ever() {
    let sealed = Sealed::<Keeps<'static>>::new(|sealer| {
        let mut vec = sealer.vec();
        vec.extend([1, 2, 3]);
        Keeps { sealer, vec }
    });
    let kept: &'static Keeps<'static> = sealed.leak();
    // This thread builds again. The old sealer is not mistaken for the new one.
    let other = Sealed::<&'static [u8]>::new(|sealer| {
        for _ in 0..100 {
            assert_eq!(kept.sealer.try_alloc_str("late").unwrap_err().kind(), ErrorKind::Sealed);
            let late = SealVec::<u64>::try_with_capacity_in(1, kept.sealer);
            assert_eq!(late.unwrap_err().kind(), ErrorKind::Sealed);
        }
        assert_eq!(
            kept.sealer.alloc_slice_from_iter(iter::empty::<u8>()),
            [0u8; 0],
            "which needs no memory"
        );
        sealer.alloc_slice_copy(&kept.vec)
    });
    assert_eq!((*other.get(), &kept.vec[..]), (&[1, 2, 3][..], &[1, 2, 3][..]));
}

#[test]
fn other_threads_drop_vectors_while_the_building_thread_goes_on() {
    let budget = Budget::new(64 << 20);
    let sealed = Sealed::<&'static [u64]>::builder().budget(&budget).build(|sealer| {
        let vecs: Vec<SealVec<'_, u64>> = (0..64)
            .map(|at| {
                let mut vec = sealer.vec();
                vec.extend((0..at * 100).map(|number| number ^ at));
                vec
            })
            .collect();
        let mut own = sealer.vec();
        std::thread::scope(|scope| {
            for (at, mut vec) in vecs.into_iter().enumerate() {
                scope.spawn(move || {
                    assert!(vec.iter().enumerate().all(|(n, value)| *value == (n ^ at) as u64));
                    // It can use its spare capacity, and can't grow.
                    let spare = vec.capacity() - vec.len();
                    assert!(vec.try_extend(iter::repeat_n(1, spare)).is_ok());
                    assert_eq!(vec.try_push(1).unwrap_err().kind(), ErrorKind::Sealed);
                    drop(vec);
                });
            }
            own.extend(0..50_000);
        });
        own.into_slice()
    });
    assert!(sealed.get().iter().copied().eq(0..50_000));
    drop(sealed);
    assert_eq!(budget.used(), 0);
}

#[test]
fn every_byte_of_sealed_memory_has_its_owner_and_none_once_it_is_dropped() {
    let name = "hostile owner";
    let sealed = Sealed::<[&'static [u8]; 3]>::builder().name(name).build(|sealer| {
        [10, 100_000, 3_000_000].map(|length| sealer.alloc_slice_from_iter(vec![1; length]))
    });
    let owns = |at: *const u8| owner_of(at).is_some_and(|owner| owner.name == name);
    let mut addresses = Vec::new();
    for slice in sealed.get() {
        addresses.extend(slice.iter().step_by(page_size() / 2).map(|byte| &raw const *byte));
        addresses.push(&raw const slice[slice.len() - 1]);
    }
    addresses.push(sealed.get().as_ptr().cast());
    assert!(addresses.iter().all(|at| owns(*at)));
    drop(sealed);
    assert!(!addresses.iter().any(|at| owns(*at)));
}

#[test]
fn generations_that_are_sealed_give_their_budget_back_however_readers_and_writers_end() {
    let budget = Budget::new(64 << 20);
    let generation = |number: usize| {
        let builder = Sealed::<(usize, &'static [usize])>::builder().budget(&budget);
        builder
            .build(|sealer| (number, sealer.alloc_slice_from_iter((0..1000).map(|at| at ^ number))))
    };
    let published = Published::new(generation(0));
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let published = &published;
            scope.spawn(move || {
                for round in 0..200 {
                    // More readings than one record has slots for, dropped in any order.
                    let mut readings: Vec<_> = (0..20).map(|_| published.read()).collect();
                    while !readings.is_empty() {
                        let reading = readings.swap_remove((round * 7 + reader) % readings.len());
                        let (number, values) = *reading.get();
                        assert!(values.iter().enumerate().all(|(at, value)| *value == at ^ number));
                    }
                }
            });
        }
        for writer in 1..=2 {
            let (published, generation) = (&published, &generation);
            scope.spawn(move || {
                for round in 0..200 {
                    if round % 5 == 0 {
                        let ended = catch_unwind(AssertUnwindSafe(|| {
                            published.update(|_| panic!("no new generation"))
                        }));
                        assert!(ended.is_err());
                    }
                    published.publish(generation(writer * 1000 + round));
                }
            });
        }
    });
    assert_eq!((published.generation(), published.retired()), (401, 0));
    assert_eq!(budget.used(), published.read().statistics().held_bytes as usize);
    drop(published);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_error_of_the_initialiser_may_carry_other_sealed_values() {
    #[derive(Debug)]
    struct Failed(Vec<Sealed<&'static str>>);
    impl From<AllocError> for Failed {
        fn from(_: AllocError) -> Self {
            Self(Vec::new())
        }
    }
    let failed = Sealed::<()>::try_new(|sealer| {
        sealer.alloc_str("lost");
        Err(Failed(vec![Sealed::new(|inner| inner.alloc_str("kept"))]))
    });
    assert_eq!(*failed.unwrap_err().0[0].get(), "kept");
}
