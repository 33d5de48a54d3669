//! Analyses a recording: where the program allocates, how its blocks behave, which allocator fits.
//!
//! There are two passes over the events:
//!
//! 1. The [first] pass sums up, per stack, the figures that can be added.
//! 2. Stacks with the same place become [sites]; calls below which much is allocated become possible
//!    [pieces of work](contexts).
//! 3. The [second] pass finds the figures of sites and pieces of work that can't be added up. It reads
//!    the events that the first pass [kept](moves), or the recording again.
//! 4. Sites become [groups], and the [rules] choose an allocator for each group.
//!
//! The results are hypotheses; the replay tests them.

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

use bench::console::failure::Failure;
use bench::console::print;
use findings::Findings;
use std::path::{Path, PathBuf};
use trace_format::{Reader, TraceError};

/// The site of a stack that never allocated.
pub const NO_SITE: u32 = u32::MAX;

/// `allot analyse`.
#[derive(Debug, clap::Args)]
pub struct AnalyseArguments {
    /// A recording made by `allot record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print everything that was found as one JSON object
    #[arg(long)]
    json: bool,
    /// Also check the recording: no two live blocks may overlap; exit code 1 if some do
    #[arg(long)]
    check: bool,
    /// Analyse this process of the recording, numbered from 0; by default the one with the most events
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Number of rows of the table
    #[arg(long, value_name = "N", default_value_t = 12, conflicts_with = "json")]
    rows: usize,
}

/// For `allot analyse --help`.
pub const EXAMPLES: &str = "Examples:
  allot record -o jq.rec -- jq length big.json
  allot analyse jq.rec             one screen: groups, advice, reasons
  allot analyse --json jq.rec      everything, also each place, the timeline and the flame graph
  allot analyse --check jq.rec     also check that the recording is sound";

/// Options of an analysis.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The process to analyse; `None`: the one with the most events.
    pub process: Option<usize>,
    /// Check that live blocks don't overlap.
    pub check: bool,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// The CPU time of all processes without a recorder, where it was measured.
    pub bare_cpu_ns: Option<u64>,
    /// Keep no events in memory between the passes: the recording is read twice, even if it is short.
    pub frugal: bool,
}

/// The result of an analysis.
#[derive(Debug)]
pub struct Analysis {
    pub findings: Findings,
    /// The number of the process in the recording.
    #[allow(dead_code, reason = "for the replay")]
    pub process: usize,
    /// By [node](trace_format::NodeId): the site of its allocations, or [`NO_SITE`].
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
        print::line(text)?;
    } else {
        print::line(table::table(&analysis.findings, arguments.rows).trim_end())?;
    }
    match &analysis.findings.overlaps {
        Some(overlaps) if overlaps.found > 0 => Err(Failure::Failed(format!(
            "{} of {} blocks overlap a live one, so the recording is not sound; record again (the first: {})",
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
                "{} has no process {process}; give --process a number below {}",
                path.display(),
                reader.processes().len()
            )));
        }
        None => busiest(&reader).ok_or_else(|| {
            Failure::Failed(format!(
                "{}: the recording has no process; record the program again",
                path.display()
            ))
        })?,
    };
    assemble::assemble(&reader, process, options).map_err(failed)
}

/// The process with the most events; the first one of several.
fn busiest(reader: &Reader) -> Option<usize> {
    let bytes = |&process: &usize| reader.processes()[process].raw_bytes();
    (0..reader.processes().len()).rev().max_by_key(bytes)
}
