//! A worker: its memory and its loop.

use core::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::context::{Context, ReadOnlyShared};
use crate::initialiser::Initialiser;
use crate::outcome::{Outcome, PanickedRequest};
use crate::panics::{forget_panic, message, quietly};
use crate::queue::Job;
use crate::running::Server;
use allotment::{AllocError, Arena, LocalPool, Published, Reading};

thread_local! {
    /// The server that this thread works for, or 0.
    static SERVER: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is one of this server's workers.
pub(crate) fn is_of(server: u64) -> bool {
    SERVER.with(Cell::get) == server
}

/// Makes a worker's memory.
pub(crate) struct MakeMemory {
    pub name: Box<str>,
    options: Initialiser,
}

impl MakeMemory {
    pub(crate) fn new(options: Initialiser, worker: usize) -> Self {
        Self { name: options.worker_name(worker), options }
    }

    /// Makes an arena. If its first chunk is not available, the arena is empty, and the first
    /// allocation gets the error.
    pub(crate) fn arena(&self) -> Arena {
        let builder = (self.options.arena)(&self.name);
        match builder.clone().try_build() {
            Ok(arena) => arena,
            Err(_) => builder.hint(0).build(),
        }
    }
}

/// A worker's memory for its requests.
struct Memory {
    make: MakeMemory,
    pool: LocalPool,
    arena: OnceCell<Arena>,
}

impl Memory {
    /// Eager acquisition: returns all of the memory, or an error.
    fn acquire(make: MakeMemory) -> Result<Self, AllocError> {
        let pool = (make.options.pool)(&make.name).try_build()?;
        let arena = (make.options.arena)(&make.name).try_build()?;
        Ok(Self { make, pool, arena: OnceCell::from(arena) })
    }

    /// Prepares the memory for the next request: an empty arena.
    fn reset(&mut self) {
        match self.arena.get_mut() {
            Some(arena) => arena.reset(),
            None => _ = self.arena.set(self.make.arena()),
        }
    }

    /// Makes a new pool and arena after a panic. If there is no memory for a second pool beside the
    /// first, the new pool reserves none. If no pool can be made at all, the first one stays: a
    /// panic leaves it intact.
    fn renew(&mut self) {
        drop(self.arena.take());
        let builder = (self.make.options.pool)(&self.make.name);
        if let Ok(pool) = builder.clone().try_build().or_else(|_| builder.reserved(0).try_build()) {
            self.pool = pool;
        }
        _ = self.arena.set(self.make.arena());
    }
}

/// Reports that the worker has ended, for any reason.
struct Ended<'w, R: ReadOnlyShared, S, Q, A>(&'w Server<R, S, Q, A>, usize);

impl<R: ReadOnlyShared, S, Q, A> Drop for Ended<'_, R, S, Q, A> {
    fn drop(&mut self) {
        self.0.queue.end(self.1);
    }
}

/// A worker's report about its start.
pub(crate) type Ready = Result<(), NotReady>;

pub(crate) enum NotReady {
    Memory(AllocError),
    Panicked(String),
}

/// Runs a worker from start to end.
pub(crate) fn work<R: ReadOnlyShared, S, Q, A>(
    server: &Server<R, S, Q, A>,
    worker: usize,
    make: MakeMemory,
    handler: &dyn Fn(&mut Context<'_, R, S>, Q) -> A,
    ready: impl FnOnce(Ready),
) {
    SERVER.with(|current| current.set(server.queue.server));
    let _ended = Ended(server, worker);
    let made = catch_unwind(AssertUnwindSafe(|| Memory::acquire(make)));
    let mut memory = match made {
        Ok(Ok(memory)) => {
            ready(Ok(()));
            memory
        }
        Ok(Err(error)) => return ready(Err(NotReady::Memory(error))),
        Err(payload) => return ready(Err(NotReady::Panicked(message(payload)))),
    };
    while let Some(job) = server.queue.take(worker) {
        serve(server, worker, &mut memory, handler, job);
    }
}

fn serve<R: ReadOnlyShared, S, Q, A>(
    server: &Server<R, S, Q, A>,
    worker: usize,
    memory: &mut Memory,
    handler: &dyn Fn(&mut Context<'_, R, S>, Q) -> A,
    job: Job<Q, A>,
) {
    let Job { number, request, answer } = job;
    let counts = server.queue.counts_of(worker);
    let generation = read(&server.generations);
    let stopping = || server.queue.is_stopping();
    let handled = catch_unwind(AssertUnwindSafe(|| {
        let mut context = Context {
            read_only: &*generation,
            shared: &*server.shared,
            arena: &mut memory.arena,
            make: &memory.make,
            worker,
            request: number,
            generation: Reading::generation(&generation),
            stopping: &stopping,
        };
        memory.pool.enter(|| handler(&mut context, request))
    }));
    // The last reader of an old generation drops it.
    quietly(|| drop(generation));
    let (outcome, whole) = match handled {
        Ok(reply) => {
            counts.done.increment();
            (Outcome::Done(reply), true)
        }
        Err(payload) => {
            counts.panicked.increment();
            let (message, worker) = (message(payload), memory.make.name.clone());
            (Outcome::Panicked(PanickedRequest { message, worker, request: number }), false)
        }
    };
    if !answer.give(outcome) {
        counts.failed_replies.increment();
    }
    // The closures that make the memory are the user's, and may panic.
    if !(whole && quietly(|| memory.reset())) {
        quietly(|| memory.renew());
    }
}

/// Returns the current generation. The read may drop an old generation, whose destructor may panic.
/// Each generation is dropped once, so the loop ends.
fn read<R: ReadOnlyShared>(generations: &Published<R>) -> Reading<'_, R> {
    loop {
        match catch_unwind(AssertUnwindSafe(|| generations.read())) {
            Ok(reading) => return reading,
            Err(payload) => forget_panic(payload),
        }
    }
}

/// Starts a worker's thread.
pub(crate) fn spawn<R, S, Q, A>(
    server: Arc<Server<R, S, Q, A>>,
    worker: usize,
    make: MakeMemory,
    handler: crate::initialised::Handler<R, S, Q, A>,
    ready: impl FnOnce(Ready) + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>>
where
    R: ReadOnlyShared,
    S: Send + Sync + 'static,
    Q: Send + 'static,
    A: Send + 'static,
{
    let builder = std::thread::Builder::new().name(make.name.to_string());
    builder.spawn(move || work(&server, worker, make, &*handler, ready))
}
