//! The command line.

use crate::advise::report::{self, ReportArguments};
use crate::advise::{self, AdviseArguments};
use crate::analyse::{self, AnalyseArguments};
use crate::bench::{self, BenchArguments};
use crate::child::ChildArguments;
use crate::failure::Failure;
use crate::record::{self, RecordArguments};
use crate::replay::{self, ReplayArguments};
use crate::stress::{self, StressArguments};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Memory allocators chosen by how long an object lives and who may touch it.
///
/// Without a command: the tour. It reads this machine's counters from /proc, answers queries over
/// them with malloc and with an arena, repeats that at full size beside other allocators, and says
/// what the difference was. It takes under 90 seconds.
#[derive(Debug, Parser)]
#[command(name = "allot", version, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The tour's figures as one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// A tour for tests, which can't wait
    #[arg(long, hide = true)]
    pub small: bool,
}

/// What `allot` can do besides the tour.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure allocators side by side
    ///
    /// Every workload runs with every allocator in a child process of its own; the rounds are
    /// interleaved, so that drift hits all alike. Medians are quoted, with minimum and maximum.
    Bench(BenchArguments),
    /// Stress one allocator, with a line each second
    ///
    /// The array allocator's own stress test: each thread has so many elements of 64 bytes. In a cycle it
    /// allocates them all, then frees a fifth, a quarter, a third and a half of them and allocates those again,
    /// then every 50th, 40th, 30th, 20th and 10th, and at last frees all. `bench stress` runs the same for one
    /// second beside other allocators.
    #[command(after_help = stress::EXAMPLES)]
    Stress(StressArguments),
    /// Run a program, and say what it would gain from which allocator
    ///
    /// Records every call that the program makes for memory, finds what its objects have in common, replays them on
    /// other allocators, and says on one screen what is worth a change and what is not. The program itself is
    /// unchanged. `record`, `analyse` and `replay` are its parts.
    #[command(after_help = advise::EXAMPLES)]
    Advise(AdviseArguments),
    /// Record every call that a program makes for memory
    ///
    /// Runs the program with a library that is loaded before all others, and writes each allocation and each free
    /// with its time, its thread and its stack into one compressed file. The program itself is unchanged.
    #[command(after_help = record::EXAMPLES)]
    Record(RecordArguments),
    /// Say what a recorded program would gain
    ///
    /// Reads a recording twice: where the program allocates, how long blocks live, who frees them, which of them die
    /// together; and says for each group of places which allocator would fit and what it may save. `allot replay` tests it.
    #[command(after_help = analyse::EXAMPLES)]
    Analyse(AnalyseArguments),
    /// Replay a recording on other allocators, and test the advice
    ///
    /// Runs the recorded allocations and frees on glibc's malloc, on others, and on each plan that `allot analyse`
    /// proposes, and says which advice holds.
    #[command(after_help = replay::EXAMPLES)]
    Replay(ReplayArguments),
    /// Make the page of findings that were kept as JSON
    ///
    /// One HTML file with everything in it: live memory over time, a flame graph, every verdict and every site, the
    /// replay, system calls and locks.
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArguments),
    /// One round of a replay; `replay` starts it.
    #[command(hide = true)]
    ReplayRound,
    /// One measured run; `bench` starts it.
    #[command(hide = true)]
    Child(ChildArguments),
    /// Context queries of one allocator; the tour starts it.
    #[command(hide = true)]
    Queries(crate::tour::QueriesArguments),
    /// Runs `allot ARGUMENTS` and counts its memory calls; `bench` starts it.
    #[command(hide = true)]
    Trace {
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Known numbers of calls, for the test of `trace`.
    #[command(hide = true)]
    KnownCalls { threads: usize },
}

/// Reads the command line. `Ok(None)`: help or the version was asked for and is printed.
pub fn read() -> Result<Option<CommandLine>, Failure> {
    let command =
        CommandLine::command().mut_subcommand("bench", |bench| bench.after_help(bench::lists()));
    let parsed =
        command.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    match parsed {
        Ok(line) => Ok(Some(line)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                crate::output::line(error.render().ansi().to_string().trim_end())?;
                Ok(None)
            }
            _ => Err(Failure::Usage(in_one_line(&error.render().to_string()))),
        },
    }
}

/// Clap's errors have several lines: the error, then tips and the usage. The first paragraph, and a
/// tip if there is one, say enough.
fn in_one_line(error: &str) -> String {
    let mut paragraphs = error.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let mut line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    for tip in paragraphs.filter_map(|paragraph| paragraph.trim().strip_prefix("tip: ")) {
        line += "; ";
        line += tip.lines().next().unwrap_or_default();
    }
    line + "; see 'allot --help'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn an_error_fits_in_one_line() {
        let parse = |line: &[&str]| {
            let error = CommandLine::try_parse_from(line).unwrap_err();
            in_one_line(&error.render().to_string())
        };
        for line in [
            &["allot", "bench", "--roundz", "3"][..],
            &["allot", "bench", "--rounds", "0"],
            &["allot", "bench", "--threads", "many"],
            &["allot", "trim"],
            &["allot", "--json", "bench"],
        ] {
            let error = parse(line);
            assert!(!error.contains('\n') && error.contains("see 'allot --help'"), "{error}");
        }
        let error = parse(&["allot", "bench", "--roundz", "3"]);
        assert!(error.contains("--roundz") && error.contains("'--rounds'"), "{error}");
    }
}
