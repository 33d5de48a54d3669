//! A trial: a run of the program in which the blocks of some call stacks get other memory, as they
//! would after a change of the program. Nothing is recorded.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`chunks`] | the chunks of the memory |
//! | [`settings`] | whether this process is a trial, its file of stacks, and the memory of each route |
//! | [`lists`] | lists of free blocks |
//! | [`heap`] | the memory of a thread: arenas and lists |
//! | [`frame_cache`] | the frames that a thread has looked up in the file |
//! | [`consecutive_frees`] | the times between consecutive frees |

pub mod chunks;
pub mod consecutive_frees;
pub mod frame_cache;
pub mod heap;
pub mod lists;
pub mod settings;
