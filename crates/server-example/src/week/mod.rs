//! A simulated week of the service, and its memory over time: the benchmark `week`.
//!
//! A child process for each variant plays the same week without a network: days and nights, bursts,
//! deploys of a cache, and sessions and exports that end hours after the requests that made them.
//! The requests do the work of the example service. Simulated time goes as fast as the processor
//! allows, but an hour takes at least a second, because a pool may keep empty memory for a second.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`counting`] | a global allocator that counts the bytes in use |
//! | [`calendar`] | the requests of each simulated minute |
//! | [`escapees`] | what outlives its request |
//! | [`sample`] | the memory at one minute, as a line of JSON |
//! | [`simulation`] | plays the week in a child process |
//! | [`variant`] | the variants |
//! | [`summary`] | what a variant's samples say, as a table |
//! | [`plot`] | memory over time, as SVG |
//! | [`command`] | the command line, and the children |

pub mod calendar;
pub mod command;
pub mod counting;
pub mod escapees;
pub mod plot;
pub mod sample;
pub mod simulation;
pub mod summary;
pub mod variant;

pub use command::main;
