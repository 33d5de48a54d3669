//! The curve of live bytes of a recording. `--check` compares it with the replay's.

use super::number_map::NumberMap;
use serde::{Deserialize, Serialize};
use trace_format::raw::AllocationFunction;
use trace_format::{Event, EventAction, TraceError};

/// Live bytes after each allocation, free and resize, in the order of the recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveBytesCurve {
    /// The number of its points.
    pub points: u64,
    /// A checksum over all of them.
    pub checksum: u64,
    pub most: u64,
    pub last: u64,
    /// Points at regular intervals, which show where two curves differ.
    pub samples: Vec<u64>,
    /// The number of points from one sample to the next; 0 for one.
    pub every: u64,
    /// Blocks that overlapped a live one when they were allocated.
    pub overlaps: u64,
}

/// The most samples.
const MOST_SAMPLES: usize = 2048;

impl LiveBytesCurve {
    /// Adds a point.
    pub fn point(&mut self, bytes: u64) {
        if self.points.is_multiple_of(self.every.max(1)) {
            self.samples.push(bytes);
            if self.samples.len() > MOST_SAMPLES {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every = self.every.max(1) * 2;
            }
        }
        self.points += 1;
        self.checksum = (self.checksum.rotate_left(5) ^ bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.most = self.most.max(bytes);
        self.last = bytes;
    }
}

/// The curve of a recording, from its events. A resize is one point.
pub fn recorded(
    events: impl Iterator<Item = Result<Event, TraceError>>,
) -> Result<LiveBytesCurve, TraceError> {
    let mut curve = LiveBytesCurve::default();
    let mut live: NumberMap<u64, u64> = NumberMap::default();
    let mut bytes = 0_u64;
    // For each thread: the size of the block that it is resizing.
    let mut resizing: NumberMap<u32, u64> = NumberMap::default();
    for event in events {
        let event = event?;
        match event.action {
            EventAction::Alloc { address, size, flags, .. } => {
                // A block of no bytes counts as one byte.
                let size = size.max(1);
                if let Some(old) = resizing.remove(&event.thread) {
                    bytes = bytes.wrapping_sub(old);
                    if flags.function() != AllocationFunction::Realloc {
                        curve.point(bytes);
                    }
                }
                if let Some(lost) = live.insert(address, size) {
                    bytes = bytes.wrapping_sub(lost);
                    curve.point(bytes);
                }
                bytes = bytes.wrapping_add(size);
                curve.point(bytes);
            }
            EventAction::Free { address, by_realloc } => {
                if let Some(old) = resizing.remove(&event.thread) {
                    bytes = bytes.wrapping_sub(old);
                    curve.point(bytes);
                }
                match live.remove(&address) {
                    Some(size) if by_realloc => _ = resizing.insert(event.thread, size),
                    Some(size) => {
                        bytes = bytes.wrapping_sub(size);
                        curve.point(bytes);
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }
    // The program ended during these resizes.
    for old in resizing.into_values() {
        bytes = bytes.wrapping_sub(old);
        curve.point(bytes);
    }
    Ok(curve)
}
