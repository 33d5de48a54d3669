//! Measures memory allocators side by side, each run in a child process of its own.
//!
//! A folder imports from the folders above it in this table only:
//!
//! | folder or file | holds |
//! |---|---|
//! | [`console`] | the terminal: text, tables, progress, failures with their exit codes; medians and ratios |
//! | [`peers`] | the allocators that are compared, Allotment's among them, behind common traits |
//! | [`workloads`] | what is measured, generic over those traits |
//! | [`runner`] | child processes, what a child measures of itself, the plan, the rounds, the measurements |
//! | `output` | measurements as tables, HTML pages and plots |
//! | [`tour`] | queries over this machine's metrics, with malloc and with an arena |
//! | `compare`, `stress` | the commands `allot bench` and `allot stress` |
//!
//! The feature `catalogue` adds all workloads but `query`, and what only `allot bench` needs: the
//! tour builds without it, in a fraction of the time.

#[cfg(feature = "catalogue")]
pub mod compare;
pub mod console;
#[cfg(feature = "catalogue")]
mod output;
pub mod peers;
pub mod runner;
#[cfg(feature = "catalogue")]
pub mod stress;
pub mod tour;
pub mod workloads;
