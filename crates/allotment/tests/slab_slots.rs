//! Slots without a value (`SlabSlot`), and `alloc_with`: what is filled is a box, what is not
//! filled is free again.
#![cfg(system_memory)]

use std::alloc::Layout;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use allotment::slab::SlabSlot;
use allotment::{AllocError, Budget, ErrorKind, FreeList, Release, Slab};

fn live<T>(slab: &Slab<T>) -> u64 {
    slab.statistics().live_objects
}

#[test]
fn a_slot_that_is_filled_is_a_box_at_its_address() {
    for hardened in [false, true] {
        let slab = Slab::<String>::builder().hardened(hardened).build();
        let handle = slab.handle();
        let calls: [&dyn Fn() -> SlabSlot<String>; 4] = [
            &|| slab.alloc_slot(),
            &|| slab.try_alloc_slot().unwrap(),
            &|| handle.alloc_slot(),
            &|| handle.try_alloc_slot().unwrap(),
        ];
        for allocate in calls {
            let slot = allocate();
            let address = slot.as_ptr();
            assert!(address.addr().get() % Layout::new::<String>().align() == 0);
            assert_eq!(live(&slab), 1);
            let value = slot.fill("here".to_owned());
            assert_eq!(std::ptr::from_ref(&*value), address.as_ptr().cast_const());
            assert_eq!((value.as_str(), live(&slab)), ("here", 1));
        }
        slab.trim();
        assert_eq!(live(&slab), 0);
    }
}

#[test]
fn a_slot_that_is_dropped_is_free_again() {
    let slab = Slab::<[u64; 8]>::builder().release(Release::AtOnce).build();
    let slots: Vec<_> = (0..5000).map(|_| slab.alloc_slot()).collect();
    assert_eq!(live(&slab), 5000);
    drop(slots);
    slab.trim();
    let statistics = slab.statistics();
    assert_eq!((statistics.live_objects, statistics.chunks), (0, 0));
}

#[test]
fn a_value_that_is_not_made_leaves_its_slot_free() {
    let slab = Slab::<String>::new();
    let handle = slab.handle();
    let made = catch_unwind(AssertUnwindSafe(|| slab.alloc_with(|| panic!("not made"))));
    assert!(made.is_err());
    let made = catch_unwind(AssertUnwindSafe(|| handle.alloc_with(|| panic!("not made"))));
    assert!(made.is_err());
    assert_eq!(live(&slab), 0);
    let values = [slab.alloc_with(|| "one".to_owned()), handle.alloc_with(|| "two".to_owned())];
    assert_eq!(values.map(|value| value.to_string()), ["one", "two"]);
    assert_eq!(live(&slab), 0);
}

#[test]
fn the_maker_of_a_value_may_use_the_same_slab() {
    let slab = Slab::<u64>::new();
    let outer = slab.alloc_with(|| *slab.alloc_with(|| 3) + *slab.alloc(4));
    assert_eq!((*outer, live(&slab)), (7, 1));
}

#[test]
fn another_thread_fills_or_drops_a_slot_after_its_slab() {
    let slab = Slab::<[u8; 48]>::new();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..100 {
        sender.send(slab.alloc_slot()).unwrap();
    }
    drop((slab, sender));
    thread::spawn(move || {
        let mut values = Vec::new();
        for (index, slot) in receiver.iter().enumerate() {
            if index % 2 == 0 {
                values.push(slot.fill([7; 48]));
            }
        }
        assert!(values.iter().all(|value| **value == [7; 48]));
        let first = values.swap_remove(0);
        assert_eq!(allotment::SlabBox::into_inner(first), [7; 48]);
    })
    .join()
    .unwrap();
}

#[test]
fn a_slot_that_the_budget_refuses_is_an_error() {
    let slab = Slab::<[u8; 1024]>::builder().budget(&Budget::new(64 << 10)).build();
    let mut slots = Vec::new();
    let error = loop {
        match slab.try_alloc_slot() {
            Ok(slot) => slots.push(slot),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    assert!(!slots.is_empty());
    slots.pop();
    assert!(slab.try_alloc_slot().is_ok());
}

#[test]
fn a_value_is_not_made_when_its_slot_is_refused() {
    let slab = Slab::<[u8; 1024]>::builder().budget(&Budget::new(64 << 10)).build();
    let handle = slab.handle();
    let list = FreeList::<[u8; 1024]>::builder().budget(&Budget::new(64 << 10)).build();
    fn until_refused<B>(call: impl Fn(&dyn Fn() -> [u8; 1024]) -> Result<B, AllocError>) -> usize {
        let mut values = Vec::new();
        let made = Cell::new(0);
        let error = loop {
            match call(&|| [made.replace(made.get() + 1) as u8; 1024]) {
                Ok(value) => values.push(value),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert_eq!(made.get(), values.len());
        values.len()
    }
    assert!(until_refused(|make| slab.try_alloc_with(make)) > 0);
    assert!(until_refused(|make| handle.try_alloc_with(make)) > 0);
    assert!(until_refused(|make| list.try_alloc_with(make)) > 0);
    let made = catch_unwind(AssertUnwindSafe(|| slab.try_alloc_with(|| panic!("not made"))));
    assert!(made.is_err());
    assert_eq!(live(&slab), 0);
}
