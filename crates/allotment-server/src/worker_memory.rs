//! A worker's memory for its requests: a pool and an arena.

use core::cell::OnceCell;

use allotment::{AllocError, Arena, LocalPool};

use crate::initialiser::Initialiser;

/// Makes the arenas of one worker.
pub(crate) struct WorkerMemoryFactory {
    pub worker_name: Box<str>,
    options: Initialiser,
}

impl WorkerMemoryFactory {
    pub(crate) fn new(options: Initialiser, worker: usize) -> Self {
        Self { worker_name: options.worker_name(worker), options }
    }

    /// Makes an arena. If its first chunk is not available, the arena is empty, and the first
    /// allocation gets the error.
    pub(crate) fn arena(&self) -> Arena {
        let builder = (self.options.arena_builder)(&self.worker_name);
        match builder.clone().try_build() {
            Ok(arena) => arena,
            Err(_) => builder.hint(0).build(),
        }
    }
}

pub(crate) struct WorkerMemory {
    pub factory: WorkerMemoryFactory,
    pub pool: LocalPool,
    /// Empty while a request has taken the arena away.
    pub arena: OnceCell<Arena>,
}

impl WorkerMemory {
    /// Acquires all of the memory, or returns an error.
    pub(crate) fn acquire(factory: WorkerMemoryFactory) -> Result<Self, AllocError> {
        let name = &factory.worker_name;
        let pool = (factory.options.pool_builder)(name).try_build()?;
        let arena = (factory.options.arena_builder)(name).try_build()?;
        Ok(Self { factory, pool, arena: OnceCell::from(arena) })
    }

    /// Prepares the memory for the next request: an empty arena.
    pub(crate) fn reset(&mut self) {
        match self.arena.get_mut() {
            Some(arena) => arena.reset(),
            None => _ = self.arena.set(self.factory.arena()),
        }
    }

    /// Makes a new pool and a new arena after a panic. If there is no memory for a second pool
    /// beside the first, the new pool reserves none. If no pool can be made at all, the first one
    /// stays: a panic leaves it intact.
    pub(crate) fn replace(&mut self) {
        drop(self.arena.take());
        let builder = (self.factory.options.pool_builder)(&self.factory.worker_name);
        if let Ok(pool) = builder.clone().try_build().or_else(|_| builder.reserved(0).try_build()) {
            self.pool = pool;
        }
        _ = self.arena.set(self.factory.arena());
    }
}
