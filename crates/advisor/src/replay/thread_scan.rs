//! The first pass over a recording: which blocks are freed by another thread, and when each thread
//! ran.
//!
//! Memory: 24 bytes for each live block, one bit for each allocation, 16 bytes for each thread.

use super::number_map::{BitSet, NumberMap};
use trace_format::{Event, EventAction, TraceError};

/// The numbers of a thread's first and last event, among the allocations and frees of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSpan {
    pub first: u64,
    pub last: u64,
}

/// The results of the first pass.
#[derive(Debug, Default)]
pub struct ThreadScan {
    /// For each allocation, by its number: whether another thread frees the block.
    pub crossing: BitSet,
    /// For each thread; `None` if it neither allocated nor freed.
    pub spans: Vec<Option<ThreadSpan>>,
    /// The number of allocations and frees.
    pub events: u64,
}

/// Runs the first pass.
pub fn scan(
    events: impl Iterator<Item = Result<Event, TraceError>>,
) -> Result<ThreadScan, TraceError> {
    let mut scan = ThreadScan::default();
    let mut live: NumberMap<u64, (u32, u64)> = NumberMap::default();
    let mut allocations = 0;
    for event in events {
        let event = event?;
        let former = match event.action {
            EventAction::Alloc { address, .. } => {
                let former = live.insert(address, (event.thread, allocations));
                allocations += 1;
                former
            }
            EventAction::Free { address, .. } => live.remove(&address),
            _ => continue,
        };
        if let Some((thread, allocation)) = former
            && thread != event.thread
        {
            scan.crossing.set(allocation);
        }
        let thread = event.thread as usize;
        if thread >= scan.spans.len() {
            scan.spans.resize(thread + 1, None);
        }
        let now = scan.events;
        scan.spans[thread].get_or_insert(ThreadSpan { first: now, last: now }).last = now;
        scan.events += 1;
    }
    Ok(scan)
}
