//! The context that a handler gets with each request.

use core::cell::OnceCell;
use core::fmt;

use allotment::{Arena, PoolRef};

use crate::worker_memory::WorkerMemoryFactory;

/// The context that a handler gets with each request: the server's objects, and memory for this
/// request.
///
/// While the handler runs, the worker's pool is entered. The pool is
/// [`current`](allotment::pool::current()), and with
/// [`PoolGlobalAlloc`](allotment::PoolGlobalAlloc) every `Box`, `Vec` and `String` comes from it.
/// Objects made there may go anywhere, also with the reply.
///
/// Objects made in the arena must not leave the request: the arena is reset before the next one.
///
/// ```compile_fail
/// # use allotment_server::{Initialiser, RequestContext};
/// let server = Initialiser::new("server").objects((), ());
/// let running = server.start(|context: &mut RequestContext<'_, (), ()>, ()| &*context.arena().alloc_str("gone"));
/// ```
pub struct RequestContext<'w, R, S> {
    pub(crate) read_only: &'w R,
    pub(crate) shared: &'w S,
    pub(crate) arena: &'w mut OnceCell<Arena>,
    pub(crate) memory_factory: &'w WorkerMemoryFactory,
    pub(crate) worker: usize,
    pub(crate) request: u64,
    pub(crate) generation: u64,
    pub(crate) is_stopping: &'w dyn Fn() -> bool,
}

impl<'w, R, S> RequestContext<'w, R, S> {
    /// Returns the read-only shared objects, of the generation that was current when this request
    /// began.
    #[inline]
    #[must_use]
    pub fn read_only(&self) -> &'w R {
        self.read_only
    }

    /// Returns the number of that generation. The first generation has number 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the shared objects.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &'w S {
        self.shared
    }

    /// Returns the request's arena, which is empty when the request begins.
    #[inline]
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.arena.get_or_init(|| self.memory_factory.arena())
    }

    /// Takes the request's arena away with all that is in it, for a reply that owns what was
    /// rendered there; see [`ArenaBytes`](crate::ArenaBytes). The next request gets a new arena,
    /// made of the recycler's warm chunks.
    #[must_use]
    pub fn take_arena(&mut self) -> Arena {
        self.arena.take().unwrap_or_else(|| self.memory_factory.arena())
    }

    /// Returns the worker's number, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn worker_name(&self) -> &'w str {
        &self.memory_factory.worker_name
    }

    /// Returns the request's number. The first accepted request has number 1.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Returns the thread's current pool: the worker's, unless the handler has entered another.
    #[must_use]
    pub fn pool(&self) -> PoolRef {
        allotment::pool::current()
    }

    /// Whether the server has been asked to stop. A long call may check this and end early.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        (self.is_stopping)()
    }
}

impl<R, S> fmt::Debug for RequestContext<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext")
            .field("worker", &self.worker_name())
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
