//! The statistics that every allocator keeps.
//!
//! | file | what it holds |
//! |---|---|
//! | `snapshot` | the public figures of an allocator |
//! | `records` | the table of records that holds them |

mod records;
mod snapshot;

use core::ptr::NonNull;

use crate::memory::segment_map;

pub(crate) use records::{AllocatorKind, Record};
pub use snapshot::Statistics;

/// The record under which the segment of this address was registered.
pub(crate) fn record_of(address: usize) -> Option<&'static Record> {
    let owner = segment_map::owner_of(address)?;
    // The record's provenance was exposed when its address was registered.
    let record = core::ptr::with_exposed_provenance_mut(owner.get());
    Some(Record::at(NonNull::new(record).expect("not zero")))
}

/// The name as one line of text, with control characters escaped.
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
