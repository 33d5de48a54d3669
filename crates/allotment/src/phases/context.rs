//! What a handler gets besides the request.

use core::cell::OnceCell;
use core::fmt;

use super::worker::MakeMemory;
use crate::sealed::{RwShared, Sealable, Sealed};
use crate::{Arena, PoolRef};

/// What all workers read without a lock: the category *read-only shared*.
///
/// The compiler sees to it that workers get `&R` alone. That nothing in there changes behind a shared reference, it can't see for every
/// type; so the types that may stand here say so: sealed objects, where it is so by construction, an almost read-only object under a
/// read-write lock, and `()` where there is none. A type of your own joins them by an `impl`, which is its author's word that its
/// operations on `&self` change nothing (or are locked well).
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

/// What a handler gets besides the request: the server's objects, and memory for this request.
///
/// While the handler runs, the worker's pool is entered: it is [`current`](crate::current()), and with [`Routed`](crate::Routed) every
/// `Box`, `Vec` and `String` comes from it. What is made there may go anywhere, also with the reply.
///
/// What was made in the arena may not: it is gone when the next request begins.
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
    /// The read-only shared objects, of the generation that was the last published one when this request began.
    #[inline]
    #[must_use]
    pub fn read_only(&self) -> &'w R {
        self.read_only
    }

    /// The number of that generation; the first one has 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The shared objects.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &'w S {
        self.shared
    }

    /// The request's arena, empty when the request begins.
    #[inline]
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.arena.get_or_init(|| self.make.arena())
    }

    /// Takes the request's arena away, with all that is in it: for a reply that holds what was rendered there, see
    /// [`ArenaBytes`](super::ArenaBytes). The next request gets a new one, from the recycler's warm chunks.
    #[must_use]
    pub fn take_arena(&mut self) -> Arena {
        self.arena.take().unwrap_or_else(|| self.make.arena())
    }

    /// The worker's number, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// The worker's name.
    #[must_use]
    pub fn worker_name(&self) -> &'w str {
        &self.make.name
    }

    /// The request's number; the first accepted one has 1.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.request
    }

    /// The worker's pool, which is entered now.
    #[must_use]
    pub fn pool(&self) -> PoolRef {
        crate::current()
    }

    /// Whether the server was told to stop. A call that takes long may look, and end early.
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
