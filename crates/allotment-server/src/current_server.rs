//! The server that the calling thread works for. A worker must not wait for its own server: if all
//! workers waited, none would be left to work.

use core::cell::Cell;
use core::task::Waker;

thread_local! {
    /// The number of the server that this thread works for, or 0.
    static CURRENT_SERVER: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is in a call of [`wake`].
    static WAKING: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread a worker of this server.
pub(crate) fn set(server: u64) {
    CURRENT_SERVER.with(|current| current.set(server));
}

/// Wakes a task. An executor may poll the task inside this call, on a worker's thread. That poll
/// may wait for the worker's own server: it returns, so it does not keep the worker from its next
/// request.
pub(crate) fn wake(waker: Waker) {
    struct EndWake(bool);
    impl Drop for EndWake {
        fn drop(&mut self) {
            WAKING.set(self.0);
        }
    }
    let _end = EndWake(WAKING.replace(true));
    waker.wake();
}

/// Whether a poll on the calling thread would make a worker of this server wait for itself.
pub(crate) fn polls_itself(server: u64) -> bool {
    is(server) && !WAKING.get()
}

/// Whether the calling thread is a worker of this server.
pub(crate) fn is(server: u64) -> bool {
    CURRENT_SERVER.with(Cell::get) == server
}
