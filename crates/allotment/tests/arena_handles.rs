//! Thin handles, handles that keep an arena, and the contents of an arena's chunks. `.ci/miri` runs
//! this file, too.

use std::any::Any;
use std::cell::Cell;
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use allotment::arena::{ArenaArc, ArenaRc, SharedArena, ThinBox, ThinRef};
use allotment::{
    AllocError, Arena, ArenaBox, ArenaString, ArenaVec, Budget, ErrorKind, unsize_thin_box,
};

/// Adds one to the counter when it is dropped.
struct Counted<'c>(&'c Cell<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A value with a larger alignment than a word.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
struct Aligned(u8);

#[test]
fn handles_have_the_sizes_that_their_documentation_states() {
    let word = size_of::<usize>();
    assert_eq!(size_of::<Option<ThinBox<'_, dyn Debug>>>(), word);
    assert_eq!(size_of::<Option<ThinRef<'_, str>>>(), word);
    assert_eq!(size_of::<Option<ThinRef<'_, [u64]>>>(), word);
    assert_eq!(size_of::<Option<ArenaRc<u64>>>(), 2 * word);
    assert_eq!(size_of::<Option<ArenaArc<u64>>>(), 2 * word);
    assert_eq!(size_of::<Option<ArenaArc<str>>>(), 3 * word);
    assert_eq!(size_of::<SharedArena>(), word);
}

#[test]
fn a_thin_string_is_its_text_in_every_arena() {
    let (packed, plain) = (Arena::<1>::with_min_align(), Arena::new());
    for len in [0, 1, 7, 8, 9, 5000] {
        let text = "x".repeat(len);
        packed.alloc(1u8);
        let handles = [packed.alloc_thin_str(&text), plain.alloc_thin_str(&text)];
        for handle in handles {
            assert_eq!((&*handle, handle.get()), (&*text, &*text));
            assert_eq!(handle, handle.clone());
        }
    }
}

#[test]
fn thin_slices_have_the_alignment_of_their_values() {
    let arena = Arena::<1>::with_min_align();
    for len in 0..4 {
        arena.alloc(1u8);
        let values = arena.alloc_thin_slice_copy(&vec![Aligned(len); len.into()]);
        assert_eq!(values.as_ptr().addr() % 64, 0);
        assert_eq!(*values, vec![Aligned(len); len.into()]);
        let units = arena.alloc_thin_slice_copy(&vec![(); len.into()]);
        assert_eq!(units.len(), len.into());
    }
}

#[test]
fn a_thin_box_changes_and_drops_its_values() {
    let drops = Cell::new(0);
    let arena = Arena::new();
    let mut boxed = arena.alloc_thin_slice_boxed(3, |_| Counted(&drops));
    boxed[1] = Counted(&drops);
    assert_eq!(drops.get(), 1);
    drop(boxed);
    assert_eq!(drops.get(), 4);
    let leaked: &mut [Counted<'_>] =
        ThinBox::leak(arena.alloc_thin_slice_boxed(2, |_| Counted(&drops)));
    assert_eq!((leaked.len(), drops.get()), (2, 4));
    let shared = ThinBox::into_ref(arena.alloc_thin_slice_boxed(2, |_| Counted(&drops)));
    assert_eq!((shared.len(), drops.get()), (2, 4));
}

#[test]
fn the_values_before_a_panic_are_dropped_once() {
    let drops = Cell::new(0);
    let arena = Arena::new();
    let made = catch_unwind(AssertUnwindSafe(|| {
        arena.alloc_thin_slice_boxed(5, |index| {
            assert!(index < 3);
            Counted(&drops)
        });
    }));
    assert!(made.is_err());
    assert_eq!(drops.get(), 3);
}

#[test]
fn thin_trait_objects_dispatch_and_drop() {
    trait Shape {
        fn area(&self) -> f64;
    }
    struct Square<'c>(f64, #[allow(dead_code, reason = "its drop counts")] Counted<'c>);
    impl Shape for Square<'_> {
        fn area(&self) -> f64 {
            self.0 * self.0
        }
    }
    struct Nothing;
    impl Shape for Nothing {
        fn area(&self) -> f64 {
            0.0
        }
    }
    impl Shape for Aligned {
        fn area(&self) -> f64 {
            assert_eq!(std::ptr::from_ref(self).addr() % 64, 0);
            self.0.into()
        }
    }
    let drops = Cell::new(0);
    let arena = Arena::<1>::with_min_align();
    arena.alloc(1u8);
    let shapes: [ThinBox<'_, dyn Shape + '_>; 3] = [
        unsize_thin_box!(arena.alloc_thin_boxed(Square(3.0, Counted(&drops)))),
        unsize_thin_box!(arena.alloc_thin_boxed(Nothing)),
        unsize_thin_box!(arena.alloc_thin_boxed(Aligned(5))),
    ];
    assert_eq!(shapes.iter().map(|shape| shape.area()).sum::<f64>(), 14.0);
    let [square, nothing, aligned] = shapes;
    assert_eq!(drops.get(), 0);
    drop(square);
    assert_eq!(drops.get(), 1);
    assert_eq!(ThinBox::into_ref(nothing).get().area(), 0.0);
    assert_eq!(ThinBox::leak(aligned).area(), 5.0);
}

#[test]
fn a_thin_box_is_unsized_more_than_once_and_goes_through_a_raw_pointer() {
    let arena = Arena::new();
    let sized = arena.alloc_thin_boxed([1u8, 2, 3]);
    assert_eq!(*sized, [1, 2, 3]);
    let mut slice: ThinBox<'_, [u8]> = unsize_thin_box!(sized);
    slice[0] = 9;
    let raw = ThinBox::into_raw(slice);
    // SAFETY: from `into_raw`, once.
    let slice: ThinBox<'_, [u8]> = unsafe { ThinBox::from_raw(raw) };
    assert_eq!(format!("{slice:?}"), "[9, 2, 3]");

    let any: ThinBox<'_, dyn Any> = unsize_thin_box!(arena.alloc_thin_boxed(7u64));
    assert_eq!((*any).downcast_ref(), Some(&7u64));
}

#[test]
fn thin_handles_move_to_other_threads() {
    let arena = Arena::new();
    let name = arena.alloc_thin_str("name");
    let mut boxed: ThinBox<'_, dyn Display + Send> = unsize_thin_box!(arena.alloc_thin_boxed(7));
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!((name.len(), boxed.as_mut().to_string()), (4, "7".into())));
        assert_eq!(&*name, "name");
    });
}

