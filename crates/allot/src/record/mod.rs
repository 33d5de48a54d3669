//! `allot record`: runs a program, and writes down every call that it makes for memory.

mod collect;
mod count;
mod inherited;
mod program;
mod run;
mod show;

use crate::failure::Failure;
use crate::output;
use crate::table::grouped;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub use collect::{Totals, why_unseen};
pub use program::{Obstacle, obstacle};
pub use run::{Ended, Output, record};

/// The arguments of `allot record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The recording to write
    #[arg(short, long, value_name = "FILE", required_unless_present = "show")]
    output: Option<PathBuf>,
    /// The summary, or with --show each event, as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Print what is in a recording instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "program"])]
    show: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "show")]
    program: Vec<OsString>,
}

/// For `allot record --help`.
pub const EXAMPLES: &str = "
The program runs as it always does, and its exit status is passed on; 128 and the signal's number if one ended it.
Ctrl-C goes to the program, and leaves a readable recording. The summary goes to standard error; with --json it is one
object on standard output, behind what the program wrote there.

Children that the program starts are recorded too, each with its own events. While it runs, events wait in a
directory beside FILE; each is on the disk's side of the kernel at once, so nothing is lost if the program is killed.
A daemon that changes its root or gives up its rights is recorded on, by two files that the recorder keeps open in it.

System calls are counted where the kernel permits it, which as a rule is for root only; without, there are the reads,
writes and page faults that /proc and getrusage know. A line on standard error says so, and the recording too.

What can't be seen is told so: programs that are linked statically or have a malloc of their own, Go, programs with
another user's rights, and an operator new that jemalloc, mimalloc or tcmalloc brings. Python's objects are seen with PYTHONMALLOC=malloc.

Examples:
  allot record -o jq.allot -- jq . large.json
  PYTHONMALLOC=malloc allot record -o run.allot -- python3 script.py
  allot record --show jq.allot
";

/// What a recording came to.
#[derive(Debug, serde::Serialize)]
struct Summary<'s> {
    /// As far as it is text.
    file: &'s str,
    file_bytes: u64,
    bytes_per_event: f64,
    #[serde(flatten)]
    totals: &'s Totals,
    #[serde(flatten)]
    ended: &'s Ended,
    not_seen: Option<&'s str>,
}

/// Runs it.
pub fn run(arguments: &RecordArguments) -> Result<(), Failure> {
    if let Some(file) = &arguments.show {
        return show::show(file, arguments.json);
    }
    let Some(output) = &arguments.output else {
        return Err(Failure::Usage("say where to with -o FILE".to_owned()));
    };
    let Some(program) = arguments.program.first() else {
        return Err(Failure::Usage("say what to record behind --".to_owned()));
    };
    let path = found(program)?;
    let obstacle = obstacle(&path);
    if let Some(Obstacle::Unseen(why) | Obstacle::Partly(why)) = &obstacle {
        output::to_errors(format!("allot: {why}"));
    }
    let (ended, totals, bytes) = record(output, &path, &arguments.program, Output::Shared)?;
    if let Some(why) = &ended.not_counted {
        output::to_errors(format!("allot: system calls were not counted: {why}"));
    }
    if let Some(unseen) = &totals.new_unseen {
        output::to_errors(format!("allot: {}", unseen.in_one_line()));
    }
    let why = match &obstacle {
        Some(Obstacle::Unseen(why) | Obstacle::Partly(why)) => Some(&**why),
        None => None,
    };
    let summary = Summary {
        file: &output.to_string_lossy(),
        file_bytes: bytes,
        bytes_per_event: bytes as f64 / totals.events.max(1) as f64,
        totals: &totals,
        ended: &ended,
        not_seen: why,
    };
    if arguments.json {
        let text =
            serde_json::to_string(&summary).map_err(|error| Failure::Failed(error.to_string()))?;
        output::line(text)?;
    } else {
        output::to_errors(format!("allot: {}", in_one_line(&summary)));
    }
    match ended.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Program(code)),
    }
}

/// The file of a program.
pub fn found(program: &OsStr) -> Result<PathBuf, Failure> {
    program::find(program).ok_or_else(|| {
        let name = program.display();
        Failure::Failed(format!("can't run {name}: there is no such program, or it may not be run"))
    })
}

/// The summary for people.
fn in_one_line(summary: &Summary<'_>) -> String {
    let totals = summary.totals;
    if totals.processes == 0 {
        return match summary.not_seen {
            Some(_) => "nothing was recorded, for that reason".to_owned(),
            None => "nothing was recorded: the recorder was not loaded into the program; it may have been started by one that clears its environment".to_owned(),
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
        lost.push(format!("{} for want of memory", count(totals.missed, "call", "calls")));
    }
    if let Some(unseen) = &totals.new_unseen {
        let processes = count(unseen.processes, "process", "processes");
        lost.push(format!("what operator new gave in {processes}"));
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
