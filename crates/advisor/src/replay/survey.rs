//! The first pass over a recording: which blocks cross from thread to thread, and when each thread did something.
//!
//! In memory: 24 bytes a live block, one bit an allocation, 16 bytes a thread.

use super::blocks::{Bits, Table};
use trace_format::{Event, TraceError, What};

/// When a thread did its first and its last, counted in allocations and frees of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: u64,
    pub last: u64,
}

/// What the first pass found.
#[derive(Debug, Default)]
pub struct Survey {
    /// By the number of its allocation: another thread frees the block.
    pub crossing: Bits,
    /// By thread; `None` of one that neither allocated nor freed.
    pub spans: Vec<Option<Span>>,
    /// Allocations and frees.
    pub events: u64,
}

/// Makes the first pass.
pub fn survey(
    events: impl Iterator<Item = Result<Event, TraceError>>,
) -> Result<Survey, TraceError> {
    let mut survey = Survey::default();
    let mut live: Table<u64, (u32, u64)> = Table::default();
    let mut allocations = 0;
    for event in events {
        let event = event?;
        let former = match event.what {
            What::Alloc { address, .. } => {
                let former = live.insert(address, (event.thread, allocations));
                allocations += 1;
                former
            }
            What::Free { address, .. } => live.remove(&address),
            _ => continue,
        };
        if let Some((thread, allocation)) = former
            && thread != event.thread
        {
            survey.crossing.set(allocation);
        }
        let thread = event.thread as usize;
        if thread >= survey.spans.len() {
            survey.spans.resize(thread + 1, None);
        }
        let now = survey.events;
        survey.spans[thread].get_or_insert(Span { first: now, last: now }).last = now;
        survey.events += 1;
    }
    Ok(survey)
}
