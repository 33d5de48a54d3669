//! One pass over the events of a process, in three steps with a thread each: one reads, one [resolves](super::resolve) blocks, one
//! watches. Which one takes longest depends on the recording; so even two cores have something to do in either case.

use super::resolve::{Resolver, Step};
use bench::console::progress::Progress;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use trace_format::{Event, Modules, Reader, Stacks, TraceError};

/// Events that are handed over at once, and how often before the reader waits.
const BATCH: usize = 2048;
const AHEAD: usize = 4;
/// Steps of progress in a pass.
pub const STEPS: usize = 50;

/// Events and steps between the look ahead and their turn: enough for memory to answer. A look that needs the answer to
/// the one before comes later.
pub const FAR: usize = 12;
pub const NEAR: usize = 6;

/// What looks at all steps.
pub trait Watcher {
    /// A step comes soon.
    fn expect(&self, step: &Step);
    /// A step comes sooner, of which [`expect`](Self::expect) was told before.
    fn expect_soon(&self, step: &Step);
    /// Takes a step. False: the rest says nothing more.
    fn take(&mut self, step: &Step) -> bool;
}

/// What the threads ahead have at the end.
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
    let (stacks, mut resolver) = match before {
        Some((stacks, resolver)) => (Some(stacks), resolver),
        None => (None, Resolver::new()),
    };
    std::thread::scope(|scope| {
        let (read_to, events) = pipe();
        let reading = scope.spawn(move || read(reader, process, stacks, &read_to));
        let (resolved_to, batches) = pipe();
        let resolving = scope.spawn(move || {
            resolver.again();
            resolve(&mut resolver, &events, &resolved_to);
            resolver
        });
        let (mut steps, mut seen) = (0, 0_u64);
        'batches: for batch in &batches.full {
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
            batches.back(batch);
        }
        drop(batches);
        if let Some((progress, _)) = progress {
            (steps..STEPS).for_each(|_| progress.step());
        }
        let resolver = resolving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map(|(stacks, modules)| End { stacks, modules, resolver })
    })
}

/// The end of a pipe that full batches come from, with the way back for those that were looked at.
#[derive(Debug)]
struct Consumer<T> {
    full: Receiver<Vec<T>>,
    empty: SyncSender<Vec<T>>,
}

/// The end of a pipe that batches are filled at.
#[derive(Debug)]
struct Producer<T> {
    full: SyncSender<Vec<T>>,
    empty: Receiver<Vec<T>>,
}

fn pipe<T>() -> (Producer<T>, Consumer<T>) {
    let (full, filled) = sync_channel(AHEAD);
    let (emptied, empty) = sync_channel(AHEAD + 2);
    (Producer { full, empty }, Consumer { full: filled, empty: emptied })
}

impl<T> Consumer<T> {
    fn back(&self, batch: Vec<T>) {
        // The other end may have gone.
        let _ = self.empty.try_send(batch);
    }
}

impl<T> Producer<T> {
    fn batch(&self) -> Vec<T> {
        let mut batch = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        batch.clear();
        batch
    }
}

fn read(
    reader: &Reader,
    process: usize,
    known: Option<Stacks>,
    into: &Producer<Event>,
) -> Result<(Stacks, Modules), TraceError> {
    let mut events = match known {
        Some(stacks) => reader.events_again(process, stacks)?,
        None => reader.events(process)?,
    };
    loop {
        let mut batch = into.batch();
        events.read(&mut batch, BATCH)?;
        if batch.is_empty() || into.full.send(batch).is_err() {
            return Ok(events.into_parts());
        }
    }
}

fn resolve(resolver: &mut Resolver, from: &Consumer<Event>, into: &Producer<Step>) {
    for events in &from.full {
        let mut batch = into.batch();
        for (index, event) in events.iter().enumerate() {
            if let Some(far) = events.get(index + FAR) {
                resolver.expect(far);
            }
            if let Some(near) = events.get(index + NEAR) {
                resolver.expect_soon(near);
            }
            resolver.resolve(event, &mut batch);
        }
        from.back(events);
        if into.full.send(batch).is_err() {
            return;
        }
    }
}
