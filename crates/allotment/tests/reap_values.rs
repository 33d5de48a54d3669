//! The typed calls of a reap: values, strings and slices, made in place, freed early or together,
//! through panics, errors and refusals.
#![cfg(system_memory)]

use core::alloc::Layout;
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use allotment::pool::ReapBox;
use allotment::{Budget, ErrorKind, Reap, unsize_box};

fn live(reap: &Reap) -> u64 {
    reap.statistics().live_objects
}

/// A budget that has no byte left, so that the reap gets no chunk.
fn refused() -> Reap {
    Reap::builder().budget(&Budget::new(0)).build()
}

/// Frees what a typed call returned.
///
/// # Safety
/// The value came from a typed call of this reap, and is not used again.
unsafe fn free<T: ?Sized>(reap: &Reap, value: *mut T) {
    // SAFETY: the value is still valid; the layout of its block is that of the value.
    unsafe {
        let layout = Layout::for_value(&*value);
        reap.free_layout(NonNull::new(value).unwrap().cast(), layout);
    }
}

#[test]
fn values_have_blocks_of_their_own_and_their_types_alignment() {
    #[repr(align(64))]
    struct Aligned([u8; 64]);

    let mut reap = Reap::new();
    for round in 0..3 {
        let numbers: Vec<&mut u64> = (0..1000).map(|n| reap.alloc(n * round)).collect();
        let aligned: Vec<&mut Aligned> = (0..10).map(|n| reap.alloc(Aligned([n; 64]))).collect();
        let large = reap.alloc([round; 10_000]);
        let unit = reap.alloc(());
        for (n, number) in (0..).zip(&numbers) {
            assert_eq!(**number, n * round);
        }
        for (n, value) in (0..).zip(&aligned) {
            assert!(core::ptr::from_ref(*value).addr() % 64 == 0);
            assert_eq!(value.0, [n; 64]);
        }
        assert!(large.iter().all(|value| *value == round));
        assert_eq!(unit, &mut ());
        assert_eq!(live(&reap), 1000 + 10 + 1 + 1);
        reap.reset();
        assert_eq!(live(&reap), 0);
    }
}

#[test]
fn a_value_that_is_freed_early_leaves_its_block_to_the_next_one() {
    let reap = Reap::new();
    for hardened in [false, true] {
        let reap = if hardened { &Reap::builder().hardened(true).build() } else { &reap };
        let number = reap.alloc([7_u64; 5]) as *mut [u64; 5];
        let text = reap.alloc_str("freed early") as *mut str;
        let slice = reap.alloc_slice_with(100, |index| index) as *mut [usize];
        let empty = reap.alloc_slice_copy::<u64>(&[]) as *mut [u64];
        let collected = reap.alloc_slice_from_iter((0..37).filter(|n| n % 3 == 0)) as *mut [i32];
        assert_eq!(live(reap), 5);
        // SAFETY: each value came from the reap, and is not used again.
        unsafe {
            free(reap, number);
            free(reap, text);
            free(reap, slice);
            free(reap, empty);
            free(reap, collected);
        }
        assert_eq!(live(reap), 0);
    }
    if ["ALLOTMENT_EXPECT_TOOL", "ALLOTMENT_PASSTHROUGH"].map(std::env::var_os) != [None, None] {
        return; // a freed block is in quarantine, or goes back to malloc
    }
    let first = reap.alloc([1_u64; 5]) as *mut [u64; 5];
    // SAFETY: as above.
    unsafe { free(&reap, first) };
    assert_eq!(reap.alloc([2_u64; 5]) as *mut [u64; 5], first, "last freed, first used");
}

#[test]
fn a_constructor_may_use_the_reap_and_its_panic_or_error_frees_the_block() {
    let reap = Reap::new();
    let outer = reap.alloc_with(|| {
        let inner = reap.alloc(1);
        *inner + 1
    });
    assert_eq!((*outer, live(&reap)), (2, 2));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        reap.alloc_with::<[u8; 100]>(|| panic!("no value"));
    }));
    assert!(unwound.is_err());
    assert_eq!(live(&reap), 2);
    assert_eq!(reap.alloc_try_with(|| Err::<u64, _>("no value")).unwrap_err(), "no value");
    assert_eq!(reap.try_alloc_try_with(|| Err::<u64, _>(7)).unwrap().unwrap_err(), 7);
    assert_eq!(live(&reap), 2);
    assert_eq!(*reap.alloc_try_with(|| Ok::<_, ()>(3)).unwrap(), 3);
    assert_eq!(*reap.try_alloc_try_with(|| Ok::<_, ()>(4)).unwrap().unwrap(), 4);
    assert_eq!(*reap.try_alloc_with(|| 5).unwrap(), 5);
    assert_eq!(live(&reap), 5);
}

