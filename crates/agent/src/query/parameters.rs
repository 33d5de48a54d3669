//! The parameters of a query: `context`, `after`, `before`, `points`, `group`, `by`.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

/// The longest range of a query, in seconds: ten years.
pub const MAX_RANGE: i64 = 10 * 366 * 86_400;
/// The latest time, in seconds since 1970: the year 9999.
pub const MAX_TIME: i64 = 253_402_300_799;
/// The default range of a query, in seconds.
pub const DEFAULT_RANGE: i64 = 600;
/// The default of `points`, if the range has as many seconds.
pub const DEFAULT_POINTS: i64 = 300;
/// The longest name of a context, in bytes.
pub const MAX_CONTEXT_BYTES: usize = 256;
/// The largest number of parameters in a query string.
const MAX_PARAMETERS: usize = 16;
const PARAMETER_NAMES: &str = "context, after, before, points, group, by";

/// How the values of an interval become one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupFunction {
    /// The average.
    #[default]
    Average,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The sum.
    Sum,
}

impl GroupFunction {
    /// Returns the name in queries and replies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
        }
    }
}

/// Which dimensions make one series of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeriesBy {
    /// The dimensions of one name in all charts of the context, added up.
    #[default]
    Name,
    /// Each dimension by itself.
    Dimension,
}

impl SeriesBy {
    /// Returns the name in queries and replies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Dimension => "dimension",
        }
    }
}

/// A valid query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'r> {
    /// The name of the context.
    pub context: Cow<'r, str>,
    /// The first second of the range, in seconds since 1970.
    pub after: i64,
    /// The second after the last one of the range, in seconds since 1970.
    pub before: i64,
    /// The number of points of each series.
    pub points: u32,
    /// How values become points.
    pub group: GroupFunction,
    /// How dimensions become series.
    pub by: SeriesBy,
}

/// What is wrong with a query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterError {
    /// A required parameter is missing.
    Missing(&'static str),
    /// The parameter does not exist.
    Unknown(String, &'static str),
    /// A parameter is given twice.
    Repeated(&'static str),
    /// A percent sign without two hexadecimal digits, or bytes that are no UTF-8.
    Encoding,
    /// There are more parameters than exist.
    TooMany,
    /// The value is not a whole number.
    NotANumber(&'static str, String),
    /// The number is out of range.
    OutOfRange(&'static str, RangeInclusive<i64>),
    /// The name is longer than that of any context.
    TooLong(&'static str, usize),
    /// The value is not one of the allowed words.
    UnknownValue(&'static str, &'static str, String),
    /// The range ends before it begins, or is empty.
    Empty {
        /// Its first second.
        after: i64,
        /// The second after its last one.
        before: i64,
    },
    /// The range is too long.
    RangeTooLong(i64),
    /// There would be more points than seconds.
    TooManyPoints {
        /// The requested number of points.
        points: i64,
        /// The number of seconds of the range.
        seconds: i64,
    },
}

impl ParameterError {
    /// What the client can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Missing("context") => {
                "add context=NAME with one of the names that /api/v1/contexts lists".to_owned()
            }
            Self::Missing(name) => format!("add {name}=..."),
            Self::Unknown(_, known) => format!("the parameters are: {known}"),
            Self::Repeated(name) => format!("give {name} once"),
            Self::Encoding => "encode the text as UTF-8, and each byte that is not a letter or digit as % and two hexadecimal digits".to_owned(),
            Self::TooMany => format!("the parameters are: {PARAMETER_NAMES}, each at most once"),
            Self::NotANumber("after" | "before", _) => {
                "give seconds since 1970, or zero or a negative number for seconds relative to now".to_owned()
            }
            Self::NotANumber(name, _) => format!("give {name} as a whole number"),
            Self::OutOfRange(name, allowed) => {
                format!("give {name} between {} and {}", allowed.start(), allowed.end())
            }
            Self::TooLong(_, most) => format!("give at most {most} bytes"),
            Self::UnknownValue(_, words, _) => format!("use one of: {words}"),
            Self::Empty { .. } => "give an after that is less than before; the default of before is now".to_owned(),
            Self::RangeTooLong(_) => format!("ask for at most {MAX_RANGE} seconds at a time"),
            Self::TooManyPoints { seconds, .. } => {
                format!("there is one value per second; ask for at most {seconds} points, or for a longer range")
            }
        }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "the parameter '{name}' is missing"),
            Self::Unknown(name, _) => write!(f, "there is no parameter '{}'", excerpt(name)),
            Self::Repeated(name) => write!(f, "the parameter '{name}' is given twice"),
            Self::Encoding => f.write_str("the query string is not percent-encoded UTF-8"),
            Self::TooMany => write!(f, "there are more than {MAX_PARAMETERS} parameters"),
            Self::NotANumber(name, text) => {
                write!(f, "'{}' is not a whole number, which '{name}' needs", excerpt(text))
            }
            Self::OutOfRange(name, _) => write!(f, "'{name}' is out of range"),
            Self::TooLong(name, most) => write!(f, "'{name}' has more than {most} bytes"),
            Self::UnknownValue(name, _, word) => {
                write!(f, "'{}' is not a value of '{name}'", excerpt(word))
            }
            Self::Empty { after, before } => {
                write!(f, "the range from {after} to {before} is empty")
            }
            Self::RangeTooLong(seconds) => write!(f, "a range of {seconds} seconds is too long"),
            Self::TooManyPoints { points, seconds } => {
                write!(f, "{points} points are more than the {seconds} seconds of the range")
            }
        }
    }
}

