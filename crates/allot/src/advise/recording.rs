//! The recording that is advised on: made here, or before.

use super::AdviseArguments;
use super::bare::{self, Input};
use crate::failure::Failure;
use crate::record::{self, Obstacle, Output, Totals};
use anstream::stream::IsTerminal;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

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
            _file: None,
        }
    }

    /// Runs the program and records it. Signals are handled here as the program needs it; afterwards an interrupt ends us.
    pub fn of_program(arguments: &AdviseArguments) -> Result<Self, Failure> {
        let Some(name) = arguments.program.first() else {
            return Err(Failure::Usage("say what to advise on behind --".to_owned()));
        };
        let program = record::found(name)?;
        let mut warnings = Vec::new();
        match record::obstacle(&program) {
            Some(Obstacle::Unseen(why)) => {
                return Err(Failure::Failed(format!(
                    "not run, since nothing can be advised: {why}"
                )));
            }
            Some(Obstacle::Partly(why)) => warnings.push(why),
            None => {}
        }
        let input = if arguments.against_bare { Some(Input::remember()?) } else { None };
        let output = if arguments.json { Output::ToErrors } else { Output::Shared };
        tell(&format!(
            "recording {}; Ctrl-C ends it, and the advice is on what it did until then",
            name.display()
        ));
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
        if totals.processes == 0 {
            return Err(Failure::Failed(unseen(&ended)));
        }
        warnings.extend(losses(&totals));
        let mut recording = Self { path, kept, bare_cpu_ns: None, warnings, _file: file };
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

/// Says what begins, to whoever sits at a terminal.
fn tell(what: &str) {
    if io::stderr().is_terminal() {
        super::say_to_errors(&format!("allot: {what}"));
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
