//! A worker: its memory and its loop.

use core::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::context::{Context, ReadOnlyShared};
use super::initialiser::Initialiser;
use super::outcome::{Outcome, PanickedRequest};
use super::panics::{forget_panic, message, quietly};
use super::queue::Job;
use super::running::Server;
use crate::sealed::{Published, Reading};
use crate::{AllocError, Arena, LocalPool};

thread_local! {
    /// The server that this thread works for, or 0.
    static SERVER: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is one of this server's workers.
pub(super) fn is_of(server: u64) -> bool {
    SERVER.with(Cell::get) == server
}

/// How a worker makes its memory.
pub(super) struct MakeMemory {
    pub name: Box<str>,
    options: Initialiser,
}

impl MakeMemory {
    pub(super) fn new(options: Initialiser, worker: usize) -> Self {
        Self { name: options.worker_name(worker), options }
    }

    /// An arena. Where its first chunk can't be had, an empty one: whoever puts something in gets the error.
    pub(super) fn arena(&self) -> Arena {
        let builder = (self.options.arena)(&self.name);
        match builder.clone().try_build() {
            Ok(arena) => arena,
            Err(_) => builder.hint(0).build(),
        }
    }
}

/// What a worker has for its requests.
struct Memory {
    make: MakeMemory,
    pool: LocalPool,
    arena: OnceCell<Arena>,
}

impl Memory {
    /// Eager acquisition: all of it, or an error.
    fn acquire(make: MakeMemory) -> Result<Self, AllocError> {
        let pool = (make.options.pool)(&make.name).try_build()?;
        let arena = (make.options.arena)(&make.name).try_build()?;
        Ok(Self { make, pool, arena: OnceCell::from(arena) })
    }

    /// What the next request finds: an empty arena.
    fn reset(&mut self) {
        match self.arena.get_mut() {
            Some(arena) => arena.reset(),
            None => _ = self.arena.set(self.make.arena()),
        }
    }

    /// Pool and arena anew, after a panic in them. Where the memory for a second pool can't be had beside that of the first, it takes
    /// none yet; where no pool can be had at all, the first one stays, which a panic has left whole.
    fn renew(&mut self) {
        drop(self.arena.take());
        let builder = (self.make.options.pool)(&self.make.name);
        if let Ok(pool) = builder.clone().try_build().or_else(|_| builder.reserved(0).try_build()) {
            self.pool = pool;
        }
        _ = self.arena.set(self.make.arena());
    }
}

/// Says that the worker has ended, however it did.
struct Ended<'w, R: ReadOnlyShared, S, Q, A>(&'w Server<R, S, Q, A>, usize);

impl<R: ReadOnlyShared, S, Q, A> Drop for Ended<'_, R, S, Q, A> {
    fn drop(&mut self) {
        self.0.queue.end(self.1);
    }
}

/// What a worker says of its start.
pub(super) type Ready = Result<(), NotReady>;

pub(super) enum NotReady {
    Memory(AllocError),
    Panicked(String),
}

/// A worker's life.
pub(super) fn work<R: ReadOnlyShared, S, Q, A>(
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
    // The closures that make memory are not ours.
    if !(whole && quietly(|| memory.reset())) {
        quietly(|| memory.renew());
    }
}

/// Reads, although that may drop an old generation, whose destructor may panic: each of them once.
fn read<R: ReadOnlyShared>(generations: &Published<R>) -> Reading<'_, R> {
    loop {
        match catch_unwind(AssertUnwindSafe(|| generations.read())) {
            Ok(reading) => return reading,
            Err(payload) => forget_panic(payload),
        }
    }
}

/// A worker's thread.
pub(super) fn spawn<R, S, Q, A>(
    server: Arc<Server<R, S, Q, A>>,
    worker: usize,
    make: MakeMemory,
    handler: super::initialised::Handler<R, S, Q, A>,
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
