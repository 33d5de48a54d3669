//! Models of the tables that grow (`src/memory/growing_table.rs`), explored by loom; `.ci/loom`
//! runs them.
//!
//! A bucket of the models has cells that loom watches: `made`, which the thread that makes the
//! bucket writes and every owner reads, and `owned`, which an entry's owner writes.
#![cfg(loom)]

use core::ops::Deref;

use allotment::AllocError;
use allotment::for_loom::Mutant;
use allotment::for_loom::growing_table::{GrowingTable, TableEntry};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

mod loom_support;
use loom_support::explore;

struct Entry {
    next: AtomicU32,
    made: UnsafeCell<u32>,
    owned: UnsafeCell<()>,
}

impl TableEntry for Entry {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

struct Bucket(Vec<Entry>);

impl Deref for Bucket {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.0
    }
}

// SAFETY: loom watches the cells, and fails a model in which threads share them wrongly.
unsafe impl Send for Bucket {}
// SAFETY: as above.
unsafe impl Sync for Bucket {}

fn make(first: u32, len: usize) -> Result<Bucket, AllocError> {
    let entry = |index| {
        let made = UnsafeCell::new(0);
        // SAFETY: no other thread has seen the cell.
        made.with_mut(|made| unsafe { *made = index });
        Entry { next: AtomicU32::new(0), made, owned: UnsafeCell::new(()) }
    };
    Ok(Bucket((first..first + len as u32).map(entry).collect()))
}

type Table = GrowingTable<Bucket, 1>;

fn take(table: &Table) -> u32 {
    let index = table.take(make, |_| ()).unwrap();
    let entry = &table[index];
    // SAFETY: written before the bucket was published; loom fails the model if not.
    assert_eq!(entry.made.with(|made| unsafe { *made }), index);
    entry.owned.with_mut(|_| ());
    index
}

#[test]
fn threads_that_take_and_put_back_own_different_entries() {
    explore(2, || {
        let table = Arc::new(Table::new());
        let threads = [(); 2].map(|()| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let first = take(&table);
                let second = take(&table);
                table.put_back(first);
                second
            })
        });
        let kept = threads.map(|thread| thread.join().unwrap());
        assert_ne!(kept[0], kept[1]);
        assert_eq!(table.iter().count(), table.issued() as usize);
        assert!((2..=4).contains(&table.issued()));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_bucket_published_without_order_is_used_before_it_is_made() {
    let _mutant = Mutant::new("install: relaxed");
    explore(2, || {
        // Leaked: a table that is dropped while the model fails would use loom's atomics then.
        let table: &Table = Box::leak(Box::new(Table::new()));
        let taker = thread::spawn(|| take(table));
        take(table);
        taker.join().unwrap();
    });
}
