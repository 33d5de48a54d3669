//! The process-wide table of the blocks and ranges of files that are mapped, for children made by
//! fork.
//!
//! A child does not have these mappings: they are excluded from forks. But it inherits allocators
//! whose positions, lists and objects point there. So a handler reserves the addresses in the child
//! before `fork` returns, and every access to them faults. It finds them in this table.
//! Another thread may have been changing the table at the fork, so the table has no lock.
//!
//! Another library's handler, registered before this one, may have mapped memory at one of the
//! addresses. Safe code would then reach foreign memory through its references, so the child ends
//! before `fork` returns. The same holds if the system refuses the reservation.
//!
//! # Invariants
//!
//! 1. An entry's number is vacant, or belongs to the one mapping that [`add`] returned it for. Only
//!    the owner of a number writes the entry's range. In a child, before it has other threads, the
//!    handler owns all entries of its parent.
//! 2. An entry's `len` is 0, or the range `[start, start + len)` is mapped in this process,
//!    excluded from forks, and belongs to an allocator. So in a child nothing is mapped there, and
//!    the handler that reserves the addresses replaces no mapping. It then clears the entry,
//!    because the child's own children inherit the reservation.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::process::abort;

use super::growing_table::{GrowingTable, TableEntry};
use super::os;
use super::system_array::SystemArray;
use crate::error::AllocError;
use crate::standard_error;

#[derive(Debug, Default)]
struct MappingEntry {
    start: AtomicPtr<u8>,
    len: AtomicUsize,
    next: AtomicU32,
}

impl TableEntry for MappingEntry {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

static MAPPINGS: GrowingTable<SystemArray<MappingEntry>, 128> = GrowingTable::new();

/// Enters a mapping that is excluded from forks and not in use yet. Returns the number of its entry.
pub(super) fn add(start: NonNull<u8>, len: usize) -> Result<u32, AllocError> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    os::on_fork(reserve_in_child, &REGISTERED)?;
    let new_entries = |_, len| SystemArray::new(len, |_| MappingEntry::default());
    let number = MAPPINGS.take(new_entries, |_| ())?;
    let entry = &MAPPINGS[number];
    entry.start.store(start.as_ptr(), Ordering::Relaxed);
    // Release pairs with the Acquire in `reserve_in_child`: a child that has the length has the
    // start.
    entry.len.store(len, Ordering::Release);
    Ok(number)
}

/// Removes a mapping that is about to be unmapped.
pub(super) fn remove(number: u32) {
    MAPPINGS[number].len.store(0, Ordering::Relaxed);
    MAPPINGS.put_back(number);
}

/// Reserves the addresses of all mappings in a child, or ends the child. Async-signal-safe. A second
/// call in the same child does nothing.
pub(crate) extern "C" fn reserve_in_child() {
    for (number, entry) in MAPPINGS.iter() {
        // Acquire pairs with the Release in `add`.
        let len = entry.len.load(Ordering::Acquire);
        if let Some(start) = NonNull::new(entry.start.load(Ordering::Relaxed)).filter(|_| len > 0) {
            if let Err(error) = os::reserve_addresses_at(start, len) {
                end_child(error);
            }
            remove(number);
        }
    }
}

/// Ends a child that could not reserve the addresses of its parent's memory: it has references to
/// them, through which it would reach other memory. Async-signal-safe.
#[cold]
pub(crate) fn end_child(error: AllocError) -> ! {
    let message = if error.kind() == os::ADDRESSES_IN_USE {
        "allotment: ended a child made by fork: other memory is mapped at addresses of its parent's \
          `File`, probably by a handler of pthread_atfork; register that handler after the first \
          allocation in a `File`\n"
    } else {
        "allotment: ended a child made by fork: the system refused to reserve the addresses of \
          memory that only its parent has; fork when the system has more memory\n"
    };
    standard_error::print(format_args!("{message}"));
    abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_entry_until_it_is_removed() {
        let block = |page: usize| NonNull::new(core::ptr::without_provenance_mut(page)).unwrap();
        let blocks: Vec<NonNull<u8>> = (1..=200).map(block).collect();
        let numbers: Vec<u32> = blocks.iter().map(|block| add(*block, 0).unwrap()).collect();
        for (number, block) in numbers.iter().zip(&blocks) {
            assert_eq!(MAPPINGS[*number].start.load(Ordering::Relaxed), block.as_ptr());
        }
        numbers.into_iter().for_each(remove);
    }
}
