//! The ways to use pools.

/// Where the service enters pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pools {
    /// Nowhere.
    None,
    /// Each thread has a pool and enters it for each poll of a connection. So everything that a
    /// request allocates comes from the pool: also hyper's buffers and axum's routing.
    Connection,
    /// Each thread has a pool and enters it for each poll of a handler.
    Handler,
    /// Each request has a pool of its own, from the handler's start to its first await.
    Request {
        /// The limit on the pool's memory, in bytes.
        limit: Option<usize>,
    },
}
