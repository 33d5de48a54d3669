//! Values in free lists: what drops them, what a panic leaves, and what the types promise.

#[path = "support/mod.rs"]
mod support;

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

use allotment::free_list::{FreeListBuilder, ListRun, ListSlot};
#[cfg(system_memory)]
use allotment::report;
use allotment::{Budget, FreeList, ListBox, Malloc, RawFreeList};
#[cfg(not(system_memory))]
use support::absent_options::*;
#[cfg(system_memory)]
use support::child::{self, Child};
use support::list::{self, live, under_a_tool};
use support::program::{caught, throw};
use support::sources::{Recorder, Refuse};
use support::traits::has;

/// A value that counts its drops. With `throws`, its drop panics.
#[derive(Debug)]
struct Counted<'c> {
    drops: &'c Cell<usize>,
    throws: bool,
    value: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        if self.throws {
            throw();
        }
    }
}

fn counted(drops: &Cell<usize>, value: u64) -> Counted<'_> {
    Counted { drops, throws: false, value }
}

#[test]
fn a_box_drops_its_value_once_and_frees_its_slot() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let first = list.alloc(counted(&drops, 1));
    let second = list.alloc_with(|| counted(&drops, 2));
    let third = list.alloc_slot().fill(counted(&drops, 3));
    assert_eq!((first.value, second.value, third.value), (1, 2, 3));
    drop(second);
    assert_eq!((drops.get(), live(&list)), (1, 2));
    drop((first, third));
    assert_eq!((drops.get(), live(&list)), (3, 0));
    list::assert_empties(list.raw());
}

#[test]
fn a_value_can_be_changed_in_its_box_and_taken_out_of_it() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let mut boxed = list.alloc(counted(&drops, 1));
    boxed.value += 4;
    let value = ListBox::into_inner(boxed);
    assert_eq!((value.value, drops.get(), live(&list)), (5, 0, 0));
    drop(value);
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_leaked_value_stays_until_its_list_is_dropped_and_is_not_dropped_itself() {
    let drops = Cell::new(0);
    let budget = Budget::new(usize::MAX);
    let list = FreeList::builder().budget(&budget).build();
    let leaked = ListBox::leak(list.alloc(counted(&drops, 1)));
    core::mem::forget(list.alloc(counted(&drops, 2)));
    leaked.value = 7;
    let others: Vec<_> = (0..1000).map(|value| list.alloc(counted(&drops, value))).collect();
    assert_eq!((leaked.value, live(&list)), (7, 1002));
    drop(others);
    assert_eq!((leaked.value, live(&list), drops.get()), (7, 2, 1000));
    drop(list);
    assert_eq!((drops.get(), budget.used()), (1000, 0));
}

#[test]
fn a_box_can_be_made_an_address_and_a_box_again() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let addresses: Vec<NonNull<Counted<'_>>> =
        (0..100).map(|value| ListBox::into_raw(list.alloc(counted(&drops, value)))).collect();
    assert_eq!((drops.get(), live(&list)), (0, 100));
    for (value, address) in addresses.into_iter().enumerate() {
        // SAFETY: from `into_raw` of a box of this list, once.
        let boxed = unsafe { list.from_raw(address) };
        assert_eq!(boxed.value, value as u64);
    }
    assert_eq!((drops.get(), live(&list)), (100, 0));
}

#[test]
fn a_call_that_gets_no_slot_returns_the_value() {
    let source = Recorder::new(Malloc, Refuse::From(1));
    let drops = Cell::new(0);
    let list = FreeList::builder().source(source.clone()).build();
    let (error, value) = list.try_alloc(counted(&drops, 9)).unwrap_err();
    assert_eq!((value.value, drops.get()), (9, 0));
    assert!(error.requested() > 0);
    assert!(list.try_alloc_slot().is_err() && list.try_alloc_run(3).is_err());
    assert!(list.try_copy_in_order((), |(), _| unreachable!("it has no place")).is_err());
    assert_eq!((live(&list), source.lent_blocks()), (0, 0));
    source.refuse(Refuse::None);
    let boxed = list.try_alloc(value).expect("the source has changed its mind");
    assert_eq!(boxed.value, 9);
    assert!(list.try_alloc_slot().is_ok() && list.try_alloc_run(3).is_ok());
    assert_eq!(live(&list), 1);
}

