//! The recording that the advice is on: made here, or an earlier one.

use super::AdviseArguments;
use super::bare_run::{self, BareProgram, StandardInput};
use crate::record::{self, Obstacle, ProgramOutput, RecordingTotals};
use anstream::stream::IsTerminal;
use bench::console::failure::Failure;
use bench::console::print;
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What to do if there is no space for a temporary recording.
const ANOTHER_PLACE: &str = "choose another place with TMPDIR or -o FILE";
/// How long the program's child processes may take to end after it.
const TIME_TO_END: Duration = Duration::from_millis(100);

/// A recording to advise on.
#[derive(Debug)]
pub struct Recording {
    /// Where it is read.
    pub path: PathBuf,
    /// Its file, if it is kept.
    pub kept: Option<PathBuf>,
    /// The CPU time of all its processes without the recorder, with `--against-bare`.
    pub bare_cpu_ns: Option<u64>,
    /// Warnings about how it was made.
    pub warnings: Vec<String>,
    /// A process that the program had started still ran when the program had ended.
    pub went_on: bool,
    /// It was made by this call, in this environment.
    pub was_made_now: bool,
    /// The program, if it can be run again.
    pub repeatable: Option<RepeatableProgram>,
    /// Keeps an unnamed temporary file open.
    _file: Option<File>,
}

/// What is needed to run the program again.
#[derive(Debug)]
pub struct RepeatableProgram {
    pub program: PathBuf,
    pub input: StandardInput,
    /// That of the recorded run.
    pub exit_code: u8,
    /// A signal ended the recorded run, so another run may not end by itself.
    pub was_interrupted: bool,
}

impl RepeatableProgram {
    /// Runs the program once. Returns its CPU time, or why that can't be used.
    pub fn cpu_time(&self, command: &[OsString]) -> Result<u64, String> {
        let bare = BareProgram { path: &self.program, command, input: &self.input };
        bare_run::cpu_time(&bare, self.exit_code)
    }
}

impl Recording {
    /// An earlier recording.
    pub fn made_before(file: &Path) -> Self {
        Self {
            path: file.to_owned(),
            kept: Some(file.to_owned()),
            bare_cpu_ns: None,
            warnings: Vec::new(),
            went_on: false,
            was_made_now: false,
            repeatable: None,
            _file: None,
        }
    }

    /// Runs the program and records it. Until it ends, signals are left or passed on to it;
    /// afterwards an interrupt ends this process.
    pub fn of_program(arguments: &AdviseArguments) -> Result<Self, Failure> {
        let Some(name) = arguments.program.first() else {
            return Err(Failure::Usage(
                "no program is named; name it after --, as in `allot advise -- PROGRAM`".to_owned(),
            ));
        };
        let program = record::found(name)?;
        match record::obstacle(&program) {
            Some(Obstacle::Unseen(why)) => {
                return Err(Failure::Failed(format!("the program was not run: {why}")));
            }
            // The summary repeats this for the process that the advice is on.
            Some(Obstacle::Partly(why)) => announce(&why),
            None => {}
        }
        let again = arguments.against_bare || arguments.repeat.is_some();
        // Without a reason to run it again, a pipe as standard input is no error.
        let input = match StandardInput::new() {
            Ok(input) => Some(input),
            Err(failure) if again => return Err(failure),
            Err(_) => None,
        };
        let output = if arguments.json { ProgramOutput::ToErrors } else { ProgramOutput::Shared };
        announce(&format!(
            "recording {}; Ctrl-C ends it, and the advice covers what it did until then",
            name.display()
        ));
        // Processes that outlive the program become our children, so that they are noticed.
        let _ = prctl::set_child_subreaper(true);
        let remedy = match &arguments.output {
            Some(_) => "choose another file with -o",
            None => ANOTHER_PLACE,
        };
        let recorded =
            |path: &Path| record::record(path, &program, &arguments.program, output, remedy);
        let (path, kept, file, (ended, totals, _)) = match &arguments.output {
            Some(kept) => (kept.clone(), Some(kept.clone()), None, recorded(kept)?),
            None => {
                let directory = temporary()?;
                let path = directory.path().join("recording");
                let done = recorded(&path)?;
                // The file has no name from here on, so nothing is left behind if this process is
                // killed.
                let file = File::open(&path).map_err(|error| cannot_keep(&error))?;
                directory.close().map_err(|error| cannot_keep(&error))?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                (path, None, Some(file), done)
            }
        };
        super::end_when_interrupted();
        let _ = prctl::set_child_subreaper(false);
        let went_on = went_on();
        if totals.processes == 0 {
            return Err(Failure::Failed(nothing_recorded(&ended)));
        }
        let warnings = losses(&totals);
        let mut recording = Self {
            path,
            kept,
            bare_cpu_ns: None,
            warnings,
            went_on,
            was_made_now: true,
            repeatable: None,
            _file: file,
        };
        if let Some(input) = input {
            let repeatable = RepeatableProgram {
                program,
                input,
                exit_code: ended.exit_code(),
                was_interrupted: ended.was_interrupted,
            };
            if again {
                announce(&format!("running {} once more, without the recorder", name.display()));
                match repeatable.cpu_time(&arguments.program) {
                    Ok(ns) => recording.bare_cpu_ns = Some(ns),
                    Err(why) => recording.warnings.push(why),
                }
            }
            recording.repeatable = Some(repeatable);
        }
        Ok(recording)
    }

    /// An error, with `the recording` in place of the name of a temporary file.
    pub fn named(&self, failure: Failure) -> Failure {
        let name = |text: String| match &self.kept {
            Some(_) => text,
            None => text.replace(&*self.path.to_string_lossy(), "the recording"),
        };
        match failure {
            Failure::Failed(text) => Failure::Failed(name(text)),
            Failure::Usage(text) => Failure::Usage(name(text)),
            other => other,
        }
    }
}

/// Whether a process that the program started still runs after [`TIME_TO_END`].
fn went_on() -> bool {
    let began = Instant::now();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if began.elapsed() > TIME_TO_END => return true,
            Ok(WaitStatus::StillAlive) => thread::sleep(TIME_TO_END / 10),
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Prints a line to standard error if that is a terminal.
fn announce(what: &str) {
    if io::stderr().is_terminal() {
        print::to_errors(format!("allot: {what}"));
    }
}

fn temporary() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix("allot-").tempdir().map_err(|error| {
        let place = std::env::temp_dir();
        Failure::Failed(format!(
            "can't make a directory for the recording in {}: {}; {ANOTHER_PLACE}",
            place.display(),
            error.kind()
        ))
    })
}

fn cannot_keep(error: &io::Error) -> Failure {
    Failure::Failed(format!(
        "can't keep the temporary recording: {error}; name a file with -o FILE"
    ))
}

/// The error where nothing was recorded although the program has no known obstacle.
fn nothing_recorded(ended: &record::ProgramEnd) -> String {
    let exit = match ended.exit_code() {
        0 => String::new(),
        code => format!(" (it ended with exit code {code})"),
    };
    format!(
        "nothing was recorded{exit}: the recorder was not loaded into the program, perhaps because another program started it with an empty environment; name the program itself after --"
    )
}

/// Warnings about damaged parts. The analysis tells what the file itself says of losses.
fn losses(totals: &RecordingTotals) -> Vec<String> {
    totals
        .damaged
        .iter()
        .map(|what| format!("a part of the recording can't be read and is left out: {what}"))
        .collect()
}
