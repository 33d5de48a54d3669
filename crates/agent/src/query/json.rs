//! Writes JSON into the memory of a request.

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use std::fmt::{self, Write};

/// The request's memory is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<allocator_api2::collections::TryReserveError> for OutOfMemory {
    fn from(_: allocator_api2::collections::TryReserveError) -> Self {
        Self
    }
}

impl From<allocator_api2::alloc::AllocError> for OutOfMemory {
    fn from(_: allocator_api2::alloc::AllocError) -> Self {
        Self
    }
}

impl From<fmt::Error> for OutOfMemory {
    /// A [`JsonWriter`] fails for no other reason.
    fn from(_: fmt::Error) -> Self {
        Self
    }
}

/// Text in the memory of a request. It grows by doubling, and returns an error when the memory is
/// used up.
#[derive(Debug)]
pub struct JsonWriter<A: Allocator> {
    bytes: Vec<u8, A>,
}

impl<A: Allocator> JsonWriter<A> {
    /// Creates an empty text with `capacity` bytes reserved.
    pub fn new(memory: A, capacity: usize) -> Result<Self, OutOfMemory> {
        let mut bytes = Vec::new_in(memory);
        bytes.try_reserve(capacity)?;
        Ok(Self { bytes })
    }

    /// Returns the text.
    pub fn into_bytes(self) -> Vec<u8, A> {
        self.bytes
    }

    /// Writes text that is JSON already, or punctuation.
    #[inline]
    pub fn raw(&mut self, text: &str) -> Result<(), OutOfMemory> {
        self.bytes.try_reserve(text.len())?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Writes a string with its quotes.
    pub fn string(&mut self, text: &str) -> Result<(), OutOfMemory> {
        self.raw("\"")?;
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|b| b < b' ' || matches!(b, b'"' | b'\\')) {
            self.raw(&rest[..at])?;
            match rest.as_bytes()[at] {
                b'"' => self.raw("\\\"")?,
                b'\\' => self.raw("\\\\")?,
                b'\n' => self.raw("\\n")?,
                control => write!(self, "\\u{control:04x}")?,
            }
            rest = &rest[at + 1..];
        }
        self.raw(rest)?;
        self.raw("\"")
    }

    /// Writes a whole number.
    pub fn whole(&mut self, number: impl Into<i128>) -> Result<(), OutOfMemory> {
        Ok(write!(self, "{}", number.into())?)
    }

    /// Writes a value with up to three decimals. Values that are not finite become null.
    pub fn value(&mut self, value: f64) -> Result<(), OutOfMemory> {
        if !value.is_finite() {
            return self.raw("null");
        }
        let rounded = (value * 1000.0).round();
        if rounded.abs() >= 9e15 {
            // The type cannot represent thousandths of such a value.
            return Ok(write!(self, "{value:e}")?);
        }
        // Formatting an integer costs a quarter of formatting a float.
        let thousandths = rounded as i64;
        if thousandths < 0 {
            self.raw("-")?;
        }
        let thousandths = thousandths.unsigned_abs();
        write!(self, "{}", thousandths / 1000)?;
        let decimals = thousandths % 1000;
        if decimals == 0 {
            return Ok(());
        }
        let digits = [
            b'.',
            b'0' + (decimals / 100) as u8,
            b'0' + (decimals / 10 % 10) as u8,
            b'0' + (decimals % 10) as u8,
        ];
        let zeros = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
        self.bytes.try_reserve(4)?;
        self.bytes.extend_from_slice(&digits[..4 - zeros]);
        Ok(())
    }

    /// Writes the name of an object's member, and the colon.
    pub fn key(&mut self, name: &str) -> Result<(), OutOfMemory> {
        self.string(name)?;
        self.raw(":")
    }
}

impl<A: Allocator> Write for JsonWriter<A> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.raw(text).map_err(|OutOfMemory| fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

    fn written(write: impl FnOnce(&mut JsonWriter<Global>) -> Result<(), OutOfMemory>) -> String {
        let mut writer = JsonWriter::new(Global, 0).unwrap();
        write(&mut writer).unwrap();
        String::from_utf8(writer.into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn values_have_three_decimals_at_most() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (-1.25, "-1.25"),
            (0.001, "0.001"),
            (-0.0004, "0"),
            (99.9999, "100"),
            (1e12, "1000000000000"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
            (1e30, "1e30"),
        ] {
            assert_eq!(written(|w| w.value(value)), text, "{value}");
        }
    }

    #[test]
    fn strings_are_json_whatever_they_hold() {
        for text in ["", "plain", "a\"b\\c\nd\te\u{1}é𝄞", "\u{7f}</script>"] {
            let json = written(|w| w.string(text));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn memory_that_is_used_up_is_said() {
        let budget = allotment::Budget::new(64 << 10);
        let builder = allotment::Arena::builder().budget(&budget);
        let arena = builder.on_refusal(allotment::OnRefusal::ReturnError).build();
        let mut writer = JsonWriter::new(&arena, 16).unwrap();
        let error = (0..100_000).find_map(|_| writer.string("something").err());
        assert_eq!(error, Some(OutOfMemory));
    }
}
