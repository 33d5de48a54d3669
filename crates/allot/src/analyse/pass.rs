//! One pass over the events of a process: a thread of its own reads ahead and [resolves](super::resolve) blocks, so that two
//! cores have something to do.

use super::resolve::{Resolver, Step};
use crate::progress::Progress;
use allot_trace::{Modules, Reader, Stacks, TraceError};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Events that are handed over at once, and how often before the reader waits.
const BATCH: usize = 2048;
const AHEAD: usize = 4;
/// Steps of progress in a pass.
pub const STEPS: usize = 50;

/// Events and steps between the look ahead and their turn: enough for memory to answer. A look that needs the answer to
/// the one before comes later.
const FAR: usize = 12;
const NEAR: usize = 6;

/// What looks at all steps.
pub trait Watcher {
    /// A step comes soon.
    fn expect(&self, step: &Step);
    /// A step comes sooner, of which [`expect`](Self::expect) was told before.
    fn expect_soon(&self, step: &Step);
    /// Takes a step. False: the rest says nothing more.
    fn take(&mut self, step: &Step) -> bool;
}

/// What the thread that read ahead has at the end.
#[derive(Debug)]
pub struct End {
    pub stacks: Stacks,
    pub modules: Modules,
    /// With what was live at the last step.
    pub resolver: Resolver,
}

/// Gives each step to `watcher`, until that says that it has seen enough. `before` is what the pass before ended with,
/// if there was one: the events are the same, so much of it is known.
pub fn pass(
    reader: &Reader,
    process: usize,
    progress: Option<(&Progress, u64)>,
    before: Option<(Stacks, Resolver)>,
    watcher: &mut impl Watcher,
) -> Result<End, TraceError> {
    std::thread::scope(|scope| {
        let (full, batches) = sync_channel(AHEAD);
        let (empty, used) = sync_channel(AHEAD + 2);
        let ahead = scope.spawn(move || read(reader, process, before, &full, &used));
        let (mut steps, mut seen) = (0, 0_u64);
        'batches: for batch in &batches {
            for (index, step) in batch.iter().enumerate() {
                if let Some(far) = batch.get(index + FAR) {
                    watcher.expect(far);
                }
                if let Some(near) = batch.get(index + NEAR) {
                    watcher.expect_soon(near);
                }
                if !watcher.take(step) {
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
    before: Option<(Stacks, Resolver)>,
    full: &SyncSender<Vec<Step>>,
    used: &Receiver<Vec<Step>>,
) -> Result<End, TraceError> {
    let (mut events, mut resolver) = match before {
        Some((stacks, mut resolver)) => {
            resolver.again();
            (reader.events_again(process, stacks)?, resolver)
        }
        None => (reader.events(process)?, Resolver::new()),
    };
    let mut read = Vec::with_capacity(BATCH);
    loop {
        read.clear();
        for event in events.by_ref().take(BATCH) {
            read.push(event?);
        }
        let mut batch = used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        batch.clear();
        for (index, event) in read.iter().enumerate() {
            if let Some(far) = read.get(index + FAR) {
                resolver.expect(far);
            }
            if let Some(near) = read.get(index + NEAR) {
                resolver.expect_soon(near);
            }
            resolver.resolve(event, &mut batch);
        }
        if batch.is_empty() || full.send(batch).is_err() {
            let (stacks, modules) = events.into_parts();
            return Ok(End { stacks, modules, resolver });
        }
    }
}
