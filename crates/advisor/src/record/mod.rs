//! `allot record`: runs a program, and writes each of its allocations and frees to a file.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | does |
//! |---|---|
//! | [`obstacle`](obstacle()) | finds out before the run whether a program can be recorded |
//! | `inherited_state` | keeps signals and standard files for the program as they were |
//! | `count` | counts system calls, with eBPF |
//! | `collector` | packs the raw files of processes into a recording |
//! | `run` | runs the program with the recorder, and packs its events meanwhile |
//! | `show` | prints the events of a recording |

mod collector;
mod count;
mod inherited_state;
mod obstacle;
mod run;
mod show;

use bench::console::failure::Failure;
use bench::console::print;
use bench::console::table::grouped;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub use collector::{RecordingTotals, why_unseen};
pub use obstacle::{Obstacle, obstacle};
pub use run::{ProgramEnd, ProgramOutput, record, temporary_library};

/// The arguments of `allot record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Write the recording to this file
    #[arg(short, long, value_name = "FILE", required_unless_present = "show")]
    output: Option<PathBuf>,
    /// Print the summary as one JSON object; with --show, one object per event and line
    #[arg(long)]
    json: bool,
    /// Print the events of a recording instead of making one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "program"])]
    show: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "show")]
    program: Vec<OsString>,
}

/// For `allot record --help`.
pub const EXAMPLES: &str = "
Output: FILE, and one line on standard error that says how much was recorded and what was lost, for
example \"4,216,566 events of 1 thread in 1 process, 1.6 MiB, 0.41 bytes an event, in jq.rec; lost:
nothing\". With --json that summary is one JSON object on standard output, after the program's own
output.

The exit code is the program's, or 128 plus the signal's number if a signal ended it. Ctrl-C goes to
the program; the recording stays readable.

Child processes are recorded too, each with its own events. While the program runs, events are in a
directory beside FILE, in shared mappings of files: nothing is lost if the program is killed. A
daemon that changes its root directory or drops its privileges is still recorded, through two files
that the recorder keeps open in it.

System calls are counted where the kernel permits it, usually only for root. Otherwise the recording
has the reads, writes and page faults that /proc and getrusage report, and a line on standard error
says so.

Not recorded, with a line that says so: programs that are linked statically or have a malloc of
their own, Go programs, programs that run with another user's rights, and an operator new that
jemalloc, mimalloc or tcmalloc brings. Python's objects are recorded with PYTHONMALLOC=malloc.

Examples:
  allot record -o jq.rec -- jq . large.json
  PYTHONMALLOC=malloc allot record -o run.rec -- python3 script.py
  allot record --show jq.rec
";

/// The summary of a recording.
#[derive(Debug, serde::Serialize)]
struct RecordSummary<'s> {
    /// The file's name, with replacement characters for what is not UTF-8.
    file: &'s str,
    file_bytes: u64,
    bytes_per_event: f64,
    #[serde(flatten)]
    totals: &'s RecordingTotals,
    #[serde(flatten)]
    ended: &'s ProgramEnd,
    not_seen: Option<&'s str>,
}

/// Runs the command.
pub fn run(arguments: &RecordArguments) -> Result<(), Failure> {
    if let Some(file) = &arguments.show {
        return show::show(file, arguments.json);
    }
    let Some(output) = &arguments.output else {
        return Err(Failure::Usage(
            "no file is named for the recording; name it with -o FILE".to_owned(),
        ));
    };
    let Some(program) = arguments.program.first() else {
        return Err(Failure::Usage(
            "no program is named; name it after --, as in `allot record -o FILE -- PROGRAM`"
                .to_owned(),
        ));
    };
    let path = found(program)?;
    let obstacle = obstacle(&path);
    if let Some(Obstacle::Unseen(why) | Obstacle::Partly(why)) = &obstacle {
        print::to_errors(format!("allot: {why}"));
    }
    let (ended, totals, bytes) = record(
        output,
        &path,
        &arguments.program,
        ProgramOutput::Shared,
        "choose another file with -o",
    )?;
    if let Some(why) = &ended.not_counted {
        print::to_errors(format!("allot: system calls were not counted: {why}"));
    }
    if let Some(unseen) = &totals.new_unseen {
        print::to_errors(format!("allot: {}", unseen.in_one_line()));
    }
    let why = match &obstacle {
        Some(Obstacle::Unseen(why) | Obstacle::Partly(why)) => Some(&**why),
        None => None,
    };
    let summary = RecordSummary {
        file: &output.to_string_lossy(),
        file_bytes: bytes,
        bytes_per_event: bytes as f64 / totals.events.max(1) as f64,
        totals: &totals,
        ended: &ended,
        not_seen: why,
    };
    if arguments.json {
        print::json_line(&summary)?;
    } else {
        print::to_errors(format!("allot: {}", in_one_line(&summary)));
    }
    match ended.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Program(code)),
    }
}

/// Finds a program's file, as a shell does.
pub fn found(program: &OsStr) -> Result<PathBuf, Failure> {
    if program.is_empty() {
        return Err(Failure::Usage(
            "the program's name is empty; name the program after --".to_owned(),
        ));
    }
    obstacle::find(program).ok_or_else(|| {
        let name = program.display();
        Failure::Failed(format!(
            "can't run {name}: no such program, or no permission to run it; check the name and PATH"
        ))
    })
}

/// The summary as text.
fn in_one_line(summary: &RecordSummary<'_>) -> String {
    let totals = summary.totals;
    if totals.processes == 0 {
        return match summary.not_seen {
            Some(_) => "nothing was recorded, for the reason above".to_owned(),
            None => "nothing was recorded: the recorder was not loaded into the program, perhaps because another program started it with an empty environment; name the program itself after --".to_owned(),
        };
    }
    let count = |number: u64, one: &str, many: &str| {
        format!("{} {}", grouped(number), if number == 1 { one } else { many })
    };
    let mut line = format!(
        "{} of {} in {}, {:.1} MiB, {:.2} bytes an event, in {}",
        count(totals.events, "event", "events"),
        count(totals.threads, "thread", "threads"),
        count(totals.processes, "process", "processes"),
        summary.file_bytes as f64 / f64::from(1 << 20),
        summary.bytes_per_event,
        summary.file,
    );
    let mut lost = Vec::new();
    if let Some(full) = &totals.full {
        lost.push(format!(
            "what process {} did after {:.3} s ({})",
            full.pid, full.at_seconds, full.why
        ));
    }
    if totals.missed > 0 {
        lost.push(format!("{}, because memory ran out", count(totals.missed, "call", "calls")));
    }
    if let Some(unseen) = &totals.new_unseen {
        let processes = count(unseen.processes, "process", "processes");
        lost.push(format!("what operator new gave in {processes}"));
    }
    if let Some(own) = &totals.own_malloc {
        let processes = count(own.processes, "process", "processes");
        lost.push(format!(
            "what {processes} with a malloc in the executable allocated ({})",
            own.executable
        ));
    }
    if totals.still_running > 0 {
        lost.push(format!(
            "what {} did after the program's end",
            count(totals.still_running, "process", "processes")
        ));
    }
    lost.extend(totals.damaged.iter().cloned());
    line += "; lost: ";
    line += &if lost.is_empty() { "nothing".to_owned() } else { lost.join("; ") };
    line
}
