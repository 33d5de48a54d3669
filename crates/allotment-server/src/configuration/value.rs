//! Values of a configuration.

use core::fmt;
use core::time::Duration;

/// A value of a configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// A list.
    List(Vec<Value>),
}

impl Value {
    /// Returns the value's type in words.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(values) => {
                f.write_str("[")?;
                for (position, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if position == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Why a value was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// What was wanted, as in "wanted a whole number from 1 to 64".
    pub wanted: String,
}

/// A type that can be read from a configuration's value.
pub trait FromValue<'v>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// With a description of what was wanted instead.
    fn from_value(value: &'v Value) -> Result<Self, WrongValue>;
}

fn wrong<T>(wanted: impl Into<String>) -> Result<T, WrongValue> {
    Err(WrongValue { wanted: wanted.into() })
}

impl<'v> FromValue<'v> for &'v Value {
    fn from_value(value: &'v Value) -> Result<Self, WrongValue> {
        Ok(value)
    }
}

impl<'v> FromValue<'v> for &'v str {
    fn from_value(value: &'v Value) -> Result<Self, WrongValue> {
        match value {
            Value::Text(text) => Ok(text),
            _ => wrong("text"),
        }
    }
}

impl FromValue<'_> for String {
    fn from_value(value: &Value) -> Result<Self, WrongValue> {
        <&str>::from_value(value).map(str::to_owned)
    }
}

impl FromValue<'_> for bool {
    fn from_value(value: &Value) -> Result<Self, WrongValue> {
        match value {
            Value::Flag(flag) => Ok(*flag),
            _ => wrong("true or false"),
        }
    }
}

impl FromValue<'_> for f64 {
    fn from_value(value: &Value) -> Result<Self, WrongValue> {
        match value {
            Value::Float(number) => Ok(*number),
            #[allow(clippy::cast_precision_loss, reason = "a number with a fraction was asked for")]
            Value::Integer(number) => Ok(*number as Self),
            _ => wrong("a number"),
        }
    }
}

macro_rules! integers {
    ($($type:ty),+) => { $(
        impl FromValue<'_> for $type {
            fn from_value(value: &Value) -> Result<Self, WrongValue> {
                let number = match value {
                    Value::Integer(number) => Self::try_from(*number).ok(),
                    _ => None,
                };
                match number {
                    Some(number) => Ok(number),
                    None => {
                        // A configuration's integers are signed and have 64 bits.
                        let most = i64::try_from(Self::MAX).unwrap_or(i64::MAX);
                        wrong(format!("a whole number from {} to {most}", Self::MIN))
                    }
                }
            }
        }
    )+ };
}

integers!(i64, i32, u64, u32, u16, u8, usize);

impl FromValue<'_> for Duration {
    /// Reads a number as seconds, or text with a unit: `250ms`, `1.5s`, `10min`, `2h`, `1d`.
    fn from_value(value: &Value) -> Result<Self, WrongValue> {
        let seconds = match value {
            Value::Integer(_) | Value::Float(_) => f64::from_value(value).ok(),
            Value::Text(text) => seconds(text),
            Value::Flag(_) | Value::List(_) => None,
        };
        match seconds.and_then(|seconds| Self::try_from_secs_f64(seconds).ok()) {
            Some(time) => Ok(time),
            None => wrong(
                "a time: seconds, or text with a unit, as \"250ms\", \"1.5s\", \"10min\", \"2h\", \"1d\"",
            ),
        }
    }
}

fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| number * factor)
}

impl<'v, T: FromValue<'v>> FromValue<'v> for Vec<T> {
    fn from_value(value: &'v Value) -> Result<Self, WrongValue> {
        match value {
            Value::List(values) => values
                .iter()
                .map(|value| {
                    T::from_value(value).map_err(|wrong| WrongValue {
                        wanted: format!("a list of {}", wrong.wanted),
                    })
                })
                .collect(),
            _ => wrong("a list"),
        }
    }
}

macro_rules! from {
    ($($type:ty: $variant:ident),+) => { $(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )+ };
}

from!(&str: Text, String: Text, i64: Integer, i32: Integer, u32: Integer, u16: Integer, f64: Float, bool: Flag);

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}
