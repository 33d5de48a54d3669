//! The file of `--config`: its keys become options.

use clap::CommandFactory;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use toml::{Table, Value};

/// The largest file, in bytes: more than all options need.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file of options can't be used.
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    cause: FileErrorCause,
}

#[derive(Debug)]
enum FileErrorCause {
    Read(io::Error),
    TooLong,
    Syntax(String),
    NotScalar(String),
    Config,
    Value(String),
}

impl FileError {
    /// An option does not accept its value.
    pub(super) fn value(path: &Path, message: String) -> Self {
        Self { path: path.to_owned(), cause: FileErrorCause::Value(message) }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            FileErrorCause::Read(error) => {
                write!(f, "{error}; give the path of a readable file to --config")
            }
            FileErrorCause::TooLong => {
                write!(f, "longer than {MAX_BYTES} bytes; give --config a file of options")
            }
            FileErrorCause::Syntax(error) => {
                write!(f, "{error}; write one option per line, such as max-points = 1000")
            }
            FileErrorCause::NotScalar(key) => {
                write!(f, "'{key}' is a list or a section; give a text, a number, or true")
            }
            FileErrorCause::Config => f.write_str("'config' is allowed only on the command line"),
            FileErrorCause::Value(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for FileError {}

/// Returns the file's keys as options of a command line.
pub(super) fn options(path: &Path) -> Result<Vec<OsString>, FileError> {
    let failed = |cause| FileError { path: path.to_owned(), cause };
    let text = read(path).map_err(failed)?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        failed(FileErrorCause::Syntax(format!(
            "line {line}: {}",
            error.message().replace('\n', ", ")
        )))
    })?;
    let mut options = Vec::new();
    for (key, value) in table {
        if key == "config" {
            return Err(failed(FileErrorCause::Config));
        }
        let value = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Datetime(time) => time.to_string(),
            Value::Boolean(true) => {
                options.push(format!("--{key}").into());
                continue;
            }
            // A key must be known even if its value is false.
            Value::Boolean(false) if is_option(&key) => continue,
            Value::Boolean(false) => {
                return Err(failed(FileErrorCause::Value(format!("there is no option '{key}'"))));
            }
            Value::Array(_) | Value::Table(_) => {
                return Err(failed(FileErrorCause::NotScalar(key)));
            }
        };
        options.push(format!("--{key}={value}").into());
    }
    Ok(options)
}

fn is_option(key: &str) -> bool {
    let command = super::CommandLine::command();
    command.get_arguments().any(|argument| argument.get_long() == Some(key))
}

fn read(path: &Path) -> Result<String, FileErrorCause> {
    let about = std::fs::metadata(path).map_err(FileErrorCause::Read)?;
    if !about.is_file() {
        // Reading a pipe could block without end.
        return Err(FileErrorCause::Read(io::Error::other("this is not a regular file")));
    }
    if about.len() > MAX_BYTES {
        return Err(FileErrorCause::TooLong);
    }
    std::fs::read_to_string(path).map_err(FileErrorCause::Read)
}
