//! Memory of any size for one thread: `Reap`, whose blocks are freed one by one or all at once, and
//! `LocalPool`, which a thread enters.
//!
//! | file | contents |
//! |---|---|
//! | `reap`, `reap_builder` | `Reap` and its options |
//! | `pool`, `pool_builder` | `LocalPool` and its options |
//! | `pool_ref`, `current` | references to a pool; the thread's current pool |
//! | `routed` | a global allocator that prefers the current pool |
//! | `heap` | the interface of any heap |
//! | `collections` | `PoolBox`, `PoolVec`, `PoolString` |
//! | `blocks`, `large` | small and large blocks: what a reap and a pool share |
//! | `lists`, `classes` | free lists by size class, and the arithmetic of the classes |
//! | `chunks`, `sweep` | the chunks beneath the blocks, and the search for empty ones |
//! | `pieces`, `from_region` | where chunks come from |
//! | `core`, `cores` | the part of a pool that outlives it, and its reuse by later pools |
//! | `life`, `remote` | a pool's ownership; blocks that other threads free |
//! | `watch` | checked blocks: hardened mode, sanitizers, pass-through mode |
//! | `block_source` | what collections allocate from |

#[cfg(not(loom))]
mod blocks;

#[cfg(not(loom))]
mod block_source;
#[cfg(not(loom))]
mod checked;
#[cfg(not(loom))]
mod chunks;
#[cfg(not(loom))]
mod classes;
#[cfg(not(loom))]
mod collections;
#[cfg(not(loom))]
mod current;
#[cfg(not(loom))]
mod from_region;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
mod lists;
#[cfg(not(loom))]
mod local_pool;
#[cfg(not(loom))]
mod local_pool_builder;
pub mod ownership;
#[cfg(not(loom))]
mod parked;
#[cfg(not(loom))]
mod pieces;
#[cfg(not(loom))]
mod pool_ref;
#[cfg(not(loom))]
mod reap;
#[cfg(not(loom))]
mod reap_builder;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod routed;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod sweep;

#[cfg(not(loom))]
pub use collections::{PoolBox, PoolString, PoolVec};
#[cfg(not(loom))]
pub use heap::{Heap, HeapId};
#[cfg(not(loom))]
pub use local_pool::{InPool, LocalPool};
#[cfg(not(loom))]
pub use local_pool_builder::LocalPoolBuilder;
#[cfg(not(loom))]
pub use pool_ref::{PoolRef, current, global};
#[cfg(not(loom))]
pub use reap::Reap;
#[cfg(not(loom))]
pub use reap_builder::ReapBuilder;
#[cfg(not(loom))]
pub use routed::Routed;
