//! Objects of one size for one thread, handed out last freed first: [`FreeList`] for values,
//! [`RawFreeList`] for addresses.

// The files, lowest first. Each uses only files above it in this table.
//
// | file | what it holds |
// |---|---|
// | `chains` | free objects, linked into chains |
// | `settings` | the options that a list is made with |
// | `sweep_back_off` | which sweeps are skipped |
// | `chunk_header` | the layout of a chunk and of its objects |
// | `raw` | the list's state, with its invariants; what a checked list does differently |
// | `sweep_schedule` | when a sweep for empty chunks is due |
// | `chunks` | where chunks come from, and how they are released |
// | `sweep` | the sweep for empty chunks |
// | `fast_paths` | allocating and freeing, with their slow paths |
// | `statistics` | what a list tells about itself |
// | `checked` | the slow paths of hardened mode, memory tools and pass-through mode |
// | `boxed` | boxes of values, and slots without a value |
// | `typed`, `builder` | lists of values; options, and how a list is made of them |
// | `copy` | copies of linked structures in traversal order |
// | `c_layout` | the memory layout that C code relies on |

// In this order, the pages of the lists show their calls.
mod raw;

mod fast_paths;

mod sweep;

mod typed;

mod copy;

mod statistics;

mod builder;

mod boxed;
#[cfg(system_memory)]
mod c_layout;
mod chains;
#[cfg(system_memory)]
mod checked;
mod chunk_header;
mod chunks;
mod settings;
mod sweep_back_off;
mod sweep_schedule;

pub use boxed::{ListBox, ListRun, ListSlot};
pub use builder::FreeListBuilder;
pub use copy::Copier;
pub use raw::RawFreeList;
pub use typed::FreeList;
