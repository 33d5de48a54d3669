//! The shared parts of Allotment's command-line programs: output, progress, tables, failures with
//! their exit codes, medians and ratios, and child processes of the same executable.

pub mod failure;
pub mod output;
pub mod progress;
pub mod spawn;
pub mod statistics;
pub mod table;

/// On Ctrl-C or SIGTERM, removes the progress bar and ends the process with exit code 130. Child
/// processes that called [`spawn::end_with_parent`] end too.
pub fn end_quietly_when_interrupted() {
    // Without a handler, an interrupt ends the process and leaves the bar on the terminal.
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(130);
    });
}
