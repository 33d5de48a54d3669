//! Analyses a recording: where the program allocates, how its blocks behave, which allocator fits.
//!
//! The analysis passes over the events twice. The results are hypotheses; the replay tests them.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | does |
//! |---|---|
//! | [`findings`] | the results: plain data that analysis, replay and report share |
//! | `memory_hints` | prefetching and huge pages |
//! | `histogram`, `block_statistics` | statistics of blocks that can be summed |
//! | [`formatting`] | figures as text |
//! | `lifetimes` | how the blocks of a group live and die together |
//! | `live_blocks`, `resolver` | the live blocks by address; events resolved to blocks |
//! | `event_pass` | a pass over the events, on three threads |
//! | `kept_events` | keeps the events in memory for the second pass |
//! | `overlap_check` | the check for overlapping blocks |
//! | `stack_pass` | the first pass: totals, and the statistics of each stack |
//! | `wrappers`, `symbols` | the names of functions, and which of them are wrappers |
//! | `sites` | divides the stacks into sites: places in the program |
//! | `possible_groups` | finds pieces of work whose blocks may share an allocator |
//! | `group_pass` | the second pass: the lifetimes of sites and possible groups |
//! | `cost_model` | estimates what allocating costs |
//! | `code_changes`, `verdict_rules` | chooses an allocator from a group's figures, with the lines to change |
//! | `source_line` | the line of the program's source that allocates, before and after the change |
//! | `groups` | divides the sites into groups, and judges each group |
//! | `flame`, `lock_waits` | the flame graph, and waits for locks |
//! | `own_heap` | programs that have a heap of their own |
//! | `system_call_advice`, `system_calls` | what avoiding system calls would save |
//! | `assemble` | runs all of this, and makes the findings |
//! | [`screen`] | prints the findings on one screen |

mod assemble;
mod block_statistics;
mod code_changes;
mod cost_model;
mod event_pass;
pub mod findings;
mod flame;
pub mod formatting;
mod group_pass;
mod groups;
mod histogram;
mod kept_events;
mod lifetimes;
mod live_blocks;
mod lock_waits;
mod memory_hints;
mod overlap_check;
mod own_heap;
mod possible_groups;
mod resolver;
pub mod screen;
mod sites;
mod source_line;
mod stack_pass;
mod symbols;
mod system_call_advice;
mod system_calls;
mod verdict_rules;
mod wrappers;

pub use verdict_rules::LEAST_ALLOCATOR_SHARE;

use bench::console::failure::Failure;
use bench::console::print;
use findings::Findings;
use std::path::{Path, PathBuf};
use trace_format::{Modules, RecordingReader, Stacks, TraceError};

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
    /// Analyse this process of the recording, numbered from 0; by default the one with the most
    /// recorded data
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
pub struct AnalyseOptions {
    /// The process to analyse; `None`: the one with the most recorded data.
    pub process: Option<usize>,
    /// Check that live blocks don't overlap.
    pub check: bool,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// The CPU time of all processes without a recorder, where it was measured.
    pub bare_cpu_ns: Option<u64>,
    /// Keep no events in memory between the passes: the recording is read twice, even if it is
    /// short.
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
    /// The process's call stacks and modules.
    pub stacks: Stacks,
    pub modules: Modules,
}

/// Runs the command.
pub fn run(arguments: &AnalyseArguments) -> Result<(), Failure> {
    let options = AnalyseOptions {
        process: arguments.process,
        check: arguments.check,
        progress: true,
        ..AnalyseOptions::default()
    };
    let analysis = analyse(&arguments.file, &options)?;
    if arguments.json {
        print::json_line(&analysis.findings)?;
    } else {
        print::line(screen::text(&analysis.findings, arguments.rows).trim_end())?;
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
pub fn analyse(path: &Path, options: &AnalyseOptions) -> Result<Analysis, Failure> {
    let failed = |error: TraceError| Failure::Failed(format!("{}: {error}", path.display()));
    let reader = RecordingReader::open(path).map_err(failed)?;
    let Some(busiest) = busiest(&reader) else {
        return Err(Failure::Failed(format!(
            "{}: the recording has no process; record the program again",
            path.display()
        )));
    };
    let process = match options.process {
        Some(process) if process < reader.processes().len() => process,
        Some(process) => {
            let range = match reader.processes().len() {
                1 => "it has process 0 only".to_owned(),
                count => format!("give --process a number below {count}"),
            };
            let lost = reader.cut_off_at().map_or_else(String::new, |at| {
                format!("; the recording was cut off at byte {at}, so later processes are missing")
            });
            return Err(Failure::Usage(format!(
                "{} has no process {process}; {range}{lost}",
                path.display(),
            )));
        }
        None => busiest,
    };
    assemble::assemble(&reader, process, options).map_err(failed)
}

/// The process with the most recorded data; the first one of several.
fn busiest(reader: &RecordingReader) -> Option<usize> {
    let bytes = |&process: &usize| reader.processes()[process].raw_bytes();
    (0..reader.processes().len()).rev().max_by_key(bytes)
}
