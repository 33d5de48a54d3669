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
//! 1. `TABLES[k]` is null or an array of `FIRST_TABLE << k` entries that is never unmapped.
//! 2. An entry's number is on the free stack, or belongs to the one mapping that [`add`] returned it
//!    for. Only the owner of a number writes the entry's range. In a child, before it has other
//!    threads, the handler owns all entries of its parent.
//! 3. An entry's `len` is 0, or the range `[start, start + len)` is mapped in this process, excluded
//!    from forks, and belongs to an allocator. So in a child nothing is mapped there, and the
//!    handler that reserves the addresses replaces no mapping. It then clears the entry, because the
//!    child's own children inherit the reservation.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::process::abort;

use super::index_stack::{IndexStack, Links};
use super::layout::checked_align_up;
use super::os;
use crate::error::{AllocError, ErrorKind};

/// The number of entries of the first table. Each further table has twice as many.
const FIRST_TABLE: u32 = 128;
const TABLE_COUNT: usize = 25;

#[derive(Debug, Default)]
struct MappingEntry {
    start: AtomicPtr<u8>,
    len: AtomicUsize,
    next: AtomicU32,
}

static TABLES: [AtomicPtr<MappingEntry>; TABLE_COUNT] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TABLE_COUNT];
static FREE: IndexStack = IndexStack::new();
static ISSUED: AtomicU32 = AtomicU32::new(0);

/// The table of an entry, and the entry's index in it.
const fn table_and_index(number: u32) -> (usize, usize) {
    let table = (number / FIRST_TABLE + 1).ilog2();
    (table as usize, (number - FIRST_TABLE * ((1 << table) - 1)) as usize)
}

fn entry(number: u32) -> Option<&'static MappingEntry> {
    let (table, index) = table_and_index(number);
    // Acquire pairs with the Release in `issue`: the table is mapped and zero.
    let first = TABLES.get(table)?.load(Ordering::Acquire);
    // SAFETY: not null, so an array of `FIRST_TABLE << table` entries that stays (invariant 1);
    // `index` is below that number by the arithmetic of `table_and_index`.
    (!first.is_null()).then(|| unsafe { &*first.add(index) })
}

struct FileMappings;

impl Links for FileMappings {
    fn next(&self, number: u32) -> &AtomicU32 {
        &entry(number).expect("an issued entry's table is mapped").next
    }
}

/// Enters a mapping that is excluded from forks and not in use yet. Returns the number of its entry.
pub(super) fn add(start: NonNull<u8>, len: usize) -> Result<u32, AllocError> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    os::on_fork(reserve_in_child, &REGISTERED)?;
    let number = match FREE.pop(&FileMappings) {
        Some(number) => number,
        None => issue()?,
    };
    let entry = entry(number).expect("an issued entry's table is mapped");
    entry.start.store(start.as_ptr(), Ordering::Relaxed);
    // Release pairs with the Acquire in `reserve_in_child`: a child that has the length has the
    // start.
    entry.len.store(len, Ordering::Release);
    Ok(number)
}

/// Removes a mapping that is about to be unmapped.
pub(super) fn remove(number: u32) {
    if let Some(entry) = entry(number) {
        entry.len.store(0, Ordering::Relaxed);
        FREE.push(&FileMappings, number);
    }
}

#[cold]
fn issue() -> Result<u32, AllocError> {
    let full = AllocError::new(ErrorKind::SourceRefused, size_of::<MappingEntry>());
    let mut number = ISSUED.load(Ordering::Relaxed);
    loop {
        let (table, _) = table_and_index(number);
        let slot = TABLES.get(table).ok_or(full)?;
        if slot.load(Ordering::Acquire).is_null() {
            let bytes = (size_of::<MappingEntry>() * FIRST_TABLE as usize) << table;
            let size = checked_align_up(bytes, os::page_size()).ok_or(full)?;
            let fresh = os::map(size, 1)?;
            let first = fresh.as_ptr().cast();
            // Release pairs with the Acquire in `entry`.
            let installed =
                slot.compare_exchange(ptr::null_mut(), first, Ordering::Release, Ordering::Relaxed);
            if installed.is_err() {
                // SAFETY: another thread has installed its table, and none has seen this one.
                let _ = unsafe { os::unmap(fresh, size) };
            }
        }
        // Relaxed: the number is only a number. Its table is published by `TABLES`.
        match ISSUED.compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => return Ok(number),
            Err(now) => number = now,
        }
    }
}

/// Reserves the addresses of all mappings in a child, or ends the child. Async-signal-safe. A second
/// call in the same child does nothing.
pub(crate) extern "C" fn reserve_in_child() {
    for number in 0..ISSUED.load(Ordering::Relaxed) {
        let Some(entry) = entry(number) else { continue };
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
    os::write_to_standard_error(if error.kind() == os::ADDRESSES_IN_USE {
        b"allotment: ended a child made by fork: other memory is mapped at addresses of its parent's \
          `File`, probably by a handler of pthread_atfork; register that handler after the first \
          allocation in a `File`\n"
    } else {
        b"allotment: ended a child made by fork: the system refused to reserve the addresses of \
          memory that only its parent has; fork when the system has more memory\n"
    });
    abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_table_and_index() {
        assert_eq!(table_and_index(0), (0, 0));
        assert_eq!(table_and_index(127), (0, 127));
        assert_eq!(table_and_index(128), (1, 0));
        assert_eq!(table_and_index(128 + 255), (1, 255));
        assert_eq!(table_and_index(128 + 256), (2, 0));
    }

    #[test]
    fn a_block_keeps_its_entry_until_it_is_removed() {
        let block = |page: usize| NonNull::new(ptr::without_provenance_mut(page)).unwrap();
        let blocks: Vec<NonNull<u8>> = (1..=200).map(block).collect();
        let numbers: Vec<u32> = blocks.iter().map(|block| add(*block, 0).unwrap()).collect();
        for (number, block) in numbers.iter().zip(&blocks) {
            assert_eq!(entry(*number).unwrap().start.load(Ordering::Relaxed), block.as_ptr());
        }
        numbers.into_iter().for_each(remove);
    }
}
