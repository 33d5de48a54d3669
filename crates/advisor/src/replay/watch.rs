//! A pass over the events that shows how far it is, and ends early if somebody wants that. A thread of its own reads ahead.

use bench::console::progress::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{thread, vec};
use trace_format::{Event, Events, TraceError};

/// Events that are handed over at once, and how often before the reader waits.
const BATCH: usize = 4096;
const AHEAD: usize = 4;

/// Lets `work` have all events, while another thread reads those that come next.
pub fn ahead<R>(events: Events<'_>, work: impl FnOnce(Ahead) -> R) -> R {
    thread::scope(|scope| {
        let (full, batches) = sync_channel(AHEAD);
        scope.spawn(move || read(events, &full));
        work(Ahead { batches, batch: Vec::new().into_iter() })
    })
}

type Batch = Vec<Result<Event, TraceError>>;

fn read(mut events: Events<'_>, full: &SyncSender<Batch>) {
    loop {
        let batch: Batch = events.by_ref().take(BATCH).collect();
        // Nobody may want more.
        if batch.is_empty() || full.send(batch).is_err() {
            return;
        }
    }
}

/// Events that were read ahead.
#[derive(Debug)]
pub struct Ahead {
    batches: Receiver<Batch>,
    batch: vec::IntoIter<Result<Event, TraceError>>,
}

impl Iterator for Ahead {
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

/// Events from one look to the next.
const LOOK: u64 = 4096;

/// Events, watched.
#[derive(Debug)]
pub struct Watched<'p, I> {
    events: I,
    progress: &'p Progress,
    stop: Option<&'static AtomicBool>,
    expected: u64,
    seen: u64,
    steps: u64,
    taken: u64,
}

impl<'p, I> Watched<'p, I> {
    /// So many events are expected, which are so many steps of progress.
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

impl<I: Iterator> Iterator for Watched<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK) {
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
        let watched = || Watched::new(0..20_000, 20_000, &progress, 10, Some(&STOP));
        assert_eq!(watched().count(), 20_000);
        let seen = watched().inspect(|number| STOP.store(*number >= 5_000, Ordering::Relaxed));
        assert_eq!(seen.count(), 2 * LOOK as usize - 1);
    }
}
