//! What a recording says about the program that was recorded.
//!
//! Two passes over the events. The [first] finds for each stack what can be added up; then stacks become
//! [sites] and possible [pieces of work](contexts); the [second] finds for those what can't be added up, from what the first
//! has [kept](moves) or else from the recording again;
//! then sites become [groups], and [rules] say what is advised. All of it is a set of hypotheses that the replay tests.

mod ahead;
mod assemble;
mod changes;
mod contexts;
mod costs;
pub mod findings;
mod first;
mod flame;
mod groups;
mod histogram;
mod live;
mod locks;
mod moves;
mod overlap;
mod pass;
mod phase;
mod resolve;
mod rules;
mod second;
mod sidestep;
mod sites;
mod symbols;
mod system;
pub mod table;
mod tally;
pub mod words;
mod wrappers;

use crate::failure::Failure;
use crate::output;
use allot_trace::{Reader, TraceError};
use findings::Findings;
use std::path::{Path, PathBuf};

/// The site of a stack that never allocated.
pub const NO_SITE: u32 = u32::MAX;

/// `allot analyse`.
#[derive(Debug, clap::Args)]
pub struct AnalyseArguments {
    /// What `allot record` made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Everything that was found as one JSON object
    #[arg(long)]
    json: bool,
    /// Check that no two live blocks overlap; exit code 1 if some do
    #[arg(long)]
    check: bool,
    /// Which process of the recording, counted from 0; without it the one with the most events
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// How many rows the table has
    #[arg(long, value_name = "N", default_value_t = 12, conflicts_with = "json")]
    rows: usize,
}

/// What help says below the options.
pub const EXAMPLES: &str = "Examples:
  allot record -o jq.rec -- jq length big.json
  allot analyse jq.rec             what would gain from which allocator, on one screen
  allot analyse --json jq.rec      sites, groups, verdicts, timeline and flame graph
  allot analyse --check jq.rec     is the recording sound?";

/// How to analyse.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which process; `None`: the one with the most events.
    pub process: Option<usize>,
    /// Check that live blocks don't overlap.
    pub check: bool,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// The CPU time of all processes without a recorder, where it was measured.
    pub bare_cpu_ns: Option<u64>,
    /// Keep no steps in memory: the recording is read twice, however short it is.
    pub frugal: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Analysis {
    pub findings: Findings,
    /// The number of the process in the recording.
    #[allow(dead_code, reason = "for the replay")]
    pub process: usize,
    /// By [node](allot_trace::NodeId): the site of its allocations, or [`NO_SITE`].
    #[allow(dead_code, reason = "for the replay")]
    pub site_of: Vec<u32>,
}

/// Runs the command.
pub fn run(arguments: &AnalyseArguments) -> Result<(), Failure> {
    let options = Options {
        process: arguments.process,
        check: arguments.check,
        progress: true,
        ..Options::default()
    };
    let analysis = analyse(&arguments.file, &options)?;
    if arguments.json {
        let text = serde_json::to_string(&analysis.findings)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        output::line(text)?;
    } else {
        output::line(table::table(&analysis.findings, arguments.rows).trim_end())?;
    }
    match &analysis.findings.overlaps {
        Some(overlaps) if overlaps.found > 0 => Err(Failure::Failed(format!(
            "{} of {} blocks overlap a live one: the recording is not sound; the first: {}",
            overlaps.found,
            overlaps.checked,
            overlaps.examples.first().map_or("", |example| example)
        ))),
        _ => Ok(()),
    }
}

/// Analyses one process of a recording.
pub fn analyse(path: &Path, options: &Options) -> Result<Analysis, Failure> {
    let failed = |error: TraceError| Failure::Failed(format!("{}: {error}", path.display()));
    let reader = Reader::open(path).map_err(failed)?;
    let process = match options.process {
        Some(process) if process < reader.processes().len() => process,
        Some(process) => {
            return Err(Failure::Usage(format!(
                "{} has no process {process}: it has {}, counted from 0",
                path.display(),
                reader.processes().len()
            )));
        }
        None => busiest(&reader).ok_or_else(|| {
            Failure::Failed(format!("{}: no process was recorded", path.display()))
        })?,
    };
    assemble::assemble(&reader, process, options).map_err(failed)
}

/// The process with the most events; of several the first.
fn busiest(reader: &Reader) -> Option<usize> {
    let bytes = |&process: &usize| reader.processes()[process].raw_bytes();
    (0..reader.processes().len()).rev().max_by_key(bytes)
}
