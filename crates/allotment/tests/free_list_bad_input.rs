//! Bad input to free lists: absurd sizes and counts are errors or have a defined result. What every
//! allocator refuses is in `claims_limits.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use allotment::source::SharedSource;
use allotment::{Budget, ErrorKind, FreeList, MAX_NAME_LEN, Malloc, Mmap, RawFreeList};
use support::list::{self, free_all, stamped, under_a_tool};
use support::object::assert_refusal;
use support::slab::{assert_apart, layout};
use support::sources::{Recorder, Refuse};
use support::subject::{assert_over_budget, panic_message};

#[test]
fn runs_of_any_alignment_are_aligned_and_apart() {
    for hardened in [false, true] {
        for source in [SharedSource::default(), Mmap::huge_pages().into(), Malloc.into()] {
            for bits in (0..=22).step_by(if hardened { 3 } else { 2 }) {
                for size in [0, 9000] {
                    let list = RawFreeList::builder(layout(size, 1 << bits))
                        .source(source.clone())
                        .hardened(hardened)
                        .build();
                    let mut objects = stamped(&list, 10);
                    objects.extend(list::stamped_run(&list, 3));
                    assert_apart(&objects);
                    list::assert_exact(&list, 13, None);
                    free_all(&list, objects);
                    list::assert_empties(&list);
                }
            }
        }
    }
}

fn assert_too_much(error: allotment::AllocError) {
    if error.kind() != ErrorKind::SizeOverflow {
        assert_refusal(error);
    }
}

#[test]
fn sizes_up_to_the_largest_are_allocated_or_refused_in_any_mode() {
    for hardened in [false, true] {
        for source in [SharedSource::default(), Mmap::small_pages().into(), Malloc.into()] {
            for bits in 43..=63 {
                for size in [(1usize << bits) - 4096, (1 << bits) - 8] {
                    let builder = RawFreeList::builder(layout(size, 8)).source(source.clone());
                    let list = match builder.hardened(hardened).try_build() {
                        Ok(list) => list,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::SizeOverflow, "{error}");
                            continue;
                        }
                    };
                    assert_too_much(list.try_alloc().expect_err("terabytes"));
                    assert_too_much(list.try_alloc_fresh().expect_err("terabytes"));
                    assert_too_much(list.try_alloc_run(3).expect_err("terabytes"));
                    list::assert_exact(&list, 0, None);
                    assert_eq!(list.trim(), 0);
                }
            }
        }
    }
    let error = RawFreeList::try_new(layout(isize::MAX as usize, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SizeOverflow);
}

#[test]
fn runs_of_more_objects_than_addresses_are_refused_at_once() {
    for hardened in [false, true] {
        for size in [0, 1, 8, 64, 5000, 1 << 20] {
            let recorder = Recorder::new(Malloc, Refuse::None);
            let list = RawFreeList::builder(layout(size, 8))
                .source(recorder.clone())
                .hardened(hardened)
                .build();
            let objects = stamped(&list, 3);
            let before = (list.statistics(), recorder.calls());
            for count in [usize::MAX, usize::MAX / 2, usize::MAX / list.stride()] {
                let error = list.try_alloc_run(count).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::SizeOverflow, "{count} of {size}");
                assert_eq!((list.statistics(), recorder.calls()), before);
            }
            free_all(&list, objects);
            list::assert_empties(&list);
        }
    }
    let typed = FreeList::<[u64; 9]>::new();
    assert!(typed.try_alloc_run(usize::MAX).is_err());
    list::assert_empties(typed.raw());
}

#[test]
fn chunks_of_more_objects_than_addresses_are_refused_when_one_is_needed() {
    for hardened in [false, true] {
        let recorder = Recorder::new(Malloc, Refuse::None);
        for objects in [usize::MAX, usize::MAX / 8, isize::MAX as usize] {
            let list = RawFreeList::builder(layout(64, 8))
                .source(recorder.clone())
                .hardened(hardened)
                .objects_per_chunk(objects)
                .build();
            assert_eq!(list.try_alloc().unwrap_err().kind(), ErrorKind::SizeOverflow);
            assert_eq!(list.try_alloc_run(7).unwrap_err().kind(), ErrorKind::SizeOverflow);
            assert_eq!(list.try_alloc_fresh().unwrap_err().kind(), ErrorKind::SizeOverflow);
            list::assert_exact(&list, 0, None);
        }
        assert_eq!(recorder.calls(), 0);
    }
    // A size that fits the address space but no machine is refused by the source.
    let list = RawFreeList::builder(layout(64, 8)).objects_per_chunk(1 << 50).build();
    assert_refusal(list.try_alloc().unwrap_err());
    list::assert_empties(&list);
}

