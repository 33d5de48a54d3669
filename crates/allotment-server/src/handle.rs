//! The handle that submits requests.

use core::fmt;
use std::sync::Arc;

use allotment::sealed::PublishedGuard;

use crate::counts::RequestCounts;
use crate::current_server;
use crate::outcome::{Outcome, Refused};
use crate::queue::WorkerState;
use crate::read_only_shared::ReadOnlyShared;
use crate::server_state::ServerState;
use crate::submit::Submit;
use crate::ticket::{OutcomeCell, OutcomeSender, Ticket};

/// Submits requests to a running server, from any thread. A handle can be cloned, and may outlive
/// the server: its requests are then refused.
pub struct ServerHandle<R: ReadOnlyShared, S, Q, A> {
    pub(crate) server: Arc<ServerState<R, S, Q, A>>,
}

impl<R: ReadOnlyShared, S, Q, A> Clone for ServerHandle<R, S, Q, A> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server) }
    }
}

impl<R: ReadOnlyShared, S, Q, A> ServerHandle<R, S, Q, A> {
    /// Submits a request and returns a ticket for the reply.
    ///
    /// # Errors
    /// With the request, when the server is stopping, or when the queue is full and
    /// [`when_full`](crate::Initialiser::when_full) allows no (further) wait.
    pub fn submit(&self, request: Q) -> Result<Ticket<A>, Refused<Q>> {
        let cell = OutcomeCell::new();
        let number = self.push(request, OutcomeSender::to_ticket(Arc::clone(&cell)))?;
        Ok(Ticket { cell, number, server: self.server.queue.server })
    }

    /// Submits a request with a callback for its outcome. Returns the request's number. The
    /// callback runs once: on the worker's thread, outside the worker's pool, or, if the request is
    /// dropped at the stop, on the thread that stops the server.
    ///
    /// The callback may submit, publish and begin the stop. Its panic is counted in
    /// [`RequestCounts::failed_replies`] and goes no further. The worker takes no other request
    /// until the callback returns.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit). The callback is then dropped without a call.
    pub fn submit_with(
        &self,
        request: Q,
        on_reply: impl FnOnce(Outcome<A>) + Send + 'static,
    ) -> Result<u64, Refused<Q>> {
        self.push(request, OutcomeSender::to_callback(Box::new(on_reply)))
    }

    /// Submits a request from an async task: the returned future waits for space in the queue
    /// without blocking the thread. Its output is what [`submit`](Self::submit) returns.
    ///
    /// With [`WhenFull::Refuse`](crate::WhenFull::Refuse) it does not wait. Otherwise it waits as
    /// long as it is polled; for a limit, use the runtime's timer. A future that is dropped before
    /// its end submits nothing, and drops the request.
    ///
    /// Tasks are woken in the order in which they began to wait. A task that was woken holds no
    /// space. If it is neither polled nor dropped, the next ones are woken in its stead: when a
    /// worker takes a request, when another woken task submits its own, or, while a worker is idle,
    /// within milliseconds. Until one of these happens, space in the queue may stay unused.
    pub fn submit_async(&self, request: Q) -> Submit<R, S, Q, A> {
        Submit::new(Arc::clone(&self.server), request)
    }

    fn push(&self, request: Q, sender: OutcomeSender<A>) -> Result<u64, Refused<Q>> {
        let queue = &self.server.queue;
        let when_full = self.server.options.when_full;
        queue.push(request, sender, when_full, current_server::is(queue.server))
    }

    /// Publishes new read-only objects. Each worker gets them with its next request; a running
    /// request keeps the objects that it began with. The old objects are dropped when the last such
    /// request ends (see [`Published`](allotment::Published)). Returns the number of the new
    /// generation. The first generation has number 1.
    pub fn publish(&self, read_only: R) -> u64 {
        self.server.generations.publish(read_only)
    }

    /// Returns the read-only objects that were published last.
    pub fn read_only(&self) -> PublishedGuard<'_, R> {
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
        self.server.queue.workers()
    }

    /// Returns how many requests there have been, by outcome.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        self.server.queue.counts()
    }

    /// Begins the stop without waiting for it: no more requests are accepted, and the workers
    /// handle the waiting requests and end. A handler may call this.
    /// [`Running::stop`](crate::Running::stop) waits.
    pub fn begin_stop(&self) {
        self.server.queue.stop();
    }

    /// Whether the server has been asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.server.queue.is_stopping()
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for ServerHandle<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("server", &self.server.options.name)
            .field("waiting", &self.waiting())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
