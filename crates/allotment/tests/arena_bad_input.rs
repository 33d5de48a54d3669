//! Requests of an arena that can't be met: each is a typed error or a defined result, and changes
//! nothing. What every allocator refuses is in `claims_limits.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::Cell;
use core::mem::MaybeUninit;

use allotment::arena::Retain;
use allotment::source::SharedSource;
use allotment::{AllocError, Arena, ArenaString, ArenaVec, Budget, ErrorKind, File, Malloc, Mmap};
use support::child::{self, Child};
use support::setup::file_directory;
use support::sources::{Recorder, Refuse};
use support::subject::panic_message;

fn sources() -> Vec<SharedSource> {
    vec![
        Mmap::new().into(),
        Mmap::huge_pages().into(),
        Malloc.into(),
        File::in_directory(&file_directory()).unwrap().into(),
        Recorder::new(Malloc, Refuse::None).into(),
    ]
}

/// Asserts that the call fails with this kind and leaves the arena as it was, able to go on.
fn refused<'a, T>(
    arena: &'a Arena,
    kind: ErrorKind,
    call: impl FnOnce(&'a Arena) -> Result<T, AllocError>,
) {
    let before = arena.statistics();
    let error = call(arena).map(|_| ()).expect_err("it can't be met");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.to_string().is_empty());
    assert_eq!(arena.statistics(), before, "{error}");
    assert_eq!(*arena.alloc(7u8), 7);
}

#[test]
fn a_size_that_overflows_is_an_error_of_every_call_that_takes_one() {
    let most = isize::MAX as usize;
    for hardened in [false, true] {
        let arena = &Arena::builder().hardened(hardened).build();
        let kind = ErrorKind::SizeOverflow;
        for size in [usize::MAX, usize::MAX - 15, most + 1, most] {
            refused(arena, kind, |arena| arena.try_alloc_bytes(size, 16));
        }
        let largest = Layout::from_size_align(most, 1).unwrap();
        refused(arena, kind, |arena| arena.try_alloc_layout(largest));
        refused(arena, kind, |arena| arena.try_alloc_layout_zeroed(largest));
        let aligned = Layout::from_size_align(most - (2 << 20), 2 << 20).unwrap();
        refused(arena, kind, |arena| arena.try_alloc_layout(aligned));
        refused(arena, kind, |arena| arena.try_calloc(usize::MAX, 2));
        refused(arena, kind, |arena| arena.try_calloc(1 << 32, 1 << 32));
        refused(arena, kind, |arena| arena.try_calloc(most, 1));
        refused(arena, kind, |arena| arena.try_alloc_slice_with(usize::MAX, |index| index));
        refused(arena, kind, |arena| arena.try_alloc_slice_uninit::<u16>(most));
        refused(arena, kind, |arena| arena.try_alloc_slice_boxed(most, |_| 1u64));
        refused(arena, kind, |arena| ArenaVec::<u32>::try_with_capacity_in(most, arena));
        refused(arena, kind, |arena| {
            let mut vec = ArenaVec::new_in(arena);
            vec.try_push(1u8).and_then(|()| vec.try_reserve(usize::MAX))
        });
    }
}

#[test]
fn a_size_that_overflows_is_a_panic_of_every_infallible_call_that_takes_one() {
    let most = isize::MAX as usize;
    for hardened in [false, true] {
        let arena = &Arena::builder().hardened(hardened).build();
        let overflows = |call: &dyn Fn()| assert_eq!(panic_message(call), "capacity overflow");
        overflows(&|| _ = arena.alloc_layout(Layout::from_size_align(most, 1).unwrap()));
        overflows(&|| _ = arena.calloc(usize::MAX, 2));
        overflows(&|| _ = arena.alloc_slice_with(usize::MAX, |index| index));
        overflows(&|| _ = arena.alloc_slice_with(most, |_| 1u16));
        overflows(&|| _ = arena.alloc_slice_uninit::<u16>(most));
        overflows(&|| _ = arena.alloc_slice_boxed(most, |_| 1u64));
        overflows(&|| _ = ArenaVec::<u64>::with_capacity_in(usize::MAX / 4, arena));
        overflows(&|| ArenaVec::from_iter_in([1u8], arena).reserve(usize::MAX));
        overflows(&|| ArenaString::from_str_in("a", arena).reserve(usize::MAX));
        overflows(&|| _ = Arena::with_capacity(most));
        assert_eq!(arena.statistics().live_objects, 0);
        assert_eq!(*arena.alloc(7u8), 7);
    }
}

