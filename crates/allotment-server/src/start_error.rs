//! Why a server did not start.

use core::fmt;
use std::io;

use allotment::AllocError;

/// A server that did not start. Nothing of it remains.
#[derive(Debug)]
#[non_exhaustive]
pub struct StartError {
    /// The first worker that could not start, or the server's name if no worker was tried.
    pub worker: Box<str>,
    /// The cause.
    pub cause: StartCause,
}

/// Why a worker did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartCause {
    /// The number of workers is 0.
    NoWorkers,
    /// The name contains a NUL byte.
    BadName,
    /// The system refused a thread.
    Thread(io::Error),
    /// The memory of the worker's pool or arena is not available.
    Memory(AllocError),
    /// The closure that makes the worker's memory panicked.
    Panicked(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worker = &self.worker;
        match &self.cause {
            StartCause::NoWorkers => {
                write!(f, "server '{worker}' has no workers: give it one at least")
            }
            StartCause::BadName => {
                write!(f, "server name '{}' has a NUL byte: leave it out", worker.escape_default())
            }
            StartCause::Thread(error) => write!(
                f,
                "worker '{worker}' has no thread: {error}; start fewer, or raise the limit of processes or of memory"
            ),
            StartCause::Memory(error) => write!(f, "worker '{worker}' has no memory: {error}"),
            StartCause::Panicked(message) => {
                write!(f, "worker '{worker}' panicked while it made its memory: {message}")
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            StartCause::Thread(error) => Some(error),
            StartCause::Memory(error) => Some(error),
            StartCause::NoWorkers | StartCause::BadName | StartCause::Panicked(_) => None,
        }
    }
}
