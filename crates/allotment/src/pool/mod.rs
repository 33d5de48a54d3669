//! Memory of any size for one thread: [`Reap`], whose blocks are freed one by one or all at once,
//! and [`LocalPool`], which a thread enters.
//!
//! [`current`] returns the pool that the thread has entered, and [`outside`] runs a closure in none.
//! [`enter_thread_pool`] and [`poll_in_thread_pools`] use a pool that each thread has by itself.
//! This module also has the types that the calls of [`Reap`] and [`LocalPool`] return; the types
//! that most programs name are at the root of the crate.

// The files, lowest first: each imports only files above it in this table, except that a type and
// its builder import each other.
//
// | file | contents |
// |---|---|
// | `size_classes` | the arithmetic of the size classes |
// | `class_lists` | free lists by size class, and the range that new blocks are carved from |
// | `chunk_supply` | chunk headers, and the interface that supplies the memory of chunks |
// | `checked` | the ledger of checked blocks: hardened mode, sanitizers, pass-through mode |
// | `settings` | the options that a reap or a pool is made with |
// | `block_allocator` | small and large blocks: what a reap and a pool have in common |
// | `chunks`, `large`, `sweep` | `block_allocator` continued: its chunks; large blocks; the search for empty chunks |
// | `checked_allocator` | `block_allocator` continued: what the ledger asks of it |
// | `reap`, `reap_builder` | `Reap` and its box; its options |
// | `ownership` | who owns a pool; the list of blocks that other threads freed |
// | `outgoing` | blocks of another pool that this thread freed and sends in batches |
// | `current` | the thread's current pool, as an untyped pointer |
// | `global_heap` | the program's global allocator, called outside every pool |
// | `region_supply` | a pool's chunk supply |
// | `shared` | `PoolShared`, the part of a pool that outlives it |
// | `release` | `shared` continued: when empty memory goes back |
// | `remote` | `shared` continued: blocks that are freed outside their pool |
// | `parked` | `shared` continued: reuse of what ended pools leave |
// | `live_by_place` | live objects by the place that allocated them (feature `places`) |
// | `pool_ref` | references to a pool |
// | `global_alloc` | `PoolGlobalAlloc`, a global allocator that prefers the current pool |
// | `local_pool`, `local_pool_builder` | `LocalPool` and its options |
// | `thread_pool` | a pool for each thread, without a name |
// | `block_source` | reaps, pools and references to pools as sources of blocks |
// | `collections` | `PoolBox`, `PoolVec`, `PoolString` |
// | `serde_traits` | boxes that are deserialized into the current pool (feature `serde`) |

#[cfg(not(loom))]
mod block_allocator;
#[cfg(not(loom))]
mod block_source;
#[cfg(not(loom))]
mod checked;
#[cfg(not(loom))]
mod checked_allocator;
#[cfg(not(loom))]
mod chunk_supply;
#[cfg(not(loom))]
mod chunks;
#[cfg(not(loom))]
mod class_lists;
#[cfg(not(loom))]
mod collections;
#[cfg(not(loom))]
mod current;
#[cfg(not(loom))]
mod global_alloc;
#[cfg(not(loom))]
mod global_heap;
#[cfg(not(loom))]
mod large;
#[cfg(all(not(loom), feature = "places"))]
mod live_by_place;
#[cfg(not(loom))]
mod local_pool;
#[cfg(not(loom))]
mod local_pool_builder;
#[cfg(not(loom))]
mod outgoing;
pub(crate) mod ownership;
#[cfg(not(loom))]
mod parked;
#[cfg(not(loom))]
mod pool_ref;
#[cfg(not(loom))]
mod reap;
#[cfg(not(loom))]
mod reap_builder;
#[cfg(not(loom))]
mod region_supply;
#[cfg(not(loom))]
mod release;
#[cfg(not(loom))]
mod remote;
#[cfg(all(not(loom), feature = "serde"))]
mod serde_traits;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod size_classes;
#[cfg(not(loom))]
mod sweep;
#[cfg(not(loom))]
mod thread_pool;

#[cfg(not(loom))]
pub use collections::{PoolBox, PoolString, PoolVec};
#[cfg(not(loom))]
pub use global_alloc::PoolGlobalAlloc;
#[cfg(all(not(loom), feature = "places"))]
pub use live_by_place::{
    LiveByPlace, LivePlace, MAX_PLACE_CALLS, MAX_PLACES, MAX_REPORTED_PLACES, PlaceCall,
    escaped_by_place,
};
#[cfg(not(loom))]
pub use local_pool::{InPool, LocalPool};
#[cfg(not(loom))]
pub use local_pool_builder::LocalPoolBuilder;
#[cfg(not(loom))]
pub use pool_ref::{PoolRef, current, outside, run_panic_hook_outside};
#[cfg(not(loom))]
pub use reap::{Reap, ReapBox};
#[cfg(not(loom))]
pub use reap_builder::ReapBuilder;
#[cfg(not(loom))]
pub use thread_pool::{InThreadPools, enter_thread_pool, poll_in_thread_pools};