#[test]
fn strings_and_slices_are_copies() {
    let reap = Reap::new();
    let text = reap.alloc_str("system.cpu");
    text.make_ascii_uppercase();
    assert_eq!(text, "SYSTEM.CPU");
    assert_eq!(reap.try_alloc_str("").unwrap(), "");
    assert_eq!(reap.alloc_c_str(c"eth0"), c"eth0");
    assert_eq!(reap.try_alloc_c_str(c"").unwrap(), c"");
    let numbers: Vec<u32> = (0..100_000).collect();
    assert_eq!(reap.alloc_slice_copy(&numbers), numbers);
    assert_eq!(reap.try_alloc_slice_copy(&numbers[..5]).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(reap.alloc_slice_clone(&numbers), numbers);
    assert_eq!(reap.try_alloc_slice_clone(&numbers[..1]).unwrap(), [0]);
    assert_eq!(reap.alloc_slice_copy::<u32>(&[]), []);
    assert_eq!(reap.alloc_slice_with(3, |index| index * 2), [0, 2, 4]);
    assert_eq!(reap.alloc_slice_with(1000, |_| ()).len(), 1000);
}

#[test]
fn a_slice_whose_constructor_panics_or_fails_is_freed() {
    let reap = Reap::new();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        reap.alloc_slice_with(10, |index| assert!(index < 7, "no more values"));
    }));
    assert!(unwound.is_err());
    let failed =
        reap.try_alloc_slice_try_with(10, |index| (index < 7).then_some(index).ok_or(index));
    assert_eq!(failed.unwrap().unwrap_err(), 7);
    assert_eq!(live(&reap), 0);
    let filled = reap.try_alloc_slice_try_with(10, Ok::<usize, ()>).unwrap().unwrap();
    assert_eq!(filled, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        reap.alloc_slice_from_iter((0..100).inspect(|n| assert!(*n < 50, "no more values")));
    }));
    assert!(unwound.is_err());
    assert_eq!(live(&reap), 1);
}

#[test]
fn an_iterator_may_use_the_reap_and_its_size_hint_may_be_wrong() {
    struct Hint<I>(I, usize);
    impl<I: Iterator> Iterator for Hint<I> {
        type Item = I::Item;
        fn next(&mut self) -> Option<I::Item> {
            self.0.next()
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.1, None)
        }
    }

    let reap = Reap::new();
    for hint in [0, 1, 99, 100, 101, 1000, usize::MAX] {
        let values = reap.alloc_slice_from_iter(Hint(0..100, hint));
        assert!(values.iter().copied().eq(0..100), "hint {hint}");
        let units = reap.alloc_slice_from_iter(Hint((0..100).map(|_| ()), hint));
        assert_eq!(units.len(), 100);
    }
    let values = reap.try_alloc_slice_from_iter((0..100).map(|n| &*reap.alloc(n))).unwrap();
    assert!(values.iter().map(|value| **value).eq(0..100));
    assert_eq!(reap.alloc_slice_from_iter(core::iter::empty::<u8>()), []);
}

#[test]
fn uninitialised_memory_is_filled_by_the_caller() {
    let reap = Reap::new();
    assert_eq!(reap.alloc_uninit().write(7), &7);
    assert_eq!(reap.try_alloc_uninit().unwrap().write([1, 2]), &[1, 2]);
    let slice: &mut [MaybeUninit<u64>] = reap.alloc_slice_uninit(50);
    slice.iter_mut().enumerate().for_each(|(index, value)| _ = value.write(index as u64));
    // SAFETY: written above.
    assert!(slice.iter().enumerate().all(|(n, value)| unsafe { value.assume_init() } == n as u64));
    assert_eq!(reap.try_alloc_slice_uninit::<u8>(0).unwrap().len(), 0);
}

