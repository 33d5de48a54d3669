//! The last phase, which leads back to the first two.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::ReadOnlyShared;
use crate::initialised::Initialised;
use crate::initialiser::Initialiser;
use crate::queue::{Counts, WorkerState};
use crate::running::{Running, Server};
use allotment::{Published, Reading};

/// The last phase: no worker runs, except abandoned ones. The objects still exist.
pub struct Stopped<R: ReadOnlyShared, S> {
    options: Initialiser,
    generations: Arc<Published<R>>,
    shared: Arc<S>,
    counts: Counts,
    abandoned: Vec<WorkerState>,
}

impl<R: ReadOnlyShared, S> Stopped<R, S> {
    pub(crate) fn new<Q, A>(server: &Server<R, S, Q, A>, abandoned: Vec<WorkerState>) -> Self {
        Self {
            options: server.options.clone(),
            generations: Arc::clone(&server.generations),
            shared: Arc::clone(&server.shared),
            counts: server.queue.counts(),
            abandoned,
        }
    }

    /// Returns how many requests there were, by outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the workers that were abandoned in a request. They use the objects until that
    /// request ends.
    #[must_use]
    pub fn abandoned(&self) -> &[WorkerState] {
        &self.abandoned
    }

    /// Returns the read-only objects that were published last.
    pub fn read_only(&self) -> Reading<'_, R> {
        self.generations.read()
    }

    /// Returns the shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// Returns the shared objects by value, or `None` if an abandoned worker or a handle still uses
    /// them.
    #[must_use]
    pub fn into_shared(self) -> Option<S> {
        Arc::into_inner(self.shared)
    }
}

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Stopped<R, S> {
    /// Leads back to the first phase, with the same options. All objects are dropped.
    pub fn reinitialise(self) -> Initialiser {
        self.options
    }

    /// Leads back to the second phase, with other read-only objects and the same shared objects:
    /// users keep their sessions.
    pub fn with_read_only<R2: ReadOnlyShared>(self, read_only: R2) -> Initialised<R2, S> {
        let generations = Arc::new(Published::new(read_only));
        Initialised { options: self.options, generations, shared: self.shared }
    }

    /// Leads back to the second phase, with the same objects.
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

/// A server that did not stop in time: some workers are still in a request. This value owns them:
/// wait longer, or abandon them.
///
/// Dropping it abandons them.
#[must_use = "dropping it abandons the workers"]
pub struct Stuck<R: ReadOnlyShared, S, Q, A> {
    /// `None` only in `drop`, after a method that took it.
    running: Option<Running<R, S, Q, A>>,
    within: Duration,
    seen: Instant,
    workers: Vec<WorkerState>,
    waiting: usize,
}

impl<R: ReadOnlyShared, S, Q, A> Stuck<R, S, Q, A> {
    pub(crate) fn new(running: Running<R, S, Q, A>, within: Duration) -> Self {
        let (workers, waiting) = (running.workers(), running.waiting());
        Self { running: Some(running), within, seen: Instant::now(), workers, waiting }
    }

    /// Returns the workers that had not ended when the time was over: their names, their requests,
    /// and since when.
    #[must_use]
    pub fn workers(&self) -> &[WorkerState] {
        &self.workers
    }

    /// Returns how many requests waited at that time.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Waits longer.
    ///
    /// # Errors
    /// When workers are still in a request after that time too.
    pub fn wait(mut self, within: Duration) -> Result<Stopped<R, S>, Self> {
        self.take().finish(within)
    }

    /// Drops the waiting requests, and waits longer for the running ones.
    ///
    /// # Errors
    /// When workers are still in a request after that time too.
    pub fn stop_at_once(mut self, within: Duration) -> Result<Stopped<R, S>, Self> {
        self.take().stop_at_once(within)
    }

    /// Continues without these workers. The waiting requests are dropped. The threads end after
    /// their current request, and use the objects until then.
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
