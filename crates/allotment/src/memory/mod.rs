//! Memory below the allocators: where it comes from, where it goes back to, and who holds it.
//!
//! The files in the order of their imports, lowest first:
//!
//! | file | what it holds |
//! |---|---|
//! | `layout`, `word` | address arithmetic, without unsafe code |
//! | `cache_padded` | values on separate cache lines |
//! | `release` | the policies that say when memory goes back |
//! | `budget` | limits on the bytes that allocators hold |
//! | `lifo` | a lock-free stack: of warm chunks, statistics records and other entries of tables |
//! | `os` | every system call; `os_for_miri` replaces it under Miri |
//! | `tools` | reports to AddressSanitizer and Valgrind which memory is free |
//! | `metadata` | memory for the library's own tables |
//! | `segments` | the map from an address to its segment and the segment's owner |
//! | `region` | the address range of all pools |
//! | `recycler` | the cache of warm chunks, by size class |
//! | `global_cache` | the one process-wide instance of that cache |
//! | `thread_chunk` | the one chunk that each thread keeps for itself |
//! | `global_recycler` | the public handle to both |
//! | `source` | the sources, and how chunks are taken from them and released |
//! | `file` | files as sources |
//! | `chunk_source` | size, charge and source of the next chunk of an allocator that grows |
//! | `spans` | pieces of a source for a slab's pages |

pub mod budget;
pub mod layout;
pub mod lifo;
pub mod recycler;
pub mod release;
pub mod word;

#[cfg(not(loom))]
pub mod cache_padded;
#[cfg(not(loom))]
pub mod chunk_source;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
pub mod global_cache;
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
