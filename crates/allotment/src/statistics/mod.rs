//! One vocabulary of statistics for every allocator, and the table of records behind it.

mod records;

use core::ptr::NonNull;

use crate::memory::segments;

pub(crate) use records::{Kind, Record};

/// The longest name of an allocator, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// What an allocator holds at this moment, in bytes and counts. Exact when no thread is inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Objects allocated and not given back. An arena's objects of size zero don't count.
    pub live_objects: u64,
    /// The bytes of those objects as they were asked for, without padding.
    pub live_bytes: u64,
    /// The bytes taken from the source and not given back: what a budget is charged.
    pub held_bytes: u64,
    /// The most that `held_bytes` ever was.
    pub peak_held_bytes: u64,
    /// Bytes that no object can have: of an arena the ends of chunks that were left unused because the next object
    /// didn't fit; of a slab the padding of its slots and the ends of its pages.
    pub wasted_bytes: u64,
    /// Bytes of slots that hold no object: free in their pages, or cached by a thread. An arena counts none.
    pub free_bytes: u64,
    /// Bytes of the allocator's own structures beside its chunks. An arena, whose structures lie in its chunks,
    /// counts none. For a slab `held = structures + live + free + wasted`, exactly.
    pub structure_bytes: u64,
    /// The chunks held; of a slab its pages.
    pub chunks: u64,
    /// Chunks that came warm from the recycler, since the allocator was made.
    pub recycled_chunks: u64,
    /// Calls to the operating system or the source on this allocator's account, since it was made.
    pub source_calls: u64,
}

/// The record that the segment of an address was registered under.
pub(crate) fn record_of(address: usize) -> Option<&'static Record> {
    let owner = segments::owner_of(address)?;
    // The record's provenance was exposed when its address was registered.
    let record = core::ptr::with_exposed_provenance_mut(owner.get());
    Some(Record::at(NonNull::new(record).expect("not zero")))
}

/// A name as one line of text: control characters are escaped.
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
