//! Says which memory allocator a program should use, and what that would save.
//!
//! Data flows in one direction, and a folder imports from the folders above it in this table only:
//!
//! | folder | does |
//! |---|---|
//! | `record` | runs a program with the recorder preloaded, and packs its events into a file |
//! | `analyse` | derives verdicts from a recording: which allocator would fit which blocks |
//! | `replay` | repeats a recording with each of these allocators, and confirms or withdraws the verdicts |
//! | `advise` | does all of this in one call, and prints the summary and the report |
//!
//! Each is also a command of `allot`, whose arguments and function this library exports.

mod advise;
mod analyse;
mod record;
mod replay;

pub use advise::report::{EXAMPLES as REPORT_EXAMPLES, ReportArguments, run as report};
pub use advise::{AdviseArguments, EXAMPLES as ADVISE_EXAMPLES, run as advise};
pub use analyse::{AnalyseArguments, EXAMPLES as ANALYSE_EXAMPLES, run as analyse};
pub use record::{EXAMPLES as RECORD_EXAMPLES, RecordArguments, run as record};
pub use replay::{
    EXAMPLES as REPLAY_EXAMPLES, ReplayArguments, run as replay, run_round as replay_round,
};
