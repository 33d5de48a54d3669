//! A process image of a recording.

use crate::container::{ProcessEnd, ProcessHeader};
use std::collections::BTreeMap;

/// A process image of a recording.
#[derive(Debug)]
pub struct Process {
    /// What is known from its begin.
    pub header: ProcessHeader,
    /// What is known from its end. `None` if the recording was cut off before.
    pub end: Option<ProcessEnd>,
    /// The chunks of each stream, by the number of the stream.
    pub(crate) streams: BTreeMap<u32, Vec<ChunkLocation>>,
}

/// Where a chunk is in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkLocation {
    pub offset: u64,
    pub length: u32,
    pub raw_length: u32,
    pub tick: u64,
    pub checksum: u32,
}

impl Process {
    /// The bytes of its events in the file.
    pub fn compressed_bytes(&self) -> u64 {
        self.streams.values().flatten().map(|chunk| u64::from(chunk.length)).sum()
    }

    /// The bytes of its events before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.streams.values().flatten().map(|chunk| u64::from(chunk.raw_length)).sum()
    }

    /// Nanoseconds in a tick, as a multiple of 2^-32.
    pub(crate) fn ns_of_tick(&self) -> u64 {
        self.end.as_ref().map_or(self.header.ns_of_tick, |end| end.ns_of_tick)
    }
}