#[test]
fn growing_past_the_address_space_is_an_error_and_the_object_stays() {
    let arena = Arena::new();
    let old = Layout::new::<u64>();
    let new = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
    let object = arena.alloc_layout(old);
    // SAFETY: a live object with its layout.
    unsafe {
        object.cast::<u64>().write(0x1234);
        let before = arena.statistics();
        assert!(arena.try_resize(object, old, new).is_err());
        assert_eq!(arena.statistics(), before);
        assert_eq!(object.cast::<u64>().read(), 0x1234);
        arena.free_layout(object, old);
    }
    assert_eq!(arena.statistics().live_objects, 0);
}

#[test]
fn a_size_of_zero_takes_nothing_and_is_aligned() {
    for source in sources() {
        for hardened in [false, true] {
            let budget = Budget::new(0);
            let builder = Arena::builder().source(source.clone()).budget(&budget);
            let arena = builder.hardened(hardened).build();
            for shift in 0..=21 {
                let layout = Layout::from_size_align(0, 1 << shift).unwrap();
                let nothing = arena.try_alloc_layout(layout).unwrap();
                assert_eq!(nothing.addr().get() % layout.align(), 0);
                // SAFETY: of this arena and layout; a size of zero may be freed and resized like
                // any other.
                unsafe {
                    let same = arena.try_resize(nothing, layout, layout).unwrap();
                    arena.free_layout(same, layout);
                }
            }
            assert_eq!(arena.alloc_str(""), "");
            assert_eq!(arena.alloc_slice_copy::<u64>(&[]), []);
            assert_eq!(arena.alloc_slice_with(0, |index| index), []);
            assert_eq!(arena.alloc_slice_from_iter(core::iter::empty::<u8>()), []);
            assert_eq!(arena.calloc(0, 100).len() + arena.calloc(100, 0).len(), 0);
            assert_eq!(*arena.alloc(()), ());
            assert_eq!(arena.alloc_slice_copy(&[(); 1000]).len(), 1000);
            assert_eq!(arena.alloc_slice_uninit::<[u64; 0]>(usize::MAX).len(), usize::MAX);
            assert!(ArenaString::new_in(&arena).into_str().is_empty());
            let mut units = ArenaVec::new_in(&arena);
            units.extend([(), (), ()]);
            assert_eq!(units.into_iter().count(), 3);
            assert_eq!(arena.statistics().live_objects, 0);
            assert_eq!((budget.used(), arena.statistics().chunks), (0, 0));
        }
    }
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_an_error() {
    let arena = Arena::new();
    for align in [0, 3, 6, 24, 4095, (2 << 20) + 1, usize::MAX] {
        refused(&arena, ErrorKind::BadAlignment, |arena| arena.try_alloc_bytes(8, align));
        refused(&arena, ErrorKind::BadAlignment, |arena| arena.try_alloc_bytes(0, align));
    }
    refused(&arena, ErrorKind::SizeOverflow, |arena| arena.try_alloc_bytes(8, 1 << 63));
}

#[test]
fn a_hint_larger_than_the_address_space_is_an_error_that_leaves_nothing() {
    for source in sources() {
        for hint in [usize::MAX, isize::MAX as usize, 1 << 62, 1 << 57, 1 << 48] {
            let budget = Budget::new(usize::MAX);
            let builder = Arena::builder().source(source.clone()).budget(&budget).hint(hint);
            let error = builder.try_build().expect_err("no machine has that");
            let kind = error.kind();
            let typed = matches!(
                kind,
                ErrorKind::SizeOverflow | ErrorKind::System(_) | ErrorKind::SourceRefused
            );
            assert!(typed, "{source:?} {hint:#x}: {error}");
            assert_eq!(budget.used(), 0);
        }
    }
    assert_eq!(Arena::try_with_capacity(usize::MAX).unwrap_err().kind(), ErrorKind::SizeOverflow);
}

#[test]
fn a_budget_of_zero_refuses_every_byte_and_the_arena_still_stands() {
    for source in sources() {
        let budget = Budget::new(0);
        let builder = Arena::builder().source(source.clone()).budget(&budget);
        let hinted = builder.clone().hint(1).try_build();
        assert_eq!(hinted.unwrap_err().kind(), ErrorKind::BudgetExceeded);
        let mut arena = builder.build();
        let before = arena.statistics();
        for _ in 0..3 {
            assert_eq!(arena.try_alloc(1u8).unwrap_err().kind(), ErrorKind::BudgetExceeded);
            assert!(arena.try_alloc_str("x").is_err());
            assert!(arena.try_alloc_slice_from_iter(0..3).is_err());
            assert!(ArenaVec::new_in(&arena).try_push(1).is_err());
            arena.scope(|scope| assert!(scope.try_alloc(1).is_err()));
            arena.mark().rewind();
            arena.reset();
        }
        assert_eq!(arena.statistics(), before);
    }
}

/// Counts its drops; as large as `WORDS` words and a pointer.
#[derive(Debug)]
struct Counted<'c, const WORDS: usize>(&'c Cell<u32>, [u64; WORDS]);

