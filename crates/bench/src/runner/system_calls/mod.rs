//! `allot trace -- ARGUMENTS`: runs `allot ARGUMENTS` and counts the system calls by which it gets
//! and gives back memory; where the child lets it see them, all others too.
//!
//! The traced child asks to be traced, stops, and installs a filter ([`filter`]) that stops it
//! again at each counted call and at each mark ([`marks`]). The tracer is a process of its own, so
//! that it may wait for any child. Where tracing is not permitted (in many containers) the counts
//! are null.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`marks`] | the marks by which a traced child tells the tracer what to count |
//! | [`filter`] | the filter that stops the child at counted calls and at marks |
//! | [`known`] | a child that makes known numbers of calls, for a test of the tracer |

mod filter;
pub mod known;
pub mod marks;

use crate::console::failure::Failure;
use crate::console::print::json_line;
use crate::runner::child_process::{self, child_command};
use filter::{CALLS, FIRST_MARK, OTHER};

pub use filter::TracedCalls;
use marks::{MARKS, Mark};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::process::{Child, Stdio};

/// What the tracer counted.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls in the measured part, by name.
    pub calls: BTreeMap<String, u64>,
    /// All other calls in the measured part; `None` where the child did not let the tracer see
    /// them.
    pub other_calls: Option<u64>,
    /// Of the calls by name, those that threads made in their steady state.
    pub steady_calls: u64,
    /// What the child printed.
    pub printed: String,
}

impl Counts {
    /// Calls of the measured part that get and give back memory.
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    /// All calls of the measured part, if they were counted.
    pub fn all(&self) -> Option<u64> {
        Some(self.total() + self.other_calls?)
    }
}

/// The tracer's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceAnswer {
    /// It could count.
    Counted(Counts),
    /// It may not trace here.
    Refused(String),
}

/// The exit code of a child that may not be traced.
const REFUSED: i32 = 77;

/// In the child, before its work: stops until the tracer is ready, then lets it see these calls.
/// Ends the process if that is not permitted.
pub fn let_tracer_in(calls: TracedCalls) {
    let refuse = |why: String| -> ! {
        println!("{why}");
        std::process::exit(REFUSED)
    };
    if let Err(error) = ptrace::traceme() {
        refuse(format!("ptrace: {error}"));
    }
    if let Err(error) = raise(Signal::SIGSTOP) {
        refuse(format!("raise: {error}"));
    }
    if let Err(error) = filter::install(calls) {
        refuse(format!("seccomp: {error}"));
    }
}

/// Runs this executable with `arguments` and counts its calls between its marks.
///
/// The calling process must have no other children.
pub fn trace(arguments: &[String]) -> io::Result<TraceAnswer> {
    let mut child =
        child_command(arguments)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut tracer = Tracer::new(Pid::from_raw(child.id().cast_signed()));
    let end = tracer.follow()?;
    let printed = read_all(&mut child)?;
    match end {
        ChildEnd::Code(0) => Ok(TraceAnswer::Counted(tracer.counts(printed))),
        ChildEnd::Code(REFUSED) => Ok(TraceAnswer::Refused(printed.trim().to_owned())),
        ChildEnd::Code(code) => {
            Err(io::Error::other(format!("the traced child process ended with exit code {code}")))
        }
        ChildEnd::Signal(signal) => {
            Err(io::Error::other(format!("the traced child process was ended by {signal}")))
        }
    }
}

/// In a process of its own: counts the system calls of this executable with `arguments`, and prints
/// them.
pub fn answer(arguments: &[String]) -> Result<(), Failure> {
    child_process::end_with_parent();
    json_line(&trace(arguments).map_err(|error| Failure::Failed(error.to_string()))?)
}

/// What a child prints is one line, which a pipe holds, so it can be read after its end.
fn read_all(child: &mut Child) -> io::Result<String> {
    let mut printed = String::new();
    if let Some(pipe) = &mut child.stdout {
        pipe.read_to_string(&mut printed)?;
    }
    Ok(printed)
}

enum ChildEnd {
    Code(i32),
    Signal(Signal),
}

struct Tracer {
    child: Pid,
    /// Threads that have made their first stop.
    known: HashSet<Pid>,
    /// Threads in their steady state.
    steady: HashSet<Pid>,
    counting: bool,
    calls: [u64; CALLS.len()],
    /// `None` until the first one is seen: the last call that a process makes is one.
    other_calls: Option<u64>,
    steady_calls: u64,
}

impl Tracer {
    fn new(child: Pid) -> Self {
        Self {
            child,
            known: HashSet::new(),
            steady: HashSet::new(),
            counting: false,
            calls: [0; CALLS.len()],
            other_calls: None,
            steady_calls: 0,
        }
    }

    fn counts(&self, printed: String) -> Counts {
        let calls =
            CALLS.iter().zip(self.calls).map(|((name, _), count)| ((*name).to_owned(), count));
        Counts {
            calls: calls.collect(),
            other_calls: self.other_calls,
            steady_calls: self.steady_calls,
            printed,
        }
    }

    /// Follows the child and its threads to the child's end.
    fn follow(&mut self) -> io::Result<ChildEnd> {
        loop {
            match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.child => {
                    return Ok(ChildEnd::Code(code));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.child => {
                    return Ok(ChildEnd::Signal(signal));
                }
                Ok(WaitStatus::Stopped(pid, signal)) => self.stopped(pid, signal)?,
                Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                    if event == libc::PTRACE_EVENT_SECCOMP {
                        self.called(pid)?;
                    }
                    go_on(pid, None)?;
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn stopped(&mut self, pid: Pid, signal: Signal) -> io::Result<()> {
        let first = self.known.insert(pid);
        if first && pid == self.child {
            let options = Options::PTRACE_O_TRACESECCOMP
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_EXITKILL;
            ptrace::setoptions(pid, options)?;
        }
        // The first stop is the one we asked for, or the birth of a thread; signals are passed on.
        let birth = first && signal == Signal::SIGSTOP;
        go_on(pid, (!birth).then_some(signal))
    }

    fn called(&mut self, pid: Pid) -> io::Result<()> {
        let Some(message) = gone_is_fine(ptrace::getevent(pid))? else { return Ok(()) };
        let message = usize::try_from(message).unwrap_or(usize::MAX);
        if message == usize::from(OTHER) {
            *self.other_calls.get_or_insert(0) += u64::from(self.counting);
        } else if let Some(calls) = self.calls.get_mut(message) {
            if self.counting {
                *calls += 1;
                self.steady_calls += u64::from(self.steady.contains(&pid));
            }
        } else if let Some((mark, _)) = MARKS.get(message.wrapping_sub(usize::from(FIRST_MARK))) {
            match mark {
                Mark::Begin => self.counting = true,
                Mark::End => self.counting = false,
                Mark::Steady => _ = self.steady.insert(pid),
                Mark::Finished => _ = self.steady.remove(&pid),
            }
        }
        Ok(())
    }
}

fn go_on(pid: Pid, signal: Option<Signal>) -> io::Result<()> {
    gone_is_fine(ptrace::cont(pid, signal)).map(drop)
}

/// A thread may be gone when its turn comes: another one ended the process.
fn gone_is_fine<T>(result: nix::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::ESRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
