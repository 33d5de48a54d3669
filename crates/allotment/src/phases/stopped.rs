//! The last phase, and the first again.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::ReadOnlyShared;
use super::initialised::Initialised;
use super::initialiser::Initialiser;
use super::queue::{Counts, WorkerState};
use super::running::{Running, Server};
use crate::sealed::{Published, Reading};

/// The last phase: no worker runs, but for those that were abandoned. The objects are there still.
pub struct Stopped<R: ReadOnlyShared, S> {
    options: Initialiser,
    generations: Arc<Published<R>>,
    shared: Arc<S>,
    counts: Counts,
    abandoned: Vec<WorkerState>,
}

impl<R: ReadOnlyShared, S> Stopped<R, S> {
    pub(super) fn new<Q, A>(server: &Server<R, S, Q, A>, abandoned: Vec<WorkerState>) -> Self {
        Self {
            options: server.options.clone(),
            generations: Arc::clone(&server.generations),
            shared: Arc::clone(&server.shared),
            counts: server.queue.counts(),
            abandoned,
        }
    }

    /// What became of the requests.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The workers that were abandoned in a call. They have the objects until that ends.
    #[must_use]
    pub fn abandoned(&self) -> &[WorkerState] {
        &self.abandoned
    }

    /// The read-only objects that were published last.
    pub fn read_only(&self) -> Reading<'_, R> {
        self.generations.read()
    }

    /// The shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// The shared objects, for good; `None` if an abandoned worker or a handle has them still.
    #[must_use]
    pub fn into_shared(self) -> Option<S> {
        Arc::into_inner(self.shared)
    }
}

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Stopped<R, S> {
    /// The first phase again, with the same options: all objects are dropped, to be made anew.
    pub fn reinitialise(self) -> Initialiser {
        self.options
    }

    /// The second phase again, with other read-only objects and the same shared ones: users keep their sessions.
    pub fn with_read_only<R2: ReadOnlyShared>(self, read_only: R2) -> Initialised<R2, S> {
        let generations = Arc::new(Published::new(read_only));
        Initialised { options: self.options, generations, shared: self.shared }
    }

    /// The second phase again, with the same objects.
    pub fn unchanged(self) -> Initialised<R, S> {
        let Self { options, generations, shared, .. } = self;
        Initialised { options, generations, shared }
    }
}

impl<R: ReadOnlyShared, S> fmt::Debug for Stopped<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped")
            .field("server", &self.options.name)
            .field("counts", &self.counts)
            .field("abandoned", &self.abandoned)
            .finish_non_exhaustive()
    }
}

/// A server that did not stop in time: workers are in a call still. It owns them: wait longer, or abandon them.
///
/// Dropping it abandons them.
#[must_use = "dropping it abandons the workers"]
pub struct Stuck<R: ReadOnlyShared, S, Q, A> {
    /// Always there, but in `drop` after one of the calls that take it.
    running: Option<Running<R, S, Q, A>>,
    within: Duration,
    seen: Instant,
    workers: Vec<WorkerState>,
    waiting: usize,
}

impl<R: ReadOnlyShared, S, Q, A> Stuck<R, S, Q, A> {
    pub(super) fn new(running: Running<R, S, Q, A>, within: Duration) -> Self {
        let (workers, waiting) = (running.workers(), running.waiting());
        Self { running: Some(running), within, seen: Instant::now(), workers, waiting }
    }

    /// The workers that had not ended when the time was over: who, in which request, since when.
    #[must_use]
    pub fn workers(&self) -> &[WorkerState] {
        &self.workers
    }

    /// How many requests waited then.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Waits longer.
    ///
    /// # Errors
    /// Stuck again, with the workers of then.
    pub fn wait(mut self, within: Duration) -> Result<Stopped<R, S>, Self> {
        self.take().finish(within)
    }

    /// Drops the requests that wait, and waits longer for those that run.
    ///
    /// # Errors
    /// Stuck again, with the workers of then.
    pub fn stop_at_once(mut self, within: Duration) -> Result<Stopped<R, S>, Self> {
        self.take().stop_at_once(within)
    }

    /// Goes on without these workers: the requests that wait are dropped, the threads are left to themselves, and end with their call.
    /// Until then they use the objects.
    pub fn abandon(mut self) -> Stopped<R, S> {
        self.take().abandon()
    }

    fn take(&mut self) -> Running<R, S, Q, A> {
        match self.running.take() {
            Some(running) => running,
            None => unreachable!("taken by calls that take `self`"),
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> Drop for Stuck<R, S, Q, A> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            drop(running.abandon());
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Display for Stuck<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} workers had not ended after {:?}", self.workers.len(), self.within)?;
        for (at, WorkerState { name, call, .. }) in self.workers.iter().enumerate() {
            write!(f, "{} '{name}'", if at == 0 { ":" } else { "," })?;
            match call {
                Some(call) => {
                    let time = self.seen.saturating_duration_since(call.since);
                    write!(f, " in request {} for {time:.1?}", call.request)?;
                }
                None => f.write_str(" between requests")?,
            }
        }
        write!(f, "; {} requests wait; wait longer, or abandon them", self.waiting)
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for Stuck<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stuck")
            .field("workers", &self.workers)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl<R: ReadOnlyShared, S, Q, A> std::error::Error for Stuck<R, S, Q, A> {}