/// Counts its drops.
struct Counted<'c>(&'c Cell<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn an_undropped_value_is_not_dropped_and_a_refused_one_is() {
    let drops = Cell::new(0);
    let counted = || Counted(&drops);
    {
        let mut reap = Reap::new();
        reap.alloc_undropped(counted());
        reap.try_alloc_undropped(counted()).map(|_| ()).unwrap();
        reap.reset();
    }
    assert_eq!(drops.get(), 0);
    assert!(refused().try_alloc_undropped(counted()).is_err());
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_box_drops_its_value_and_frees_its_block() {
    let drops = Cell::new(0);
    let counted = || Counted(&drops);
    for hardened in [false, true] {
        drops.set(0);
        let mut reap = Reap::builder().hardened(hardened).build();
        let boxes = [reap.alloc_boxed(counted()), reap.try_alloc_boxed(counted()).unwrap()];
        assert_eq!((live(&reap), drops.get()), (2, 0));
        drop(boxes);
        assert_eq!((live(&reap), drops.get()), (0, 2));
        let large = reap.alloc_boxed((counted(), [7_u8; 100_000]));
        assert_eq!(large.1, [7; 100_000]);
        let inner = ReapBox::into_inner(large);
        assert_eq!((live(&reap), drops.get()), (0, 2), "the value is moved out");
        drop(inner);
        let unit = reap.alloc_boxed(());
        assert_eq!((live(&reap), *unit), (1, ()));
        drop(unit);
        assert_eq!(live(&reap), 0);
        let address = ReapBox::into_raw(reap.alloc_boxed(counted()));
        // SAFETY: the address of a box of this reap, made a box once.
        drop(unsafe { ReapBox::from_raw_in(address, &reap) });
        assert_eq!((live(&reap), drops.get()), (0, 4));
        let leaked: &mut Counted<'_> = ReapBox::leak(reap.alloc_boxed(counted()));
        assert_eq!(leaked.0.get(), 4);
        core::mem::forget(reap.alloc_boxed(counted()));
        assert_eq!(live(&reap), 2);
        reap.reset();
        assert_eq!((live(&reap), drops.get()), (0, 4), "leaked and forgotten values stay");
    }
}

#[test]
fn a_box_of_a_slice_drops_every_value_also_those_before_a_panic() {
    let drops = Cell::new(0);
    let reap = Reap::new();
    let values = reap.alloc_slice_boxed(10, |_| Counted(&drops));
    assert_eq!((values.len(), live(&reap)), (10, 1));
    drop(values);
    assert_eq!((drops.take(), live(&reap)), (10, 0));
    let empty = reap.try_alloc_slice_boxed(0, |_| Counted(&drops)).unwrap();
    assert_eq!((empty.len(), live(&reap)), (0, 1), "the smallest block");
    drop(empty);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        reap.alloc_slice_boxed(10, |index| {
            assert!(index < 7, "no more values");
            Counted(&drops)
        })
    }));
    assert!(unwound.is_err());
    assert_eq!((drops.get(), live(&reap)), (7, 0));
    let overflow = reap.try_alloc_slice_boxed(usize::MAX, |_| 0_u64).unwrap_err();
    assert_eq!(overflow.kind(), ErrorKind::SizeOverflow);
}

#[test]
fn a_box_frees_its_block_even_if_the_drop_of_its_value_panics() {
    struct Throws;
    impl Drop for Throws {
        fn drop(&mut self) {
            panic!("a drop that panics");
        }
    }
    let reap = Reap::new();
    let boxed = reap.alloc_boxed((Throws, [7_u64; 9]));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(boxed))).is_err());
    assert_eq!(live(&reap), 0);
}

#[test]
fn a_box_becomes_a_box_of_a_trait_object_and_frees_the_block_of_its_value() {
    let drops = Cell::new(0);
    let reap = Reap::builder().hardened(true).build();
    let square = |factor: u32| {
        let counted = Counted(&drops);
        move |side: u32| {
            let _kept = &counted;
            factor * side * side
        }
    };
    let area: ReapBox<'_, dyn Fn(u32) -> u32 + '_> = unsize_box!(reap.alloc_boxed(square(3)));
    let values: ReapBox<'_, [Counted<'_>]> =
        unsize_box!(reap.alloc_boxed([Counted(&drops), Counted(&drops)]));
    assert_eq!((area(2), values.len(), live(&reap)), (12, 2, 2));
    drop((area, values));
    assert_eq!((drops.get(), live(&reap)), (3, 0));
}

#[test]
fn a_refused_box_drops_its_value_once_whatever_its_size() {
    let drops = Cell::new(0);
    let reap = refused();
    assert!(reap.try_alloc_boxed(Counted(&drops)).is_err());
    assert!(reap.try_alloc_boxed((Counted(&drops), [7_u64; 50])).is_err());
    assert_eq!((drops.get(), live(&reap)), (2, 0));
}

#[test]
fn a_refusal_is_an_error_and_calls_no_constructor() {
    let reap = refused();
    let never = |_: usize| -> u64 { unreachable!("the block was refused") };
    let kinds = [
        reap.try_alloc(1).unwrap_err().kind(),
        reap.try_alloc_with(|| never(0)).unwrap_err().kind(),
        reap.try_alloc_try_with(|| Ok::<_, ()>(never(0))).unwrap_err().kind(),
        reap.try_alloc_uninit::<u64>().unwrap_err().kind(),
        reap.try_alloc_str("refused").unwrap_err().kind(),
        reap.try_alloc_c_str(c"refused").unwrap_err().kind(),
        reap.try_alloc_slice_copy(&[1]).unwrap_err().kind(),
        reap.try_alloc_slice_clone(&[1]).unwrap_err().kind(),
        reap.try_alloc_slice_with(3, never).unwrap_err().kind(),
        reap.try_alloc_slice_try_with(3, |n| Ok::<_, ()>(never(n))).unwrap_err().kind(),
        reap.try_alloc_slice_from_iter([1, 2]).unwrap_err().kind(),
        reap.try_alloc_slice_uninit::<u64>(3).unwrap_err().kind(),
        reap.try_alloc_slice_boxed(3, never).map(|_| ()).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::BudgetExceeded; 13]);
    let overflow = reap.try_alloc_slice_with(usize::MAX, never).unwrap_err();
    assert_eq!(overflow.kind(), ErrorKind::SizeOverflow);
    assert_eq!(live(&reap), 0);
}
