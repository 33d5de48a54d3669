//! Errors in a configuration.

use core::fmt;
use std::error::Error;
use std::sync::Arc;

use allotment::AllocError;

/// An error in a configuration, and where it is.
#[derive(Debug)]
pub struct ConfigurationError(Box<ErrorDetails>);

#[derive(Debug)]
struct ErrorDetails {
    origin: Arc<str>,
    line: Option<usize>,
    section: Option<(Box<str>, Box<str>)>,
    key: Option<Box<str>>,
    problem: ConfigurationProblem,
}

/// What is wrong with a configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigurationProblem {
    /// The file cannot be read.
    Unreadable(std::io::Error),
    /// The text does not follow its format.
    Syntax(String),
    /// A value where a section should be, or a table where a value should be.
    Misplaced(&'static str),
    /// A required key is missing.
    MissingKey,
    /// A value has the wrong type, or is out of range.
    WrongValue {
        /// What was wanted.
        wanted: String,
        /// What was found.
        found: String,
    },
    /// No factory requested this key.
    UnknownKey {
        /// The keys that were requested.
        known: Vec<String>,
    },
    /// There is no factory for this kind of section.
    UnknownKind {
        /// The kinds that have factories.
        known: Vec<String>,
    },
    /// Two sections have the same kind and name.
    Duplicate,
    /// The factory of the object failed.
    Factory(Box<dyn Error + Send + Sync>),
    /// Memory for the read-only objects is not available.
    Memory(AllocError),
}

impl ConfigurationError {
    pub(super) fn new(origin: &Arc<str>, problem: ConfigurationProblem) -> Self {
        let origin = Arc::clone(origin);
        Self(Box::new(ErrorDetails { origin, line: None, section: None, key: None, problem }))
    }

    pub(super) fn at_line(mut self, line: Option<usize>) -> Self {
        self.0.line = line;
        self
    }

    pub(super) fn in_section(mut self, kind: &str, name: &str) -> Self {
        self.0.section = Some((kind.into(), name.into()));
        self
    }

    pub(super) fn at_key(mut self, key: &str) -> Self {
        self.0.key = Some(key.into());
        self
    }

    /// Returns the origin of the configuration: a file name, for example.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// Returns the line, from 1, if the configuration came from a text.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.0.line
    }

    /// Returns the section's kind and name, if the error is about a section.
    #[must_use]
    pub fn section(&self) -> Option<(&str, &str)> {
        self.0.section.as_ref().map(|(kind, name)| (&**kind, &**name))
    }

    /// Returns the key, if the error is about a key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn problem(&self) -> &ConfigurationProblem {
        &self.0.problem
    }
}

impl fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.origin())?;
        if let Some(line) = self.line() {
            write!(f, ":{line}")?;
        }
        match self.section() {
            None => {}
            Some((kind, "")) => write!(f, ": section [{kind}]")?,
            Some((kind, name)) => write!(f, ": section [{kind}.{name}]")?,
        }
        if let Some(key) = self.key() {
            write!(f, ", key '{key}'")?;
        }
        write!(f, ": {}", self.problem())
    }
}

impl fmt::Display for ConfigurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "can't be read: {error}"),
            Self::Syntax(message) => f.write_str(message),
            Self::Misplaced(what) => f.write_str(what),
            Self::MissingKey => f.write_str("missing: add it"),
            Self::WrongValue { wanted, found } => write!(f, "is {found}; wanted {wanted}"),
            Self::UnknownKey { known } => {
                f.write_str("not known here: remove it, or correct it to ")?;
                write_alternatives(f, known, "nothing: this section has no keys")
            }
            Self::UnknownKind { known } => {
                f.write_str("not known: remove it, or correct it to ")?;
                write_alternatives(f, known, "nothing: no kind is known")
            }
            Self::Duplicate => {
                f.write_str("there is one of this kind and name already: give it another name")
            }
            Self::Factory(error) => write!(f, "the object could not be made: {error}"),
            Self::Memory(error) => write!(f, "no memory for the objects: {error}"),
        }
    }
}

fn write_alternatives(f: &mut fmt::Formatter<'_>, known: &[String], none: &str) -> fmt::Result {
    match known {
        [] => f.write_str(none),
        [one] => write!(f, "'{one}'"),
        [first, others @ ..] => {
            write!(f, "one of '{first}'")?;
            others.iter().try_for_each(|other| write!(f, ", '{other}'"))
        }
    }
}

impl Error for ConfigurationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.problem() {
            ConfigurationProblem::Unreadable(error) => Some(error),
            ConfigurationProblem::Factory(error) => Some(&**error),
            ConfigurationProblem::Memory(error) => Some(error),
            _ => None,
        }
    }
}
