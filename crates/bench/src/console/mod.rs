//! The terminal, for all of Allotment's programs.
//!
//! [`failure`] has the exit codes; [`mod@print`] writes text, and [`mod@file`] whole files;
//! [`progress`] is the bar on standard error; [`statistics`] has medians and ratios, and [`table`]
//! shows them.

pub mod failure;
pub mod file;
pub mod print;
pub mod progress;
pub mod statistics;
pub mod table;

/// On Ctrl-C or SIGTERM, removes the progress bar and ends the process with exit code 130. Child
/// processes that called [`end_with_parent`](crate::runner::child_process::end_with_parent) end
/// too.
pub fn end_quietly_when_interrupted() {
    // Without a handler, an interrupt ends the process and leaves the bar on the terminal.
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(130);
    });
}
