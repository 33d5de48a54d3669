//! The workloads of the benchmark, generic over the allocator that serves them.
//!
//! A workload is a sequence of *tasks* (queries, replies, requests). For each task, a worker begins
//! a [`crate::peers::Task`], allocates and uses its objects, and ends the task. If the allocator
//! frees a task's objects together ([`crate::peers::Task::FREED_TOGETHER`]), ending the task is
//! enough. Otherwise the workload first frees every object by walking its own structures, as a C
//! program would. The sequence of operations comes from one seed and is the same for every
//! allocator. Every object is written. The harness's own arrays are touched before the measured
//! part.
//!
//! Some workloads have no tasks: their objects, of one size or of many, live until they are freed.
//! One workload, `handler`, is ordinary code that allocates from its program's global allocator.
//! Some workloads compare variants of their work ([`Variant`]) instead of allocators.
//!
//! # Files
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `random`, `clock`, `setting`, `observer` | random numbers, the time stamp counter, threads and amounts, the events of a run |
//! | `task_memory`, `sizes` | values in a task's memory, sizes of objects |
//! | `thread_group`, `task_threads` | the threads of a run, which work in parts; those of a run that consists of tasks |
//! | `measurement`, `columns` | the record of a run's figures, and the metrics; the columns of tables |
//! | `timed`, `sampled`, `global` | the allocator's part of the time; the program's allocator |
//! | `query`, `objects`, `collections`, `grow`, `scope`, `scope_free`, `mixed`, `handler` | workloads that compare allocators |
//! | `fixed_size`, `trees` | the same on objects of one size; the two folders use each other |
//! | `boxes`, `pool_request` | the same on boxes that go from thread to thread, and on objects that outlive their request |
//! | `kind`, `workload`, `run_error`, `variant` | an entry of the list of workloads, why it can't run, and the variants that some compare instead of allocators |
//! | `published`, `locking`, `file_scan`, `c` | workloads that compare variants |
//! | `catalogue`, `details` | the list, and what each workload measures |
//! | `subject`, `support`, `run` | the rows of a workload, which of them can run it, and a run |
//! | `testing` | small allocators that count, for tests |
//!
//! # Steady state
//!
//! The *steady state* of a worker begins after its first [`WARM_UP`] tasks. By then, an allocator
//! that keeps memory warm has warm memory. Steady-state figures count from there to each worker's
//! last task, and are divided by the number of these tasks. The workloads of `objects` measure
//! nothing else: their first tasks run before the measured part. Work that is mostly the first
//! touch of memory is measured apart, in workloads whose names end in `-cold`.

#[cfg(feature = "catalogue")]
mod boxes;
#[cfg(feature = "catalogue")]
mod c;
#[cfg(feature = "catalogue")]
pub mod catalogue;
pub mod clock;
#[cfg(feature = "catalogue")]
mod collections;
mod columns;
#[cfg(feature = "catalogue")]
mod details;
#[cfg(feature = "catalogue")]
pub mod file_scan;
#[cfg(feature = "catalogue")]
pub mod fixed_size;
#[cfg(feature = "catalogue")]
pub mod global;
#[cfg(feature = "catalogue")]
pub mod grow;
#[cfg(feature = "catalogue")]
mod handler;
#[cfg(feature = "catalogue")]
mod kind;
#[cfg(feature = "catalogue")]
pub mod locking;
pub mod measurement;
#[cfg(feature = "catalogue")]
mod mixed;
#[cfg(feature = "catalogue")]
pub mod objects;
mod observer;
#[cfg(feature = "catalogue")]
mod pool_request;
#[cfg(feature = "catalogue")]
mod published;
pub mod query;
pub mod random;
#[cfg(feature = "catalogue")]
pub mod run;
#[cfg(feature = "catalogue")]
mod run_error;
#[cfg(feature = "catalogue")]
mod sampled;
#[cfg(feature = "catalogue")]
mod scope;
#[cfg(feature = "catalogue")]
mod scope_free;
#[cfg(feature = "catalogue")]
mod setting;
#[cfg(feature = "catalogue")]
mod sizes;
#[cfg(feature = "catalogue")]
mod subject;
#[cfg(feature = "catalogue")]
mod support;
mod task_memory;
mod task_threads;
#[cfg(test)]
mod testing;
mod thread_group;
pub mod timed;
#[cfg(feature = "catalogue")]
mod trees;
#[cfg(feature = "catalogue")]
mod variant;
#[cfg(feature = "catalogue")]
mod workload;

// The rows in C call it by its C names.
#[cfg(all(feature = "catalogue", feature = "fast-peers"))]
use allotment_c as _;

#[cfg(all(test, feature = "catalogue"))]
#[global_allocator]
static GLOBAL: Global = Global;

#[cfg(feature = "catalogue")]
pub use catalogue::{UnknownWorkload, catalogue};
pub use columns::{Column, span};
#[cfg(feature = "catalogue")]
pub use details::Details;
#[cfg(feature = "catalogue")]
pub use global::Global;
pub use measurement::Measurement;
pub use observer::{Observer, Unobserved};
#[cfg(feature = "catalogue")]
pub use run_error::{RunError, UnknownRow, Unsupported};
#[cfg(feature = "catalogue")]
pub use setting::{Effort, Setting, Threads};
#[cfg(feature = "catalogue")]
pub use subject::Subject;
#[cfg(feature = "catalogue")]
pub use support::can_run;
pub use task_threads::{Run, SteadyState, WARM_UP};
pub use thread_group::AbortIfPanicking;
#[cfg(feature = "catalogue")]
pub use variant::Variant;
#[cfg(feature = "catalogue")]
pub use workload::{RunSpec, Workload};
