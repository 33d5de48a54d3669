//! Memory below the allocators: where it comes from, where it goes back to, and who holds it.
//!
//! The files in the order of their imports, lowest first:
//!
//! | file | what it holds |
//! |---|---|
//! | `layout` | address arithmetic, without unsafe code |
//! | `bits` | masks of the bits of a word, without unsafe code |
//! | `position_word` | an arena's offset and counters in one word, without unsafe code |
//! | `cache_padded` | values on separate cache lines |
//! | `relaxed_access` | relaxed loads and stores that let the compiler write a value once |
//! | `release` | the policies that say when memory goes back |
//! | `acquired_chunk` | a chunk on its way to an allocator |
//! | `malloc` | the system's malloc |
//! | `fallible` | boxes, and values with a count of owners, that report a lack of memory |
//! | `budget` | limits on the bytes that allocators hold |
//! | `thread_end` | functions that run when a thread ends |
//! | `index_stack` | a lock-free stack of indexes: warm chunks, statistics records and other entries |
//! | `os` | every system call, with a file for each platform |
//! | `process_identity` | which process this is, before and after a fork |
//! | `fences` | a memory fence that costs the frequent side nothing and the rare side a system call |
//! | `fork_gate` | the gate that keeps other threads out of critical sections during a fork |
//! | `fork_mutex` | mutexes that no other thread holds at a fork |
//! | `tools` | reports to AddressSanitizer and Valgrind which memory is free |
//! | `table_slot` | slots for tables that are made when they are first needed, and stay |
//! | `system_array` | arrays in the system's malloc, for the library's own tables |
//! | `growing_table` | tables that grow and never move an entry |
//! | `refused_runs` | ranges that the kernel refused to unmap, and how threads merge them |
//! | `segment_map` | the map from an address to its segment and the segment's owner |
//! | `refused_unmaps` | addresses that the kernel refused to unmap, until it does |
//! | `first_touch` | whether fresh memory is touched in huge pages or in small ones |
//! | `region` | the address range of all pools |
//! | `chunk_cache` | the cache of warm chunks, by size class |
//! | `small_chunks` | small chunks, cut from larger mappings |
//! | `process_cache` | the process-wide instances of that cache and of the small chunks |
//! | `thread_chunks` | the two chunks that each thread keeps for itself |
//! | `recycler` | the public handle to the cache and to the calling thread's chunks |
//! | `source` | the sources, and how chunks are taken from them and released |
//! | `file_mappings` | the mappings of files, whose addresses a child made by fork reserves |
//! | `file` | files as sources |
//! | `chunk_source` | size, charge and source of the next chunk of an allocator that grows |
//! | `span_allocator` | spans of a source, for a slab's pages |

pub mod acquired_chunk;
pub mod budget;
pub mod fallible;
pub mod layout;
pub mod malloc;
pub mod position_word;
pub mod release;
pub mod system_array;

#[cfg(not(loom))]
pub mod chunk_source;
#[cfg(not(loom))]
pub mod os;
#[cfg(not(loom))]
pub mod source;

// What needs the system's mappings, forks or thread ends.
#[cfg(system_memory)]
pub mod bits;
#[cfg(all(system_memory, not(loom)))]
pub mod cache_padded;
#[cfg(system_memory)]
pub mod chunk_cache;
#[cfg(system_memory)]
pub mod fences;
#[cfg(all(system_memory, not(loom)))]
pub mod file;
#[cfg(all(system_memory, not(loom)))]
pub mod file_mappings;
#[cfg(all(system_memory, not(loom)))]
pub mod first_touch;
#[cfg(system_memory)]
pub mod fork_gate;
#[cfg(all(system_memory, not(loom)))]
pub mod fork_mutex;
#[cfg(system_memory)]
pub mod growing_table;
#[cfg(system_memory)]
pub mod index_stack;
#[cfg(all(system_memory, not(loom)))]
pub mod process_cache;
#[cfg(all(system_memory, not(loom)))]
pub mod process_identity;
#[cfg(all(system_memory, not(loom)))]
pub mod recycler;
#[cfg(system_memory)]
pub mod refused_runs;
#[cfg(all(system_memory, not(loom)))]
pub mod refused_unmaps;
#[cfg(all(system_memory, not(loom)))]
pub mod region;
#[cfg(all(system_memory, not(loom)))]
pub mod relaxed_access;
#[cfg(all(system_memory, not(loom)))]
pub mod segment_map;
#[cfg(system_memory)]
pub mod small_chunks;
#[cfg(all(system_memory, not(loom)))]
pub mod span_allocator;
#[cfg(system_memory)]
pub mod table_slot;
#[cfg(all(system_memory, not(loom)))]
pub mod thread_chunks;
#[cfg(all(system_memory, not(loom)))]
pub mod thread_end;
#[cfg(all(system_memory, not(loom)))]
pub mod tools;
