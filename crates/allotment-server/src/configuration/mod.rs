//! Data that describes which objects to make.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `error` | what is wrong with a configuration, and where |
//! | `value` | the values, and the types that can be read from them |
//! | `section` | the description of one object: kind, name, keys and values |
//! | `toml` | configurations from TOML; imports [`Configuration`] from this file |

mod error;
mod section;
#[cfg(feature = "toml")]
mod toml;
mod value;

use std::collections::HashSet;
use std::sync::Arc;

pub use error::{ConfigurationError, ConfigurationProblem};
pub use section::Section;
pub use value::{FromValue, Value, WrongValue};

/// A description of a server's objects: sections in order, each with a kind, a name, keys and
/// values.
///
/// A configuration is made in code or, with the feature `toml`, from a TOML text:
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use allotment_server::Configuration;
///
/// let configuration = Configuration::from_toml("server.toml", r#"
///     [server]            # kind "server", no name
///     url = "http://example.org"
///
///     [route.home]        # kind "route", name "home"
///     path = "/"
///
///     [[user]]            # in a list, the key "name" names each
///     name = "ada"
///
///     [[user]]
///     name = "grace"
/// "#)?;
/// let names: Vec<_> = configuration.of_kind("user").map(|section| section.name()).collect();
/// assert_eq!(names, ["ada", "grace"]);
/// assert_eq!(configuration.section("server", "").unwrap().get::<&str>("url")?, "http://example.org");
/// # }
/// # Ok::<(), allotment_server::ConfigurationError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Configuration {
    origin: Arc<str>,
    sections: Vec<Section>,
}

impl Configuration {
    /// Creates a configuration without sections. Errors refer to it by its origin: a file name, for
    /// example.
    #[must_use]
    pub fn new(origin: &str) -> Self {
        Self { origin: origin.into(), sections: Vec::new() }
    }

    /// Adds a section.
    ///
    /// ```
    /// use allotment_server::{Configuration, Section};
    ///
    /// let configuration = Configuration::new("built in")
    ///     .with(Section::new("route", "home").with("path", "/").with("ttl", 30));
    /// assert_eq!(configuration.sections().len(), 1);
    /// ```
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        self.add(section);
        self
    }

    /// Adds a section.
    pub fn add(&mut self, mut section: Section) {
        section.origin = Arc::clone(&self.origin);
        self.sections.push(section);
    }

    /// Returns the origin.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns all sections, in order.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Returns the sections of this kind, in order.
    pub fn of_kind<'c>(&'c self, kind: &'c str) -> impl Iterator<Item = &'c Section> {
        self.sections.iter().filter(move |section| section.kind() == kind)
    }

    /// Returns the section of this kind and name.
    #[must_use]
    pub fn section(&self, kind: &str, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| (section.kind(), section.name()) == (kind, name))
    }

    /// Makes an error about the configuration as a whole.
    pub(crate) fn error(&self, problem: ConfigurationProblem) -> ConfigurationError {
        ConfigurationError::new(&self.origin, problem)
    }

    /// Checks that no two sections have the same kind and name.
    pub(crate) fn check_names(&self) -> Result<(), ConfigurationError> {
        let mut seen = HashSet::new();
        match self.sections.iter().find(|section| !seen.insert((section.kind(), section.name()))) {
            None => Ok(()),
            Some(section) => Err(section.error(ConfigurationProblem::Duplicate)),
        }
    }
}
