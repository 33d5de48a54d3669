//! Bad input to slabs: absurd sizes, counts and page sizes are errors or have a defined result.
//! What every allocator refuses is in `claims_limits.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use core::mem::MaybeUninit;

use allotment::slab::Lifetime;
use allotment::source::SharedSource;
use allotment::{Budget, ErrorKind, Malloc, Mmap, RawSlab, Release, Slab};
use support::kernel::page_size;
use support::object::assert_refusal;
use support::slab::{self, free_all, layout, stamped, words};
use support::sources::{Recorder, Refuse};
use support::subject::assert_over_budget;

#[test]
fn sizes_up_to_the_largest_are_granted_or_refused_in_any_mode() {
    for hardened in [false, true] {
        for source in [Mmap::new().into(), SharedSource::from(Malloc)] {
            for bits in 43..=63 {
                for size in [(1usize << bits) - 4096, (1 << bits) - 8] {
                    let source = source.clone();
                    let builder = RawSlab::builder(layout(size, 8)).source(source);
                    let slab = match builder.hardened(hardened).try_build() {
                        Ok(slab) => slab,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::SizeOverflow, "{error}");
                            continue;
                        }
                    };
                    assert_refusal(slab.try_alloc().expect_err("terabytes"));
                    assert_refusal(slab.try_alloc_for(Lifetime::Long).expect_err("terabytes"));
                    assert!(slab.try_reserve(1).is_err());
                    slab::assert_exact(&slab, 0, None);
                }
            }
        }
    }
}

#[test]
fn more_slots_than_addresses_are_refused_at_once() {
    let recorder = Recorder::new(Malloc, Refuse::None);
    for size in [0, 1, 64, 5000, 1 << 20] {
        let slab = RawSlab::builder(layout(size, 8)).source(recorder.clone()).build();
        for slots in [usize::MAX, usize::MAX / size.max(8) + 1, isize::MAX as usize] {
            assert_eq!(slab.try_reserve(slots).unwrap_err().kind(), ErrorKind::SizeOverflow);
        }
        assert_eq!(recorder.calls(), 0);
        slab.try_reserve(0).unwrap();
        assert_eq!(recorder.calls(), 0);
    }
}

#[test]
fn more_slots_than_there_is_memory_are_refused_before_any_page_is_taken() {
    for source in [Mmap::new().into(), SharedSource::from(Malloc)] {
        let slab = words().source(source).build();
        let before = slab.statistics();
        for bits in [44, 48, 52] {
            let error = slab.try_reserve(1 << bits).expect_err("no machine has as much");
            if error.kind() != ErrorKind::SizeOverflow {
                assert_refusal(error);
            }
        }
        assert_eq!(slab.statistics(), before);
    }
}

#[test]
fn a_refused_reservation_gives_back_the_pages_that_it_took() {
    for release in [Release::AtOnce, Release::Keep(usize::MAX), Release::Adaptive] {
        let budget = Budget::new(1 << 20);
        let slab = words().budget(&budget).release(release).build();
        slab.reserve(1000);
        let before = slab.statistics();
        assert_eq!(slab.try_reserve(1 << 20).unwrap_err().kind(), ErrorKind::BudgetExceeded);
        let after = slab::assert_exact(&slab, 0, Some(&budget));
        assert_eq!((after.chunks, after.free_bytes), (before.chunks, before.free_bytes));
        slab::assert_empties(&slab);
    }
}

#[test]
fn zero_slots_are_a_valid_count() {
    let slab = words().build();
    slab.alloc_many(&mut []);
    // SAFETY: no slot is freed.
    unsafe { slab.free_many(&[]) };
    assert_eq!(slab.trim(), 0);
    slab.flush();
    drop(slab.handle());
    slab::assert_empties(&slab);
    let empty = RawSlab::new(layout(0, 1));
    let objects = stamped(&empty, 3000);
    slab::assert_apart(&objects);
    free_all(&empty, objects);
    slab::assert_empties(&empty);
}

#[test]
fn an_infallible_call_over_the_budget_panics_with_the_cause() {
    type Body = fn(&Slab<u64>);
    let calls: [Body; 5] = [
        |slab| core::mem::forget(slab.alloc(1)),
        |slab| core::mem::forget(slab.handle().alloc(1)),
        |slab| core::mem::forget(slab.alloc_for(Lifetime::Long, 1)),
        |slab| slab.raw().alloc_many(&mut [MaybeUninit::uninit(); 7]),
        |slab| slab.reserve(10_000),
    ];
    for body in calls {
        let slab = Slab::<u64>::builder().budget(&Budget::new(20_000)).build();
        assert_over_budget(20_000, || {
            loop {
                body(&slab);
            }
        });
    }
}

#[test]
fn a_page_of_any_wanted_size_is_a_multiple_of_the_hardwares() {
    for most in [0, 1, page_size() - 1, page_size() + 1, 12_345, usize::MAX] {
        let recorder = Recorder::new(Malloc, Refuse::None);
        let slab = words().source(recorder.clone()).max_page_bytes(most).build();
        let objects = stamped(&slab, 3000);
        assert_eq!(recorder.lent_bytes() % page_size(), 0);
        free_all(&slab, objects);
        slab::assert_empties(&slab);
    }
}
