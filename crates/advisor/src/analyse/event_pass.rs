//! One pass over the events of a process, on three threads: one reads events, one
//! [resolves](super::resolver) them to blocks, and one visits them. Which of these takes longest
//! depends on the recording; in any case at least two of them have work.

use super::resolver::{ResolvedEvent, Resolver};
use bench::console::progress::Progress;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use trace_format::{Event, Modules, RecordingReader, Stacks, TraceError};

/// The number of events in a batch, and the most batches that wait in a queue.
const BATCH: usize = 2048;
const QUEUED_BATCHES: usize = 4;
/// Steps of the progress bar for a pass.
pub const STEPS: usize = 50;

/// Distances, in events, between a prefetch and the visit: enough for memory to answer. The near
/// prefetch needs memory that the far one asked for.
pub const FAR_DISTANCE: usize = 12;
pub const NEAR_DISTANCE: usize = 6;

/// Visits all resolved events in their order.
pub trait EventVisitor {
    /// Prefetches what [`prefetch_near`](Self::prefetch_near) needs for an event.
    fn prefetch_far(&self, event: &ResolvedEvent);
    /// Prefetches what [`visit`](Self::visit) needs for an event.
    fn prefetch_near(&self, event: &ResolvedEvent);
    /// Visits an event. Returns false if the visitor needs no further event.
    fn visit(&mut self, event: &ResolvedEvent) -> bool;
}

/// The state of the other two threads at the pass's end.
#[derive(Debug)]
pub struct PassResult {
    pub stacks: Stacks,
    pub modules: Modules,
    /// Contains the blocks that were live after the last event.
    pub resolver: Resolver,
}

/// Calls `visitor` for each event until it needs no further one. `previous` is the result of an
/// earlier pass over the same events, if there was one; it saves work.
pub fn pass(
    reader: &RecordingReader,
    process: usize,
    progress: Option<(&Progress, u64)>,
    previous: Option<(Stacks, Resolver)>,
    visitor: &mut impl EventVisitor,
) -> Result<PassResult, TraceError> {
    let (stacks, mut resolver) = match previous {
        Some((stacks, resolver)) => (Some(stacks), resolver),
        None => (None, Resolver::new()),
    };
    std::thread::scope(|scope| {
        let (read_to, events) = batch_queue();
        let reading = scope.spawn(move || read(reader, process, stacks, &read_to));
        let (resolved_to, batches) = batch_queue();
        let resolving = scope.spawn(move || {
            resolver.restart();
            resolve(&mut resolver, &events, &resolved_to);
            resolver
        });
        let (mut steps, mut visited) = (0, 0_u64);
        'batches: for batch in &batches.full {
            for (index, event) in batch.iter().enumerate() {
                if let Some(far) = batch.get(index + FAR_DISTANCE) {
                    visitor.prefetch_far(far);
                }
                if let Some(near) = batch.get(index + NEAR_DISTANCE) {
                    visitor.prefetch_near(near);
                }
                if !visitor.visit(event) {
                    break 'batches;
                }
            }
            visited += batch.len() as u64;
            if let Some((progress, expected)) = progress {
                let due = (visited * STEPS as u64 / expected.max(1)).min(STEPS as u64) as usize;
                (steps..due).for_each(|_| progress.step());
                steps = steps.max(due);
            }
            batches.give_back(batch);
        }
        drop(batches);
        if let Some((progress, _)) = progress {
            (steps..STEPS).for_each(|_| progress.step());
        }
        let resolver = resolving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map(|(stacks, modules)| PassResult { stacks, modules, resolver })
    })
}

/// The receiving end of a queue of full batches, which gives empty batches back.
#[derive(Debug)]
struct BatchReceiver<T> {
    full: Receiver<Vec<T>>,
    empty: SyncSender<Vec<T>>,
}

/// The sending end of a queue of batches.
#[derive(Debug)]
struct BatchSender<T> {
    full: SyncSender<Vec<T>>,
    empty: Receiver<Vec<T>>,
}

fn batch_queue<T>() -> (BatchSender<T>, BatchReceiver<T>) {
    let (full, filled) = sync_channel(QUEUED_BATCHES);
    let (emptied, empty) = sync_channel(QUEUED_BATCHES + 2);
    (BatchSender { full, empty }, BatchReceiver { full: filled, empty: emptied })
}

impl<T> BatchReceiver<T> {
    fn give_back(&self, batch: Vec<T>) {
        // Fails if the sender has ended, which is harmless.
        let _ = self.empty.try_send(batch);
    }
}

impl<T> BatchSender<T> {
    fn batch(&self) -> Vec<T> {
        let mut batch = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        batch.clear();
        batch
    }
}

fn read(
    reader: &RecordingReader,
    process: usize,
    known: Option<Stacks>,
    into: &BatchSender<Event>,
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

fn resolve(
    resolver: &mut Resolver,
    from: &BatchReceiver<Event>,
    into: &BatchSender<ResolvedEvent>,
) {
    for events in &from.full {
        let mut batch = into.batch();
        for (index, event) in events.iter().enumerate() {
            if let Some(far) = events.get(index + FAR_DISTANCE) {
                resolver.prefetch_far(far);
            }
            if let Some(near) = events.get(index + NEAR_DISTANCE) {
                resolver.prefetch_near(near);
            }
            resolver.resolve(event, &mut batch);
        }
        from.give_back(events);
        if into.full.send(batch).is_err() {
            return;
        }
    }
}
