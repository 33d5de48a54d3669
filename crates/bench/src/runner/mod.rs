//! Runs measurements in child processes, and collects what they answer.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`child_process`] | starting children of the same executable, and their answers |
//! | [`resources`] | the memory and page faults of the calling process |
//! | `fragments` | a child that leaves the kernel few free huge pages |
//! | `system_calls` | counting the system calls of a child, with ptrace |
//! | `measured_run` | one measured run, in the child |
//! | `plan` | what is run, and in which order |
//! | `rounds` | every case of a plan once, then once more |
//! | `two_builds` | cases run by this program and by another build of it |
//! | `row` | a case's figures over all rounds, compared with those of other cases |
//! | `time_shares` | the time that each workload of a family gets |

pub mod child_process;
#[cfg(feature = "catalogue")]
pub(crate) mod fragments;
#[cfg(feature = "catalogue")]
pub(crate) mod measured_run;
#[cfg(feature = "catalogue")]
pub(crate) mod plan;
pub mod resources;
#[cfg(feature = "catalogue")]
pub(crate) mod rounds;
#[cfg(feature = "catalogue")]
pub(crate) mod row;
#[cfg(feature = "catalogue")]
pub(crate) mod system_calls;
#[cfg(feature = "catalogue")]
pub(crate) mod time_shares;
#[cfg(feature = "catalogue")]
pub(crate) mod two_builds;

#[cfg(feature = "catalogue")]
pub use fragments::hold as hold_fragments;
#[cfg(feature = "catalogue")]
pub use measured_run::{ChildArguments, run as run_measured};
#[cfg(feature = "catalogue")]
pub use system_calls::{answer as count_calls, known::make as make_known_calls};