#[test]
fn a_constructor_that_panics_leaves_its_slot_free() {
    for hardened in [false, true] {
        let list = FreeList::<[u64; 5]>::builder().hardened(hardened).build();
        let kept = list.alloc([1; 5]);
        let held = list.statistics().held_bytes;
        for _ in 0..1000 {
            assert!(caught(|| list.alloc_with(|| throw())).is_none());
            assert_eq!(live(&list), 1);
        }
        assert_eq!(*kept, [1; 5]);
        if !hardened && !under_a_tool() {
            assert_eq!(list.statistics().held_bytes, held, "one place served them all");
        }
    }
}

#[test]
fn a_destructor_that_panics_frees_its_slot() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let kept = list.alloc(counted(&drops, 1));
    for round in 1..=500 {
        let boxed = list.alloc(Counted { drops: &drops, throws: true, value: 2 });
        assert!(caught(|| drop(boxed)).is_none());
        assert_eq!((drops.get(), live(&list)), (round, 1));
    }
    // If many are dropped together, those after the one that panics are freed too.
    let boxes: Vec<_> = (0..100)
        .map(|value| list.alloc(Counted { drops: &drops, throws: value == 40, value }))
        .collect();
    drops.set(0);
    assert!(caught(|| drop(boxes)).is_none());
    assert_eq!((drops.get(), live(&list)), (100, 1));
    assert_eq!(kept.value, 1);
}

#[test]
fn a_slot_that_is_not_filled_is_free_again() {
    let list = FreeList::<String>::new();
    let slot = list.alloc_slot();
    let place = slot.as_ptr();
    assert_eq!(live(&list), 1);
    drop(slot);
    assert_eq!(live(&list), 0);
    let slot = list.alloc_slot();
    if !under_a_tool() {
        assert_eq!(slot.as_ptr(), place, "the one that was freed last");
    }
    let boxed = slot.fill("filled".to_owned());
    assert_eq!((boxed.as_str(), live(&list)), ("filled", 1));
}

#[test]
fn a_run_yields_slots_in_order_and_frees_those_that_are_not_taken() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let mut run = list.alloc_run(10);
    assert_eq!((run.len(), live(&list)), (10, 10));
    let taken: Vec<_> = run
        .by_ref()
        .take(4)
        .zip(0..)
        .map(|(slot, value)| slot.fill(counted(&drops, value)))
        .collect();
    assert_eq!(run.len(), 6);
    drop(run.next());
    assert_eq!((run.len(), live(&list)), (5, 9));
    drop(run);
    assert_eq!((drops.get(), live(&list)), (0, 4));
    let address = |index: usize| core::ptr::from_ref(&*taken[index]).addr();
    for (index, boxed) in taken.iter().enumerate() {
        assert_eq!(address(index) - address(0), index * list.raw().stride());
        assert_eq!(boxed.value, index as u64);
    }
    drop(taken);
    assert_eq!((drops.get(), live(&list)), (4, 0));
    assert_eq!(list.alloc_run(0).count(), 0);
    let mut ended = list.alloc_run(1);
    assert!(ended.next().is_some() && ended.next().is_none() && ended.next().is_none());
    assert_eq!(live(&list), 0);
}

#[test]
fn a_panic_between_the_slots_of_a_run_frees_all_of_them() {
    let drops = Cell::new(0);
    let list = FreeList::new();
    let filled = caught(|| {
        let mut filled = Vec::new();
        for (slot, value) in list.alloc_run(10).zip(0..) {
            if value == 5 {
                throw();
            }
            filled.push(slot.fill(counted(&drops, value)));
        }
    });
    assert!(filled.is_none());
    assert_eq!((drops.get(), live(&list)), (5, 0));
    list::assert_empties(list.raw());
}

