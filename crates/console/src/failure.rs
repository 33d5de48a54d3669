//! How the command can end other than well.

use std::fmt;
use std::io;

/// Why the command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense: exit code 2.
    Usage(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// Whoever read our output has gone: a quiet end.
    Closed,
    /// An interrupt ended it early, which was said: exit code 130.
    Interrupted,
    /// The program that we ran has ended with this exit code, which is passed on.
    Program(u8),
}

impl Failure {
    /// The exit code it ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::Closed => 0,
            Self::Interrupted => 130,
            Self::Program(code) => *code,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Failed(why) => f.write_str(why),
            Self::Closed | Self::Interrupted | Self::Program(_) => Ok(()),
        }
    }
}

/// What went wrong when writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Failed(format!("can't write to standard output: {error}"))
        }
    }
}
