//! The lowest layer: where memory comes from and where it goes back to.
//!
//! | file | what it holds |
//! |---|---|
//! | `layout`, `word` | address arithmetic, without unsafe code |
//! | `os` | every system call; `os_for_miri` stands in for it under Miri |
//! | `tools` | reports to AddressSanitizer and Valgrind which memory is free |
//! | `lifo` | the lock-free stack that the recycler and the statistics records share |
//! | `recycler`, `global_recycler` | the cache of warm chunks, and its one process-wide instance |
//! | `thread_chunk` | the one chunk that each thread keeps for itself |
//! | `source`, `file` | the sources |
//! | `chunks` | size, charge and taking of the next chunk of an allocator that grows |
//! | `metadata`, `cache_padded` | memory for the library's own metadata; values on separate cache lines |
//! | `spans` | pieces of a source for a slab's pages |
//! | `region` | the address range of all pools |
//! | `segments` | the map from an address to its segment |
//! | `budget`, `release` | limits; when memory goes back |

pub mod budget;
pub mod layout;
pub mod lifo;
pub mod recycler;
pub mod release;
pub mod word;

#[cfg(not(loom))]
pub mod cache_padded;
#[cfg(not(loom))]
pub mod chunks;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
pub mod global_recycler;
#[cfg(not(loom))]
pub mod metadata;
#[cfg(not(any(loom, miri)))]
pub mod os;
#[cfg(miri)]
#[path = "os_for_miri.rs"]
pub mod os;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod segments;
#[cfg(not(loom))]
pub mod source;
#[cfg(not(loom))]
pub mod spans;
#[cfg(not(loom))]
pub mod thread_chunk;
#[cfg(not(loom))]
pub mod tools;