#[test]
fn values_of_no_size_and_of_large_alignment_have_slots_of_their_own() {
    #[repr(align(8192))]
    struct Aligned([u8; 3]);
    #[repr(align(64))]
    struct Nothing;
    fn apart<T>(list: &FreeList<T>, make: impl Fn(usize) -> T) {
        let boxes: Vec<_> = (0..300).map(|index| list.alloc(make(index))).collect();
        let mut addresses: Vec<_> =
            boxes.iter().map(|boxed| core::ptr::from_ref(&**boxed).addr()).collect();
        assert!(addresses.iter().all(|address| address % align_of::<T>() == 0));
        addresses.sort_unstable();
        let least = size_of::<T>().max(1);
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= least));
        assert_eq!(live(list), 300);
        drop(boxes);
        assert_eq!(
            list.alloc_run(100).map(|slot| slot.as_ptr().addr().get() % align_of::<T>()).max(),
            Some(0)
        );
        list::assert_empties(list.raw());
    }
    for hardened in [false, true] {
        apart(&FreeList::builder().hardened(hardened).build(), |_| ());
        apart(&FreeList::builder().hardened(hardened).build(), |_| Nothing);
        apart(&FreeList::builder().hardened(hardened).build(), |index| Aligned([index as u8; 3]));
        apart(&FreeList::builder().hardened(hardened).build(), |index| [index as u8; 3]);
        let list = FreeList::builder().hardened(hardened).build();
        assert_eq!(list.alloc(Aligned([1, 2, 3])).0, [1, 2, 3]);
    }
    let drops = Cell::new(0);
    thread_local!(static DROPPED: Cell<usize> = const { Cell::new(0) });
    struct Unit;
    impl Drop for Unit {
        fn drop(&mut self) {
            DROPPED.set(DROPPED.get() + 1);
        }
    }
    let list = FreeList::new();
    drop((list.alloc(Unit), list.alloc(Unit)));
    drops.set(DROPPED.get());
    assert_eq!((drops.get(), live(&list)), (2, 0));
}

#[test]
fn a_panic_in_the_destructor_of_a_trees_node_loses_no_slot() {
    struct Link<'l> {
        next: Option<ListBox<'l, Link<'l>>>,
        throws: bool,
    }
    impl Drop for Link<'_> {
        fn drop(&mut self) {
            if self.throws {
                throw();
            }
        }
    }
    let list = FreeList::new();
    let mut head: Option<ListBox<'_, Link<'_>>> = None;
    for index in 0..100 {
        head = Some(list.alloc(Link { next: head.take(), throws: index == 50 }));
    }
    assert_eq!((live(&list), head.as_ref().is_some_and(|head| head.next.is_some())), (100, true));
    assert!(caught(|| drop(head)).is_none());
    assert_eq!(live(&list), 0);
    list::assert_empties(list.raw());
}

#[test]
fn a_destructor_may_allocate_and_free_on_the_same_list() {
    thread_local!(static BURIED: Cell<usize> = const { Cell::new(0) });
    struct Mourner<'l> {
        list: &'l FreeList<[u64; 4]>,
        own: Option<ListBox<'l, [u64; 4]>>,
    }
    impl Drop for Mourner<'_> {
        fn drop(&mut self) {
            let more: Vec<_> = (0..200).map(|number| self.list.alloc([number; 4])).collect();
            drop(self.own.take());
            self.list.trim();
            assert!(more.iter().enumerate().all(|(number, boxed)| boxed[3] == number as u64));
            BURIED.set(BURIED.get() + 1);
        }
    }
    let (words, mourners) = (FreeList::new(), FreeList::new());
    let boxes: Vec<_> = (0..50)
        .map(|number| mourners.alloc(Mourner { list: &words, own: Some(words.alloc([number; 4])) }))
        .collect();
    drop(boxes);
    assert_eq!((BURIED.get(), live(&words), live(&mourners)), (50, 0, 0));
}

#[test]
fn a_list_moves_between_threads_and_is_used_by_one_at_a_time() {
    const { assert!(has!(RawFreeList: Send) && !has!(RawFreeList: Sync)) };
    const { assert!(has!(FreeList<u64>: Send) && !has!(FreeList<u64>: Sync)) };
    const { assert!(has!(FreeListBuilder<RawFreeList>: Send)) };
    const { assert!(has!(FreeListBuilder<RawFreeList>: Sync)) };
    for hardened in [false, true] {
        let list = FreeList::<String>::builder().hardened(hardened).build();
        let first =
            ListBox::into_raw(list.alloc("made here".to_owned())).as_ptr().expose_provenance();
        drop((0..5000).map(|number| list.alloc(number.to_string())).collect::<Vec<_>>());
        let list = std::thread::spawn(move || {
            let first = core::ptr::with_exposed_provenance_mut(first);
            // SAFETY: from `into_raw` of a box of this list, once; a string may go anywhere.
            let first = unsafe { list.from_raw(NonNull::new(first).expect("as before")) };
            let second = list.alloc("used there".to_owned());
            assert_eq!(
                (first.as_str(), second.as_str(), live(&list)),
                ("made here", "used there", 2)
            );
            drop((first, second));
            list
        });
        let list = list.join().expect("no panic");
        assert_eq!(live(&list), 0);
        assert_eq!(*list.alloc("back".to_owned()), "back");
        list::assert_empties(list.raw());
    }
}

