//! `allot advise`: runs a program once and says which allocator would make it faster.
//!
//! Makes a [recording], analyses and replays it. The [summary] is one screen; the [report] is a
//! page with everything that was found.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | does |
//! |---|---|
//! | `terminal_text` | makes texts of the recorded program safe for a terminal |
//! | `other_processes` | the processes of the recording that the advice is not on |
//! | `report_target` | the file that the report is written to |
//! | `bare_run` | runs the program without the recorder |
//! | `allocator_times` | how long the allocators' code takes for a block |
//! | `trial` | runs it with the blocks of advised groups in other memory |
//! | `measure` | runs it as it is, with each installed malloc, and with each change tried |
//! | `recording` | makes the recording, or opens an earlier one |
//! | `ask` | asks at a terminal whether to measure |
//! | `difference` | compares two recordings |
//! | [`report`] | the HTML page, and `allot report` |
//! | `summary` | the screen |

mod allocator_times;
mod ask;
mod bare_run;
mod difference;
mod measure;
mod other_processes;
mod recording;
pub mod report;
mod report_target;
mod summary;
mod terminal_text;
#[cfg(test)]
mod tests;
mod trial;

use crate::analyse::findings::{Findings, ObjectCategory, ReportNote};
use crate::analyse::{self, Analysis};
use crate::record::{self, Obstacle};
use crate::replay;
use crate::replay::installed_mallocs::{self, InstalledMalloc};
use bare_run::BareProgram;
use bench::console::failure::Failure;
use bench::console::{print, progress};
use clap::Args;
use other_processes::OtherProcesses;
use recording::Recording;
use report_target::ReportTarget;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use summary::SummaryFacts;
use trace_format::RecordingReader;
use trial::Trials;

/// The arguments of `allot advise`.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// Write the report to this file instead of allot-PROGRAM.html in the current directory
    #[arg(long, value_name = "FILE.html", conflicts_with = "no_report")]
    report: Option<PathBuf>,
    /// Write no report
    #[arg(long)]
    no_report: bool,
    /// Print everything that was found as one JSON object; writes a report only with --report
    #[arg(long)]
    json: bool,
    /// Keep the recording in this file, for --recording, `allot analyse` and `allot replay`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Advise on an earlier recording instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "output", "against_bare", "repeat"])]
    recording: Option<PathBuf>,
    /// Compare two recordings of a program, before and after a change: did it work, where, and by
    /// how much
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2, conflicts_with_all = ["program", "recording", "output", "against_bare", "repeat", "process", "rounds", "report", "no_report"])]
    diff: Option<Vec<PathBuf>>,
    /// Advise on this process of the recording, numbered from 0; by default the one with the most
    /// recorded data
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Run the program again without the recorder, once before the replay and once in each of its
    /// rounds, to measure its CPU time
    #[arg(long)]
    against_bare: bool,
    /// Measure the program itself: run it N times as it is, with each malloc that is installed, and
    /// with up to three advised changes tried on it, each alone and all together, interleaved. N must
    /// be at least 6 to tell a difference from chance
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Number of rounds of the replay; by default as many as fit in its time (see below), but at
    /// least five if they fit in three times that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present_any = ["recording", "diff"])]
    program: Vec<OsString>,
}

/// For `allot advise --help`.
pub const EXAMPLES: &str = "
Give the program a typical piece of work of a few seconds: the advice covers only what it does in
this run. It runs somewhat slower than usual. The replay afterwards aims for ten seconds plus twice
the program's run time, less what recording and analysing took, and for at least five seconds. It may
take three times as long to complete five rounds. End a server with Ctrl-C, or run `timeout 30 allot advise -- ...`.

Output: the summary goes to standard error, so the program's own output can be piped. With
--recording it goes to standard output. With --json, standard output has one JSON object, and the
program's standard output goes to standard error.

Ctrl-C goes to the program; the advice then covers what it did until then. During the replay,
Ctrl-C ends the replay, and the advice uses the rounds done so far. A second Ctrl-C ends
everything.

Exit code: 0 if there is advice, whatever the program's own exit code is (the summary tells it);
1 if there is none; 2 for wrong arguments.

With --repeat, the program runs many times more, with all of its effects, and its output is
discarded. Its standard input must not be a pipe. Without --repeat, allot asks after the summary
whether to do so, if standard input and standard error are a terminal and there is another malloc or a change to
measure.

The recording is a temporary file in TMPDIR, about 3 bytes for each call; -o keeps it.

