//! The statistics that every allocator keeps.
//!
//! | file | what it holds |
//! |---|---|
//! | `snapshot` | the public figures of an allocator |
//! | `sequence_lock` | how a record passes from one owner to the next while reports read it |
//! | `records` | the table of records that holds the figures |
//!
//! Loom explores `sequence_lock`.

pub mod sequence_lock;

#[cfg(not(loom))]
mod records;
#[cfg(not(loom))]
mod snapshot;

#[cfg(not(loom))]
use core::ptr::NonNull;

#[cfg(not(loom))]
use crate::memory::segment_map;

#[cfg(not(loom))]
pub(crate) use records::{AllocatorKind, Record};
#[cfg(not(loom))]
pub use snapshot::Statistics;

/// The record under which the segment of this address was registered.
#[cfg(not(loom))]
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
