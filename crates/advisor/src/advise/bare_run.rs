//! Runs the program without the recorder, and measures its time and its memory.

use crate::replay::installed_mallocs::preload_list;
use bench::console::failure::Failure;
use nix::sys::ptrace;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Standard input for all runs of the program.
#[derive(Debug)]
pub struct StandardInput {
    /// The file, and the position where the program begins to read.
    file: Option<(File, u64)>,
}

impl StandardInput {
    /// Remembers the position of standard input. Refuses a pipe or a socket, which can be read only
    /// once, before the program runs.
    pub fn new() -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::Failed(format!("can't read standard input's position: {error}"))
        };
        let Ok(owned) = io::stdin().as_fd().try_clone_to_owned() else {
            // It is closed, for all runs.
            return Ok(Self { file: None });
        };
        let mut file = File::from(owned);
        let kind = file.metadata().map_err(cannot)?.file_type();
        if kind.is_fifo() || kind.is_socket() {
            return Err(Failure::Usage(
                "--against-bare and --repeat run the program more than once, but standard input is a pipe, and a pipe can be read only once; give it a file".to_owned(),
            ));
        }
        if !kind.is_file() {
            return Ok(Self { file: None });
        }
        let at = file.stream_position().map_err(cannot)?;
        Ok(Self { file: Some((file, at)) })
    }

    /// None.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { file: None }
    }

    /// Puts standard input back to where the first run began to read.
    fn rewind(&self) -> io::Result<()> {
        match &self.file {
            Some((file, at)) => file.try_clone()?.seek(SeekFrom::Start(*at)).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFigures {
    /// CPU time, user and system, with that of the children that the program waited for.
    pub cpu_ns: u64,
    /// From start to end.
    pub wall_ns: u64,
    /// The largest resident size of the program's first process. `None` if this process may not
    /// trace another one.
    pub peak_bytes: Option<u64>,
    /// The exit code; 128 and the number of the signal that ended the program.
    pub code: u8,
}

/// A program, its arguments and its standard input, to be run again.
#[derive(Debug, Clone, Copy)]
pub struct BareProgram<'p> {
    pub path: &'p Path,
    pub command: &'p [OsString],
    pub input: &'p StandardInput,
}

impl BareProgram<'_> {
    /// Runs the program and discards its output. `preload` is loaded before its other libraries.
    pub fn run(&self, preload: Option<&Path>) -> io::Result<RunFigures> {
        self.run_with(preload, &[])
    }

    /// As [`run`](Self::run), with more variables in its environment.
    pub fn run_with(
        &self,
        preload: Option<&Path>,
        environment: &[(&str, &OsStr)],
    ) -> io::Result<RunFigures> {
        self.input.rewind()?;
        let mut command = Command::new(self.path);
        command.arg0(&self.command[0]).args(&self.command[1..]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(library) = preload {
            command.env("LD_PRELOAD", preload_list(library));
        }
        command.envs(environment.iter().copied());
        let before = children()?;
        let began = Instant::now();
        let child = Pid::from_raw(command.spawn()?.id() as i32);
        let (code, peak_bytes) = wait(child)?;
        let wall_ns = began.elapsed().as_nanos() as u64;
        let cpu_ns = children()?.saturating_sub(before).max(1);
        Ok(RunFigures { cpu_ns, wall_ns, peak_bytes, code })
    }
}

/// Waits for the end of a child. Returns its exit code and its largest resident size.
///
/// The kernel's own figure for a child that has ended is no less than the size of the process that
/// started it. So this process traces the child, which then stops once, just before its end.
fn wait(child: Pid) -> io::Result<(u8, Option<u64>)> {
    // It may have ended by now, or may not be traced.
    let _ = ptrace::seize(child, ptrace::Options::PTRACE_O_TRACEEXIT);
    let mut peak = None;
    loop {
        match waitpid(child, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok((code as u8, peak)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Ok((128_u8.wrapping_add(signal as u8), peak));
            }
            Ok(WaitStatus::PtraceEvent(_, Signal::SIGTRAP, _)) => {
                peak = largest_resident(child);
                let _ = ptrace::cont(child, None);
            }
            // A group stop (SIGSTOP and the like): a tracer must continue the process.
            Ok(WaitStatus::PtraceEvent(..)) => drop(ptrace::cont(child, None)),
            // A signal for the child.
            Ok(WaitStatus::Stopped(_, signal)) => drop(ptrace::cont(child, signal)),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn largest_resident(process: Pid) -> Option<u64> {
    let status = procfs::process::Process::new(process.as_raw()).ok()?.status().ok()?;
    Some(status.vmhwm? * 1024)
}

/// Runs the program once. Returns its CPU time, or why that can't be used.
pub fn cpu_time(program: &BareProgram<'_>, expected: u8) -> Result<u64, String> {
    let run = program.run(None).map_err(|error| {
        format!(
            "the program could not be run without the recorder: {error}; its CPU time is estimated"
        )
    })?;
    if run.code != expected {
        return Err(format!(
            "without the recorder the program ended with exit code {} instead of {expected}, so that run does not count; the CPU time is estimated",
            run.code
        ));
    }
    Ok(run.cpu_ns)
}

/// CPU time of all children that were waited for, in nanoseconds.
fn children() -> io::Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds =
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(microseconds as u64 * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> RunFigures {
        let command = ["sh", "-c", script].map(OsString::from);
        let input = StandardInput::none();
        BareProgram { path: Path::new("/bin/sh"), command: &command, input: &input }
            .run(None)
            .unwrap()
    }

    #[test]
    fn a_run_has_its_exit_code_or_its_signal() {
        assert_eq!(run("exit 3").code, 3);
        assert_eq!(run("kill -TERM $$").code, 128 + 15);
        // A signal that it handles reaches it.
        assert_eq!(run("trap 'exit 7' USR1; kill -USR1 $$; exit 1").code, 7);
    }

    #[test]
    fn a_run_has_its_time_and_its_own_memory() {
        // More than the shell has.
        let here = vec![1_u8; 64 << 20];
        let quiet = run("sleep 0.2");
        assert!(quiet.wall_ns >= 200_000_000, "{quiet:?}");
        assert!(quiet.peak_bytes.is_none_or(|peak| peak < 32 << 20), "{quiet:?}");
        drop(here);
        // The kernel adds up the time of all children of this process, so other tests' count too.
        let busy = run("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        assert!(busy.cpu_ns > 20_000_000, "{busy:?}");
    }
}
