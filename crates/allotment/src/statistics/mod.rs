//! The statistics that every allocator keeps.
//!
//! | file | what it holds |
//! |---|---|
//! | `snapshot` | the public figures of an allocator |
//! | `sequence_lock` | how a record passes from one owner to the next while reports read it |
//! | `records` | the table of records that holds the figures |
//! | `records_by_value` | replaces the table in a build without the system's mappings: each allocator has its record inside |
//!
//! Loom explores `sequence_lock`.

#[cfg(system_memory)]
pub mod sequence_lock;

#[cfg(all(system_memory, not(loom)))]
mod records;
#[cfg(not(system_memory))]
mod records_by_value;
#[cfg(not(loom))]
mod snapshot;

#[cfg(not(loom))]
use alloc::string::String;
#[cfg(all(system_memory, not(loom)))]
use core::ptr::NonNull;

#[cfg(all(system_memory, not(loom)))]
use crate::memory::segment_map;

#[cfg(all(system_memory, not(loom)))]
pub(crate) use records::{AllocatorKind, HeldRecord, Record, RecordRef, record_ref};
#[cfg(not(system_memory))]
pub(crate) use records_by_value::{AllocatorKind, HeldRecord, Record, RecordRef, record_ref};
#[cfg(not(loom))]
pub use snapshot::Statistics;

/// The record under which the segment of this address was registered.
#[cfg(all(system_memory, not(loom)))]
pub(crate) fn record_of(address: usize) -> Option<&'static Record> {
    let owner = segment_map::owner_of(address)?;
    // The record's provenance was exposed when its address was registered.
    let record = core::ptr::with_exposed_provenance_mut(owner.get());
    Some(Record::at(NonNull::new(record).expect("not zero")))
}

/// The name as one line of text, with control characters escaped.
#[cfg(not(loom))]
pub(crate) fn printable(name: &str) -> String {
    let mut line = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
