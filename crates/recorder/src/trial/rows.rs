//! Frees in a row: a thread frees several blocks of timed arenas, and does nothing else that a hook
//! notices. The time between them is that of the program's walk from block to block, which an arena
//! makes unnecessary.

/// The frees in a row of a thread.
#[derive(Debug)]
pub struct FreesInARow {
    /// When the last one ended; 0 if something else came after it.
    pub last: u64,
    /// The time between them.
    pub between: u64,
    /// The number of times between them.
    pub count: u64,
}

impl FreesInARow {
    /// No free yet.
    pub const NONE: Self = Self { last: 0, between: 0, count: 0 };
}
