//! The server that the calling thread works for. A worker must not wait for its own server: if all
//! workers waited, none would be left to work.

use core::cell::Cell;

thread_local! {
    /// The number of the server that this thread works for, or 0.
    static CURRENT_SERVER: Cell<u64> = const { Cell::new(0) };
}

/// Makes the calling thread a worker of this server.
pub(crate) fn set(server: u64) {
    CURRENT_SERVER.with(|current| current.set(server));
}

/// Whether the calling thread is a worker of this server.
pub(crate) fn is(server: u64) -> bool {
    CURRENT_SERVER.with(Cell::get) == server
}