impl<const WORDS: usize> Drop for Counted<'_, WORDS> {
    fn drop(&mut self) {
        assert_eq!(self.1, [7; WORDS]);
        self.0.set(self.0.get() + 1);
    }
}

fn is_dropped_once_by_each_failed_call<const WORDS: usize>() {
    let drops = Cell::new(0);
    let value = || Counted(&drops, [7; WORDS]);
    let arena = Arena::builder().budget(&Budget::new(0)).build();
    assert!(arena.try_alloc_boxed(value()).is_err());
    assert_eq!(drops.get(), 1);
    assert!(arena.try_alloc_undropped(value()).is_err());
    assert_eq!(drops.get(), 2);
    // A call that succeeds drops nothing: the box drops its value, and an undropped value is never
    // dropped.
    let arena = Arena::new();
    drop(arena.try_alloc_boxed(value()).expect("no budget"));
    assert_eq!(drops.get(), 3);
    let _ = arena.try_alloc_undropped(value());
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_failed_call_drops_its_value_once_whatever_its_size() {
    is_dropped_once_by_each_failed_call::<0>();
    is_dropped_once_by_each_failed_call::<1>();
    is_dropped_once_by_each_failed_call::<64>();
}

#[test]
fn an_object_that_fits_the_budget_is_allocated_even_if_a_doubled_chunk_would_not_fit() {
    let budget = Budget::new(80 << 10);
    let arena = Arena::builder().budget(&budget).build();
    for _ in 0..15 {
        arena.alloc_slice_copy(&[1u8; 4000]);
    }
    let left = budget.limit() - budget.used();
    assert!(left >= 4096, "{left}");
    while budget.used() + 4096 <= budget.limit() {
        arena.try_alloc_slice_copy(&[1u8; 4000]).unwrap();
    }
    assert!(arena.try_alloc_slice_copy(&[1u8; 4000]).is_err());
}

/// Calls that ask the source many times. Each failure is an error that changes nothing.
fn work(arena: &mut Arena, failures: &mut u32) {
    let mut failed = |arena: &Arena, result: Result<(), AllocError>, before| {
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::SourceRefused);
            assert_eq!(arena.statistics(), before, "{error}");
            *failures += 1;
        }
    };
    for round in 0..60usize {
        for size in [10, 3000, 9000, 500, 20_000] {
            let before = arena.statistics();
            let layout = Layout::from_size_align(size + round, 16).unwrap();
            let result = arena.try_alloc_layout(layout);
            // SAFETY: just allocated, `size` bytes and more.
            let result = result.map(|object| unsafe { object.write_bytes(1, size) });
            failed(arena, result, before);
        }
        let before = arena.statistics();
        failed(arena, arena.try_calloc(10, 1000).map(|_| ()), before);
        arena.scope(|scope| {
            let before = scope.statistics();
            let result = scope.try_alloc_slice_uninit::<MaybeUninit<u64>>(1000).map(|_| ());
            failed(scope, result, before);
            let mut vec = ArenaVec::new_in(&**scope);
            for value in 0..40u64 {
                let (before, len) = (scope.statistics(), vec.len());
                let result = vec.try_push([value; 16]);
                if result.is_err() {
                    assert_eq!(vec.len(), len);
                }
                failed(scope, result, before);
            }
            assert!(vec.windows(2).all(|pair| pair[0] < pair[1]), "the pushed values are there");
        });
        arena.reset();
    }
}

