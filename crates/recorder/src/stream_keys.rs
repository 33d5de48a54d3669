//! What a stream numbers: the nodes of its tree of stacks, and kinds of allocation.

use crate::number_table::{TableKey, mix};
use trace_format::raw::AllocationFlags;

/// A node of the tree of stacks: a frame below its caller's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeKey {
    pub(crate) return_address: u64,
    pub(crate) parent: u32,
}

impl TableKey for NodeKey {
    #[inline]
    fn hash(self) -> u64 {
        mix(self.return_address ^ u64::from(self.parent) << 40)
    }

    #[inline]
    fn locality(self) -> usize {
        self.parent as usize * 2
    }
}

/// A kind of allocation: a size, a stack and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindKey {
    pub(crate) size: u64,
    pub(crate) node: u32,
    pub(crate) flags: AllocationFlags,
}

impl TableKey for KindKey {
    #[inline]
    fn hash(self) -> u64 {
        mix(self.size ^ u64::from(self.node) << 32 ^ u64::from(self.flags.0) << 56)
    }

    #[inline]
    fn locality(self) -> usize {
        self.node as usize
    }
}
