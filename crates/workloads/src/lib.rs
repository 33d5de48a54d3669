//! The workloads of the measuring contract, generic over the allocator that serves them.
//!
//! A workload is a sequence of *tasks* (queries, replies). For each, a worker begins a
//! [`peers::Task`], allocates and uses its objects, and ends it. Where the allocator frees together
//! ([`peers::Task::FREED_TOGETHER`]) ending is all; elsewhere the workload first frees every object
//! by walking its own structures, as a C program would. The sequence of operations comes from one
//! seed and is the same for every allocator; every object is written; the harness's own arrays are
//! touched before the measured part.
//!
//! Some workloads have no tasks: their objects, of one size or of many, live until they are freed. One, `handler`,
//! is ordinary code that allocates from its program's global allocator. Some compare no allocators but ways of doing
//! their work ([`Way`]).
//!
//! The *steady state* of a worker begins after its first [`WARM_UP`] tasks: by then an allocator that
//! keeps memory warm has it. Steady-state figures count what the workers do from there to their last
//! task, by the number of those tasks.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod c;
pub mod catalogue;
pub mod categories;
pub mod clock;
mod contender;
mod crew;
pub mod fixed_size;
pub mod global;
pub mod grow;
mod handler;
pub mod letters;
mod memory;
mod mixed;
pub mod objects;
mod published;
pub mod query;
pub mod random;
mod refusal;
pub mod run;
mod sampled;
mod scope;
mod sizes;
mod team;
#[cfg(test)]
mod testing;
pub mod timed;
mod trees;
mod watch;
mod ways;

// The rows in C call it by name.
#[cfg(feature = "c-peers")]
use allotment_c as _;

#[cfg(test)]
#[global_allocator]
static GLOBAL: Global = Global;

pub use catalogue::{Effort, Setting, Threads, UnknownWorkload, Workload, catalogue};
pub use contender::{Contender, UnknownRow};
pub use global::Global;
pub use refusal::{Refusal, Unable, can_run};
pub use run::{Load, Outcome};
pub use team::{Run, Steady, WARM_UP};
pub use watch::{Unwatched, Watch};
pub use ways::Way;
