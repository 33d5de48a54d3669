//! The third phase: the workers run.

use core::fmt;
use core::mem;
use core::ops::{Deref, Range};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::handle::ServerHandle;
use crate::queue::RequestQueue;
use crate::read_only_shared::ReadOnlyShared;
use crate::server_state::ServerState;

/// The third phase: the workers run. Requests may be submitted here or through a
/// [`handle`](Self::handle).
///
/// Dropping this value refuses further requests, drops the waiting ones, and waits for the running
/// ones, however long they take. It does not wait if the thread is unwinding. [`stop`](Self::stop)
/// has a deadline.
#[must_use = "dropping it stops the server"]
pub struct Running<R: ReadOnlyShared, S, Q, A> {
    handle: ServerHandle<R, S, Q, A>,
    /// By the worker's number. Empty once the workers have been joined or abandoned.
    threads: Vec<JoinHandle<()>>,
}

impl<R: ReadOnlyShared, S, Q, A> Deref for Running<R, S, Q, A> {
    type Target = ServerHandle<R, S, Q, A>;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl<R: ReadOnlyShared, S, Q, A> Running<R, S, Q, A> {
    pub(crate) fn new(server: Arc<ServerState<R, S, Q, A>>, workers: usize) -> Self {
        Self { handle: ServerHandle { server }, threads: Vec::with_capacity(workers) }
    }

    /// Adds the thread of the next worker.
    pub(crate) fn add_thread(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// Marks workers that have no thread as ended.
    pub(crate) fn mark_not_started(&self, workers: Range<usize>) {
        for worker in workers {
            self.queue().mark_ended(worker);
        }
    }

    pub(crate) fn server(&self) -> &ServerState<R, S, Q, A> {
        &self.handle.server
    }

    pub(crate) fn queue(&self) -> &RequestQueue<Q, A> {
        &self.handle.server.queue
    }

    /// Returns a handle, for submitting from elsewhere.
    #[must_use]
    pub fn handle(&self) -> ServerHandle<R, S, Q, A> {
        self.handle.clone()
    }

    /// Waits for all workers except the calling thread. Returns whether all workers have ended.
    pub(crate) fn wait_ended(&mut self, deadline: Option<Instant>) -> bool {
        let calling_thread = thread::current().id();
        let own_worker =
            self.threads.iter().position(|thread| thread.thread().id() == calling_thread);
        let ended = self.queue().wait_ended(own_worker, deadline);
        if !ended || own_worker.is_some() {
            return false;
        }
        join_until(mem::take(&mut self.threads), deadline);
        true
    }

    /// Stops waiting for the threads. They end after their current request.
    pub(crate) fn detach_threads(&mut self) {
        self.threads.clear();
    }
}

/// Joins the threads of workers that have ended, unless the destructors of their thread-local
/// variables take longer than until the deadline.
fn join_until(threads: Vec<JoinHandle<()>>, deadline: Option<Instant>) {
    // A worker catches every panic of the code that it calls, so `join` returns no error that
    // matters.
    let join_all = || threads.into_iter().for_each(|thread| _ = thread.join());
    let Some(deadline) = deadline else { return join_all() };
    // The standard library has no join with a deadline.
    let (joined, wait) = mpsc::channel::<()>();
    let joiner = thread::Builder::new().spawn(move || {
        let _joined = joined;
        join_all();
    });
    if joiner.is_ok() {
        // It ends with an error: when the sender is dropped, or at the deadline.
        _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl<R: ReadOnlyShared, S, Q, A> Drop for Running<R, S, Q, A> {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.queue().stop();
        self.queue().drop_waiting();
        if !thread::panicking() {
            self.wait_ended(None);
        }
    }
}

impl<R: ReadOnlyShared, S, Q, A> fmt::Debug for Running<R, S, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("handle", &self.handle).finish_non_exhaustive()
    }
}
