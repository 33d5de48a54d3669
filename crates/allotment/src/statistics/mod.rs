//! The statistics that every allocator keeps, and the table of records that holds them.

mod records;

use core::ptr::NonNull;

use crate::memory::segments;

pub(crate) use records::{AllocatorKind, Record};

/// What an allocator holds at this moment, in bytes and counts. The figures are exact when no
/// thread is inside the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Objects allocated and not freed. An arena does not count objects of size zero.
    pub live_objects: u64,
    /// The bytes of those objects as they were requested, without padding.
    pub live_bytes: u64,
    /// The bytes taken from the source and not given back. This is what a budget is charged.
    pub held_bytes: u64,
    /// The largest value that `held_bytes` has had.
    pub peak_held_bytes: u64,
    /// Bytes that no object can use. For an arena: the ends of chunks that were left because the
    /// next object didn't fit. For a slab: the padding of its slots and the ends of its pages.
    pub wasted_bytes: u64,
    /// Bytes of slots that hold no object: free in their pages, or in a thread cache. Always zero
    /// for an arena.
    pub free_bytes: u64,
    /// Bytes of the allocator's own structures outside its chunks. Always zero for an arena, whose
    /// structures lie in its chunks. For a slab, `held = structures + live + free + wasted` holds
    /// exactly.
    pub structure_bytes: u64,
    /// Chunks held; for a slab, its pages.
    pub chunks: u64,
    /// Chunks that came warm from the recycler, counted from the start of the allocator.
    pub recycled_chunks: u64,
    /// Calls to the operating system or the source for this allocator, counted from its start.
    pub source_calls: u64,
}

/// The record under which the segment of this address was registered.
pub(crate) fn record_of(address: usize) -> Option<&'static Record> {
    let owner = segments::owner_of(address)?;
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
