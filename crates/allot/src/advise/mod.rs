//! `allot advise`: what a program would gain, from one run of it to a summary on one screen.
//!
//! It records, analyses and replays, and says what came out.

use crate::analyse::{self, findings::Findings};
use crate::failure::Failure;
use crate::record::Obstacle;
use crate::{output, progress, record, replay};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The arguments of `allot advise`.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// All that was found, as one JSON object
    #[arg(long)]
    json: bool,
    /// Advise on a recording that was made before
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    recording: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "recording")]
    program: Vec<OsString>,
}

/// For `allot advise --help`.
pub const EXAMPLES: &str = "
Examples:
  allot advise -- jq . large.json
";

/// Runs it.
pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    let findings = match &arguments.recording {
        Some(recording) => advise(recording)?,
        None => {
            let program = arguments.program.first().map_or_else(
                || Err(Failure::Usage("say what to advise on behind --".to_owned())),
                |program| record::found(program),
            )?;
            if let Some(Obstacle::Unseen(why)) = record::obstacle(&program) {
                return Err(Failure::Failed(why));
            }
            let directory = tempfile::tempdir().map_err(|error| {
                Failure::Failed(format!("can't make a temporary directory: {error}"))
            })?;
            let recording = directory.path().join("recording");
            record::record(&recording, &program, &arguments.program, record::Output::Shared)?;
            advise(&recording)?
        }
    };
    let text =
        serde_json::to_string(&findings).map_err(|error| Failure::Failed(error.to_string()))?;
    output::line(text)
}

fn advise(recording: &Path) -> Result<Findings, Failure> {
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(130);
    });
    let options = analyse::Options { progress: true, ..analyse::Options::default() };
    let mut analysis = analyse::analyse(recording, &options)?;
    replay::replay(recording, &mut analysis, &replay::Options::default())?;
    Ok(analysis.findings)
}
