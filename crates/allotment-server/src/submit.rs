//! Submitting from an async task.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{self, Poll};
use std::sync::Arc;

use crate::current_server;
use crate::outcome::Refused;
use crate::queue::Submission;
use crate::read_only_shared::ReadOnlyShared;
use crate::server_state::ServerState;
use crate::ticket::{OutcomeCell, OutcomeSender, Ticket};

/// A future that submits a request when the queue has space; made by
/// [`ServerHandle::submit_async`](crate::ServerHandle::submit_async).
#[must_use = "futures do nothing unless polled"]
pub struct Submit<R: ReadOnlyShared, S, Q, A> {
    server: Arc<ServerState<R, S, Q, A>>,
    /// `None` once the request was accepted or refused.
    submission: Option<Submission<Q, A>>,
    cell: Arc<OutcomeCell<A>>,
    /// The number by which the queue knows the task, or 0 while it does not wait.
    task: u64,
}

impl<R: ReadOnlyShared, S, Q, A> Submit<R, S, Q, A> {
    pub(crate) fn new(server: Arc<ServerState<R, S, Q, A>>, request: Q) -> Self {
        let cell = OutcomeCell::new();
        let sender = OutcomeSender::to_ticket(Arc::clone(&cell));
        Self { server, submission: Some(Submission { request, sender }), cell, task: 0 }
    }
}

/// The request is never pinned.
impl<R: ReadOnlyShared, S, Q, A> Unpin for Submit<R, S, Q, A> {}

impl<R: ReadOnlyShared, S, Q, A> Future for Submit<R, S, Q, A> {
    type Output = Result<Ticket<A>, Refused<Q>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        // Cloned outside the lock, because it runs the executor's code.
        let waker = context.waker().clone();
        let Self { server, submission, cell, task } = &mut *self;
        let (queue, when_full) = (&server.queue, server.options.when_full);
        let on_worker = current_server::polls_itself(queue.server);
        let pushed = queue.poll_push(submission, task, when_full, on_worker, waker);
        pushed.map_ok(|number| Ticket { cell: Arc::clone(cell), number, server: queue.server })
    }
}

impl<R: ReadOnlyShared, S, Q, A> Drop for Submit<R, S, Q, A> {
    fn drop(&mut self) {
        if self.task != 0 {
            self.server.queue.forget_task(self.task);
        }
        if let Some(Submission { sender, .. }) = self.submission.take() {
            sender.cancel();
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for Submit<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit")
            .field("submitted", &self.submission.is_none())
            .finish_non_exhaustive()
    }
}