#[test]
fn a_source_that_refuses_the_nth_call_makes_one_error_and_no_damage() {
    for hardened in [false, true] {
        let mut unrefused = 0;
        for nth in 0..=200 {
            for refuse in [Refuse::Only(nth), Refuse::From(nth)] {
                let recorder = Recorder::new(Malloc, if nth == 0 { Refuse::None } else { refuse });
                let budget = Budget::new(usize::MAX);
                let mut arena = Arena::builder()
                    .source(recorder.clone())
                    .retain(Retain::Nothing)
                    .hardened(hardened)
                    .budget(&budget)
                    .build();
                let mut failures = 0;
                work(&mut arena, &mut failures);
                if nth == 0 {
                    unrefused = recorder.calls();
                    assert_eq!(failures, 0);
                } else {
                    // A refused doubled chunk is followed by a request of the least size, so not
                    // every single refusal is an error.
                    assert!(
                        recorder.refused() > 0,
                        "call {nth} of {} was refused",
                        recorder.calls()
                    );
                    assert!(failures > 0 || refuse == Refuse::Only(nth));
                }
                recorder.refuse(Refuse::None);
                assert_eq!(budget.used(), recorder.lent_bytes());
                assert_eq!(arena.alloc_slice_copy(&[7u8; 200_000])[199_999], 7, "usable again");
                arena.scope(|scope| assert_eq!(scope.alloc_str("again"), "again"));
                drop(arena);
                assert_eq!((budget.used(), recorder.lent_blocks()), (0, 0));
            }
        }
        assert!(unrefused > 200, "the work makes {unrefused} calls");
    }
}

#[test]
fn a_source_that_refuses_the_hint_leaves_no_arena_and_no_block() {
    let recorder = Recorder::new(Malloc, Refuse::From(1));
    let built = Arena::builder().source(recorder.clone()).hint(1000).name("refused").try_build();
    assert_eq!(built.unwrap_err().kind(), ErrorKind::SourceRefused);
    assert_eq!(recorder.lent_blocks(), 0);
    assert!(allotment::report().allocators.iter().all(|one| one.name != "refused"));
}

#[test]
fn a_hint_beyond_a_low_limit_of_addresses_is_an_error() {
    let test = "a_hint_beyond_a_low_limit_of_addresses_is_an_error";
    if !child::is(test) {
        Child::new(test, test).limit_addresses(400 << 20).succeeds();
        return;
    }
    for source in [SharedSource::default(), Mmap::huge_pages().into(), Malloc.into()] {
        let error = Arena::builder().source(source).hint(1 << 30).try_build().unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::System(libc::ENOMEM) | ErrorKind::SourceRefused));
    }
}
