//! The memory at one minute, as a line of JSON.

use procfs::process::Process;
use serde_json::{Value, json};

/// What a child says of itself at one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The simulated minutes since Monday, 0:00.
    pub minute: u32,
    /// The requests that it has served.
    pub requests: u64,
    /// The bytes in use, as the program asked for them.
    pub live_bytes: u64,
    /// Its resident bytes.
    pub resident_bytes: u64,
}

impl Sample {
    /// Returns it as a JSON object. The parent adds its variant.
    pub fn to_json(self) -> Value {
        json!({
            "minute": self.minute,
            "requests": self.requests,
            "live_bytes": self.live_bytes,
            "resident_bytes": self.resident_bytes,
        })
    }

    /// Reads what [`to_json`](Self::to_json) has made.
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| value.get(name)?.as_u64();
        Some(Self {
            minute: number("minute")?.try_into().ok()?,
            requests: number("requests")?,
            live_bytes: number("live_bytes")?,
            resident_bytes: number("resident_bytes")?,
        })
    }
}

/// Returns this process's resident bytes, counted page by page.
pub fn resident_bytes() -> Option<u64> {
    let rollup = Process::myself().ok()?.smaps_rollup().ok()?;
    rollup.memory_map_rollup.iter().find_map(|map| map.extension.map.get("Rss").copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let sample = Sample { minute: 7, requests: 8, live_bytes: 9, resident_bytes: 1 << 40 };
        assert_eq!(Sample::from_json(&sample.to_json().to_string()), Some(sample));
        for wrong in
            ["", "{}", "7", r#"{"minute":-1,"requests":1,"live_bytes":1,"resident_bytes":1}"#]
        {
            assert_eq!(Sample::from_json(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_that_is_touched_is_resident() {
        let bytes = vec![7u8; 64 << 20];
        let resident = resident_bytes().unwrap();
        assert!((64 << 20..64 << 30).contains(&resident), "{resident}");
        drop(bytes);
    }
}