Examples:
  allot advise -- jq length large.json
  allot advise --repeat 11 -- jq length large.json
  allot advise --report report.html -- ./server --foreground
  PYTHONMALLOC=malloc allot advise -- python3 script.py
  allot advise -o build.rec -- gcc -O2 -c file.c
  allot advise --recording build.rec --process 1
  allot advise --diff before.rec after.rec";

/// The time limit of the replay where the analysis advises nothing, and the lower bound of its target
/// time.
const LEAST_TIME: Duration = Duration::from_secs(5);
/// Target time of the whole advice, beside twice the program's run time.
const TARGET_TIME: Duration = Duration::from_secs(10);

/// Set at the first interrupt.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Set while the replay or the measurement runs: the first interrupt then ends only that.
static REPLAYING: AtomicBool = AtomicBool::new(false);

/// The output of `--json`.
#[derive(Debug, serde::Serialize)]
struct AdviceJson<'f> {
    #[serde(flatten)]
    findings: &'f Findings,
    recording: Option<&'f str>,
    report: Option<&'f str>,
    others: &'f OtherProcesses,
}

/// Runs the command.
pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    if let Some([old, new]) = arguments.diff.as_deref() {
        end_when_interrupted();
        return difference::run(old, new, arguments.json);
    }
    let began = Instant::now();
    let target = ReportTarget::from_arguments(arguments)?;
    let recording = match &arguments.recording {
        Some(file) => {
            end_when_interrupted();
            Recording::made_before(file)
        }
        None => Recording::of_program(arguments)?,
    };
    let (analysis, others) = analyse_and_replay(&recording, arguments, began)
        .map_err(|failure| recording.named(failure))?;
    let mut analysis = analysis;
    let mallocs = installed_mallocs::installed();
    measured(&mut analysis, &recording, arguments, arguments.repeat, &mallocs);
    let findings = &analysis.findings;
    let report = write_report(&target, findings);
    let kept = recording.kept.as_ref().map(|path| path.display().to_string());
    if let (true, Some(Err(why))) = (arguments.report.is_some(), &report) {
        return Err(Failure::Failed(why.clone()));
    }
    if arguments.json {
        let whole = AdviceJson {
            findings,
            recording: kept.as_deref(),
            report: report.as_ref().and_then(|report| report.as_deref().ok()),
            others: &others,
        };
        return print::json_line(&whole);
    }
    let mut facts = SummaryFacts { report, recording: kept, others };
    let text = summary::summary(findings, &facts);
    if arguments.recording.is_some() {
        return print::line(text.trim_end());
    }
    print::to_errors(format!("\n{}", text.trim_end()));
    // After an interrupt, the user wants no more runs.
    if !INTERRUPTED.load(Ordering::Relaxed)
        && let Some(runs) = ask::runs(&recording, arguments, &mallocs, findings)
    {
        measured(&mut analysis, &recording, arguments, Some(runs), &mallocs);
        facts.report = write_report(&target, &analysis.findings);
        let text = summary::summary(&analysis.findings, &facts);
        print::to_errors(format!("\n{}", text.trim_end()));
    }
    Ok(())
}

/// Writes the report. Returns its path, or why it could not be written; `None` if none is wanted.
fn write_report(target: &ReportTarget, findings: &Findings) -> Option<Result<String, String>> {
    let name = findings.program.command.first().map_or("program", |name| name);
    target.of(name).map(|path| match report::write(&path, findings) {
        Ok(()) => Ok(path.display().to_string()),
        Err(failure) => Err(failure.to_string()),
    })
}

