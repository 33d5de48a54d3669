//! The free list: objects of one size for one thread, handed out last freed first.
//!
//! | file | what it holds |
//! |---|---|
//! | `raw` | the fast paths: the list itself and its counter |
//! | `chains` | the free objects, in several chains |
//! | `chunks` | where chunks come from, and how empty chunks are released |
//! | `sweep` | the sweep for empty chunks |
//! | `watch` | the slow path of hardened mode, memory tools and pass-through mode |
//! | `typed`, `boxed`, `copy` | the public interface: values, their boxes, ordered copies |
//! | `builder` | options |
//! | `frozen` | the memory layout that C code relies on |

mod boxed;
mod builder;
mod chains;
mod checked;
mod chunks;
mod copy;
mod frozen;
mod raw;
mod sweep;
mod typed;

pub use boxed::{ListBox, ListRun, ListSlot};
pub use builder::FreeListBuilder;
pub use copy::Copier;
pub use raw::RawFreeList;
pub use typed::FreeList;
