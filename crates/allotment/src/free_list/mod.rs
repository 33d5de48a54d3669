//! The free list: objects of one size for one thread, handed out last freed first.
//!
//! | file | what it holds |
//! |---|---|
//! | `raw` | the fast paths: the list itself and its counter |
//! | `slabs` | where objects come from and where empty slabs go |
//! | `sweep` | the look for empty slabs |
//! | `watch` | the slow path of hardened mode and memory tools |
//! | `typed`, `boxed`, `copy` | what a user calls: values, the boxes that own them, copies in visiting order |
//! | `builder` | options |

mod boxed;
mod builder;
mod chains;
mod copy;
mod frozen;
mod raw;
mod slabs;
mod sweep;
mod typed;
mod watch;

pub use boxed::{ListBox, ListRun, ListSlot};
pub use builder::FreeListBuilder;
pub use copy::Copier;
pub use raw::RawFreeList;
pub use typed::FreeList;
