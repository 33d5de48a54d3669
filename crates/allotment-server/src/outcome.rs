//! What becomes of a request: its outcome if it was accepted, and the reason if it was refused.

use core::fmt;
use std::time::Duration;

/// The outcome of an accepted request. Each accepted request has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// The handler's reply.
    Done(A),
    /// The handler panicked. The worker continues.
    Panicked(PanickedRequest),
    /// The request was dropped: the server stopped before a worker took it.
    Dropped,
}

impl<A> Outcome<A> {
    /// Returns the reply, if there is one.
    pub fn done(self) -> Option<A> {
        match self {
            Self::Done(reply) => Some(reply),
            Self::Panicked(_) | Self::Dropped => None,
        }
    }
}

/// A request whose handler panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PanickedRequest {
    /// The panic's message.
    pub message: String,
    /// The worker's name.
    pub worker: Box<str>,
    /// The request's number.
    pub request: u64,
}

impl fmt::Display for PanickedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, worker, request } = self;
        write!(f, "request {request} panicked on worker '{worker}': {message}")
    }
}

impl std::error::Error for PanickedRequest {}

/// A request that was not accepted, and the reason. It contains the request.
pub struct Refused<Q> {
    /// The request, unchanged.
    pub request: Q,
    /// The reason.
    pub reason: RefusalReason,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The queue is full: this many requests are waiting.
    Full(usize),
    /// The queue was full for this long.
    FullFor(Duration),
    /// The queue is full, and the caller is a worker of this server, so it must not wait.
    FullOnWorker,
    /// The server is stopping or has stopped.
    Stopping,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(waiting) => write!(
                f,
                "the queue is full ({waiting} requests wait): submit later, or give the server more workers or a longer queue"
            ),
            Self::FullFor(time) => write!(
                f,
                "the queue was full for {time:?}: submit later, or give the server more workers or a longer queue"
            ),
            Self::FullOnWorker => f.write_str(
                "the queue is full, and a worker of the same server must not wait for space in it: submit later, or from another thread",
            ),
            Self::Stopping => f.write_str("the server is stopping: it accepts no more requests"),
        }
    }
}

impl<Q> fmt::Display for Refused<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request was refused: {}", self.reason)
    }
}

impl<Q> fmt::Debug for Refused<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<Q> std::error::Error for Refused<Q> {}
