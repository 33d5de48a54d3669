//! Memory for objects of one thread that die together: [`Arena`], with its options, its scopes and
//! its collections.
//!
//! **When**: one thread makes many objects of any size for one piece of work (a query, a request, a
//! parse) and needs none of them afterwards. **Why**: an allocation only moves a position up.
//! Freeing all objects gives back a few chunks, and the next arena takes those warm. **When not**:
//! objects die at different times (the arena holds all of them until the last), or other threads
//! free them.
//!
//! Modelled on the *One Way Allocator* of netdata's context queries. Other names for the same idea
//! are region, obstack, pool and monotonic buffer.

// The files, lowest first. Each uses only files above it in this table.
//
// | file | what it holds |
// |---|---|
// | `retain`, `settings` | what a reset keeps; the options that an arena is made with |
// | `chunk_header` | the layout of a chunk, and lists of chunks |
// | `position` | what an arena remembers of a place to which it can be rewound |
// | `raw` | the arena's state and its window, with the invariants; what a checked arena does differently |
// | `chunks` | where chunks come from, where they go, and which a reset keeps |
// | `alloc` | the fast path, and the slow path that opens another window or takes a chunk |
// | `rewind` | scopes, rewinding and resetting |
// | `resize` | freeing, growing and shrinking one object |
// | `checked` | the slow paths of hardened mode, memory tools and pass-through mode |
// | `boxed` | a box for a value |
// | `typed`, `builder` | `Arena` and its calls; options, and how an arena is made of them |
// | `statistics` | an arena's name and statistics |
// | `handle_traits` | the standard traits of handles that are their value's |
// | `thin` | handles of one word for strings, slices and trait objects |
// | `shared` | handles that keep an arena alive |
// | `contents` | what the chunks contain |
// | `scope` | the public types of scopes and marks |
// | `vec`, `string` | a vector and a string in an arena |
// | `bytes` | bytes as C allocates them; an arena as a source of blocks |
// | `c_layout` | the memory layout that C code relies on |

#![allow(clippy::mut_from_ref, reason = "each call of an arena lends other memory")]

// In this order, the page of `Arena` lists its calls.
mod typed;

mod bytes;

mod thin;

mod scope;

mod contents;

mod statistics;

mod builder;

mod alloc;
mod boxed;
#[cfg(system_memory)]
mod c_layout;
#[cfg(system_memory)]
mod checked;
mod chunk_header;
mod chunks;
mod handle_traits;
mod position;
mod raw;
mod resize;
mod retain;
mod rewind;
mod settings;
mod shared;
mod string;
mod vec;

pub use boxed::ArenaBox;
pub use builder::ArenaBuilder;
pub use contents::AllocatedChunks;
pub use position::ArenaPosition;
pub use retain::Retain;
pub use scope::{Mark, Scope};
pub use shared::{ArenaArc, ArenaRc, SharedArena};
pub use string::ArenaString;
pub use thin::{ThinBox, ThinRef};
pub use typed::Arena;
pub use vec::ArenaVec;
