//! A trial: the program runs as it does without the recorder, but the blocks of some call stacks
//! get other memory, as they would after a change of the program. Nothing is recorded but which
//! stacks there are.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`settings`] | whether this process is a trial, its call stacks, and the memory of each route |
//! | [`memory`] | the memory |
//! | [`nodes`] | the routes of frames that a thread has looked up |
//! | [`rows`] | frees in a row |

pub mod memory;
pub mod nodes;
pub mod rows;
pub mod settings;
