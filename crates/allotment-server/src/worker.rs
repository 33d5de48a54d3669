//! A worker's thread: it makes its memory, and serves requests until the server stops.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use allotment::Published;
use allotment::sealed::PublishedGuard;

use crate::context::RequestContext;
use crate::current_server;
use crate::outcome::{Outcome, PanickedRequest};
use crate::panics::{drop_payload, run_catching, take_message};
use crate::queue::QueuedRequest;
use crate::read_only_shared::ReadOnlyShared;
use crate::server_state::ServerState;
use crate::start_error::StartCause;
use crate::worker_memory::{WorkerMemory, WorkerMemoryFactory};

/// The function that all workers call.
pub(crate) type Handler<R, S, Q, A> =
    Arc<dyn Fn(&mut RequestContext<'_, R, S>, Q) -> A + Send + Sync + 'static>;

/// Starts a worker's thread. The worker calls `report` once, before its first request.
pub(crate) fn spawn<R, S, Q, A>(
    server: Arc<ServerState<R, S, Q, A>>,
    worker: usize,
    factory: WorkerMemoryFactory,
    handler: Handler<R, S, Q, A>,
    report: impl FnOnce(Result<(), StartCause>) + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    R: ReadOnlyShared,
    S: Send + Sync + 'static,
    Q: Send + 'static,
    A: Send + 'static,
{
    let builder = thread::Builder::new().name(factory.worker_name.to_string());
    builder.spawn(move || run(&server, worker, factory, &*handler, report))
}

/// Marks the worker as ended when it is dropped, so that this happens after a panic too.
struct EndGuard<'w, R: ReadOnlyShared, S, Q, A> {
    server: &'w ServerState<R, S, Q, A>,
    worker: usize,
}

impl<R: ReadOnlyShared, S, Q, A> Drop for EndGuard<'_, R, S, Q, A> {
    fn drop(&mut self) {
        self.server.queue.mark_ended(self.worker);
    }
}

/// Runs a worker from its start to its end.
fn run<R: ReadOnlyShared, S, Q, A>(
    server: &ServerState<R, S, Q, A>,
    worker: usize,
    factory: WorkerMemoryFactory,
    handler: &dyn Fn(&mut RequestContext<'_, R, S>, Q) -> A,
    report: impl FnOnce(Result<(), StartCause>),
) {
    current_server::set(server.queue.server);
    let _end_guard = EndGuard { server, worker };
    let acquired = catch_unwind(AssertUnwindSafe(|| WorkerMemory::acquire(factory)));
    let mut memory = match acquired {
        Ok(Ok(memory)) => memory,
        Ok(Err(error)) => return report(Err(StartCause::Memory(error))),
        Err(payload) => return report(Err(StartCause::Panicked(take_message(payload)))),
    };
    report(Ok(()));
    while let Some(request) = server.queue.take_next(worker) {
        serve(server, worker, &mut memory, handler, request);
    }
}

/// Calls the handler for one request, delivers the outcome, and prepares the memory for the next
/// request.
fn serve<R: ReadOnlyShared, S, Q, A>(
    server: &ServerState<R, S, Q, A>,
    worker: usize,
    memory: &mut WorkerMemory,
    handler: &dyn Fn(&mut RequestContext<'_, R, S>, Q) -> A,
    request: QueuedRequest<Q, A>,
) {
    let QueuedRequest { number, request, sender } = request;
    let counts = server.queue.worker_counts(worker);
    let generation = read_generation(&server.generations);
    let is_stopping = || server.queue.is_stopping();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut context = RequestContext {
            read_only: &*generation,
            shared: &*server.shared,
            arena: &mut memory.arena,
            memory_factory: &memory.factory,
            worker,
            request: number,
            generation: PublishedGuard::generation(&generation),
            is_stopping: &is_stopping,
        };
        memory.pool.enter(|| handler(&mut context, request))
    }));
    // The last reader of an old generation drops it, and that drop may panic.
    run_catching(|| drop(generation));
    let panicked = result.is_err();
    let outcome = match result {
        Ok(reply) => {
            counts.done.increment();
            Outcome::Done(reply)
        }
        Err(payload) => {
            counts.panicked.increment();
            let (message, worker) = (take_message(payload), memory.factory.worker_name.clone());
            Outcome::Panicked(PanickedRequest { message, worker, request: number })
        }
    };
    if !sender.send(outcome) {
        counts.failed_replies.increment();
    }
    // The closures that make the memory are the user's, and may panic.
    if panicked || !run_catching(|| memory.reset()) {
        run_catching(|| memory.replace());
    }
}

/// Returns the current generation. The read may drop an old generation, whose destructor may panic.
/// Each generation is dropped once, so the loop ends.
fn read_generation<R: ReadOnlyShared>(generations: &Published<R>) -> PublishedGuard<'_, R> {
    loop {
        match catch_unwind(AssertUnwindSafe(|| generations.read())) {
            Ok(generation) => return generation,
            Err(payload) => drop_payload(payload),
        }
    }
}
