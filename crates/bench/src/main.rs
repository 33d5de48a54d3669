//! `cargo run --release`: the tour in a binary of its own, which compiles in a fraction of the time
//! that `allot` takes.

use bench::console::failure::Failure;
use bench::console::{end_quietly_when_interrupted, print, report_long_files_as_errors};
use bench::tour::{self, QueriesArguments};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures what an arena saves on this machine, in half a minute.
///
/// Reads this machine's counters from /proc and answers queries over them with malloc and with an
/// arena. Repeats this at full size, also with other allocators, and prints a table for each. All
/// other commands belong to `allot`: `cargo allot --help` lists them.
#[derive(Debug, Parser)]
#[command(name = "allotment-tour", version, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the figures as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Run a short tour, for tests
    #[arg(long, hide = true)]
    small: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Context queries with one allocator, started by the tour
    #[command(hide = true)]
    Queries(QueriesArguments),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

fn main() -> ExitCode {
    report_long_files_as_errors();
    print::exit_code("allotment-tour", run(CommandLine::parse()))
}

fn run(line: CommandLine) -> Result<(), Failure> {
    match line.command {
        Some(Command::Queries(arguments)) => tour::answer_queries(&arguments),
        Some(Command::Other(words)) => Err(Failure::Usage(format!(
            "the tour has no command '{}'; run 'cargo allot {}', or 'allot {1}' where it is installed",
            words.first().map_or("", String::as_str),
            words.join(" "),
        ))),
        None => {
            end_quietly_when_interrupted();
            tour::run(line.json, line.small)
        }
    }
}
