//! From the second phase to the third: starts the workers.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use crate::context::RequestContext;
use crate::initialised::Initialised;
use crate::queue::RequestQueue;
use crate::read_only_shared::ReadOnlyShared;
use crate::running::Running;
use crate::server_state::ServerState;
use crate::start_error::{StartCause, StartError};
use crate::worker::{self, Handler};
use crate::worker_memory::WorkerMemoryFactory;

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Initialised<R, S> {
    /// Leads to the next phase: starts the workers, and returns when each has its pool and its
    /// arena.
    ///
    /// Each request is one call of the handler, on one of the workers. A panic of the handler ends
    /// only that request, with [`Outcome::Panicked`](crate::Outcome); the worker continues with a
    /// new pool and a new arena. (This needs unwinding: a program built with `panic = "abort"`
    /// ends.) The program's panic hook then runs outside the worker's pool: see
    /// [`run_panic_hook_outside`](allotment::pool::run_panic_hook_outside), which this calls. The
    /// handler owns the request and drops it inside the worker's pool. The reply is
    /// delivered or dropped outside the pool.
    ///
    /// # Errors
    /// When the number of workers is 0, the name contains a NUL byte, or a thread or its memory is
    /// not available. The workers that had started are then stopped, and everything is dropped.
    pub fn start<Q, A, H>(self, handler: H) -> Result<Running<R, S, Q, A>, StartError>
    where
        Q: Send + 'static,
        A: Send + 'static,
        H: Fn(&mut RequestContext<'_, R, S>, Q) -> A + Send + Sync + 'static,
    {
        let Self { options, generations, shared } = self;
        if options.workers == 0 {
            return Err(StartError { worker: options.name, cause: StartCause::NoWorkers });
        }
        if options.name.contains('\0') {
            return Err(StartError { worker: options.name, cause: StartCause::BadName });
        }
        // What the hook keeps, such as the program's symbols, is not the request's.
        allotment::pool::run_panic_hook_outside();
        let worker_names = (0..options.workers).map(|worker| options.worker_name(worker));
        let queue = RequestQueue::new(next_server_number(), options.queue_limit, worker_names);
        let server = ServerState { options: options.clone(), queue, generations, shared };
        let server = Arc::new(server);
        let mut running = Running::new(Arc::clone(&server), options.workers);
        let handler: Handler<R, S, Q, A> = Arc::new(handler);
        let (reports, received_reports) = mpsc::channel();
        for worker in 0..options.workers {
            let factory = WorkerMemoryFactory::new(options.clone(), worker);
            let reports = reports.clone();
            let report = move |result| _ = reports.send((worker, result));
            let handler = Arc::clone(&handler);
            match worker::spawn(Arc::clone(&server), worker, factory, handler, report) {
                Ok(thread) => running.add_thread(thread),
                Err(error) => {
                    running.mark_not_started(worker..options.workers);
                    let cause = StartCause::Thread(error);
                    return Err(StartError { worker: options.worker_name(worker), cause });
                }
            }
        }
        drop(reports);
        // Each worker reports once, before its first request. The channel ends when all workers
        // have dropped their sender, even if one of them ended without a report.
        let mut first_error = None;
        for (worker, result) in received_reports {
            if let Err(cause) = result {
                let worker = options.worker_name(worker);
                first_error.get_or_insert(StartError { worker, cause });
            }
        }
        match first_error {
            None => Ok(running),
            Some(error) => Err(error),
        }
    }
}

/// Returns the next number of a server in this process, from 1.
fn next_server_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