#[test]
fn zero_has_a_defined_meaning_everywhere() {
    // 0 objects in a chunk is the default.
    let list = RawFreeList::builder(layout(64, 8)).objects_per_chunk(0).build();
    let said_nothing = RawFreeList::new(layout(64, 8));
    let (objects, others) = (stamped(&list, 1000), stamped(&said_nothing, 1000));
    if !under_a_tool() {
        assert!(list.statistics().chunks > 1, "they grow");
    }
    free_all(&list, objects);
    free_all(&said_nothing, others);
    let empty = RawFreeList::new(layout(0, 1));
    assert_eq!(empty.trim(), 0);
    let objects = stamped(&empty, 3000);
    assert_apart(&objects);
    list::assert_exact(&empty, 3000, None);
    free_all(&empty, objects);
    list::assert_empties(&empty);
    // A list that was never used holds nothing.
    list::assert_empties(&RawFreeList::new(layout(64, 8)));
}

#[test]
fn a_budget_is_kept_to_the_byte_and_the_list_goes_on_below_it() {
    for hardened in [false, true] {
        for objects_per_chunk in [0, 1, 100] {
            let budget = Budget::new(200_000);
            let list = RawFreeList::builder(layout(64, 8))
                .budget(&budget)
                .hardened(hardened)
                .objects_per_chunk(objects_per_chunk)
                .build();
            for _ in 0..3 {
                let mut objects = Vec::new();
                let error = loop {
                    match list.try_alloc() {
                        Ok(object) => objects.push(object),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
                assert!(objects.len() > 1000, "{} objects", objects.len());
                list::assert_exact(&list, objects.len(), Some(&budget));
                assert_eq!(list.try_alloc_run(5000).unwrap_err().kind(), ErrorKind::BudgetExceeded);
                let count = objects.len();
                // Each free makes room for one allocation.
                let last = objects.pop().expect("many");
                // SAFETY: allocated above, each freed once.
                unsafe { list.free(last) };
                objects.push(list.try_alloc().expect("there is room for one"));
                assert_eq!(objects.len(), count);
                // SAFETY: as above.
                objects.into_iter().for_each(|object| unsafe { list.free(object) });
                list::assert_exact(&list, 0, Some(&budget));
            }
            list::assert_empties(&list);
            assert_eq!(budget.used(), 0);
        }
    }
    let list = RawFreeList::builder(layout(64, 8)).budget(&Budget::new(0)).build();
    assert_eq!(list.try_alloc().unwrap_err().kind(), ErrorKind::BudgetExceeded);
}

#[test]
fn an_infallible_call_that_the_program_refuses_panics_with_the_cause() {
    type Body = fn(&FreeList<u64>);
    let calls: [Body; 6] = [
        |list| core::mem::forget(list.alloc(1)),
        |list| core::mem::forget(list.alloc_with(|| 1)),
        |list| core::mem::forget(list.alloc_slot()),
        |list| core::mem::forget(list.alloc_run(7)),
        |list| core::mem::forget(list.copy_in_order((), |(), _| 1)),
        |list| assert!(list.raw().alloc_fresh().addr().get() > 0),
    ];
    for body in calls {
        let list = FreeList::<u64>::builder().budget(&Budget::new(20_000)).build();
        assert_over_budget(20_000, || {
            loop {
                body(&list);
            }
        });
    }
    let long = "n".repeat(MAX_NAME_LEN + 1);
    let message = panic_message(|| RawFreeList::builder(layout(8, 8)).name(long).build());
    assert!(message.starts_with("allotment: a name of 65 bytes"), "{message}");
}