#[test]
fn values_of_a_scope_live_as_long_as_the_scope() {
    let mut arena = Arena::new();
    let total = arena.scope(|outer| {
        let name = outer.alloc_thin_str("name");
        let numbers = outer.alloc_thin_slice_boxed(3, |n| n);
        outer.scope(|inner| name.len() + numbers.len() + inner.alloc_thin_str("inner").len())
    });
    assert_eq!(total, 12);
}

#[test]
fn a_vector_becomes_a_box_that_drops_its_values() {
    let drops = Cell::new(0);
    let arena = Arena::new();
    let counted = || (0..3).map(|_| Counted(&drops));
    let boxed: ArenaBox<'_, [Counted<'_>]> = ArenaVec::from_iter_in(counted(), &arena).into();
    drop(boxed);
    assert_eq!(drops.get(), 3);
    let thin = ArenaVec::from_iter_in(counted(), &arena).into_thin_slice();
    assert_eq!((thin.len(), drops.get()), (3, 3));
    drop(thin);
    assert_eq!(drops.get(), 6);
    let text: ArenaBox<'_, str> = ArenaString::from_str_in("text", &arena).into();
    assert_eq!(&*text, "text");
}

#[test]
fn a_refused_thin_allocation_is_an_error() {
    let budget = Budget::new(8 << 10);
    let arena = Arena::builder().budget(&budget).build();
    let large = "x".repeat(64 << 10);
    assert!(arena.try_alloc_thin_str(&large).is_err());
    assert!(arena.try_alloc_thin_slice_copy(large.as_bytes()).is_err());
    assert!(arena.try_alloc_thin_boxed([0u8; 64 << 10]).is_err());
    assert!(arena.try_alloc_thin_slice_boxed(64 << 10, |_| -> u8 { unreachable!() }).is_err());
    for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 7] {
        let error = arena.try_alloc_thin_slice_boxed(len, |_| -> u8 { unreachable!() });
        assert!(error.is_err_and(|error| error.kind() == ErrorKind::SizeOverflow), "{len}");
    }
    let small = ArenaVec::from_iter_in(0..100u8, &arena);
    let fits = arena.try_alloc_slice_uninit::<u8>(2000).is_ok();
    assert!(fits && small.try_into_thin_slice().is_ok());
    assert_eq!(&*arena.try_alloc_thin_str("fits").unwrap(), "fits");
}

