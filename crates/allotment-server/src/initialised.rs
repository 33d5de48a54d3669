//! The second phase: the objects are made, and no worker runs yet.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, mpsc};

use crate::context::{Context, ReadOnlyShared};
use crate::initialiser::Initialiser;
use crate::queue::Queue;
use crate::running::{Running, Server};
use crate::worker::{self, MakeMemory, NotReady};
use allotment::{AllocError, Published, Reading};

/// The function that all workers call.
pub(crate) type Handler<R, S, Q, A> =
    Arc<dyn Fn(&mut Context<'_, R, S>, Q) -> A + Send + Sync + 'static>;

/// The second phase: one thread has made the objects, and no worker runs yet.
///
/// All workers use the shared objects. The compiler refuses objects that threads cannot share:
///
/// ```compile_fail,E0277
/// # use allotment_server::Initialiser;
/// let sessions = std::cell::RefCell::new(vec!["ada"]); // `Shared::new(…)` is right
/// let server = Initialiser::new("server").objects((), sessions);
/// ```
///
/// No worker runs yet, so nothing can be submitted:
///
/// ```compile_fail,E0599
/// # use allotment_server::Initialiser;
/// let server = Initialiser::new("server").objects((), ());
/// server.submit(());
/// ```
#[must_use = "`start` leads to the next phase"]
pub struct Initialised<R: ReadOnlyShared, S> {
    pub(crate) options: Initialiser,
    pub(crate) generations: Arc<Published<R>>,
    pub(crate) shared: Arc<S>,
}

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Initialised<R, S> {
    pub(crate) fn new(options: Initialiser, read_only: R, shared: S) -> Self {
        let generations = Arc::new(Published::new(read_only));
        Self { options, generations, shared: Arc::new(shared) }
    }

    /// Returns the read-only objects.
    pub fn read_only(&self) -> Reading<'_, R> {
        self.generations.read()
    }

    /// Returns the shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// Leads to the next phase: starts the workers, and returns when each has its pool and its
    /// arena.
    ///
    /// Each request is one call of the handler, on one of the workers. A panic of the handler ends
    /// only that request, with [`Outcome::Panicked`](crate::Outcome); the worker continues with a
    /// new pool and a new arena. (This needs unwinding: a program built with `panic = "abort"`
    /// ends.) The handler owns the request and drops it inside the worker's pool. The reply is
    /// delivered or dropped outside the pool.
    ///
    /// # Errors
    /// When the number of workers is 0, the name contains a NUL byte, or a thread or its memory is
    /// not available. The workers that had started are then stopped, and everything is dropped.
    pub fn start<Q, A, H>(self, handler: H) -> Result<Running<R, S, Q, A>, StartError>
    where
        Q: Send + 'static,
        A: Send + 'static,
        H: Fn(&mut Context<'_, R, S>, Q) -> A + Send + Sync + 'static,
    {
        let Self { options, generations, shared } = self;
        let failed = |worker: Box<str>, cause| Err(StartError { worker, cause });
        if options.workers == 0 {
            return failed(options.name, StartCause::NoWorkers);
        }
        if options.name.contains('\0') {
            return failed(options.name, StartCause::BadName);
        }
        let names = (0..options.workers).map(|worker| options.worker_name(worker));
        let queue = Queue::new(next_server(), options.queue, names);
        let server = Arc::new(Server { options: options.clone(), queue, generations, shared });
        let mut running = Running::new(Arc::clone(&server), options.workers);
        let handler: Handler<R, S, Q, A> = Arc::new(handler);
        let (to_us, from_workers) = mpsc::channel();
        for worker in 0..options.workers {
            let make = MakeMemory::new(options.clone(), worker);
            let to_us = to_us.clone();
            let ready = move |ready| _ = to_us.send((worker, ready));
            let handler = Arc::clone(&handler);
            match worker::spawn(Arc::clone(&server), worker, make, handler, ready) {
                Ok(thread) => running.add(thread),
                Err(error) => {
                    running.never_started(worker..options.workers);
                    return failed(options.worker_name(worker), StartCause::Thread(error));
                }
            }
        }
        drop(to_us);
        // Each worker reports once before it works. If a worker is lost, the channel still ends.
        let mut error = None;
        for (worker, ready) in from_workers {
            let cause = match ready {
                Ok(()) => continue,
                Err(NotReady::Memory(error)) => StartCause::Memory(error),
                Err(NotReady::Panicked(message)) => StartCause::Panicked(message),
            };
            error.get_or_insert(StartError { worker: options.worker_name(worker), cause });
        }
        match error {
            None => Ok(running),
            Some(error) => Err(error),
        }
    }
}

/// Returns the next number of a server in this process, from 1.
fn next_server() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl<R: ReadOnlyShared, S: fmt::Debug> fmt::Debug for Initialised<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initialised")
            .field("options", &self.options)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

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
