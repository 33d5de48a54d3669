//! The file that the report is written to.

use super::AdviseArguments;
use bench::console::failure::Failure;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Where the report is written, as far as that is known before the program has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTarget {
    NoReport,
    /// In the file that `--report` names.
    Named(PathBuf),
    /// In the current directory, named after the program.
    AfterProgram,
}

impl ReportTarget {
    /// Reads the arguments. Fails here, before the program runs, if the file can't be written.
    pub fn from_arguments(arguments: &AdviseArguments) -> Result<Self, Failure> {
        match &arguments.report {
            Some(path) => {
                check_writable(path).map_err(|error| {
                    Failure::Failed(format!(
                        "can't write the report to {}: {error}; choose another file with --report",
                        path.display()
                    ))
                })?;
                Ok(Self::Named(path.clone()))
            }
            None if arguments.no_report || arguments.json => Ok(Self::NoReport),
            None => Ok(Self::AfterProgram),
        }
    }

    /// The report's file for this program.
    pub fn of(&self, program: &str) -> Option<PathBuf> {
        match self {
            Self::NoReport => None,
            Self::Named(path) => Some(path.clone()),
            Self::AfterProgram => Some(PathBuf::from(file_name(program))),
        }
    }
}

/// Fails if the file can't be written. Changes no existing file.
fn check_writable(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return OpenOptions::new().append(true).open(path).map(|_| ());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let unnamed = tempfile::tempfile_in(directory.unwrap_or(Path::new(".")));
    // The error would name the temporary file.
    unnamed.map(drop).map_err(|error| error.kind().into())
}

/// The report's name: `allot-jq.html` for `jq`.
fn file_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).take(100).collect();
    format!("allot-{}.html", if name.is_empty() { "program" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_named_after_the_program() {
        assert_eq!(file_name("/usr/bin/jq"), "allot-jq.html");
        assert_eq!(file_name("./a b;c"), "allot-a-b-c.html");
        assert_eq!(file_name("dir/"), "allot-program.html");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_found_and_nothing_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let new = directory.path().join("new.html");
        check_writable(&new).unwrap();
        assert!(!new.exists());
        std::fs::write(&new, "old").unwrap();
        check_writable(&new).unwrap();
        assert_eq!(std::fs::read(&new).unwrap(), b"old");
        assert!(check_writable(directory.path()).is_err());
        assert!(check_writable(&directory.path().join("no/such.html")).is_err());
    }
}
