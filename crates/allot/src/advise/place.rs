//! Where the report is written.

use super::AdviseArguments;
use crate::failure::Failure;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Where, as far as it is known before the program has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    /// In a file that was asked for.
    Named(PathBuf),
    /// In the current directory, named after the program.
    AfterProgram,
}

impl Place {
    /// What the arguments say. A place that can't be written to is told before the program has run for hours.
    pub fn asked(arguments: &AdviseArguments) -> Result<Self, Failure> {
        match &arguments.report {
            Some(path) => {
                check(path).map_err(|error| {
                    Failure::Failed(format!("can't write a report to {}: {error}", path.display()))
                })?;
                Ok(Self::Named(path.clone()))
            }
            None if arguments.no_report || arguments.json => Ok(Self::Nowhere),
            None => Ok(Self::AfterProgram),
        }
    }

    /// The file, for a program.
    pub fn of(&self, program: &str) -> Option<PathBuf> {
        match self {
            Self::Nowhere => None,
            Self::Named(path) => Some(path.clone()),
            Self::AfterProgram => Some(PathBuf::from(file_name(program))),
        }
    }
}

/// Whether a file can be written, without changing one that is there.
fn check(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return OpenOptions::new().append(true).open(path).map(|_| ());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::tempfile_in(directory.unwrap_or(Path::new("."))).map(|_| ())
}

/// `allot-jq.html`.
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
    fn a_place_that_cannot_be_written_to_is_found_and_nothing_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let new = directory.path().join("new.html");
        check(&new).unwrap();
        assert!(!new.exists());
        std::fs::write(&new, "old").unwrap();
        check(&new).unwrap();
        assert_eq!(std::fs::read(&new).unwrap(), b"old");
        assert!(check(directory.path()).is_err());
        assert!(check(&directory.path().join("no/such.html")).is_err());
    }
}