impl std::error::Error for ParameterError {}

/// The first 100 characters of what a client sent, for a message.
pub fn excerpt(text: &str) -> &str {
    const MAX_CHARACTERS: usize = 100;
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns the decoded pairs of a query string. Rejects what the decoder would accept silently.
pub fn pairs(
    query: &str,
) -> Result<impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)>, ParameterError> {
    let bytes = query.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let whole = (0..bytes.len()).all(|at| bytes[at] != b'%' || (is_hex(at + 1) && is_hex(at + 2)));
    let pairs = form_urlencoded::parse(bytes);
    // The decoder replaces bytes that are not UTF-8 by U+FFFD, which no name of the agent contains.
    let odd = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    if !whole || { pairs }.any(|(name, value)| odd(&name) || odd(&value)) {
        return Err(ParameterError::Encoding);
    }
    if { pairs }.count() > MAX_PARAMETERS {
        return Err(ParameterError::TooMany);
    }
    Ok(pairs)
}

/// Sets a value that may be given once.
pub fn set_once<T>(
    slot: &mut Option<T>,
    name: &'static str,
    value: T,
) -> Result<(), ParameterError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ParameterError::Repeated(name)),
    }
}

impl<'r> Query<'r> {
    /// Reads a query string at the time `now`, in seconds since 1970. `max_points` is the limit on
    /// points.
    pub fn parse(query: &'r str, now: i64, max_points: u32) -> Result<Self, ParameterError> {
        let (mut context, mut after, mut before) = (None, None, None);
        let (mut points, mut group, mut by) = (None, None, None);
        for (name, value) in pairs(query)? {
            match &*name {
                "context" => set_once(&mut context, "context", value)?,
                "after" => set_once(&mut after, "after", number("after", &value)?)?,
                "before" => set_once(&mut before, "before", number("before", &value)?)?,
                "points" => set_once(&mut points, "points", number("points", &value)?)?,
                "group" => set_once(&mut group, "group", parse_group(&value)?)?,
                "by" => set_once(&mut by, "by", parse_by(&value)?)?,
                _ => return Err(ParameterError::Unknown(name.into_owned(), PARAMETER_NAMES)),
            }
        }
        let context = context.filter(|name| !name.is_empty());
        let context = context.ok_or(ParameterError::Missing("context"))?;
        if context.len() > MAX_CONTEXT_BYTES {
            return Err(ParameterError::TooLong("context", MAX_CONTEXT_BYTES));
        }
        let before = absolute("before", before.unwrap_or(0), now)?;
        let after = absolute("after", after.unwrap_or(-DEFAULT_RANGE), before)?;
        let seconds = before - after;
        if seconds <= 0 {
            return Err(ParameterError::Empty { after, before });
        }
        if seconds > MAX_RANGE {
            return Err(ParameterError::RangeTooLong(seconds));
        }
        let most = i64::from(max_points);
        let points = points.unwrap_or(seconds.min(DEFAULT_POINTS).min(most));
        if !(1..=most).contains(&points) {
            return Err(ParameterError::OutOfRange("points", 1..=most));
        }
        if points > seconds {
            return Err(ParameterError::TooManyPoints { points, seconds });
        }
        let points = u32::try_from(points).expect("at most `max_points`");
        let (group, by) = (group.unwrap_or_default(), by.unwrap_or_default());
        Ok(Self { context, after, before, points, group, by })
    }

    /// Returns the number of seconds of the range.
    pub fn seconds(&self) -> i64 {
        self.before - self.after
    }
}

fn number(name: &'static str, text: &str) -> Result<i64, ParameterError> {
    match text.parse::<i64>() {
        Ok(number) => Ok(number),
        Err(error) => match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                Err(ParameterError::OutOfRange(name, -MAX_TIME..=MAX_TIME))
            }
            _ => Err(ParameterError::NotANumber(name, text.to_owned())),
        },
    }
}

/// Converts a relative time, which is zero or negative, to an absolute one.
fn absolute(name: &'static str, time: i64, from: i64) -> Result<i64, ParameterError> {
    if !(-MAX_TIME..=MAX_TIME).contains(&time) {
        return Err(ParameterError::OutOfRange(name, -MAX_TIME..=MAX_TIME));
    }
    Ok(if time > 0 { time } else { from + time })
}

