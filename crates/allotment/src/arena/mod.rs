//! The arena: memory for objects that die together.
//!
//! **When**: one thread makes many objects of any size for one piece of work (a query, a request, a
//! parse) and needs none of them afterwards. **Why**: an allocation only moves a position up.
//! Freeing all objects gives back a few chunks, and the next arena takes those warm. **When not**:
//! objects die at different times (the arena holds all of them until the last), or other threads
//! free them.
//!
//! Modelled on the *One Way Allocator* of netdata's context queries. Other names for the same idea
//! are region, obstack, pool and monotonic buffer.
//!
//! | file | what it holds |
//! |---|---|
//! | `raw` | the position in the current chunk: the unsafe core, with its invariants |
//! | `resize`, `chunks`, `rewind` | freeing and resizing one object; the arena's chunks; positions, scopes and resets |
//! | `checked_objects` | what a checked arena records |
//! | `checked` | the slow path of hardened mode and of memory tools |
//! | `typed` | `Arena` and its typed calls |
//! | `slices` | strings and slices |
//! | `bytes` | raw layouts: allocate, free, grow, shrink |
//! | `scope` | scopes, marks and positions |
//! | `boxed`, `vec`, `string` | a box, a vector and a string in an arena |
//! | `builder`, `retain` | options |
//! | `frozen` | the layout that C code relies on |

#![allow(clippy::mut_from_ref, reason = "each call of an arena lends other memory")]

mod boxed;
mod builder;
mod bytes;
mod checked;
mod checked_objects;
mod chunks;
mod frozen;
mod raw;
mod resize;
mod retain;
mod rewind;
mod scope;
mod slices;
mod string;
mod typed;
mod vec;

pub use boxed::ArenaBox;
pub use builder::ArenaBuilder;
pub use retain::Retain;
pub use scope::{ArenaPosition, Mark, Scope};
pub use string::ArenaString;
pub use typed::Arena;
pub use vec::ArenaVec;
