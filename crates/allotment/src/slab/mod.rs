//! The slab: objects of one size that any thread allocates and any thread frees.
//!
//! **When**: objects of one type come and go one by one, and a thread frees what another thread
//! made. **Why**: a thread's own calls touch nothing shared; pages stay full, and are released when
//! they are empty. **When not**: objects that die together (an arena is faster), or objects that a
//! single thread makes and frees.
//!
//! The idea comes from netdata's *Array Allocator*.
//!
//! | file | what it holds |
//! |---|---|
//! | `geometry` | arithmetic of slots and pages, without unsafe code |
//! | `page`, `hints`, `block` | the protocol between threads: slots, hints, both together |
//! | `yard` | the table of all page descriptors of a slab |
//! | `core`, `supply` | what all threads share; how pages are taken and released |
//! | `keep` | how many empty pages are kept, and for how long |
//! | `front`, `flow`, `threads` | the thread cache: fast paths, slow paths, table of caches |
//! | `registry` | slab numbers, and how long a slab lives |
//! | `raw`, `typed`, `by_size` | the public interface |
//! | `for_c` | what the C interface calls, and what its inline code reads |
//! | `malloc_blocks` | the slab of each malloc block in pass-through mode |
//! | `checked` | the slow path of hardened mode, memory tools and pass-through mode |
//! | `builder`, `lifetime` | options |

pub mod block;
pub mod geometry;
pub mod hints;
pub mod page;

#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod by_size;
#[cfg(not(loom))]
mod checked;
#[cfg(not(loom))]
mod empty_pages;
#[cfg(not(loom))]
mod for_c;
#[cfg(not(loom))]
mod lifetime;
#[cfg(not(loom))]
mod malloc_blocks;
#[cfg(not(loom))]
mod page_table;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
mod refill;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod supply;
#[cfg(not(loom))]
mod thread_cache;
#[cfg(not(loom))]
mod thread_table;
#[cfg(not(loom))]
mod typed;

#[cfg(not(loom))]
pub(crate) use self::registry::each as each_slab;
#[cfg(not(loom))]
pub use self::{
    builder::SlabBuilder,
    lifetime::Lifetime,
    raw::{RawSlab, RawSlabHandle},
    typed::{Slab, SlabBox, SlabHandle},
};