#[test]
fn boxes_slots_and_runs_stay_on_the_thread_of_their_list() {
    const { assert!(!has!(&RawFreeList: Send) && !has!(&FreeList<u64>: Send)) };
    const { assert!(!has!(ListBox<'static, u64>: Send) && !has!(ListBox<'static, u64>: Sync)) };
    const { assert!(!has!(ListSlot<'static, u64>: Send) && !has!(ListSlot<'static, u64>: Sync)) };
    const { assert!(!has!(ListRun<'static, u64>: Send) && !has!(ListRun<'static, u64>: Sync)) };
}

#[test]
fn a_box_is_two_words_and_so_is_an_optional_box() {
    assert_eq!(size_of::<ListBox<'_, u64>>(), 2 * size_of::<usize>());
    assert_eq!(size_of::<Option<ListBox<'_, u64>>>(), 2 * size_of::<usize>());
}

#[test]
fn lists_show_their_values_as_themselves() {
    let list = FreeList::default();
    let boxed = list.alloc(7u64);
    assert_eq!((format!("{boxed}"), format!("{boxed:?}")), ("7".to_owned(), "7".to_owned()));
    let as_ref: &u64 = boxed.as_ref();
    assert_eq!(*as_ref, 7);
    assert_eq!(list.raw().layout(), Layout::new::<u64>());
    assert!(format!("{list:?}").starts_with("FreeList("));
    assert!(format!("{:?}", list.alloc_run(3)).contains("remaining: 3"));
}

#[cfg(system_memory)]
#[test]
fn a_named_list_is_in_the_report_until_it_is_dropped() {
    let list = FreeList::<[u64; 4]>::builder().name("leaves of this test").build();
    let boxes: Vec<_> = (0..100).map(|number| list.alloc([number; 4])).collect();
    let statistics = list.statistics();
    let found = || {
        let all = report().allocators;
        all.into_iter().find(|one| one.name == "leaves of this test")
    };
    let one = found().expect("it lives");
    assert_eq!((one.kind, one.statistics), ("free list", statistics));
    let json = report().to_json();
    assert!(
        json.contains(r#"{"name":"leaves of this test","kind":"free list","live_objects":100,"#)
    );
    let text = report().to_string();
    assert!(
        text.lines()
            .any(|line| line.starts_with("leaves of this test") && line.contains("free list"))
    );
    drop(boxes);
    assert_eq!(list.raw().name(), Some("leaves of this test"));
    drop(list);
    assert!(found().is_none());
}

#[cfg(system_memory)]
#[test]
fn the_owner_of_a_hardened_lists_object_is_found() {
    let list = FreeList::<u64>::builder().name("owned").hardened(true).build();
    let boxed = list.alloc(7);
    let address = core::ptr::from_ref(&*boxed);
    let owner = allotment::owner_of(address).expect("a hardened list on mappings is registered");
    assert_eq!((owner.name.as_str(), owner.kind), ("owned", "free list"));
    drop(boxed);
    list.trim();
    assert!(allotment::owner_of(address).is_none());
}

#[cfg(system_memory)]
#[test]
fn the_columns_of_the_report_stand_below_their_heads() {
    let test = "the_columns_of_the_report_stand_below_their_heads";
    if !child::is(test) {
        Child::new(test, test).succeeds();
        return;
    }
    let _list = FreeList::<u64>::builder().name("a list").build();
    let _arena = allotment::Arena::builder().name("an arena").build();
    let text = report().to_string();
    let lines: Vec<_> = text.lines().take(3).collect();
    let lengths: Vec<_> = lines.iter().map(|line| line.len()).collect();
    assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
}
