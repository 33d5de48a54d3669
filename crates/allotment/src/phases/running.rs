//! The third phase: workers run.

use core::fmt;
use core::ops::{Deref, Range};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::context::ReadOnlyShared;
use super::initialiser::Initialiser;
use super::outcome::{Outcome, Refused};
use super::queue::{Counts, Queue, WorkerState};
use super::stopped::{Stopped, Stuck};
use super::ticket::{Answer, Place, Ticket};
use super::worker;
use crate::sealed::{Published, Reading};

/// What workers, handles and the owner have in common.
pub(super) struct Server<R: ReadOnlyShared, S, Q, A> {
    pub options: Initialiser,
    pub queue: Queue<Q, A>,
    pub generations: Arc<Published<R>>,
    pub shared: Arc<S>,
}

/// Submits requests to a running server, from any thread; as many of them as wanted. One may outlive the server: requests are refused
/// then.
pub struct Handle<R: ReadOnlyShared, S, Q, A> {
    server: Arc<Server<R, S, Q, A>>,
}

impl<R: ReadOnlyShared, S, Q, A> Clone for Handle<R, S, Q, A> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server) }
    }
}

impl<R: ReadOnlyShared, S, Q, A> Handle<R, S, Q, A> {
    /// Submits a request, and gives a ticket for the reply.
    ///
    /// # Errors
    /// The request, when the server stops, or when the queue is full and [`when_full`](Initialiser::when_full) says so.
    pub fn submit(&self, request: Q) -> Result<Ticket<A>, Refused<Q>> {
        let place = Place::new();
        let number = self.put(request, Answer::to_ticket(Arc::clone(&place)))?;
        Ok(Ticket { place, number, server: self.server.queue.server })
    }

    /// Submits a request, and calls back with its outcome: once, on the worker's thread, outside of its pool, or for a request that
    /// is dropped at the stop on the thread that stops. Returns the request's number.
    ///
    /// The callback may submit, publish and ask for the stop. A panic of it is counted in [`Counts::failed_replies`] and goes no further.
    /// Until it returns, the worker takes no other request.
    ///
    /// # Errors
    /// As [`submit`](Self::submit). The callback is dropped then without a call.
    pub fn submit_with(
        &self,
        request: Q,
        on_reply: impl FnOnce(Outcome<A>) + Send + 'static,
    ) -> Result<u64, Refused<Q>> {
        self.put(request, Answer::to_callback(Box::new(on_reply)))
    }

    fn put(&self, request: Q, answer: Answer<A>) -> Result<u64, Refused<Q>> {
        let queue = &self.server.queue;
        let when_full = self.server.options.when_full;
        queue.put(request, answer, when_full, worker::is_of(queue.server))
    }

    /// Publishes new read-only objects: each worker gets them with its next request, a request that runs keeps those that it began
    /// with. The old ones are dropped when the last such request ends (see [`Published`](crate::Published)). Returns the generation's number; the first one has 1.
    pub fn publish(&self, read_only: R) -> u64 {
        self.server.generations.publish(read_only)
    }

    /// The read-only objects that were published last.
    pub fn read_only(&self) -> Reading<'_, R> {
        self.server.generations.read()
    }

    /// The number of the generation that was published last.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.server.generations.generation()
    }

    /// The shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.server.shared
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.server.queue.waiting()
    }

    /// What the workers are at.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerState> {
        self.server.queue.living()
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.server.queue.counts()
    }

    /// Begins the stop and does not wait for it: no more requests are accepted, the workers handle those that wait, and end. May be
    /// called by a handler. [`Running::stop`] waits.
    pub fn begin_stop(&self) {
        self.server.queue.stop();
    }

    /// Whether the server was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.server.queue.is_stopping()
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for Handle<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("server", &self.server.options.name)
            .field("waiting", &self.waiting())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// The third phase: workers run, and requests may be submitted, here or by a [`handle`](Self::handle).
///
/// Dropping it refuses more requests, drops those that wait, and waits for those that run: however long they take, unless the thread
/// unwinds. [`stop`](Self::stop) has a deadline.
#[must_use = "dropping it stops the server"]
pub struct Running<R: ReadOnlyShared, S, Q, A> {
    handle: Handle<R, S, Q, A>,
    /// By the worker's number.
    threads: Vec<JoinHandle<()>>,
}

impl<R: ReadOnlyShared, S, Q, A> Deref for Running<R, S, Q, A> {
    type Target = Handle<R, S, Q, A>;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl<R: ReadOnlyShared, S, Q, A> Running<R, S, Q, A> {
    pub(super) fn new(server: Arc<Server<R, S, Q, A>>, workers: usize) -> Self {
        Self { handle: Handle { server }, threads: Vec::with_capacity(workers) }
    }

    pub(super) fn add(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// These workers have no thread.
    pub(super) fn never_started(&self, workers: Range<usize>) {
        for worker in workers {
            self.queue().end(worker);
        }
    }

    fn queue(&self) -> &Queue<Q, A> {
        &self.handle.server.queue
    }

    /// A handle, to submit from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle<R, S, Q, A> {
        self.handle.clone()
    }

    /// Stops gracefully: no more requests are accepted, those that wait are handled, the workers end. Waits for that so long at most;
    /// [`Duration::MAX`] is for ever.
    ///
    /// On a worker of this server, that is in a handler, all but this worker are waited for, and it is among the stuck ones.
    ///
    /// # Errors
    /// [`Stuck`], when the time is over and workers are in a call still: it names them and owns them.
    pub fn stop(self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        self.queue().stop();
        self.finish(within)
    }

    /// Stops at once: as [`stop`](Self::stop), but the requests that wait are dropped, with [`Outcome::Dropped`]. Those that run are
    /// waited for.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_at_once(self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        self.queue().stop();
        self.queue().drop_waiting();
        self.finish(within)
    }

    pub(super) fn finish(mut self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        let end = Instant::now().checked_add(within);
        if self.wait_ended(end) {
            return Ok(Stopped::new(&self.handle.server, Vec::new()));
        }
        Err(Stuck::new(self, within))
    }

    /// Waits for the workers but the calling one. Whether all have ended.
    fn wait_ended(&mut self, end: Option<Instant>) -> bool {
        let own = thread::current().id();
        let own = self.threads.iter().position(|thread| thread.thread().id() == own);
        let ended = self.queue().wait_ended(own, end);
        if !ended || own.is_some() {
            return false;
        }
        for thread in self.threads.drain(..) {
            // A worker catches all that is not its own; one that died has ended too.
            _ = thread.join();
        }
        true
    }

    /// Leaves the workers that have not ended to themselves; they end after their call.
    pub(super) fn abandon(mut self) -> Stopped<R, S> {
        self.queue().stop();
        self.queue().drop_waiting();
        let abandoned = self.workers();
        self.threads.clear();
        Stopped::new(&self.handle.server, abandoned)
    }
}

impl<R: ReadOnlyShared, S, Q, A> Drop for Running<R, S, Q, A> {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.queue().stop();
        self.queue().drop_waiting();
        if !thread::panicking() {
            self.wait_ended(None);
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for Running<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("handle", &self.handle).finish_non_exhaustive()
    }
}
