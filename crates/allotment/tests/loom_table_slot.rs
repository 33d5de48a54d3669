//! Models of the slots for tables (`src/memory/table_slot.rs`), explored by loom; `.ci/loom` runs
//! them.
//!
//! Threads enter something in one table, which the first of them makes. Loom checks each access to
//! what a table's maker wrote.
#![cfg(loom)]

use core::convert::Infallible;
use core::ptr::NonNull;

use allotment::for_loom::Mutant;
use allotment::for_loom::table_slot::{NewTable, TableSlot};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

mod loom_support;
use loom_support::explore;

struct Table {
    /// Written by the table's maker.
    made: UnsafeCell<bool>,
    entries: [AtomicUsize; 2],
}

/// A table in no slot. A model leaks those that are installed: some bytes for each schedule.
struct Owned(NonNull<Table>);

impl NewTable<Table> for Owned {
    fn start(&self) -> NonNull<Table> {
        self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: from a box, and in no slot.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn make() -> Result<Owned, Infallible> {
    let entries = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let table = Box::new(Table { made: UnsafeCell::new(false), entries });
    // SAFETY: no other thread has the table yet.
    table.made.with_mut(|made| unsafe { *made = true });
    Ok(Owned(NonNull::from(Box::leak(table))))
}

/// Two threads enter something, while a third gives the slot its placeholder.
fn two_threads_need_a_table() {
    explore(3, || {
        let slot = Arc::new(TableSlot::<Table>::empty());
        let placeholder = NonNull::<Table>::dangling().as_ptr();
        let enter = move |slot: &TableSlot<Table>, entry: usize| {
            let Ok(table) = slot.get_or_replace(placeholder, make);
            // SAFETY: installed tables are never freed.
            let table = unsafe { table.as_ref() };
            // SAFETY: installed after it was made, or loom fails the model.
            assert!(table.made.with(|made| unsafe { *made }));
            table.entries[entry].store(1, Ordering::Relaxed);
        };
        let (enters, places) = (Arc::clone(&slot), Arc::clone(&slot));
        let other = thread::spawn(move || enter(&enters, 1));
        let placing = thread::spawn(move || places.set_placeholder(placeholder));
        enter(&slot, 0);
        other.join().unwrap();
        placing.join().unwrap();
        // SAFETY: as above.
        let table = unsafe { &*slot.get() };
        let entries = [0, 1].map(|entry: usize| table.entries[entry].load(Ordering::Relaxed));
        assert_eq!(entries, [1, 1], "an entry was lost");
    });
}

#[test]
fn threads_that_make_a_table_at_the_same_time_use_one() {
    two_threads_need_a_table();
}

#[test]
#[should_panic(expected = "an entry was lost")]
fn a_table_that_replaces_another_threads_loses_its_entries() {
    let _mutant = Mutant::new("install: table replaced");
    two_threads_need_a_table();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_table_that_is_installed_relaxed_is_used_before_it_is_made() {
    let _mutant = Mutant::new("install: relaxed");
    two_threads_need_a_table();
}
