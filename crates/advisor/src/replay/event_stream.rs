//! A pass over the events that shows its progress and can be stopped. Another thread reads the
//! events in advance.

use bench::console::progress::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{thread, vec};
use trace_format::{Event, Events, TraceError};

/// The number of events in a batch, and the most batches that wait in the queue.
const BATCH: usize = 4096;
const QUEUED_BATCHES: usize = 4;

/// Calls `work` with all events, while another thread reads the next ones.
pub fn read_ahead<R>(events: Events<'_>, work: impl FnOnce(ReadAhead) -> R) -> R {
    thread::scope(|scope| {
        let (full, batches) = sync_channel(QUEUED_BATCHES);
        scope.spawn(move || read(events, &full));
        work(ReadAhead { batches, batch: Vec::new().into_iter() })
    })
}

type EventBatch = Vec<Result<Event, TraceError>>;

fn read(mut events: Events<'_>, full: &SyncSender<EventBatch>) {
    loop {
        let batch: EventBatch = events.by_ref().take(BATCH).collect();
        // Fails if `work` has ended.
        if batch.is_empty() || full.send(batch).is_err() {
            return;
        }
    }
}

/// Events that were read in advance.
#[derive(Debug)]
pub struct ReadAhead {
    batches: Receiver<EventBatch>,
    batch: vec::IntoIter<Result<Event, TraceError>>,
}

impl Iterator for ReadAhead {
    type Item = Result<Event, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.batch.next() {
                return Some(event);
            }
            self.batch = self.batches.recv().ok()?.into_iter();
        }
    }
}

/// The number of events between two checks of `stop`.
const CHECK_INTERVAL: u64 = 4096;

/// Events with progress, which can be stopped.
#[derive(Debug)]
pub struct ObservedEvents<'p, I> {
    events: I,
    progress: &'p Progress,
    stop: Option<&'static AtomicBool>,
    expected: u64,
    seen: u64,
    steps: u64,
    taken: u64,
}

impl<'p, I> ObservedEvents<'p, I> {
    /// `expected` events are `steps` steps of the progress bar.
    pub fn new(
        events: I,
        expected: u64,
        progress: &'p Progress,
        steps: usize,
        stop: Option<&'static AtomicBool>,
    ) -> Self {
        Self { events, progress, stop, expected, seen: 0, steps: steps as u64, taken: 0 }
    }

    fn step_to(&mut self, due: u64) {
        while self.taken < due {
            self.progress.step();
            self.taken += 1;
        }
    }
}

impl<I: Iterator> Iterator for ObservedEvents<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        self.seen += 1;
        if self.seen.is_multiple_of(CHECK_INTERVAL) {
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return None;
            }
            self.step_to((self.seen * self.steps / self.expected.max(1)).min(self.steps));
        }
        let event = self.events.next();
        if event.is_none() {
            self.step_to(self.steps);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_soon_after_it_is_stopped_and_else_with_all_events() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let progress = Progress::shown_if(false, 10);
        let observed = || ObservedEvents::new(0..20_000, 20_000, &progress, 10, Some(&STOP));
        assert_eq!(observed().count(), 20_000);
        let seen = observed().inspect(|number| STOP.store(*number >= 5_000, Ordering::Relaxed));
        assert_eq!(seen.count(), 2 * CHECK_INTERVAL as usize - 1);
    }
}
