//! The arena: objects that die together.
//!
//! **When**: one thread makes many objects of any size to do one piece of work (a query, a request, a parse),
//! and needs none of them afterwards. **Why**: allocating moves one position up, freeing them all gives a few
//! chunks back, and the next arena finds those warm. **When not**: objects that die at different times (the
//! arena holds them all until the last), or that other threads free.
//!
//! After the *One Way Allocator* of netdata's context queries; the same idea is called region, obstack, pool
//! or monotonic buffer elsewhere.
//!
//! | file | what it holds |
//! |---|---|
//! | `raw` | the position: the unsafe heart, with its invariants |
//! | `resize`, `chunks`, `rewind` | single objects; its chunks; positions, scopes and resets |
//! | `watch` | the slow path of hardened mode and memory tools |
//! | `typed` | `Arena` and its typed calls |
//! | `slices` | strings and slices |
//! | `bytes` | raw layouts: allocate, free, grow, shrink |
//! | `scope` | scopes, marks and positions |
//! | `boxed`, `vec`, `string` | values that own what they hold |
//! | `builder`, `retain` | options |
//! | `frozen` | what C code relies on |

#![allow(clippy::mut_from_ref, reason = "each call of an arena lends other memory")]

mod boxed;
mod builder;
mod bytes;
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
mod watch;

pub use boxed::ArenaBox;
pub use builder::ArenaBuilder;
pub use retain::Retain;
pub use scope::{ArenaPosition, Mark, Scope};
pub use string::ArenaString;
pub use typed::Arena;
pub use vec::{ArenaVec, IntoIter};
