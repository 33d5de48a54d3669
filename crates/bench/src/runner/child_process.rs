//! Child processes: starting them, waiting for them with a time limit, and describing how they
//! failed.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable that tells a child the process id of its parent.
const PARENT: &str = "ALLOT_PARENT";

/// How often [`ask_unless`] checks whether the answer is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A command that starts this executable as a child with `arguments`.
pub fn child_command(arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).env(PARENT, std::process::id().to_string());
    Ok(command)
}

/// Environment variables, with their values, for a child and its own children.
pub type Environment<'e> = [(&'e str, &'e str)];

/// Called in a child: the child ends when its parent ends, also if the parent is killed.
pub fn end_with_parent() {
    let told = prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
    let parent = std::env::var(PARENT).ok().and_then(|parent| parent.parse().ok());
    // If the parent ended before the request to the kernel, no process waits for the child's
    // answer.
    if told && parent.is_some_and(|parent: i32| parent != getppid().as_raw()) {
        std::process::exit(1);
    }
}

/// Why a child gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum ChildFailure {
    /// It did not start, or its pipes failed.
    Lost(String),
    /// It was killed by this signal; the last line that it wrote to standard error.
    Signal(i32, String),
    /// It ended with this exit code; the last line that it wrote to standard error.
    Code(i32, String),
    /// It was still running at the time limit.
    TimedOut(Duration),
    /// It was ended because its answer was no longer wanted.
    Stopped,
    /// Its answer can't be read.
    Garbled(String),
}

impl fmt::Display for ChildFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "its process failed: {why}"),
            Self::Signal(number, last) => {
                let name = Signal::try_from(*number).map_or("an unknown signal", Signal::as_str);
                write!(f, "ended by {name}{}", after_colon(last))
            }
            Self::Code(code, last) => write!(f, "ended with exit code {code}{}", after_colon(last)),
            Self::TimedOut(limit) => write!(f, "still running after {} s", limit.as_secs()),
            Self::Stopped => f.write_str("stopped"),
            Self::Garbled(what) => write!(f, "gave an answer that can't be read: {what}"),
        }
    }
}

impl std::error::Error for ChildFailure {}

