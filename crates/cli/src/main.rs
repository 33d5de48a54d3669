//! Allotment's command line: the tour, the measuring harness and the stress test.

mod cli;

use bench::console::failure::Failure;
use bench::console::{end_quietly_when_interrupted, print};
use bench::{compare, runner, stress, tour};
use cli::Command;
use std::process::ExitCode;

/// The C library's malloc; in a child that runs `handler`, the one that is measured.
#[global_allocator]
static GLOBAL: bench::workloads::Global = bench::workloads::Global;

fn main() -> ExitCode {
    let _ = hear_of_long_files();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Closed | Failure::Interrupted | Failure::Program(_)) {
                print::to_errors(format!("allot: {failure}"));
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
        Some(Command::ReplayRound) => advisor::replay_round(),
        Some(Command::Child(arguments)) => runner::run_measured(&arguments),
        Some(Command::Queries(arguments)) => tour::answer_queries(&arguments),
        Some(Command::Trace { arguments }) => runner::count_calls(&arguments),
        Some(Command::KnownCalls { threads }) => {
            runner::make_known_calls(threads);
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
