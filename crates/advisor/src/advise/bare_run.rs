//! Runs the program once more without the recorder, to measure its CPU time.

use bench::console::failure::Failure;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Standard input for both runs of the program.
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
            // It is closed, for both runs.
            return Ok(Self { file: None });
        };
        let mut file = File::from(owned);
        let kind = file.metadata().map_err(cannot)?.file_type();
        if kind.is_fifo() || kind.is_socket() {
            return Err(Failure::Usage(
                "--against-bare runs the program twice, but standard input is a pipe, and a pipe can be read only once; give it a file".to_owned(),
            ));
        }
        if !kind.is_file() {
            return Ok(Self { file: None });
        }
        let at = file.stream_position().map_err(cannot)?;
        Ok(Self { file: Some((file, at)) })
    }

    /// Puts standard input back to where the first run began to read.
    fn rewind(&self) -> io::Result<()> {
        match &self.file {
            Some((file, at)) => file.try_clone()?.seek(SeekFrom::Start(*at)).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Runs the program and discards its output. Returns its CPU time in nanoseconds, with that of the
/// children it waited for, or why that time can't be used.
pub fn cpu_time(
    program: &Path,
    command: &[OsString],
    input: &StandardInput,
    expected: u8,
) -> Result<u64, String> {
    let told = |error: io::Error| {
        format!(
            "the program could not be run without the recorder: {error}; its CPU time is estimated"
        )
    };
    input.rewind().map_err(told)?;
    let before = children().map_err(told)?;
    let status = Command::new(program)
        .arg0(&command[0])
        .args(&command[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(told)?;
    let after = children().map_err(told)?;
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128_u8.wrapping_add(signal.unwrap_or(0) as u8),
    };
    if code != expected {
        return Err(format!(
            "without the recorder the program ended with exit code {code} instead of {expected}, so that run does not count; the CPU time is estimated"
        ));
    }
    Ok(after.saturating_sub(before).max(1))
}

/// CPU time of all children that were waited for, in nanoseconds.
fn children() -> io::Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds =
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(microseconds as u64 * 1_000)
}
