//! The ways in which the command can fail, with their exit codes.

use std::fmt;
use std::io;

/// Why the command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong: exit code 2.
    Usage(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// The reader of standard output closed it: exit code 0, without a message.
    Closed,
    /// An interrupt ended the command early: exit code 130, without a message.
    Interrupted,
    /// The program that the command ran ended with this exit code, which is passed on.
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

/// An error of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Failed(format!("can't write to standard output: {error}"))
        }
    }
}
