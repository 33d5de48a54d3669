//! What a recording looks like.
//!
//! A recorder that is loaded into a program writes [raw files](raw): one for each process image, mapped and shared, so
//! that nothing is lost however the program ends. `allot record` packs them into one [container file](container), beside
//! the program and after it. [`Reader`] gives back the events of a process in the order of their time.
//!
//! | limit | value |
//! |---|---|
//! | bytes of a chunk | [`raw::CHUNK_SIZE`] |
//! | frames of a stack | [`raw::DEEPEST_STACK`]; of a deeper one the innermost are kept, below [`raw::CUT_OFF`] |
//! | bytes of a module's path | [`raw::LONGEST_PATH`] |

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