fn after_colon(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

/// Runs this executable with `arguments` and `environment`, writes `input` to it, and reads its
/// answer.
pub fn ask<T: serde::de::DeserializeOwned>(
    arguments: &[String],
    environment: &Environment<'_>,
    input: Option<&[u8]>,
    limit: Duration,
) -> Result<T, ChildFailure> {
    answer(command(arguments, environment)?, input, limit, &|| false)
}

fn command(arguments: &[String], environment: &Environment<'_>) -> Result<Command, ChildFailure> {
    let mut command =
        child_command(arguments).map_err(|error| ChildFailure::Lost(error.to_string()))?;
    command.envs(environment.iter().copied());
    Ok(command)
}

fn answer<T: serde::de::DeserializeOwned>(
    command: Command,
    input: Option<&[u8]>,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<T, ChildFailure> {
    let answer = run(command, input, limit, stopped)?;
    serde_json::from_str(&answer).map_err(|error| ChildFailure::Garbled(error.to_string()))
}

/// Runs another program with `arguments`, and reads its answer.
pub fn ask_program<T: serde::de::DeserializeOwned>(
    program: &Path,
    arguments: &[String],
    limit: Duration,
) -> Result<T, ChildFailure> {
    let mut command = Command::new(program);
    command.args(arguments);
    answer(command, None, limit, &|| false)
}

/// Like [`ask`], but ends the child as soon as `stopped` returns true. An interrupt at the terminal
/// reaches only this process, not the child.
pub fn ask_unless<T: serde::de::DeserializeOwned>(
    stopped: &dyn Fn() -> bool,
    arguments: &[String],
    environment: &Environment<'_>,
    input: Option<&[u8]>,
    limit: Duration,
) -> Result<T, ChildFailure> {
    let mut command = command(arguments, environment)?;
    command.process_group(0);
    answer(command, input, limit, stopped)
}

/// Runs a command to its end, at most until the limit, and returns what it printed.
fn run(
    mut command: Command,
    input: Option<&[u8]>,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<String, ChildFailure> {
    let lost = |error: io::Error| ChildFailure::Lost(error.to_string());
    let mut child = command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(lost)?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    thread::scope(|scope| {
        if let (Some(mut pipe), Some(input)) = (stdin, input) {
            // A child that ends early closes its end of the pipe; its exit status says why.
            scope.spawn(move || _ = pipe.write_all(input));
        }
        let errors = scope.spawn(move || read(stderr));
        let (done, finished) = mpsc::channel();
        scope.spawn(move || _ = done.send(read(stdout)));
        let began = Instant::now();
        let printed = loop {
            let left = limit.saturating_sub(began.elapsed());
            match finished.recv_timeout(left.min(POLL_INTERVAL)) {
                Ok(printed) => break printed,
                Err(_) if stopped() => {
                    end(&mut child);
                    return Err(ChildFailure::Stopped);
                }
                Err(_) if left.is_zero() => {
                    end(&mut child);
                    return Err(ChildFailure::TimedOut(limit));
                }
                Err(_) => {}
            }
        };
        let status = child.wait().map_err(lost)?;
        let errors = errors.join().unwrap_or_default();
        judge(status, printed, &errors)
    })
}

fn end(child: &mut Child) {
    // The child may have ended just now, so an error doesn't matter.
    let _ = child.kill();
    let _ = child.wait();
}

fn read(pipe: Option<impl Read>) -> String {
    let mut text = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is still of use.
        let _ = pipe.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn judge(status: ExitStatus, printed: String, errors: &str) -> Result<String, ChildFailure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(printed),
        (Some(code), _) => Err(ChildFailure::Code(code, told(errors))),
        (None, signal) => Err(ChildFailure::Signal(signal.unwrap_or_default(), told(errors))),
    }
}

/// One line of a child's standard error: the message of a panic, or else the last line.
fn told(errors: &str) -> String {
    let before_backtrace = errors.lines().take_while(|line| *line != "stack backtrace:");
    let mut lines = before_backtrace.filter(|line| !line.starts_with("note: "));
    let panic = lines.clone().position(|line| line.contains(" panicked at "));
    let line = match panic {
        Some(at) => lines.nth(at + 1),
        None => lines.last(),
    };
    line.unwrap_or_default().trim_start_matches("allot: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_is_what_was_printed() {
        let answer = run(shell("cat; echo not this >&2"), Some(b"input"), LONG, &|| false);
        assert_eq!(answer, Ok("input".to_owned()));
    }

    #[test]
    fn a_signal_and_an_exit_code_are_told_apart() {
        let killed = run(shell("kill -SEGV $$"), None, LONG, &|| false).unwrap_err();
        assert_eq!(killed.to_string(), "ended by SIGSEGV");
        let ended =
            run(shell("echo first >&2; echo last >&2; exit 3"), None, LONG, &|| false).unwrap_err();
        assert_eq!(ended.to_string(), "ended with exit code 3: last");
    }

    #[test]
    fn a_panic_is_told_by_its_message() {
        let errors = "thread 'main' (7) panicked at src/x.rs:1:2:\nthe message\nnote: run with";
        assert_eq!(told(errors), "the message");
        let aborted =
            "memory allocation of 9 bytes failed\nstack backtrace:\n   0: somewhere\nnote: Some";
        assert_eq!(told(aborted), "memory allocation of 9 bytes failed");
    }

    #[test]
    fn a_child_that_does_not_end_is_ended() {
        let limit = Duration::from_millis(50);
        let failure = run(shell("exec sleep 600"), None, limit, &|| false).unwrap_err();
        assert_eq!(failure, ChildFailure::TimedOut(limit));
    }
    #[test]
    fn a_child_whose_answer_is_no_longer_wanted_is_ended() {
        let failure = run(shell("exec sleep 600"), None, LONG, &|| true).unwrap_err();
        assert_eq!(failure, ChildFailure::Stopped);
    }
}
