//! What a recording looks like.
//!
//! A recorder that is loaded into a program writes [raw files](raw): one for each process image, mapped and shared, so
//! that nothing is lost however the program ends. `allot record` packs them into one [container file](container), beside
//! the program and after it. [`Reader`] gives back the events of a process in the order of their time.
//!
//! | limit | value |
//! |---|---|
//! | bytes of a chunk | [`raw::CHUNK_SIZE`] |
//! | frames of a stack | [`raw::MAX_STACK_FRAMES`]; of a deeper one the innermost are kept, below [`raw::CUT_OFF`] |
//! | bytes of a module's path | [`raw::MAX_PATH_LENGTH`] |
//!
//! A reader trusts nothing. What it takes in memory is some ten times the file's size, and at most, however small the file is:
//!
//! | of a process | at most | beyond |
//! |---|---|---|
//! | the chunks that threads are in, with the numbers of their stacks | 4 GiB | an error |
//! | nodes of the tree of stacks | 16,777,216, some 0.6 GiB | stacks are [`NodeId::CUT_OFF`] |
//! | frames of a stack | four times [`raw::MAX_STACK_FRAMES`] | an error |
//! | modules, with their names | 512 MiB | an error |
//! | threads | 16,777,216 | an error |
//! | time | 146 years | all later events are at once |

// `raw` alone has to work inside a program that is recorded, before and after its C library does.
#![cfg_attr(not(feature = "container"), no_std)]

#[cfg(feature = "container")]
pub mod container;
#[cfg(feature = "container")]
mod error;
#[cfg(feature = "container")]
mod merge;
#[cfg(feature = "container")]
mod modules;
pub mod raw;
#[cfg(feature = "container")]
mod reader;
#[cfg(feature = "container")]
mod stacks;
#[cfg(feature = "container")]
mod stream;

#[cfg(feature = "container")]
pub use error::TraceError;
#[cfg(feature = "container")]
pub use merge::{Event, Events, What};
#[cfg(feature = "container")]
pub use modules::{Module, ModuleId, Modules};
#[cfg(feature = "container")]
pub use reader::{Process, Reader};
#[cfg(feature = "container")]
pub use stacks::{NodeId, Stacks};
