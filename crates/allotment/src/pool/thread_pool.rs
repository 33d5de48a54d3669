//! A pool for each thread, made when the thread first needs it.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::local_pool::LocalPool;

thread_local! {
    /// The calling thread's own pool.
    static POOL: LocalPool = LocalPool::new();
}

/// Runs a closure in the calling thread's own pool: [`LocalPool::enter`] with a pool that the thread
/// makes at its first call and ends at its exit. While the thread exits, the closure runs in no
/// pool.
///
/// It is for threads that work for as long as the program runs, such as those of a thread pool:
/// each enters once, around all of its work.
///
/// ```
/// use allotment::pool;
///
/// let worker = std::thread::spawn(|| {
///     pool::enter_thread_pool(|| {
///         // all of the worker's work
///         assert!(pool::current().is_usable());
///     })
/// });
/// worker.join().unwrap();
/// ```
///
/// # Panics
/// As [`LocalPool::new`], at the thread's first call.
pub fn enter_thread_pool<R>(run: impl FnOnce() -> R) -> R {
    let mut run = Some(run);
    let mut run_once = || run.take().map(|run| run());
    let result = POOL.try_with(|pool| pool.enter(&mut run_once)).unwrap_or_else(|_| run_once());
    result.expect("it runs once: a pool that is gone has not been entered")
}

/// Wraps a future so that each poll runs in the own pool of the thread that polls it
/// ([`enter_thread_pool`]).
///
/// It is for tasks that an executor with several threads moves from one to another, such as those
/// of tokio. Each poll leaves the pool. So a block lies in the pool of the thread that allocated
/// it, and goes back to it if another thread frees it.
///
/// ```
/// # fn spawn(work: impl Future + Send) { drop(work) }
/// # async fn serve(connection: u32) {}
/// # let connection = 7;
/// // in the place of tokio::spawn(serve(connection)):
/// spawn(allotment::pool::poll_in_thread_pools(serve(connection)));
/// ```
pub fn poll_in_thread_pools<F: Future>(future: F) -> InThreadPools<F> {
    InThreadPools { future }
}

/// A future that is polled in its threads' own pools; made by [`poll_in_thread_pools`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct InThreadPools<F> {
    future: F,
}

impl<F: Future> Future for InThreadPools<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the inner future is pinned with the outer one: it is never moved out, and this
        // type implements neither `Drop` nor `Unpin` by hand.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        enter_thread_pool(|| future.poll(context))
    }
}
