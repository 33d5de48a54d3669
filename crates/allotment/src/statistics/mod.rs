//! One vocabulary of statistics for every allocator, and the report of those that have a name.

mod records;
mod report;

pub(crate) use records::{Kind, Record};
pub(crate) use report::printable;
pub use report::{AllocatorReport, Report, owner_of, report};

/// The longest name of an allocator, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// What an allocator holds at this moment, in bytes and counts. Exact when no thread is inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Objects allocated and not given back. Objects of size zero don't count.
    pub live_objects: u64,
    /// The bytes of those objects as they were asked for, without padding.
    pub live_bytes: u64,
    /// The bytes taken from the source and not given back: what a budget is charged.
    pub held_bytes: u64,
    /// The most that `held_bytes` ever was.
    pub peak_held_bytes: u64,
    /// The ends of chunks that were left unused because the next object didn't fit.
    pub wasted_bytes: u64,
    /// The chunks held.
    pub chunks: u64,
    /// Chunks that came warm from the recycler, since the allocator was made.
    pub recycled_chunks: u64,
    /// Calls to the operating system or the source on this allocator's account, since it was made.
    pub source_calls: u64,
}
