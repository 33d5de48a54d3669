//! Objects of one size that any thread allocates and any thread frees: [`Slab`] for values,
//! [`RawSlab`] for addresses.
//!
//! **When**: objects of one type come and go one by one, and a thread frees what another thread
//! made. **Why**: a thread's own calls touch nothing shared; pages stay full, and are released when
//! they are empty. **When not**: objects that die together (an arena is faster), or objects that a
//! single thread makes and frees.
//!
//! The idea comes from netdata's *Array Allocator*.

// The files, lowest first; each imports only from files above it in this table:
//
// | file | what it holds |
// |---|---|
// | `lifetime` | `Lifetime`: how long an object is expected to live |
// | `geometry` | arithmetic of slots and pages, without unsafe code |
// | `page`, `page_hints`, `page_group` | the protocol between threads: slots, hints, both together |
// | `page_table` | the table of all page descriptors of a slab |
// | `empty_pages` | how many empty pages are kept, and for how long |
// | `tags` | the word for each granule of addresses that names the granule's slab |
// | `references`, `registry` | how long a slab lives; slab numbers |
// | `waiters` | how threads wait for slots |
// | `page_steps` | the protocol between threads: how slots and pages are taken, go back and are waited for |
// | `cache_ownership`, `cache_header` | what other threads read of a thread cache |
// | `cache_seizure` | how the thread that ends a slab takes over the caches of threads that sleep |
// | `cache_steps` | the steps by which a thread cache is refilled, flushed and left |
// | `settings` | the options that a slab is made with |
// | `shared` | what all threads share of a slab |
// | `page_supply` | how pages are taken from the source |
// | `checked` | hardened mode, memory tools and pass-through mode |
// | `thread_cache`, `cache_backend` | the thread cache: its fast paths; what `cache_steps` does with its slots, and slow frees |
// | `thread_table` | each thread's table of its caches |
// | `page_backend` | what the steps of `page_steps` do with memory and with the thread's caches |
// | `slow_paths` | what an allocation and a free do when the fast path can't serve them |
// | `boxed`, `raw`, `typed`, with `builder` beside them; `by_size` | the public interface |
// | `c_interface` | what the C interface calls, and what its inline code reads |

// In this order, the pages of the slabs show their calls.
#[cfg(not(loom))]
mod raw;

#[cfg(not(loom))]
mod typed;

#[cfg(not(loom))]
mod by_size;

#[cfg(not(loom))]
mod builder;

pub(crate) mod cache_ownership;
pub(crate) mod cache_seizure;
pub(crate) mod cache_steps;
pub(crate) mod geometry;
pub(crate) mod page;
pub(crate) mod page_group;
pub(crate) mod page_hints;
pub(crate) mod page_steps;
pub(crate) mod references;
pub(crate) mod waiters;

#[cfg(not(loom))]
mod boxed;
#[cfg(not(loom))]
mod c_interface;
#[cfg(not(loom))]
mod cache_backend;
#[cfg(not(loom))]
mod cache_header;
#[cfg(not(loom))]
mod checked;
#[cfg(not(loom))]
mod empty_pages;
#[cfg(not(loom))]
mod lifetime;
#[cfg(not(loom))]
mod page_backend;
#[cfg(not(loom))]
mod page_supply;
#[cfg(not(loom))]
mod page_table;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod slow_paths;
#[cfg(not(loom))]
mod tags;
#[cfg(not(loom))]
mod thread_cache;
#[cfg(not(loom))]
mod thread_table;

#[cfg(not(loom))]
pub(crate) use self::shared::SlabShared;
#[cfg(not(loom))]
pub use self::{
    boxed::{SlabBox, SlabSlot},
    builder::SlabBuilder,
    lifetime::Lifetime,
    raw::{RawSlab, RawSlabHandle},
    typed::{Slab, SlabHandle},
};
