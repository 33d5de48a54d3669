//! Configurations from TOML.
//!
//! `[kind]` with values is a section without a name, and `[kind.name]` is a section with a name.
//! Each entry of a list `[[kind]]` is a section whose name is the value of its key `name`. Dates
//! and times become text.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigurationError, ConfigurationProblem};
use super::{Configuration, Section, Value};

impl Configuration {
    /// Reads a TOML file (feature `toml`).
    ///
    /// # Errors
    /// When the file cannot be read; otherwise as for [`from_toml`](Self::from_toml).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigurationError> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_toml(&origin, &text),
            Err(error) => Err(ConfigurationError::new(
                &Arc::from(origin),
                ConfigurationProblem::Unreadable(error),
            )),
        }
    }

    /// Reads a TOML text (feature `toml`). Errors refer to it by its origin.
    ///
    /// # Errors
    /// When the text is not TOML, a value lies outside all sections, a section contains a table, a
    /// number exceeds 64 bits, or two sections have the same kind and name.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ConfigurationError> {
        let mut reader = TomlReader { text, configuration: Self::new(origin) };
        match DeTable::parse(text) {
            Ok(table) => reader.read_document(table.get_ref())?,
            Err(error) => {
                let offset = error.span().map(|span| span.start);
                let problem = ConfigurationProblem::Syntax(error.message().to_owned());
                return Err(reader.error(offset, problem));
            }
        }
        reader.configuration.check_names()?;
        Ok(reader.configuration)
    }
}

struct TomlReader<'t> {
    text: &'t str,
    configuration: Configuration,
}

impl TomlReader<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, offset: Option<usize>, problem: ConfigurationProblem) -> ConfigurationError {
        self.configuration.error(problem).at_line(offset.map(|offset| self.line(offset)))
    }

    fn read_document(&mut self, table: &DeTable<'_>) -> Result<(), ConfigurationError> {
        for (kind, value) in table {
            let (offset, kind) = (kind.span().start, kind.get_ref());
            match value.get_ref() {
                DeValue::Table(table) => self.read_table(kind, offset, table)?,
                DeValue::Array(list) if list.iter().all(|value| value.get_ref().is_table()) => {
                    for value in list {
                        let DeValue::Table(table) = value.get_ref() else { continue };
                        self.read_list_entry(kind, value.span().start, table)?;
                    }
                }
                _ => {
                    let problem = ConfigurationProblem::Misplaced(
                        "a value outside of all sections: put it below a [section]",
                    );
                    return Err(self.error(Some(offset), problem).at_key(kind));
                }
            }
        }
        Ok(())
    }

    /// Reads `[kind]`: its values become one section, and each table in it becomes another.
    fn read_table(
        &mut self,
        kind: &str,
        offset: usize,
        table: &DeTable<'_>,
    ) -> Result<(), ConfigurationError> {
        let is_section = |value: &Spanned<DeValue<'_>>| value.get_ref().is_table();
        if table.is_empty() || table.values().any(|value| !is_section(value)) {
            let entries = table.iter().filter(|(_, value)| !is_section(value));
            self.add_section(kind, "", offset, entries)?;
        }
        for (name, value) in table {
            if let DeValue::Table(entries) = value.get_ref() {
                self.add_section(kind, name.get_ref(), name.span().start, entries.iter())?;
            }
        }
        Ok(())
    }

    /// Reads one entry of `[[kind]]`.
    fn read_list_entry(
        &mut self,
        kind: &str,
        offset: usize,
        table: &DeTable<'_>,
    ) -> Result<(), ConfigurationError> {
        let name = match table.get("name").map(Spanned::get_ref) {
            Some(DeValue::String(name)) => name.as_ref(),
            _ => "",
        };
        let is_name = |key: &str| !name.is_empty() && key == "name";
        self.add_section(
            kind,
            name,
            offset,
            table.iter().filter(|(key, _)| !is_name(key.get_ref())),
        )
    }

    fn add_section<'e, 't: 'e>(
        &mut self,
        kind: &str,
        name: &str,
        offset: usize,
        entries: impl Iterator<Item = (&'e TomlKey<'t>, &'e Spanned<DeValue<'t>>)>,
    ) -> Result<(), ConfigurationError> {
        let mut section = Section::new(kind, name);
        section.line = Some(self.line(offset));
        for (key, value) in entries {
            let line = self.line(key.span().start);
            let key = key.get_ref();
            match to_value(value.get_ref()) {
                Ok(value) => section.set(key, value, Some(line)),
                Err(problem) => {
                    section.origin = Arc::clone(&self.configuration.origin);
                    return Err(section.error(problem).at_line(Some(line)).at_key(key));
                }
            }
        }
        self.configuration.add(section);
        Ok(())
    }
}

type TomlKey<'t> = Spanned<std::borrow::Cow<'t, str>>;

fn to_value(value: &DeValue<'_>) -> Result<Value, ConfigurationProblem> {
    let out_of_range = |wanted: &str, number: &str| ConfigurationProblem::WrongValue {
        wanted: wanted.to_owned(),
        found: number.to_owned(),
    };
    Ok(match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => return Err(out_of_range("a whole number of 64 bits", number.as_str())),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => return Err(out_of_range("a number", number.as_str())),
        },
        DeValue::Array(values) => Value::List(
            values.iter().map(|value| to_value(value.get_ref())).collect::<Result<_, _>>()?,
        ),
        DeValue::Table(_) => {
            return Err(ConfigurationProblem::Misplaced(
                "a table in a section: sections have a kind and a name, and no more levels",
            ));
        }
    })
}
