//! The first phase: what the server is to be.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::context::ReadOnlyShared;
use super::initialised::Initialised;
use crate::arena::ArenaBuilder;
use crate::local::LocalPoolBuilder;
use crate::{Arena, LocalPool};

/// What a worker's pool and arena have from the start, if they were not told otherwise.
const RESERVED: usize = 64 << 10;

/// What a submitter does when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Wait until there is room.
    Wait,
    /// Wait so long at most.
    WaitFor(Duration),
    /// Give the request back at once.
    Refuse,
}

type Make<B> = Arc<dyn Fn(&str) -> B + Send + Sync>;

/// The first phase: options of a server, and the objects that its workers will use.
///
/// ```
/// use allotment::phases::{Initialiser, WhenFull};
/// use allotment::{Arena, LocalPool};
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
    pub(super) name: Box<str>,
    pub(super) workers: usize,
    pub(super) queue: usize,
    pub(super) when_full: WhenFull,
    pub(super) pool: Make<LocalPoolBuilder>,
    pub(super) arena: Make<ArenaBuilder>,
}

impl Initialiser {
    /// A server of this name, with as many workers as the machine has processors and a queue of 64 requests, where submitters wait
    /// for room. Workers are called by the name and their number (`server-0`): so are their threads, of which the system keeps 15
    /// bytes, and their pools and arenas in [`report`](crate::report()).
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            workers: std::thread::available_parallelism().map_or(1, core::num::NonZero::get),
            queue: 64,
            when_full: WhenFull::Wait,
            pool: Arc::new(|worker| LocalPool::builder().name(worker).reserved(RESERVED)),
            arena: Arc::new(|worker| Arena::builder().name(worker).hint(RESERVED)),
        }
    }

    /// How many workers; at least one, or [`start`](Initialised::start) says so.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many requests may wait beyond those that idle workers are about to take. With 0 a request is accepted when a worker is free
    /// for it.
    pub fn queue(mut self, requests: usize) -> Self {
        self.queue = requests;
        self
    }

    /// What a submitter does when the queue is full. A worker of this server never waits for room in its own queue.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// How a worker's pool is made; the closure gets the worker's name. Called on the worker's thread at its start (eager acquisition),
    /// and after a panic. If this is not called, 64 KiB are reserved and there is no limit.
    ///
    /// A [`Budget`](crate::Budget) that is made outside of the closure holds for all workers together, one made inside for each.
    pub fn pool(mut self, make: impl Fn(&str) -> LocalPoolBuilder + Send + Sync + 'static) -> Self {
        self.pool = Arc::new(make);
        self
    }

    /// How a worker's arena is made; the closure gets the worker's name. Called on the worker's thread at its start, after a panic,
    /// and when a request took the arena. If this is not called, its first chunk has 64 KiB and there is no limit.
    pub fn arena(mut self, make: impl Fn(&str) -> ArenaBuilder + Send + Sync + 'static) -> Self {
        self.arena = Arc::new(make);
        self
    }

    /// The next phase, with objects that are there.
    pub fn objects<R: ReadOnlyShared, S: Send + Sync + 'static>(
        self,
        read_only: R,
        shared: S,
    ) -> Initialised<R, S> {
        Initialised::new(self, read_only, shared)
    }

    pub(super) fn worker_name(&self, index: usize) -> Box<str> {
        format!("{}-{index}", self.name).into()
    }
}

impl fmt::Debug for Initialiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initialiser")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .field("queue", &self.queue)
            .field("when_full", &self.when_full)
            .finish_non_exhaustive()
    }
}
