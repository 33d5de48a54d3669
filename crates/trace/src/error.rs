//! Errors of reading and writing recordings.

use std::fmt;
use std::io;

/// Why a recording can't be read or written.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The path is a pipe, a directory or a device. A recording must be a file, because it is read
    /// at many positions at once.
    NotAFile,
    /// The file is not a recording.
    NotARecording,
    /// The recording has another version of the format.
    Version(u32),
    /// The content is not what a recorder writes.
    Damaged {
        /// The offset in the file.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// There is no process with that number.
    NoSuchProcess(usize),
}

impl TraceError {
    pub(crate) fn damaged(at: u64, what: impl Into<String>) -> Self {
        Self::Damaged { at, what: what.into() }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotAFile => {
                f.write_str("it is no file; a recording can't be a pipe, a directory or a device")
            }
            Self::NotARecording => f.write_str(
                "it is not a recording; make one with `allot record -o FILE -- PROGRAM`",
            ),
            Self::Version(version) => write!(
                f,
                "the recording has version {version}, and this allot reads version {}; record again, or use the allot that made it",
                crate::version::VERSION
            ),
            Self::Damaged { at, what } => write!(f, "damaged at byte {at}: {what}; record again"),
            Self::NoSuchProcess(number) => write!(f, "the recording has no process {number}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(error) = self { Some(error) } else { None }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
