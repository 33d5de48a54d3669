//! The slab: objects of one size, made by any thread and freed by any thread.
//!
//! **When**: objects of one type come and go one by one, and a thread frees what another one made. **Why**: a
//! thread's own calls touch nothing shared; pages stay full and go back when they are empty. **When not**: objects
//! that die together (an arena is faster), or that one thread alone makes and frees.
//!
//! After the *Array Allocator* of netdata.
//!
//! | file | what it holds |
//! |---|---|
//! | `geometry` | sizes of slots and pages, without unsafe code |
//! | `page`, `hints`, `block` | the protocol between threads: a page's slots, where to look for pages, the two together |
//! | `yard` | all descriptors of a slab |
//! | `core`, `supply` | what threads share; pages: where they come from, who waits, where they go |
//! | `keep` | how many empty pages are kept, and when they go |
//! | `front`, `flow`, `threads` | a thread's own part: its fast paths, its slow ones, its table of them |
//! | `registry` | numbers of slabs, and how long one lives |
//! | `raw`, `typed`, `by_size` | what a user calls |
//! | `for_c` | what the C interface calls and its inline code reads |
//! | `watch` | the slow path of hardened mode and memory tools |
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
mod core;
#[cfg(not(loom))]
mod flow;
#[cfg(not(loom))]
mod for_c;
#[cfg(not(loom))]
mod front;
#[cfg(not(loom))]
mod keep;
#[cfg(not(loom))]
mod lifetime;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod supply;
#[cfg(not(loom))]
mod threads;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod yard;

#[cfg(not(loom))]
pub(crate) use self::registry::each as each_slab;
#[cfg(not(loom))]
pub use self::{
    builder::SlabBuilder,
    lifetime::Lifetime,
    raw::{RawSlab, RawSlabHandle},
    typed::{Slab, SlabBox, SlabHandle},
};
