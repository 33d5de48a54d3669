//! `allot_statistics`, which all allocators report.

use allotment::Statistics;

use crate::struct_numbers::struct_numbers;

/// `allot_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct allot_statistics {
    live_objects: u64,
    live_bytes: u64,
    held_bytes: u64,
    peak_held_bytes: u64,
    wasted_bytes: u64,
    free_bytes: u64,
    structure_bytes: u64,
    chunks: u64,
    recycled_chunks: u64,
    source_calls: u64,
}

struct_numbers!(STATISTICS: allot_statistics { live_objects, live_bytes, held_bytes, peak_held_bytes, wasted_bytes, free_bytes, structure_bytes, chunks, recycled_chunks, source_calls });

impl From<Statistics> for allot_statistics {
    fn from(statistics: Statistics) -> Self {
        Self {
            live_objects: statistics.live_objects,
            live_bytes: statistics.live_bytes,
            held_bytes: statistics.held_bytes,
            peak_held_bytes: statistics.peak_held_bytes,
            wasted_bytes: statistics.wasted_bytes,
            free_bytes: statistics.free_bytes,
            structure_bytes: statistics.structure_bytes,
            chunks: statistics.chunks,
            recycled_chunks: statistics.recycled_chunks,
            source_calls: statistics.source_calls,
        }
    }
}
