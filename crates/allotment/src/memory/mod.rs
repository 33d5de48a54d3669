//! The ground floor: where bytes come from and where they go.
//!
//! | file | what it holds |
//! |---|---|
//! | `layout`, `word` | address arithmetic, without unsafe code |
//! | `os` | every system call |
//! | `tools` | AddressSanitizer and Valgrind, told what is free |
//! | `lifo` | the lock-free stack that the recycler and the registry share |
//! | `recycler`, `process` | the cache of warm chunks, and the process's own one |
//! | `hot` | the chunk that each thread keeps at hand |
//! | `source`, `file` | the sources |
//! | `chunks` | the next chunk of an allocator that grows |
//! | `structures`, `apart` | memory for the library's own structures; values on cache lines of their own |
//! | `spans` | pieces of a source for a slab's pages |
//! | `region` | the range of addresses of all pools |
//! | `segments` | the map from an address to its segment |
//! | `budget`, `release` | limits, and when memory goes back |
//! | `home`, `room`, `buffer` | where a value's memory comes from; memory for values; values in memory that grows |

pub mod budget;
pub mod layout;
pub mod lifo;
pub mod recycler;
pub mod release;
pub mod word;

#[cfg(not(loom))]
pub mod apart;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(not(loom))]
pub mod chunks;
#[cfg(not(loom))]
pub mod file;
#[cfg(not(loom))]
pub mod home;
#[cfg(not(loom))]
pub mod hot;
#[cfg(not(loom))]
pub mod os;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
pub mod segments;
#[cfg(not(loom))]
pub mod source;
#[cfg(not(loom))]
pub mod spans;
#[cfg(not(loom))]
pub mod structures;
#[cfg(not(loom))]
pub mod tools;
