//! The command `allot`: reads the command line, and calls the library that does the work.

mod cli;
mod documents;

use bench::console::failure::Failure;
use bench::console::{end_quietly_when_interrupted, print, report_long_files_as_errors};
use bench::{compare, runner, stress, tour};
use cli::Command;
use std::process::ExitCode;

/// The C library's malloc; in a child process that runs the workload `handler`, the measured
/// malloc.
#[global_allocator]
static GLOBAL: bench::workloads::Global = bench::workloads::Global;

fn main() -> ExitCode {
    report_long_files_as_errors();
    print::exit_code("allot", run())
}

fn run() -> Result<(), Failure> {
    let Some(line) = cli::read()? else { return Ok(()) };
    match line.command {
        None => {
            end_quietly_when_interrupted();
            tour::run(line.json, line.small)
        }
        Some(Command::Bench(arguments)) => {
            end_quietly_when_interrupted();
            compare::run(arguments)
        }
        Some(Command::Stress(arguments)) => stress::run(&arguments),
        Some(Command::Advise(arguments)) => advisor::advise(&arguments),
        Some(Command::Analyse(arguments)) => {
            end_quietly_when_interrupted();
            advisor::analyse(&arguments)
        }
        Some(Command::Record(arguments)) => advisor::record(&arguments),
        Some(Command::Replay(arguments)) => {
            end_quietly_when_interrupted();
            advisor::replay(&arguments)
        }
        Some(Command::Report(arguments)) => advisor::report(&arguments),
        Some(Command::Completions(arguments)) => {
            documents::completions(&arguments, cli::definition())
        }
        Some(Command::Man(arguments)) => documents::man(&arguments, cli::definition()),
        Some(Command::ReplayRound) => advisor::replay_round(),
        Some(Command::Child(arguments)) => runner::run_measured(&arguments),
        Some(Command::Queries(arguments)) => tour::answer_queries(&arguments),
        Some(Command::Trace { arguments }) => runner::count_calls(&arguments),
        Some(Command::Fragment) => runner::hold_fragments(),
        Some(Command::KnownCalls { threads }) => {
            runner::make_known_calls(threads);
            Ok(())
        }
    }
}
