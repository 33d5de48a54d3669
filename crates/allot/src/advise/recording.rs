//! The recording that is advised on: made here, or before.

use super::AdviseArguments;
use super::bare::{self, Input};
use crate::failure::Failure;
use crate::output;
use crate::record::{self, Obstacle, Output, Totals};
use anstream::stream::IsTerminal;
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long processes that the program started may take to end after it.
const PATIENCE: Duration = Duration::from_millis(100);

/// A recording to advise on.
#[derive(Debug)]
pub struct Recording {
    /// Where it is read.
    pub path: PathBuf,
    /// Its name, where it has one that lasts.
    pub kept: Option<PathBuf>,
    /// The CPU time of all its processes without a recorder, where that was asked for.
    pub bare_cpu_ns: Option<u64>,
    /// What the reader has to know of how it was made.
    pub warnings: Vec<String>,
    /// A process that the program had started went on when it had ended.
    pub went_on: bool,
    /// It was made in this environment.
    pub was_made_now: bool,
    /// Keeps what has no name.
    _file: Option<File>,
}

impl Recording {
    /// One that was made before.
    pub fn made_before(file: &Path) -> Self {
        Self {
            path: file.to_owned(),
            kept: Some(file.to_owned()),
            bare_cpu_ns: None,
            warnings: Vec::new(),
            went_on: false,
            was_made_now: false,
            _file: None,
        }
    }

    /// Runs the program and records it. Signals are handled here as the program needs it; afterwards an interrupt ends us.
    pub fn of_program(arguments: &AdviseArguments) -> Result<Self, Failure> {
        let Some(name) = arguments.program.first() else {
            return Err(Failure::Usage("say what to advise on behind --".to_owned()));
        };
        let program = record::found(name)?;
        match record::obstacle(&program) {
            Some(Obstacle::Unseen(why)) => {
                return Err(Failure::Failed(format!("it was not run: {why}")));
            }
            // The summary says it of the process that is advised on.
            Some(Obstacle::Partly(why)) => tell(&why),
            None => {}
        }
        let input = if arguments.against_bare { Some(Input::remember()?) } else { None };
        let output = if arguments.json { Output::ToErrors } else { Output::Shared };
        tell(&format!(
            "recording {}; Ctrl-C ends it, and the advice is on what it did until then",
            name.display()
        ));
        // What it leaves behind becomes our child, and so can be told.
        let _ = prctl::set_child_subreaper(true);
        let recorded = |path: &Path| record::record(path, &program, &arguments.program, output);
        let (path, kept, file, (ended, totals, _)) = match &arguments.output {
            Some(kept) => (kept.clone(), Some(kept.clone()), None, recorded(kept)?),
            None => {
                let directory = temporary()?;
                let path = directory.path().join("recording");
                let done = recorded(&path)?;
                // Without a name from here on: whatever ends us, nothing is left behind.
                let file = File::open(&path).map_err(|error| lost(&error))?;
                directory.close().map_err(|error| lost(&error))?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                (path, None, Some(file), done)
            }
        };
        super::end_when_interrupted();
        let _ = prctl::set_child_subreaper(false);
        let went_on = went_on();
        if totals.processes == 0 {
            return Err(Failure::Failed(unseen(&ended)));
        }
        let warnings = losses(&totals);
        let mut recording = Self {
            path,
            kept,
            bare_cpu_ns: None,
            warnings,
            went_on,
            was_made_now: true,
            _file: file,
        };
        if let Some(input) = input {
            tell(&format!("running {} once more, without the recorder", name.display()));
            match bare::cpu_time(&program, &arguments.program, &input, ended.exit_code()) {
                Ok(ns) => recording.bare_cpu_ns = Some(ns),
                Err(why) => recording.warnings.push(why),
            }
        }
        Ok(recording)
    }

    /// An error about it, with a name that a user knows.
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

/// Whether a process is left that the program had started, and that doesn't end at once.
fn went_on() -> bool {
    let began = Instant::now();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if began.elapsed() > PATIENCE => return true,
            Ok(WaitStatus::StillAlive) => thread::sleep(PATIENCE / 10),
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Says what begins, to whoever sits at a terminal.
fn tell(what: &str) {
    if io::stderr().is_terminal() {
        output::to_errors(format!("allot: {what}"));
    }
}

fn temporary() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix("allot-").tempdir().map_err(|error| {
        let place = std::env::temp_dir();
        Failure::Failed(format!(
            "can't make a directory for the recording in {}: {error}; say where with TMPDIR or -o FILE",
            place.display()
        ))
    })
}

fn lost(error: &io::Error) -> Failure {
    Failure::Failed(format!("lost the recording: {error}"))
}

/// Why there is nothing, although nothing stood in the way.
fn unseen(ended: &record::Ended) -> String {
    let exit = match ended.exit_code() {
        0 => String::new(),
        code => format!(" (it ended with exit code {code})"),
    };
    format!(
        "nothing was recorded{exit}: the recorder was not loaded into the program, which may have been started by one that clears its environment; name the program itself behind --"
    )
}

/// What the recording lacks. What the file itself says of that is told by the analysis.
fn losses(totals: &Totals) -> Vec<String> {
    totals
        .damaged
        .iter()
        .map(|what| format!("a part of the recording can't be read: {what}"))
        .collect()
}
