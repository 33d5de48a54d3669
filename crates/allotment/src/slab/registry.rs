//! The numbers of live slabs, and the slab that each number stands for.
//!
//! A slab's number is the index of its caches in each thread's table, and the number in the tag of
//! its pages. So an address leads to a slab. Numbers are even; the odd number that follows is the
//! index of the thread's cache for long-lived objects. Numbers are dense and reused. 0 is never a
//! slab's number: it is the tag of memory that belongs to no slab.
//!
//! This file knows a slab by its address only; `shared.rs` knows the type.
//!
//! # Invariants
//!
//! 1. A number is used again only after its slab was destroyed, and no thread has an entry for it
//!    in its table. `entries` counts the tables with an entry, and one more while there is a slab.
//!    References follow the rules of `references.rs`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use super::references::References;
use super::tags::SLAB_NUMBERS;
use crate::error::AllocError;
use crate::memory::growing_table::{GrowingTable, TableEntry};
use crate::memory::system_array::SystemArray;

/// The entry of one slab.
struct SlabEntry {
    references: References<()>,
    entries: AtomicU32,
    /// The link on the stack of vacant entries.
    next: AtomicU32,
}

impl TableEntry for SlabEntry {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// Two numbers for each slab, and none that is 0 or 1.
const MAX_SLABS: u32 = SLAB_NUMBERS / 2 - 1;

static SLABS: GrowingTable<SystemArray<SlabEntry>, 64, MAX_SLABS> = GrowingTable::new();

/// The index of a number: `2 n` and `2 n + 1` have the same one.
const fn index_of(number: u32) -> u32 {
    number / 2 - 1
}

const fn number_of(index: u32) -> u32 {
    (index + 1) * 2
}

/// The references to the slab of a number in use.
fn references(number: u32) -> &'static References<()> {
    &SLABS[index_of(number)].references
}

/// Takes a number for a slab that is about to be made.
pub(super) fn take_number() -> Result<u32, AllocError> {
    let new_entry = |_| SlabEntry {
        references: References::none(),
        entries: AtomicU32::new(0),
        next: AtomicU32::new(0),
    };
    SLABS.take(|_, len| SystemArray::new(len, new_entry), |_| ()).map(number_of)
}

/// Returns a number that stands for no slab and is in no table.
pub(super) fn return_number(number: u32) {
    SLABS.put_back(index_of(number));
}

/// Registers a slab under a number, with one reference, which belongs to the caller.
pub(super) fn register(number: u32, slab: NonNull<()>) {
    // Relaxed: the reference below hands it over.
    SLABS[index_of(number)].entries.store(1, Ordering::Relaxed);
    references(number).set(slab);
}

/// Counts an entry in a thread's table. The caller has a reference to the slab.
pub(super) fn add_table_entry(number: u32) {
    SLABS[index_of(number)].entries.fetch_add(1, Ordering::Relaxed);
}

/// Counts an entry less, or the slab itself. The last one returns the number.
pub(super) fn remove_table_entry(number: u32) {
    // The last use of the number by each thread happens before its reuse.
    if SLABS[index_of(number)].entries.fetch_sub(1, Ordering::AcqRel) == 1 {
        return_number(number);
    }
}

/// The slab of a number in use.
pub(super) fn slab_of(number: u32) -> *mut () {
    references(number).object()
}

/// Adds a reference to the slab of a number. The caller has one already, or holds a slot of the
/// slab, which keeps one from being released.
pub(super) fn add_reference(number: u32) {
    references(number).add();
}

/// Adds a reference to the slab of a number that a thread's table holds. Returns `false` if the slab
/// was destroyed.
pub(super) fn try_add_reference(number: u32) -> bool {
    references(number).try_add().is_some()
}

/// Releases a reference. If it was the last one, calls `destroy` with the slab, and then returns
/// its number if it is in no table.
pub(super) fn release_reference(number: u32, destroy: impl FnOnce(NonNull<()>)) {
    references(number).release(|slab| {
        destroy(slab);
        remove_table_entry(number);
    });
}

/// Calls `visit` with the number and the address of each live slab, one after the other. Each call
/// gets a reference to its slab, which it must release.
pub(super) fn visit_live(mut visit: impl FnMut(u32, NonNull<()>)) {
    for (index, entry) in SLABS.iter() {
        if let Some(slab) = entry.references.try_add() {
            visit(number_of(index), slab);
        }
    }
}
