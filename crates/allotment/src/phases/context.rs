//! The context that a handler gets with each request.

use core::cell::OnceCell;
use core::fmt;

use super::worker::MakeMemory;
use crate::sealed::{RwShared, Sealable, Sealed};
use crate::{Arena, PoolRef};

/// The category *read-only shared*: objects that all workers read without a lock.
///
/// Workers get only `&R`. For most types the compiler cannot check that nothing changes behind a
/// shared reference. So this trait marks the types that may be used here: sealed objects, which
/// cannot change by construction; an almost read-only object under a read-write lock; and `()` for
/// none. To add a type of your own, implement the trait. The `impl` promises that the type's
/// operations on `&self` change nothing, or use a suitable lock.
///
/// ```compile_fail,E0277
/// # use allotment::phases::{Context, Initialiser};
/// let counter = std::sync::Mutex::new(0); // not read-only: it belongs among the shared objects
/// let server = Initialiser::new("server").objects(counter, ());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not said to be read-only",
    label = "workers read this without a lock",
    note = "seal it (`Sealed`), or put it under a lock (`Shared`) and among the shared objects"
)]
pub trait ReadOnlyShared: Send + Sync + 'static {}

impl ReadOnlyShared for () {}
impl<T: Sealable> ReadOnlyShared for Sealed<T> {}
impl<T: Sealable> ReadOnlyShared for RwShared<T> {}

/// The context that a handler gets with each request: the server's objects, and memory for this
/// request.
///
/// While the handler runs, the worker's pool is entered. The pool is [`current`](crate::pool::current()),
/// and with [`PoolGlobalAlloc`](crate::PoolGlobalAlloc) every `Box`, `Vec` and `String` comes from it. Objects made
/// there may go anywhere, also with the reply.
///
/// Objects made in the arena must not leave the request: the arena is reset before the next one.
///
/// ```compile_fail
/// # use allotment::phases::{Context, Initialiser};
/// let server = Initialiser::new("server").objects((), ());
/// let running = server.start(|context: &mut Context<'_, (), ()>, ()| &*context.arena().alloc_str("gone"));
/// ```
pub struct Context<'w, R, S> {
    pub(super) read_only: &'w R,
    pub(super) shared: &'w S,
    pub(super) arena: &'w mut OnceCell<Arena>,
    pub(super) make: &'w MakeMemory,
    pub(super) worker: usize,
    pub(super) request: u64,
    pub(super) generation: u64,
    pub(super) stopping: &'w dyn Fn() -> bool,
}

impl<'w, R, S> Context<'w, R, S> {
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
        self.arena.get_or_init(|| self.make.arena())
    }

    /// Takes the request's arena away with all that is in it, for a reply that owns what was
    /// rendered there; see [`ArenaBytes`](super::ArenaBytes). The next request gets a new arena,
    /// made of the recycler's warm chunks.
    #[must_use]
    pub fn take_arena(&mut self) -> Arena {
        self.arena.take().unwrap_or_else(|| self.make.arena())
    }

    /// Returns the worker's number, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn worker_name(&self) -> &'w str {
        &self.make.name
    }

    /// Returns the request's number. The first accepted request has number 1.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Returns the thread's current pool: the worker's, unless the handler has entered another.
    #[must_use]
    pub fn pool(&self) -> PoolRef {
        crate::pool::current()
    }

    /// Whether the server has been asked to stop. A long call may check this and end early.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        (self.stopping)()
    }
}

impl<R, S> fmt::Debug for Context<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("worker", &self.make.name)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
