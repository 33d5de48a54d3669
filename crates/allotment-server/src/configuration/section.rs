//! One section of a configuration: the description of one object.

use core::cell::RefCell;
use core::fmt::Display;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::{ConfigurationError, ConfigurationProblem};
use super::value::{FromValue, Value};

/// One section of a configuration: the description of one object.
///
/// A section remembers which keys were requested, so that [`check_keys`](Self::check_keys) finds
/// unknown ones.
#[derive(Clone, Debug)]
pub struct Section {
    pub(super) origin: Arc<str>,
    pub(super) line: Option<usize>,
    kind: Box<str>,
    name: Box<str>,
    entries: Vec<KeyValue>,
    requested_keys: RefCell<BTreeSet<Box<str>>>,
}

#[derive(Clone, Debug)]
struct KeyValue {
    key: Box<str>,
    value: Value,
    line: Option<usize>,
}

impl Section {
    /// Creates a section without keys.
    #[must_use]
    pub fn new(kind: &str, name: &str) -> Self {
        Self {
            origin: Arc::from("built in code"),
            line: None,
            kind: kind.into(),
            name: name.into(),
            entries: Vec::new(),
            requested_keys: RefCell::default(),
        }
    }

    /// Sets a key's value, and replaces an earlier value of that key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set(key, value.into(), None);
        self
    }

    pub(super) fn set(&mut self, key: &str, value: Value, line: Option<usize>) {
        self.entries.retain(|entry| *entry.key != *key);
        self.entries.push(KeyValue { key: key.into(), value, line });
    }

    /// Returns the kind, which selects the factory of the object.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the name, which distinguishes the section from others of its kind. It may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.key)
    }

    /// Finds a key, and records that it was requested.
    fn entry(&self, key: &str) -> Option<&KeyValue> {
        self.requested_keys.borrow_mut().insert(key.into());
        self.entries.iter().find(|entry| *entry.key == *key)
    }

    /// Returns the value of a required key.
    ///
    /// # Errors
    /// When the key is missing, or its value is not a `V`.
    pub fn get<'s, V: FromValue<'s>>(&'s self, key: &str) -> Result<V, ConfigurationError> {
        match self.get_optional(key)? {
            Some(value) => Ok(value),
            None => Err(self.error_at(key, self.line, ConfigurationProblem::MissingKey)),
        }
    }

    /// Returns the value of a key, or `default` if the key is missing.
    ///
    /// # Errors
    /// When the value is not a `V`.
    pub fn get_or<'s, V: FromValue<'s>>(
        &'s self,
        key: &str,
        default: V,
    ) -> Result<V, ConfigurationError> {
        Ok(self.get_optional(key)?.unwrap_or(default))
    }

    /// Returns the value of a key, if the key exists.
    ///
    /// # Errors
    /// When the value is not a `V`.
    pub fn get_optional<'s, V: FromValue<'s>>(
        &'s self,
        key: &str,
    ) -> Result<Option<V>, ConfigurationError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match V::from_value(&entry.value) {
            Ok(value) => Ok(Some(value)),
            Err(wrong) => Err(self.wrong_value_error(entry, wrong.wanted)),
        }
    }

    /// Returns the value of a required key, parsed from text by the type's [`FromStr`]: an address,
    /// for example.
    ///
    /// # Errors
    /// When the key is missing, its value is not text, or the text cannot be parsed.
    pub fn parse<V: FromStr<Err: Display>>(&self, key: &str) -> Result<V, ConfigurationError> {
        let text: &str = self.get(key)?;
        match (text.parse(), self.entry(key)) {
            (Ok(value), _) => Ok(value),
            (Err(error), Some(entry)) => {
                let wanted = format!("a {} ({error})", short_name::<V>());
                Err(self.wrong_value_error(entry, wanted))
            }
            (Err(_), None) => unreachable!("`get` has found the key"),
        }
    }

    /// Makes an error about a key's value, for a factory whose requirements go beyond the value's
    /// type.
    #[must_use]
    pub fn wrong_value(&self, key: &str, wanted: &str) -> ConfigurationError {
        match self.entry(key) {
            Some(entry) => self.wrong_value_error(entry, wanted.to_owned()),
            None => self.error_at(key, self.line, ConfigurationProblem::MissingKey),
        }
    }

    /// Checks that each key was requested by one of the calls above.
    ///
    /// # Errors
    /// For the first key that was not requested: it is unknown.
    pub fn check_keys(&self) -> Result<(), ConfigurationError> {
        let requested = self.requested_keys.borrow();
        match self.entries.iter().find(|entry| !requested.contains(&entry.key)) {
            None => Ok(()),
            Some(entry) => {
                let known = requested.iter().map(|key| key.to_string()).collect();
                let problem = ConfigurationProblem::UnknownKey { known };
                Err(self.error_at(&entry.key, entry.line, problem))
            }
        }
    }

    fn wrong_value_error(&self, entry: &KeyValue, wanted: String) -> ConfigurationError {
        let found = format!("{} ({})", entry.value, entry.value.type_name());
        self.error_at(&entry.key, entry.line, ConfigurationProblem::WrongValue { wanted, found })
    }

    fn error_at(
        &self,
        key: &str,
        line: Option<usize>,
        problem: ConfigurationProblem,
    ) -> ConfigurationError {
        self.error(problem).at_line(line).at_key(key)
    }

    /// Makes an error about the section as a whole.
    pub(crate) fn error(&self, problem: ConfigurationProblem) -> ConfigurationError {
        let error = ConfigurationError::new(&self.origin, problem);
        error.at_line(self.line).in_section(&self.kind, &self.name)
    }
}

/// Returns a type's name without its modules.
fn short_name<T>() -> &'static str {
    let name = core::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}
