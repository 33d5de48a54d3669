//! The report: one page that needs no other file, for any browser, from the disk.
//!
//! [`data`] makes the findings small, [`html`] puts them into the page with its style and its script, which draw
//! everything. Names of a program's functions can hold anything, so the script only ever sets them as text.

mod data;
mod html;
mod input;

use crate::analyse::findings::Findings;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};

/// `allot report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// What `allot analyse --json` or `allot advise --json` printed; `-` for standard input
    #[arg(value_name = "FINDINGS")]
    findings: PathBuf,
    /// The page to write
    #[arg(value_name = "PAGE")]
    page: PathBuf,
}

/// What help says below the options.
pub const EXAMPLES: &str = "
The page needs no other file and no network; send it as it is. `allot advise --report` writes it too.

Examples:
  allot analyse --json jq.rec > findings.json
  allot report findings.json jq.html
  allot analyse --json jq.rec | allot report - jq.html";

/// Runs the command.
pub fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let one = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    if one(&arguments.findings).is_some_and(|file| Some(file) == one(&arguments.page)) {
        return Err(Failure::Usage(format!(
            "'{}' has the findings; the page needs another name",
            arguments.page.display()
        )));
    }
    write(&arguments.page, &input::read(&arguments.findings)?)
}

/// Writes the page.
pub fn write(path: &Path, findings: &Findings) -> Result<(), Failure> {
    let failed = |why: String| Failure::Failed(format!("can't write '{}': {why}", path.display()));
    let page = html::page(findings).map_err(|error| failed(error.to_string()))?;
    output::write_file(path, page.as_bytes()).map_err(|error| failed(error.to_string()))
}
