//! The format of recordings.
//!
//! A recorder that is loaded into a program writes [raw files](raw), one for each process image.
//! They are shared mappings, so nothing is lost however the program ends. `allot record` packs them
//! into one [container file](container), while the program runs and after its end. A
//! [`RecordingReader`] returns the events of a process in the order of their times.
//!
//! | limit of a recorder | value |
//! |---|---|
//! | bytes of a chunk | [`raw::CHUNK_SIZE`] |
//! | frames of a stack | [`raw::MAX_STACK_FRAMES`]; of a deeper stack the innermost frames are recorded, below [`raw::CUT_OFF`] |
//! | bytes of a module's path | [`raw::MAX_PATH_LENGTH`] |
//!
//! A reader trusts nothing. It needs about ten times the size of the file in memory. However small
//! the file, its memory is limited:
//!
//! | of a process | limit | beyond the limit |
//! |---|---|---|
//! | current chunks of all streams, and the numbers of their stacks | 4 GiB | an error |
//! | nodes of the tree of stacks | 16,777,216, about 0.6 GiB | stacks are [`NodeId::CUT_OFF`] |
//! | frames of a stack | four times [`raw::MAX_STACK_FRAMES`] | an error |
//! | modules, with their names | 512 MiB | an error |
//! | threads | 16,777,216 | an error |
//! | time | 146 years | all later events have the same time |
//!
//! The files, lowest first:
//!
//! | file | what it holds |
//! |---|---|
//! | `version`, `error` | the version of the container format; why a recording cannot be read or written |
//! | [`raw`] | the raw file of one process image |
//! | [`container`] | the compressed file in which a recording is stored |
//! | `modules`, `stacks` | the modules of a process, and the tree of its call stacks |
//! | `process` | a process image, and where its chunks are |
//! | `stream` | one stream of a process |
//! | `merge` | the events of all streams in the order of their times |
//! | `reader` | opening a recording |

// `raw` must work inside a recorded program, before and after its C library does.
#![cfg_attr(not(feature = "container"), no_std)]

#[cfg(feature = "container")]
pub mod container;
#[cfg(feature = "container")]
mod error;
#[cfg(feature = "container")]
mod merge;
#[cfg(feature = "container")]
mod modules;
#[cfg(feature = "container")]
mod process;
pub mod raw;
#[cfg(feature = "container")]
mod reader;
#[cfg(feature = "container")]
mod stacks;
#[cfg(feature = "container")]
mod stream;
#[cfg(feature = "container")]
mod version;

#[cfg(feature = "container")]
pub use error::TraceError;
#[cfg(feature = "container")]
pub use merge::{Event, EventAction, Events};
#[cfg(feature = "container")]
pub use modules::{Module, ModuleId, Modules};
#[cfg(feature = "container")]
pub use process::Process;
#[cfg(feature = "container")]
pub use reader::RecordingReader;
#[cfg(feature = "container")]
pub use stacks::{NodeId, Stacks};