fn parse_group(word: &str) -> Result<GroupFunction, ParameterError> {
    [GroupFunction::Average, GroupFunction::Min, GroupFunction::Max, GroupFunction::Sum]
        .into_iter()
        .find(|group| group.as_str() == word)
        .ok_or_else(|| {
            ParameterError::UnknownValue("group", "average, min, max, sum", word.to_owned())
        })
}

fn parse_by(word: &str) -> Result<SeriesBy, ParameterError> {
    [SeriesBy::Name, SeriesBy::Dimension]
        .into_iter()
        .find(|by| by.as_str() == word)
        .ok_or_else(|| ParameterError::UnknownValue("by", "name, dimension", word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn parse(query: &str) -> Result<Query<'_>, ParameterError> {
        Query::parse(query, NOW, 10_000)
    }

    #[test]
    fn a_query_of_a_name_alone_is_about_the_last_ten_minutes() {
        let query = parse("context=system.cpu").unwrap();
        assert_eq!(
            query,
            Query {
                context: "system.cpu".into(),
                after: NOW - 600,
                before: NOW,
                points: 300,
                group: GroupFunction::Average,
                by: SeriesBy::Name
            }
        );
    }

    #[test]
    fn times_that_are_not_positive_are_relative() {
        let query = parse("context=a&before=-60&after=-120&points=3&group=max").unwrap();
        assert_eq!((query.after, query.before), (NOW - 180, NOW - 60));
        assert_eq!((query.points, query.group), (3, GroupFunction::Max));
        let absolute = parse("context=a&after=1600000000&before=1600000060&points=60").unwrap();
        assert_eq!((absolute.after, absolute.before), (1_600_000_000, 1_600_000_060));
    }

    #[test]
    fn names_are_percent_encoded_utf_8() {
        assert_eq!(parse("context=a%2Fb+%C3%A9").unwrap().context, "a/b é");
        for bad in ["context=%", "context=%g1", "context=%f", "context=%ff", "%=1"] {
            assert_eq!(parse(bad), Err(ParameterError::Encoding), "{bad}");
        }
    }

    #[test]
    fn each_bad_query_has_an_error_of_its_own() {
        use ParameterError as E;
        let long = format!("context={}", "x".repeat(257));
        let many = "context=a&".repeat(17);
        let cases: &[(&str, E)] = &[
            ("", E::Missing("context")),
            ("context=", E::Missing("context")),
            ("contxt=a", E::Unknown("contxt".to_owned(), PARAMETER_NAMES)),
            ("context=a&context=a", E::Repeated("context")),
            ("context=a&points=1&points=1", E::Repeated("points")),
            (&long, E::TooLong("context", 256)),
            (&many, E::TooMany),
            ("context=a&after=soon", E::NotANumber("after", "soon".to_owned())),
            ("context=a&after=1.5", E::NotANumber("after", "1.5".to_owned())),
            ("context=a&points=", E::NotANumber("points", String::new())),
            ("context=a&after=99999999999999999999", E::OutOfRange("after", -MAX_TIME..=MAX_TIME)),
            ("context=a&after=-9223372036854775808", E::OutOfRange("after", -MAX_TIME..=MAX_TIME)),
            ("context=a&before=9223372036854775807", E::OutOfRange("before", -MAX_TIME..=MAX_TIME)),
            ("context=a&points=0", E::OutOfRange("points", 1..=10_000)),
            ("context=a&points=-1", E::OutOfRange("points", 1..=10_000)),
            ("context=a&points=10001&after=-20000", E::OutOfRange("points", 1..=10_000)),
            ("context=a&points=11&after=-10", E::TooManyPoints { points: 11, seconds: 10 }),
            ("context=a&after=0", E::Empty { after: NOW, before: NOW }),
            ("context=a&after=1700000001", E::Empty { after: NOW + 1, before: NOW }),
            ("context=a&after=1", E::RangeTooLong(NOW - 1)),
            ("context=a&after=-253402300799", E::RangeTooLong(MAX_TIME)),
            (
                "context=a&group=median",
                E::UnknownValue("group", "average, min, max, sum", "median".to_owned()),
            ),
            ("context=a&by=", E::UnknownValue("by", "name, dimension", String::new())),
        ];
        for (query, expected) in cases {
            let error = parse(query).unwrap_err();
            assert_eq!(error, *expected, "{query}");
            assert!(!error.to_string().is_empty() && !error.remedy().is_empty());
        }
    }

    #[test]
    fn the_limit_of_points_is_the_configured_one() {
        assert!(Query::parse("context=a&points=100", NOW, 100).is_ok());
        assert!(Query::parse("context=a&points=101", NOW, 100).is_err());
        assert_eq!(Query::parse("context=a", NOW, 100).unwrap().points, 100);
    }
}
