//! From the third phase to the last: stops the workers, or says which of them did not end in time.

use core::fmt;
use std::time::{Duration, Instant};

use crate::queue::WorkerState;
use crate::read_only_shared::ReadOnlyShared;
use crate::running::Running;
use crate::stopped::Stopped;

impl<R: ReadOnlyShared, S, Q, A> Running<R, S, Q, A> {
    /// Stops gracefully: no more requests are accepted, the waiting ones are handled, and the
    /// workers end. Waits for that at most `within`; [`Duration::MAX`] waits without a limit.
    ///
    /// A worker has ended when it has dropped its memory. The destructors of its thread's
    /// thread-local variables run after that, and are waited for too, but not beyond the time.
    ///
    /// A handler must not wait for its own worker. So on a worker of this server the call waits for
    /// the other workers only, and returns [`StopTimedOut`] with the calling worker in it.
    ///
    /// # Errors
    /// [`StopTimedOut`], when workers are still in a request after that time. It names these
    /// workers and owns them.
    pub fn stop(self, within: Duration) -> Result<Stopped<R, S>, StopTimedOut<R, S, Q, A>> {
        let deadline = deadline_in(within);
        self.queue().stop();
        self.finish(within, deadline)
    }

    /// Stops at once: as [`stop`](Self::stop), but the waiting requests are dropped with
    /// [`Outcome::Dropped`](crate::Outcome::Dropped). The running ones are waited for. Reply
    /// callbacks of the dropped requests run in this call; it takes as long as they do.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub fn stop_at_once(self, within: Duration) -> Result<Stopped<R, S>, StopTimedOut<R, S, Q, A>> {
        let deadline = deadline_in(within);
        self.queue().stop();
        self.queue().drop_waiting();
        self.finish(within, deadline)
    }

    fn finish(
        mut self,
        within: Duration,
        deadline: Option<Instant>,
    ) -> Result<Stopped<R, S>, StopTimedOut<R, S, Q, A>> {
        if self.wait_ended(deadline) {
            return Ok(Stopped::new(self.server(), Vec::new()));
        }
        Err(StopTimedOut::new(self, within))
    }

    /// Stops waiting for the workers that have not ended. They end after their current request.
    fn abandon(mut self) -> Stopped<R, S> {
        self.queue().stop();
        self.queue().drop_waiting();
        let abandoned = self.workers();
        self.detach_threads();
        Stopped::new(self.server(), abandoned)
    }
}

/// A time beyond the clock's range is no limit.
fn deadline_in(within: Duration) -> Option<Instant> {
    Instant::now().checked_add(within)
}

/// A server that did not stop in time: some workers are still in a request. This value owns them:
/// wait longer, or abandon them.
///
/// Dropping it abandons them.
#[must_use = "dropping it abandons the workers"]
pub struct StopTimedOut<R: ReadOnlyShared, S, Q, A> {
    /// `None` only in `drop`, after a method that took it.
    running: Option<Running<R, S, Q, A>>,
    within: Duration,
    timed_out_at: Instant,
    workers: Vec<WorkerState>,
    waiting: usize,
}

impl<R: ReadOnlyShared, S, Q, A> StopTimedOut<R, S, Q, A> {
    fn new(running: Running<R, S, Q, A>, within: Duration) -> Self {
        let (workers, waiting) = (running.workers(), running.waiting());
        Self { running: Some(running), within, timed_out_at: Instant::now(), workers, waiting }
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
        self.take_running().finish(within, deadline_in(within))
    }

    /// Drops the waiting requests, and waits longer for the running ones.
    ///
    /// # Errors
    /// When workers are still in a request after that time too.
    pub fn stop_at_once(mut self, within: Duration) -> Result<Stopped<R, S>, Self> {
        self.take_running().stop_at_once(within)
    }

    /// Continues without these workers. The waiting requests are dropped. The threads end after
    /// their current request, and use the objects until then.
    pub fn abandon(mut self) -> Stopped<R, S> {
        self.take_running().abandon()
    }

    fn take_running(&mut self) -> Running<R, S, Q, A> {
        match self.running.take() {
            Some(running) => running,
            None => unreachable!("only methods that consume `self` take it"),
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> Drop for StopTimedOut<R, S, Q, A> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            drop(running.abandon());
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Display for StopTimedOut<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workers, waiting) = (self.workers.len(), self.waiting);
        let word = if workers == 1 { "worker" } else { "workers" };
        write!(f, "{workers} {word} had not ended after {:?}", self.within)?;
        for (position, WorkerState { name, request, .. }) in self.workers.iter().enumerate() {
            write!(f, "{} '{name}'", if position == 0 { ":" } else { "," })?;
            match request {
                Some(request) => {
                    let time = self.timed_out_at.saturating_duration_since(request.since);
                    write!(f, " in request {} for {time:.1?}", request.number)?;
                }
                None => f.write_str(" between requests")?,
            }
        }
        let word = if waiting == 1 { "request waits" } else { "requests wait" };
        let them = if workers == 1 { "it" } else { "them" };
        write!(f, "; {waiting} {word}; wait longer, or abandon {them}")
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for StopTimedOut<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopTimedOut")
            .field("workers", &self.workers)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl<R: ReadOnlyShared, S, Q, A> std::error::Error for StopTimedOut<R, S, Q, A> {}