/// Analyses and replays.
fn analyse_and_replay(
    recording: &Recording,
    arguments: &AdviseArguments,
    began: Instant,
) -> Result<(Analysis, OtherProcesses), Failure> {
    let options = analyse::AnalyseOptions {
        process: arguments.process,
        progress: true,
        bare_cpu_ns: recording.bare_cpu_ns,
        ..analyse::AnalyseOptions::default()
    };
    let mut analysis = analyse::analyse(&recording.path, &options)?;
    let mut others = RecordingReader::open(&recording.path)
        .map(|reader| OtherProcesses::of(&reader, analysis.process))
        .map_err(|error| Failure::Failed(format!("{}: {error}", recording.path.display())))?;
    others.went_on = recording.went_on;
    let warnings = recording.warnings.iter().cloned();
    let warnings = warnings.chain(others.warning()).chain(others.own_malloc_warning());
    let warnings = warnings.chain(unrecorded_part(&analysis, recording));
    let warnings = warnings.map(|text| ReportNote { warning: true, text });
    analysis.findings.notes.splice(0..0, warnings);
    if analysis.findings.program.allocations > 0 {
        let rounds = arguments.rounds.map(|rounds| rounds as usize);
        let options = replay::ReplayOptions {
            rounds,
            // Without advice to test, the figures of other mallocs aren't worth more.
            time: (rounds.is_none() && !is_advised(&analysis.findings)).then_some(LEAST_TIME),
            target: Some(target_time(&analysis.findings, began)),
            progress: true,
            stop: Some(&INTERRUPTED),
            ..replay::ReplayOptions::default()
        };
        REPLAYING.store(true, Ordering::Relaxed);
        // The part of the measured CPU time that the analysed process has.
        let part = analysis.findings.program.bare_cpu_ns.zip(recording.bare_cpu_ns);
        let part = part.map(|(part, all)| part as f64 / all.max(1) as f64);
        let run = |part: f64| -> Result<u64, String> {
            let ns = recording.repeatable.as_ref().map_or_else(
                || Err("it can't be run again".to_owned()),
                |repeatable| repeatable.cpu_time(&arguments.program),
            )?;
            Ok((ns as f64 * part) as u64)
        };
        let run = part.map(|part| move || run(part));
        let program = run.as_ref().map(|run| run as replay::ProgramRun<'_>);
        let replayed = replay::replay(&recording.path, &mut analysis, &options, program);
        REPLAYING.store(false, Ordering::Relaxed);
        match replayed {
            Ok(()) => {}
            Err(Failure::Interrupted) => not_replayed(&mut analysis.findings, "it was interrupted"),
            Err(Failure::Failed(why)) => not_replayed(&mut analysis.findings, &why),
            Err(other) => return Err(other),
        }
    }
    Ok((analysis, others))
}

/// Measures the program itself, `runs` times with each malloc and with each change.
fn measured(
    analysis: &mut Analysis,
    recording: &Recording,
    arguments: &AdviseArguments,
    runs: Option<u32>,
    mallocs: &[InstalledMalloc],
) {
    let (Some(runs), Some(repeatable)) = (runs, recording.repeatable.as_ref()) else { return };
    let program = BareProgram {
        path: &repeatable.program,
        command: &arguments.program,
        input: &repeatable.input,
    };
    INTERRUPTED.store(false, Ordering::Relaxed);
    REPLAYING.store(true, Ordering::Relaxed);
    let (trials, failure) = match Trials::of(analysis) {
        None => (None, None),
        Some(Ok(trials)) => (Some(trials), None),
        Some(Err(why)) => (None, Some(why)),
    };
    let (expected, trials) = (repeatable.exit_code, trials.as_ref());
    let mut found = measure::measure(&program, mallocs, trials, runs, expected, &INTERRUPTED);
    REPLAYING.store(false, Ordering::Relaxed);
    found.notes.extend(failure.map(|why| format!("The changes could not be tried: {why}.")));
    analysis.findings.measured = Some(found);
    measure::apply(&mut analysis.findings);
}

/// How long the replay should take: what is left of the target time.
fn target_time(findings: &Findings, began: Instant) -> Duration {
    let run = Duration::from_nanos(findings.program.wall_ns);
    (TARGET_TIME + 2 * run).saturating_sub(began.elapsed()).max(LEAST_TIME)
}

/// What the recorder can't see of the program. `None` for an earlier recording: its environment is
/// unknown.
fn unrecorded_part(analysis: &Analysis, recording: &Recording) -> Option<String> {
    let program = &analysis.findings.program;
    match record::obstacle(Path::new(&program.executable)).filter(|_| recording.was_made_now)? {
        // The answer says it.
        Obstacle::Partly(_) if program.own_heap.is_some() => None,
        Obstacle::Partly(why) => Some(why),
        // The analysis notes it.
        Obstacle::Unseen(_) => None,
    }
}

/// Whether the analysis advises anything that the replay has to confirm.
fn is_advised(findings: &Findings) -> bool {
    findings.groups.iter().any(|group| group.verdict.category != ObjectCategory::LeaveIt)
}

/// Adds a warning: the replay failed, so all gains stay estimates.
fn not_replayed(findings: &mut Findings, why: &str) {
    let text = format!("the replay failed, so all gains are estimates: {why}");
    findings.notes.insert(0, ReportNote { warning: true, text });
}

/// Makes an interrupt end this process. While the replay runs, the first interrupt ends only the
/// replay, unless an earlier one ended the program.
fn end_when_interrupted() {
    // If this fails, an interrupt still ends the process, but leaves the progress bar.
    let _ = ctrlc::set_handler(|| {
        let first = !INTERRUPTED.swap(true, Ordering::Relaxed);
        if first && REPLAYING.load(Ordering::Relaxed) {
            return;
        }
        progress::clear();
        std::process::exit(130);
    });
}
