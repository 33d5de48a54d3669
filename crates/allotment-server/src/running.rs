//! The third phase: the workers run.

use core::fmt;
use core::ops::{Deref, Range};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::context::ReadOnlyShared;
use crate::initialiser::Initialiser;
use crate::outcome::{Outcome, Refused};
use crate::queue::{Counts, Queue, WorkerState};
use crate::stopped::{Stopped, Stuck};
use crate::ticket::{Answer, Place, Ticket};
use crate::worker;
use allotment::{Published, Reading};

/// The state that the workers, the handles and the owner share.
pub(crate) struct Server<R: ReadOnlyShared, S, Q, A> {
    pub options: Initialiser,
    pub queue: Queue<Q, A>,
    pub generations: Arc<Published<R>>,
    pub shared: Arc<S>,
}

/// Submits requests to a running server, from any thread. A handle can be cloned, and may outlive
/// the server: its requests are then refused.
pub struct Handle<R: ReadOnlyShared, S, Q, A> {
    server: Arc<Server<R, S, Q, A>>,
}

impl<R: ReadOnlyShared, S, Q, A> Clone for Handle<R, S, Q, A> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server) }
    }
}

impl<R: ReadOnlyShared, S, Q, A> Handle<R, S, Q, A> {
    /// Submits a request and returns a ticket for the reply.
    ///
    /// # Errors
    /// With the request, when the server is stopping, or when the queue is full and
    /// [`when_full`](Initialiser::when_full) allows no (further) wait.
    pub fn submit(&self, request: Q) -> Result<Ticket<A>, Refused<Q>> {
        let place = Place::new();
        let number = self.put(request, Answer::to_ticket(Arc::clone(&place)))?;
        Ok(Ticket { place, number, server: self.server.queue.server })
    }

    /// Submits a request with a callback for its outcome. Returns the request's number. The
    /// callback runs once: on the worker's thread, outside the worker's pool, or, if the request is
    /// dropped at the stop, on the thread that stops the server.
    ///
    /// The callback may submit, publish and begin the stop. Its panic is counted in
    /// [`Counts::failed_replies`] and goes no further. The worker takes no other request until the
    /// callback returns.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit). The callback is then dropped without a call.
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

    /// Publishes new read-only objects. Each worker gets them with its next request; a running
    /// request keeps the objects that it began with. The old objects are dropped when the last such
    /// request ends (see [`Published`](allotment::Published)). Returns the number of the new
    /// generation. The first generation has number 1.
    pub fn publish(&self, read_only: R) -> u64 {
        self.server.generations.publish(read_only)
    }

    /// Returns the read-only objects that were published last.
    pub fn read_only(&self) -> Reading<'_, R> {
        self.server.generations.read()
    }

    /// Returns the number of the generation that was published last.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.server.generations.generation()
    }

    /// Returns the shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.server.shared
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.server.queue.waiting()
    }

    /// Returns the state of the workers that have not ended.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerState> {
        self.server.queue.living()
    }

    /// Returns how many requests there have been, by outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.server.queue.counts()
    }

    /// Begins the stop without waiting for it: no more requests are accepted, and the workers
    /// handle the waiting requests and end. A handler may call this. [`Running::stop`] waits.
    pub fn begin_stop(&self) {
        self.server.queue.stop();
    }

    /// Whether the server has been asked to stop.
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

/// The third phase: the workers run. Requests may be submitted here or through a
/// [`handle`](Self::handle).
///
/// Dropping this value refuses further requests, drops the waiting ones, and waits for the running
/// ones, however long they take. It does not wait if the thread is unwinding. [`stop`](Self::stop)
/// has a deadline.
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
    pub(crate) fn new(server: Arc<Server<R, S, Q, A>>, workers: usize) -> Self {
        Self { handle: Handle { server }, threads: Vec::with_capacity(workers) }
    }

    pub(crate) fn add(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// Marks these workers as ended: they have no thread.
    pub(crate) fn never_started(&self, workers: Range<usize>) {
        for worker in workers {
            self.queue().end(worker);
        }
    }

    fn queue(&self) -> &Queue<Q, A> {
        &self.handle.server.queue
    }

    /// Returns a handle, for submitting from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle<R, S, Q, A> {
        self.handle.clone()
    }

    /// Stops gracefully: no more requests are accepted, the waiting ones are handled, and the
    /// workers end. Waits for that at most `within`; [`Duration::MAX`] waits without a limit.
    ///
    /// A handler must not wait for its own worker. So on a worker of this server the call waits for
    /// the other workers only, and returns [`Stuck`] with the calling worker in it.
    ///
    /// # Errors
    /// [`Stuck`], when workers are still in a request after that time. It names these workers and
    /// owns them.
    pub fn stop(self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        self.queue().stop();
        self.finish(within)
    }

    /// Stops at once: as [`stop`](Self::stop), but the waiting requests are dropped with
    /// [`Outcome::Dropped`]. The running ones are waited for.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub fn stop_at_once(self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        self.queue().stop();
        self.queue().drop_waiting();
        self.finish(within)
    }

    pub(crate) fn finish(mut self, within: Duration) -> Result<Stopped<R, S>, Stuck<R, S, Q, A>> {
        let end = Instant::now().checked_add(within);
        if self.wait_ended(end) {
            return Ok(Stopped::new(&self.handle.server, Vec::new()));
        }
        Err(Stuck::new(self, within))
    }

    /// Waits for all workers except the calling thread. Returns whether all workers have ended.
    fn wait_ended(&mut self, end: Option<Instant>) -> bool {
        let own = thread::current().id();
        let own = self.threads.iter().position(|thread| thread.thread().id() == own);
        let ended = self.queue().wait_ended(own, end);
        if !ended || own.is_some() {
            return false;
        }
        for thread in self.threads.drain(..) {
            // A worker catches every panic of code that it calls. A worker that died has ended too.
            _ = thread.join();
        }
        true
    }

    /// Stops waiting for the workers that have not ended. They end after their current request.
    pub(crate) fn abandon(mut self) -> Stopped<R, S> {
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
