//! The options of a reap and of a pool, as their builders have collected them.

use super::chunk_supply::ChunkGrowth;
use crate::options::CommonSettings;

/// Default size of the first chunk.
const DEFAULT_INITIAL_BYTES: usize = 64 << 10;

/// The options that a reap or a pool is made with.
#[derive(Clone, Debug)]
pub(super) struct BlockSettings {
    pub common: CommonSettings,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    /// A pool's option.
    pub record_places: bool,
}

impl BlockSettings {
    pub(super) const DEFAULT: Self = Self {
        common: CommonSettings::DEFAULT,
        initial: DEFAULT_INITIAL_BYTES,
        increment: None,
        reserved: 0,
        record_places: false,
    };

    /// How chunks grow, for an allocator that keeps this number of bytes of freed large blocks, and
    /// at most that number after it has adapted.
    pub(super) fn growth(&self, spare_large_bytes: usize, most_spare_bytes: usize) -> ChunkGrowth {
        let Self { initial, increment, .. } = *self;
        ChunkGrowth { initial, increment, spare_large_bytes, most_spare_bytes }
    }
}
