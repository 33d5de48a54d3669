//! `allot advise`: what a program would gain, from one run of it to a summary on one screen.
//!
//! The [recording] is made, analysed and replayed; the [summary] says what came out, the report shows all of it.

mod bare;
mod place;
mod processes;
mod recording;
pub mod report;
mod summary;
#[cfg(test)]
mod tests;
mod words;

use crate::analyse::findings::{Category, Findings, Note};
use crate::analyse::{self, Analysis};
use crate::failure::Failure;
use crate::record::{self, Obstacle};
use crate::{output, progress, replay};
use allot_trace::Reader;
use clap::Args;
use place::Place;
use processes::Others;
use recording::Recording;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use summary::Facts;

/// The arguments of `allot advise`.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// Where the report is written; without it allot-PROGRAM.html in the current directory
    #[arg(long, value_name = "FILE.html", conflicts_with = "no_report")]
    report: Option<PathBuf>,
    /// Write no report
    #[arg(long)]
    no_report: bool,
    /// All that was found, as one JSON object; a report only if --report says where
    #[arg(long)]
    json: bool,
    /// Keep the recording, for --recording, `allot analyse` and `allot replay`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Advise on what was recorded before, instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "output", "against_bare"])]
    recording: Option<PathBuf>,
    /// Which process of the recording, counted from 0; without it the busiest
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Run the program once more without the recorder, for its true CPU time
    #[arg(long)]
    against_bare: bool,
    /// How many rounds the replay has; without it as many as there is time for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "recording")]
    program: Vec<OsString>,
}

/// For `allot advise --help`.
pub const EXAMPLES: &str = "
The program runs once, as it always does, only somewhat slower; then its allocations and frees are replayed on other
allocators, which takes up to a minute or so. Nothing is advised that the replay doesn't confirm. What it did is all that is known:
give it a typical piece of work of a few seconds. A server that doesn't end by itself is ended by Ctrl-C, or by `timeout 30 allot advise -- ...`.

The summary goes to standard error, so that the program's output can be piped as ever; with --recording to standard
output. With --json, standard output has the one object, and what the program writes there goes to standard error.

Ctrl-C goes to the program; the advice is on what it did until then. During the replay it ends that, and the advice rests
on the rounds so far. A second one ends all.

The exit code is 0 if advice could be given, whatever the program's own was, which the summary tells; 1 if not, 2 if the
arguments make no sense. The recording is in TMPDIR, some 3 bytes for each call, and goes at the end; -o keeps it.

Examples:
  allot advise -- jq length large.json
  allot advise --report report.html -- ./server --foreground
  PYTHONMALLOC=malloc allot advise -- python3 script.py
  allot advise -o build.rec -- gcc -O2 -c file.c
  allot advise --recording build.rec --process 1";

/// The replay's time where nothing is advised.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// An interrupt has come.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The replay runs, which an interrupt only cuts short.
static REPLAYING: AtomicBool = AtomicBool::new(false);

/// Everything, as JSON.
#[derive(Debug, serde::Serialize)]
struct Whole<'f> {
    #[serde(flatten)]
    findings: &'f Findings,
    recording: Option<&'f str>,
    report: Option<&'f str>,
    others: &'f Others,
}

/// Runs it.
pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    let place = Place::asked(arguments)?;
    let recording = match &arguments.recording {
        Some(file) => {
            end_when_interrupted();
            Recording::made_before(file)
        }
        None => Recording::of_program(arguments)?,
    };
    let (analysis, others) =
        judged(&recording, arguments).map_err(|failure| recording.named(failure))?;
    let findings = &analysis.findings;
    let name = findings.program.command.first().map_or("program", |name| name);
    let report: Option<Result<String, String>> =
        place.of(name).map(|path| match report::write(&path, findings) {
            Ok(()) => Ok(path.display().to_string()),
            Err(failure) => Err(failure.to_string()),
        });
    let kept = recording.kept.as_ref().map(|path| path.display().to_string());
    if let (true, Some(Err(why))) = (arguments.report.is_some(), &report) {
        return Err(Failure::Failed(why.clone()));
    }
    if arguments.json {
        let whole = Whole {
            findings,
            recording: kept.as_deref(),
            report: report.as_ref().and_then(|report| report.as_deref().ok()),
            others: &others,
        };
        let text =
            serde_json::to_string(&whole).map_err(|error| Failure::Failed(error.to_string()))?;
        return output::line(text);
    }
    let facts = Facts { report, recording: kept, others };
    let text = summary::summary(findings, &facts);
    if arguments.recording.is_some() {
        output::line(text.trim_end())
    } else {
        output::to_errors(format!("\n{}", text.trim_end()));
        Ok(())
    }
}

/// Analyses and replays.
fn judged(
    recording: &Recording,
    arguments: &AdviseArguments,
) -> Result<(Analysis, Others), Failure> {
    let options = analyse::Options {
        process: arguments.process,
        progress: true,
        bare_cpu_ns: recording.bare_cpu_ns,
        ..analyse::Options::default()
    };
    let mut analysis = analyse::analyse(&recording.path, &options)?;
    let mut others = Reader::open(&recording.path)
        .map(|reader| Others::of(&reader, analysis.process))
        .map_err(|error| Failure::Failed(format!("{}: {error}", recording.path.display())))?;
    others.went_on = recording.went_on;
    let warnings = recording.warnings.iter().cloned();
    let warnings = warnings.chain(others.warning()).chain(partly(&analysis, recording));
    let warnings = warnings.map(|text| Note { warning: true, text });
    analysis.findings.notes.splice(0..0, warnings);
    if analysis.findings.program.allocations > 0 {
        let rounds = arguments.rounds.map(|rounds| rounds as usize);
        let options = replay::Options {
            rounds,
            // Where there is nothing to prove, the figures of other mallocs aren't worth a minute.
            time: (rounds.is_none() && !is_advised(&analysis.findings)).then_some(LEAST_TIME),
            progress: true,
            stop: Some(&INTERRUPTED),
            ..replay::Options::default()
        };
        REPLAYING.store(true, Ordering::Relaxed);
        let replayed = replay::replay(&recording.path, &mut analysis, &options);
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

/// What of the program can't be seen. Of a recording that was made before nobody knows in which environment.
fn partly(analysis: &Analysis, recording: &Recording) -> Option<String> {
    let executable = Path::new(&analysis.findings.program.executable);
    match record::obstacle(executable).filter(|_| recording.was_made_now)? {
        Obstacle::Partly(why) => Some(why),
        Obstacle::Unseen(_) => None,
    }
}

/// Whether there is anything that a replay has to confirm.
fn is_advised(findings: &Findings) -> bool {
    findings.groups.iter().any(|group| group.verdict.category != Category::LeaveIt)
}

/// The advice stays a hypothesis.
fn not_replayed(findings: &mut Findings, why: &str) {
    let text = format!("nothing was proved by replay: {why}");
    findings.notes.insert(0, Note { warning: true, text });
}

/// From now on an interrupt ends us; while the replay runs, the second does, unless the first ended the program.
fn end_when_interrupted() {
    // Without a handler an interrupt ends us too, only less tidily.
    let _ = ctrlc::set_handler(|| {
        let first = !INTERRUPTED.swap(true, Ordering::Relaxed);
        if first && REPLAYING.load(Ordering::Relaxed) {
            return;
        }
        progress::clear();
        std::process::exit(130);
    });
}
