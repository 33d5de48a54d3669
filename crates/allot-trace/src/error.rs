//! What can be wrong with a recording.

use std::fmt;
use std::io;

/// Why a recording can't be read, or not further.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read or written.
    Io(io::Error),
    /// What was named is a pipe, a directory or a device: a recording is read in many places at once.
    NotAFile,
    /// The file is no recording.
    NotARecording,
    /// The recording was made by another version of the format.
    Version(u32),
    /// What is there is not what was written.
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
            Self::NotAFile => f.write_str("this is no file, and a recording has to be one"),
            Self::NotARecording => {
                f.write_str("not a recording: `allot record -o FILE -- PROGRAM` makes one")
            }
            Self::Version(version) => write!(
                f,
                "a recording of version {version}, this is for version {}: record again, or use the allot that made it",
                crate::container::VERSION
            ),
            Self::Damaged { at, what } => write!(f, "damaged at byte {at}: {what}"),
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
