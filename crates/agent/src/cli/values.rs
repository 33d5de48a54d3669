//! Values of options that are more than plain numbers.

use std::fmt;
use std::str::FromStr;

/// Where memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AllocatorChoice {
    /// The library's allocators
    Allotment,
    /// malloc and free, for comparison
    Malloc,
}

impl AllocatorChoice {
    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allotment => "allotment",
            Self::Malloc => "malloc",
        }
    }
}

/// A number of bytes, such as `4096`, `64KiB`, `1.5GiB` or `500MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// The text is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidByteSize;

impl fmt::Display for InvalidByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a number of bytes; write it like 65536, 64KiB, 512MiB or 2GiB")
    }
}

impl std::error::Error for InvalidByteSize {}

const UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
];

impl FromStr for ByteSize {
    type Err = InvalidByteSize;

    fn from_str(text: &str) -> Result<Self, InvalidByteSize> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidByteSize)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*factor).map(Self).ok_or(InvalidByteSize);
        }
        let bytes = number.parse::<f64>().map_err(|_| InvalidByteSize)? * *factor as f64;
        // Every whole number below 2^53 is exact.
        (bytes < (1u64 << 53) as f64).then_some(Self(bytes as u64)).ok_or(InvalidByteSize)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How long the points of each tier are kept, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepTimes(pub [u32; 3]);

/// The text is not a list of three times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKeepTimes;

impl fmt::Display for InvalidKeepTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "give three numbers of seconds, of at least 60, 3600 and 86400 and at most ten years, such as 3600,86400,2592000",
        )
    }
}

impl std::error::Error for InvalidKeepTimes {}

impl FromStr for KeepTimes {
    type Err = InvalidKeepTimes;

    fn from_str(text: &str) -> Result<Self, InvalidKeepTimes> {
        const LEAST: [u32; 3] = [60, 3600, 86_400];
        const MOST: u32 = 10 * 366 * 86_400;
        let mut times = [0; 3];
        let mut parts = text.split(',');
        for (time, least) in times.iter_mut().zip(LEAST) {
            let part =
                parts.next().and_then(|part| part.trim().parse().ok()).ok_or(InvalidKeepTimes)?;
            if !(least..=MOST).contains(&part) {
                return Err(InvalidKeepTimes);
            }
            *time = part;
        }
        parts.next().is_none().then_some(Self(times)).ok_or(InvalidKeepTimes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 64 << 10),
            ("64 kib", 64 << 10),
            ("1.5GiB", 3 << 29),
            ("500MB", 500_000_000),
            ("2b", 2),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in [
            "",
            "MiB",
            "1XB",
            "-1",
            "1e9",
            "99999999999999999999",
            "20000000TiB",
            "1.2.3",
            "9.9e9GiB",
        ] {
            assert_eq!(bad.parse::<ByteSize>(), Err(InvalidByteSize), "{bad}");
        }
    }

    #[test]
    fn times_to_keep_are_three() {
        assert_eq!("3600, 86400,2592000".parse(), Ok(KeepTimes([3600, 86_400, 2_592_000])));
        for bad in [
            "",
            "3600",
            "3600,86400",
            "1,2,3,4",
            "59,3600,86400",
            "60,3600,86400,1",
            "60,3600,4000000000",
        ] {
            assert_eq!(bad.parse::<KeepTimes>(), Err(InvalidKeepTimes), "{bad}");
        }
    }
}
