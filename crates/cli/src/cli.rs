//! The command line.

use crate::documents::{self, CompletionsArguments, ManArguments};
use advisor::{
    AdviseArguments, AnalyseArguments, RecordArguments, ReplayArguments, ReportArguments,
};
use bench::compare::{self, BenchArguments};
use bench::console::failure::Failure;
use bench::console::print;
use bench::runner::ChildArguments;
use bench::stress::{self, StressArguments};
use bench::tour;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Finds out which memory allocator a program should use, and measures allocators.
///
/// `allot advise -- PROGRAM` runs a program once, unchanged, and says what it would gain from which
/// allocator. `allot bench` measures allocators side by side on this machine.
///
/// Without a command, `allot` runs the tour: it reads this machine's counters from /proc, answers
/// queries over them with malloc and with an arena, repeats that at full size beside other
/// allocators, and prints a table of the times. The tour takes half a minute.
#[derive(Debug, Parser)]
#[command(name = "allot", version, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the tour's figures as JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Run a short tour, for tests
    #[arg(long, hide = true)]
    pub small: bool,
}

/// The commands of `allot`; without one, it runs the tour.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure allocators side by side
    ///
    /// Runs workloads with several allocators and prints one table per workload: time per
    /// operation, its ratio to this project's allocator, memory, page faults and system calls.
    /// For example, `allot bench query-alloc --quick` takes less than a minute.
    ///
    /// Every run has a child process of its own. Rounds are interleaved, so that drift of the
    /// machine affects all allocators alike. The tables show medians, with minimum and maximum. A
    /// ratio has a 95 % interval and a verdict: ahead, behind or level.
    Bench(BenchArguments),
    /// Stress one allocator, and print a line every second
    ///
    /// Runs the stress test of Netdata's array allocator. Each thread has --elements elements of
    /// 64 bytes. In each cycle it allocates them all; frees a fifth, a quarter, a third and a half
    /// of them and allocates those again; does the same with every 50th, 40th, 30th, 20th and 10th;
    /// and frees all. Each line tells how many elements all threads allocated and freed in that
    /// second; the last line sums up. For example: `allot stress --threads 16`.
    ///
    /// `allot bench stress` runs the same for one second beside other allocators.
    #[command(after_help = stress::EXAMPLES)]
    Stress(StressArguments),
    /// Run a program, and say which allocator would make it faster
    ///
    /// Runs the program once, unchanged, and prints one screen. Its first lines are the answer, for
    /// example "Use an arena for `parse`: saves about 27 % of CPU time (replay-confirmed)."; the
    /// evidence follows. A page for a browser, allot-PROGRAM.html, has all details.
    ///
    /// It records every allocation and free, looks for groups of blocks that an arena, a pool or
    /// another allocator would serve better than malloc, and replays the recording with each such
    /// allocator. Only a change that proves faster in the replay is advised. The steps are also
    /// commands of their own: `record`, `analyse`, `replay` and `report`.
    #[command(after_help = advisor::ADVISE_EXAMPLES)]
    Advise(AdviseArguments),
    /// Record every allocation and free of a program in a file
    ///
    /// Runs the program, unchanged, and writes a compressed file with each allocation and free: its
    /// time, its thread, its size and its stack. `allot analyse` and `allot replay` read that file.
    /// For example: `allot record -o jq.rec -- jq . large.json`.
    ///
    /// The recorder is a library that the dynamic loader puts before all others (LD_PRELOAD).
    #[command(after_help = advisor::RECORD_EXAMPLES)]
    Record(RecordArguments),
    /// Say which allocators would fit a recorded program
    ///
    /// Prints one screen: a table of the groups of allocations, each with the allocator that would
    /// fit and an estimate of the CPU time that it would save, then the reasons.
    /// For example: `allot analyse jq.rec`.
    ///
    /// It finds where the program allocates, how long blocks live, which thread frees them, and
    /// which blocks are freed together. The gains are estimates; `allot replay` tests them.
    #[command(after_help = advisor::ANALYSE_EXAMPLES)]
    Analyse(AnalyseArguments),
    /// Replay a recording with other allocators, to test the advice
    ///
    /// Repeats the recorded allocations and frees with glibc's malloc, with other mallocs, and with
    /// each change that `allot analyse` proposes. Prints a table with the CPU time, peak memory and
    /// page faults of each, and says which advice is confirmed. For example: `allot replay jq.rec`.
    #[command(after_help = advisor::REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
    /// Make an HTML report from findings in JSON
    ///
    /// Writes one HTML file: live memory over time, a flame graph, every verdict and every place
    /// that allocates, the replay, system calls and locks.
    /// For example: `allot report findings.json jq.html`.
    #[command(after_help = advisor::REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// Print a completion script for a shell
    ///
    /// Prints a script with which the shell completes the commands and options of `allot`.
    #[command(after_help = documents::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// Write man pages
    ///
    /// Writes `allot.1` and a page for each command to a folder.
    #[command(after_help = documents::MAN_EXAMPLES)]
    Man(ManArguments),
    /// One round of a replay, started by `replay`
    #[command(hide = true)]
    ReplayRound,
    /// One measured run, started by `bench`
    #[command(hide = true)]
    Child(ChildArguments),
    /// Context queries with one allocator, started by the tour
    #[command(hide = true)]
    Queries(tour::QueriesArguments),
    /// Run `allot ARGUMENTS` and count its system calls for memory; started by `bench`
    #[command(hide = true)]
    Trace {
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Fragment free memory until standard input ends; started by `bench --fragmented`
    #[command(hide = true)]
    Fragment,
    /// Make known numbers of system calls, for the test of `trace`
    #[command(hide = true)]
    KnownCalls { threads: usize },
}

/// The definition, with the lists of workloads and allocators.
pub fn definition() -> clap::Command {
    CommandLine::command().mut_subcommand("bench", |bench| bench.after_help(compare::lists()))
}

/// Reads the command line. `Ok(None)`: the caller asked for help or the version, which is printed.
pub fn read() -> Result<Option<CommandLine>, Failure> {
    let parsed =
        definition().try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    match parsed {
        Ok(line) => Ok(Some(line)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                print::line(error.render().ansi().to_string().trim_end())?;
                Ok(None)
            }
            _ => Err(Failure::Usage(in_one_line(&error.render().to_string()))),
        },
    }
}

/// Clap's errors have several lines: the error, then tips and the usage. This keeps the first
/// paragraph and the first line of each tip.
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
    fn each_command_has_a_man_page_and_no_hidden_one_has() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("man1");
        let write = |folder: &std::path::Path| {
            let line = ["allot".as_ref(), "man".as_ref(), folder.as_os_str()];
            match CommandLine::try_parse_from(line).unwrap().command {
                Some(Command::Man(arguments)) => documents::man(&arguments, definition()),
                other => panic!("{other:?}"),
            }
        };
        write(&folder).unwrap();
        let names = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let commands = ["advise", "analyse", "bench", "completions", "man", "record", "replay"];
        let commands = commands.into_iter().chain(["report", "stress"]);
        let mut expected: Vec<_> = commands.map(|name| format!("allot-{name}.1")).collect();
        expected.push("allot.1".to_owned());
        expected.sort();
        assert_eq!(names, expected);
        let page = std::fs::read_to_string(folder.join("allot-advise.1")).unwrap();
        for part in ["allot\\-advise", "\\-\\-repeat", "Examples:"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(matches!(write("/proc/no/such".as_ref()), Err(Failure::Failed(_))));
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
