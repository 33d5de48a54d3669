//! The report: one HTML page that needs no other file.
//!
//! [`data`] makes the findings small; [`html`] puts them into the page, whose script draws
//! everything. A program's function names may contain anything, so the script inserts them only as
//! text.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | [`data`] | the findings in a compact form |
//! | [`html`] | the page |
//! | [`input`] | findings that are read from JSON |

mod data;
mod html;
mod input;

use crate::analyse::findings::Findings;
use bench::console::failure::Failure;
use bench::console::file;
use clap::Args;
use std::path::{Path, PathBuf};

/// `allot report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The output of `allot analyse --json` or `allot advise --json`; `-` for standard input
    #[arg(value_name = "FINDINGS")]
    findings: PathBuf,
    /// The HTML file to write
    #[arg(value_name = "PAGE")]
    page: PathBuf,
}

/// For `allot report --help`.
pub const EXAMPLES: &str = "
The page needs no other file and no network, so it can be sent as it is. `allot advise` writes the
same page.

Examples:
  allot analyse --json jq.rec > findings.json
  allot report findings.json jq.html
  allot analyse --json jq.rec | allot report - jq.html";

/// Runs the command.
pub fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let one = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    if one(&arguments.findings).is_some_and(|file| Some(file) == one(&arguments.page)) {
        return Err(Failure::Usage(format!(
            "'{}' is the file with the findings; give the page another name",
            arguments.page.display()
        )));
    }
    write(&arguments.page, &input::read(&arguments.findings)?)
}

/// Writes the page.
pub fn write(path: &Path, findings: &Findings) -> Result<(), Failure> {
    let failed = |why: String| Failure::Failed(format!("can't write '{}': {why}", path.display()));
    let page = html::page(findings).map_err(|error| failed(error.to_string()))?;
    file::write_whole(path, page.as_bytes()).map_err(|error| failed(error.to_string()))
}
