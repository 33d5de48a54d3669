//! How a program of Allotment reacts to signals.
//!
//! Invariant: the handler of SIGXFSZ does nothing, so it may interrupt any code.

use crate::console::progress;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

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

/// Makes writing beyond `ulimit -f` an error instead of a signal that ends the process. This needs
/// a handler: the programs that `allot` runs would inherit `SIG_IGN`.
pub fn report_long_files_as_errors() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // If this fails, the signal still ends the process.
    // SAFETY: the handler does nothing (the invariant).
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}
