//! The version of the container format.

/// The version of the container format that this library writes and reads.
pub const VERSION: u32 = 2;
