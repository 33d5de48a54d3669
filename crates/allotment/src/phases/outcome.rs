//! What becomes of a request.

use core::fmt;
use std::time::Duration;

/// What became of a request that was accepted. Each one gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// The handler's reply.
    Done(A),
    /// The handler panicked. The worker lives on.
    Panicked(PanickedRequest),
    /// The server was stopped before a worker took it.
    Dropped,
}

impl<A> Outcome<A> {
    /// The reply, if there is one.
    pub fn done(self) -> Option<A> {
        match self {
            Self::Done(reply) => Some(reply),
            Self::Panicked(_) | Self::Dropped => None,
        }
    }
}

/// A request that ended in a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PanickedRequest {
    /// What the panic said.
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

/// A request that was not accepted, and why. The request is in it.
pub struct Refused<Q> {
    /// The request, untouched.
    pub request: Q,
    /// Why it was not accepted.
    pub because: RefusedBecause,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedBecause {
    /// So many requests wait already.
    Full(usize),
    /// The queue was full for so long.
    FullFor(Duration),
    /// The queue is full, and the caller is one of the workers that should empty it: it must not wait.
    FullOnWorker,
    /// The server stops, or has stopped.
    Stopping,
}

impl fmt::Display for RefusedBecause {
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
                "the queue is full, and one of the workers that empty it can't wait for that: submit from another thread, or later",
            ),
            Self::Stopping => f.write_str("the server stops and takes no more requests"),
        }
    }
}

impl<Q> fmt::Display for Refused<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request was refused: {}", self.because)
    }
}

impl<Q> fmt::Debug for Refused<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("because", &self.because).finish_non_exhaustive()
    }
}

impl<Q> std::error::Error for Refused<Q> {}
