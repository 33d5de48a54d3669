//! One pass over the events of a process: a thread of its own reads ahead, so that two cores have something to do.

use crate::progress::Progress;
use allot_trace::{Event, Modules, Reader, Stacks, TraceError};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Events that are handed over at once, and how often before the reader waits.
const BATCH: usize = 4096;
const AHEAD: usize = 4;
/// Steps of progress in a pass.
pub const STEPS: usize = 50;

/// Events between the look ahead and the event's turn: enough for memory to answer.
const LOOK_AHEAD: usize = 12;

/// What looks at all events.
pub trait Watcher {
    /// An event comes soon.
    fn expect(&self, event: &Event);
    /// Takes an event. False: the rest says nothing more.
    fn take(&mut self, event: &Event) -> bool;
}

/// Gives each event to `watcher`, until that says that it has seen enough.
pub fn pass(
    reader: &Reader,
    process: usize,
    progress: Option<(&Progress, u64)>,
    watcher: &mut impl Watcher,
) -> Result<(Stacks, Modules), TraceError> {
    std::thread::scope(|scope| {
        let (full, batches) = sync_channel(AHEAD);
        let (empty, used) = sync_channel(AHEAD + 2);
        let ahead = scope.spawn(move || read(reader, process, &full, &used));
        let (mut steps, mut seen) = (0, 0_u64);
        'batches: for batch in &batches {
            for (index, event) in batch.iter().enumerate() {
                if let Some(soon) = batch.get(index + LOOK_AHEAD) {
                    watcher.expect(soon);
                }
                if !watcher.take(event) {
                    break 'batches;
                }
            }
            seen += batch.len() as u64;
            if let Some((progress, expected)) = progress {
                let due = (seen * STEPS as u64 / expected.max(1)).min(STEPS as u64) as usize;
                (steps..due).for_each(|_| progress.step());
                steps = steps.max(due);
            }
            // It may have ended.
            let _ = empty.try_send(batch);
        }
        drop(batches);
        if let Some((progress, _)) = progress {
            (steps..STEPS).for_each(|_| progress.step());
        }
        match ahead.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read(
    reader: &Reader,
    process: usize,
    full: &SyncSender<Vec<Event>>,
    used: &Receiver<Vec<Event>>,
) -> Result<(Stacks, Modules), TraceError> {
    let mut events = reader.events(process)?;
    loop {
        let mut batch = used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        batch.clear();
        for event in events.by_ref().take(BATCH) {
            batch.push(event?);
        }
        if batch.is_empty() || full.send(batch).is_err() {
            return Ok(events.into_parts());
        }
    }
}
