//! Allotment's command line: the tour, the measuring harness and the stress test.

mod advise;
mod analyse;
mod bench;
mod child;
mod cli;
mod record;
mod replay;
mod stress;
mod trace;

// The terminal, for every module: `crate::output` and so on.
use console::{failure, output, progress, statistics, table};

use cli::Command;
use console::end_quietly_when_interrupted;
use failure::Failure;
use std::process::ExitCode;

/// The C library's malloc; in a child that runs `handler`, the one that is measured.
#[global_allocator]
static GLOBAL: workloads::Global = workloads::Global;

fn main() -> ExitCode {
    let _ = hear_of_long_files();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Closed | Failure::Interrupted | Failure::Program(_)) {
                output::to_errors(format!("allot: {failure}"));
            }
            ExitCode::from(failure.exit_code())
        }
    }
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
            bench::run(arguments)
        }
        Some(Command::Stress(arguments)) => stress::run(&arguments),
        Some(Command::Advise(arguments)) => advise::run(&arguments),
        Some(Command::Analyse(arguments)) => {
            end_quietly_when_interrupted();
            analyse::run(&arguments)
        }
        Some(Command::Record(arguments)) => record::run(&arguments),
        Some(Command::Replay(arguments)) => {
            end_quietly_when_interrupted();
            replay::run(&arguments)
        }
        Some(Command::Report(arguments)) => advise::report::run(&arguments),
        Some(Command::ReplayRound) => replay::run_round(),
        Some(Command::Child(arguments)) => child::run(&arguments),
        Some(Command::Queries(arguments)) => tour::answer_queries(&arguments),
        Some(Command::Trace { arguments }) => {
            console::spawn::end_with_parent();
            let answer = trace::trace(&arguments)
                .and_then(|answer| serde_json::to_string(&answer).map_err(Into::into))
                .map_err(|error| Failure::Failed(error.to_string()))?;
            output::line(answer)
        }
        Some(Command::KnownCalls { threads }) => {
            trace::known::make(threads);
            Ok(())
        }
    }
}

/// A file that is longer than `ulimit -f` is an error like any other, and no reason to end. A handler and not `SIG_IGN`, which the
/// programs that we run would inherit.
fn hear_of_long_files() -> nix::Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGXFSZ, &action) }.map(drop)
}