#[test]
fn a_handle_keeps_its_arena_until_the_last_one_is_dropped() {
    let budget = Budget::new(1 << 20);
    let arena = Rc::new(Arena::builder().budget(&budget).build());
    let name: ArenaRc<str> = ArenaRc::new(&arena, |arena| arena.alloc_str("a.b"));
    let fixed: ArenaRc<str> = ArenaRc::new(&arena, |_| "static");
    assert!(Rc::ptr_eq(ArenaRc::arena(&name), &arena));
    drop(arena);
    let part = ArenaRc::map(name.clone(), |name| &name[2..]);
    assert!(!ArenaRc::ptr_eq(&name, &part) && ArenaRc::ptr_eq(&name, &name.clone()));
    ArenaRc::arena(&name).alloc(7);
    drop((name, fixed));
    assert_eq!(&*part, "b");
    assert!(budget.used() > 0);
    drop(part);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_handle_may_borrow_what_outlives_it() {
    let number = Cell::new(7);
    let arena = Rc::new(Arena::new());
    let borrowed: ArenaRc<&Cell<i32>> = ArenaRc::new(&arena, |arena| arena.alloc(&number));
    drop(arena);
    borrowed.set(8);
    assert_eq!(number.get(), 8);
}

#[test]
fn a_failed_make_makes_no_handle() {
    let budget = Budget::new(8 << 10);
    let mut arena = SharedArena::from(Arena::builder().budget(&budget).build());
    let refused: Result<ArenaArc<[u8]>, AllocError> =
        ArenaArc::try_new(&arena, |arena| Ok(arena.try_alloc_slice_with(64 << 10, |_| 0u8)?));
    assert!(refused.is_err());
    assert!(arena.get_mut().is_some());
    let fits: Result<ArenaArc<[u8]>, AllocError> =
        ArenaArc::try_new(&arena, |arena| Ok(arena.try_alloc_slice_with(64, |_| 0u8)?));
    assert_eq!(fits.unwrap().len(), 64);
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            ArenaArc::<u8>::new(&arena, |_| panic!("on purpose"));
        }))
        .is_err()
    );
    arena.get_mut().unwrap().reset();
}

#[test]
fn threads_share_values_while_the_arena_allocates() {
    let budget = Budget::new(4 << 20);
    let arena = SharedArena::from(Arena::builder().budget(&budget).build());
    let threads: Vec<_> = (0..4u64)
        .map(|n| {
            let value: ArenaArc<[u64]> = ArenaArc::new(&arena, |arena| {
                arena.alloc_slice_with(100, |index| n + index as u64)
            });
            std::thread::spawn(move || {
                let part = ArenaArc::map(value.clone(), |values| &values[99]);
                drop(value);
                *part
            })
        })
        .collect();
    (0..100).for_each(|n| _ = arena.alloc(n));
    let last = ArenaArc::new(&arena, |arena| arena.alloc(7));
    assert!(format!("{arena:?}").contains("handles"));
    drop(arena);
    let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!((sum, *last), (4 * 99 + 6, 7));
    std::thread::spawn(move || drop(last)).join().unwrap();
    assert_eq!(budget.used(), 0);
}

/// Fewer in Miri, but enough for chunks of their own.
const LARGE: usize = if cfg!(miri) { 300 } else { 100_000 };

/// The `u128`s of an arena that holds nothing else, sorted.
fn numbers(arena: &mut Arena) -> Vec<u128> {
    let chunks = arena.iter_allocated_chunks().flat_map(|chunk| chunk.chunks_exact(16));
    // SAFETY: the arena holds `u128`s only, which lie without padding.
    let mut numbers: Vec<u128> =
        chunks.map(|bytes| unsafe { bytes.as_ptr().cast::<u128>().read() }).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn the_chunks_contain_all_objects_and_nothing_else() {
    let most: u128 = if cfg!(miri) { 300 } else { 200_000 };
    let mut arena = Arena::new();
    assert!(numbers(&mut arena).is_empty());
    for round in 0..3 {
        for number in 0..most {
            arena.alloc(number);
        }
        assert!(numbers(&mut arena).into_iter().eq(0..most), "round {round}");
        arena.reset();
        assert!(numbers(&mut arena).is_empty());
    }
    // Objects with chunks of their own, between small ones.
    let mut all = Vec::new();
    for n in 0..20u128 {
        all.push(*arena.alloc(n));
        let len = if n % 7 == 0 { (LARGE / 20).max(300) } else { 10 };
        let large = arena.alloc_slice_with(len, |index| index as u128);
        all.extend_from_slice(large);
    }
    all.sort_unstable();
    assert_eq!(numbers(&mut arena), all);
}

#[test]
fn a_rewind_leaves_the_objects_before_it() {
    let mut arena = Arena::new();
    let mut before: Vec<u128> = (0..300).map(|n| *arena.alloc(n)).collect();
    for large in [0, 300, LARGE] {
        let mut mark = arena.mark();
        mark.alloc_slice_with(large, |n| n as u128);
        (0..300u128).for_each(|n| _ = mark.alloc(n));
        mark.scope(|scope| _ = scope.alloc_slice_with(LARGE / 10, |n| n as u128));
        drop(mark);
        assert_eq!(numbers(&mut arena), before, "{large}");
        let last = *arena.alloc(before.len() as u128);
        before.push(last);
    }
}

#[cfg(system_memory)]
#[test]
#[cfg_attr(miri, ignore = "a hardened arena writes to every byte of its chunks")]
fn the_contents_of_a_hardened_arena_include_its_objects() {
    let mut hardened = Arena::builder().hardened(true).build();
    hardened.alloc([7u8; 100]);
    let bytes: usize = hardened.iter_allocated_chunks().map(<[_]>::len).sum();
    assert!(bytes >= 100, "{bytes}");
}
