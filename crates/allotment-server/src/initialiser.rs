//! The first phase: the options of a server.

use core::fmt;
use std::sync::Arc;

use allotment::arena::ArenaBuilder;
use allotment::pool::LocalPoolBuilder;
use allotment::{Arena, LocalPool};

use crate::queue::WhenFull;

/// Default size of a worker's reserved pool memory, and of its arena's first chunk, in bytes.
const DEFAULT_WORKER_MEMORY: usize = 64 << 10;

/// Makes the builder of a worker's pool or arena from the worker's name.
type BuilderFactory<B> = Arc<dyn Fn(&str) -> B + Send + Sync>;

/// The first phase: the options of a server, before its objects are made.
///
/// ```
/// use allotment::{Arena, LocalPool};
/// use allotment_server::{Initialiser, WhenFull};
///
/// let initialiser = Initialiser::new("server")
///     .workers(4)
///     .queue(256)
///     .when_full(WhenFull::Refuse)
///     .pool(|worker| LocalPool::builder().name(worker).reserved(1 << 20).maximum(8 << 20))
///     .arena(|worker| Arena::builder().name(worker).hint(1 << 20));
/// ```
#[derive(Clone)]
#[must_use = "`objects` leads to the next phase"]
pub struct Initialiser {
    pub(crate) name: Box<str>,
    pub(crate) workers: usize,
    pub(crate) queue_limit: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) pool_builder: BuilderFactory<LocalPoolBuilder>,
    pub(crate) arena_builder: BuilderFactory<ArenaBuilder>,
}

impl Initialiser {
    /// Creates the options of a server with this name: as many workers as the machine has
    /// processors, and a queue of 64 requests where submitters wait for space. Each worker is named
    /// after the server with its number appended (`server-0`). Its thread has this name, of which
    /// the system keeps 15 bytes, and so have its pool and arena in
    /// [`report`](allotment::report()).
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            workers: std::thread::available_parallelism().map_or(1, core::num::NonZero::get),
            queue_limit: 64,
            when_full: WhenFull::Wait,
            pool_builder: Arc::new(|worker| {
                LocalPool::builder().name(worker).reserved(DEFAULT_WORKER_MEMORY)
            }),
            arena_builder: Arc::new(|worker| {
                Arena::builder().name(worker).hint(DEFAULT_WORKER_MEMORY)
            }),
        }
    }

    /// Sets the number of workers. With 0, [`start`](crate::Initialised::start) returns an error.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the number of requests that may wait beyond those that idle workers are about to take.
    /// With 0 a request is accepted only when a worker is free.
    pub fn queue(mut self, requests: usize) -> Self {
        self.queue_limit = requests;
        self
    }

    /// Sets what a submitter does when the queue is full. A worker of this server never waits for
    /// space in its own queue.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets how a worker's pool is made; the closure gets the worker's name. It runs on the
    /// worker's thread at the start (eager acquisition) and after a panic. By default the pool has
    /// 64 KiB reserved and no limit.
    ///
    /// A [`Budget`](allotment::Budget) that is made outside the closure limits all workers
    /// together. One that is made inside limits each worker by itself.
    pub fn pool(
        mut self,
        builder: impl Fn(&str) -> LocalPoolBuilder + Send + Sync + 'static,
    ) -> Self {
        self.pool_builder = Arc::new(builder);
        self
    }

    /// Sets how a worker's arena is made; the closure gets the worker's name. It runs on the
    /// worker's thread at the start, after a panic, and after a request that took the arena away.
    /// By default the first chunk has 64 KiB and there is no limit.
    pub fn arena(mut self, builder: impl Fn(&str) -> ArenaBuilder + Send + Sync + 'static) -> Self {
        self.arena_builder = Arc::new(builder);
        self
    }

    pub(crate) fn worker_name(&self, worker: usize) -> Box<str> {
        format!("{}-{worker}", self.name).into()
    }
}

impl fmt::Debug for Initialiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initialiser")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .field("queue", &self.queue_limit)
            .field("when_full", &self.when_full)
            .finish_non_exhaustive()
    }
}
