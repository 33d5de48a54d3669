//! The JSON of a reply, written to any sink of text.

use super::points::{POINTS, Summary};
use std::fmt::{Result, Write};

/// One series of a reply: a group of dimensions with one name.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// The dimensions' name.
    pub name: &'a str,
    /// The number of summed dimensions.
    pub dimensions: u64,
    /// The aggregate of their values.
    pub summary: Summary,
    /// The summed points.
    pub points: &'a [f64; POINTS],
}

/// Writes a reply: the context, the number of dimensions, and the series.
pub fn write<'a>(
    to: &mut impl Write,
    context: &str,
    dimensions: u64,
    series: impl Iterator<Item = Series<'a>>,
) -> Result {
    to.write_str("{\"context\":")?;
    string(to, context)?;
    write!(to, ",\"dimensions\":{dimensions},\"series\":[")?;
    for (index, one) in series.enumerate() {
        to.write_str(if index == 0 { "\n{\"name\":" } else { ",\n{\"name\":" })?;
        string(to, one.name)?;
        write!(to, ",\"dimensions\":{},\"min\":", one.dimensions)?;
        number(to, one.summary.min)?;
        to.write_str(",\"max\":")?;
        number(to, one.summary.max)?;
        to.write_str(",\"average\":")?;
        number(to, one.summary.average().unwrap_or(f64::NAN))?;
        to.write_str(",\"points\":[")?;
        for (index, point) in one.points.iter().enumerate() {
            if index > 0 {
                to.write_char(',')?;
            }
            number(to, *point)?;
        }
        to.write_str("]}")?;
    }
    to.write_str("\n]}\n")
}

/// JSON has no infinity and no NaN: both become null.
fn number(to: &mut impl Write, number: f64) -> Result {
    if number.is_finite() { write!(to, "{number:.2}") } else { to.write_str("null") }
}

fn string(to: &mut impl Write, text: &str) -> Result {
    to.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_ascii_control()) {
        to.write_str(&rest[..at])?;
        let byte = rest.as_bytes()[at];
        match byte {
            b'"' | b'\\' => write!(to, "\\{}", char::from(byte))?,
            _ => write!(to, "\\u{byte:04x}")?,
        }
        rest = &rest[at + 1..];
    }
    to.write_str(rest)?;
    to.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_gaps_are_null() {
        let mut points = [1.5; POINTS];
        points[9] = f64::NAN;
        let series =
            Series { name: "a\"b\\c\nd", dimensions: 2, summary: Summary::EMPTY, points: &points };
        let mut text = String::new();
        write(&mut text, "é", 2, std::iter::once(series)).unwrap();
        assert_eq!(
            text,
            "{\"context\":\"é\",\"dimensions\":2,\"series\":[\n{\"name\":\"a\\\"b\\\\c\\u000ad\",\
             \"dimensions\":2,\"min\":null,\"max\":null,\"average\":null,\
             \"points\":[1.50,1.50,1.50,1.50,1.50,1.50,1.50,1.50,1.50,null]}\n]}\n"
        );
    }
}
