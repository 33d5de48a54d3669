//! Consecutive frees: a thread frees blocks in a run that times frees, and allocates nothing from an
//! arena meanwhile. The time between two of them is that of the program's walk from one block to the
//! next, which an arena makes unnecessary.

/// The consecutive frees of a thread.
#[derive(Debug)]
pub struct ConsecutiveFrees {
    /// When the last one ended; 0 if the time to the next one does not count, because another call of
    /// malloc or free came in between.
    pub last: u64,
    /// The times between two of them that count, summed.
    pub between: u64,
    /// The number of those times.
    pub count: u64,
}

impl ConsecutiveFrees {
    /// No free yet.
    pub const NONE: Self = Self { last: 0, between: 0, count: 0 };
}
