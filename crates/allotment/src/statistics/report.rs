//! The report: every named living allocator, as text or JSON.

use core::fmt::{self, Write};
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::{Record, Statistics};
use crate::memory::process::recycler;
use crate::memory::segments;

/// One allocator in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorReport {
    /// The name that it was given.
    pub name: String,
    /// What it is: `arena`.
    pub kind: &'static str,
    /// What it holds.
    pub statistics: Statistics,
}

/// Every named living allocator, and the recycler. `Display` prints a table, [`to_json`](Self::to_json) one
/// JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The named allocators, by name.
    pub allocators: Vec<AllocatorReport>,
    /// The bytes that the process-wide recycler keeps warm.
    pub recycler_cached_bytes: u64,
    /// The bound on them.
    pub recycler_limit_bytes: u64,
}

/// Looks at every named living allocator of the process.
///
/// Any thread may call it at any time; the allocators go on. Each one's figures are exact if no thread is
/// inside it at that moment. Costs some nanoseconds for each allocator that ever lived at the same time.
#[must_use]
pub fn report() -> Report {
    let mut allocators: Vec<_> = Record::all()
        .filter_map(Record::snapshot)
        .filter(|(name, _, _)| !name.is_empty())
        .map(|(name, kind, statistics)| AllocatorReport { name, kind: kind.word(), statistics })
        .collect();
    allocators.sort_by(|a, b| a.name.cmp(&b.name));
    Report {
        allocators,
        recycler_cached_bytes: recycler().cached_bytes() as u64,
        recycler_limit_bytes: recycler().limit() as u64,
    }
}

/// The allocator that holds this address, if it registers its segments: a hardened arena on mappings does.
///
/// The address is not touched, so it may be any at all. The answer is certain while the memory there is
/// kept alive, and a snapshot otherwise. Two loads, then the copy of the name and figures.
#[must_use]
pub fn owner_of<T>(pointer: *const T) -> Option<AllocatorReport> {
    let owner = segments::owner_of(pointer.addr())?;
    let (name, kind, statistics) = Record::at(address_of(owner)).snapshot()?;
    Some(AllocatorReport { name, kind: kind.word(), statistics })
}

fn address_of(owner: NonZeroUsize) -> NonNull<Record> {
    // The record's provenance was exposed when its address was registered.
    NonNull::new(core::ptr::with_exposed_provenance_mut(owner.get())).expect("not zero")
}

const COLUMNS: [&str; 8] = [
    "live_objects",
    "live_bytes",
    "held_bytes",
    "peak_held_bytes",
    "wasted_bytes",
    "chunks",
    "recycled_chunks",
    "source_calls",
];

fn figures(statistics: &Statistics) -> [u64; 8] {
    [
        statistics.live_objects,
        statistics.live_bytes,
        statistics.held_bytes,
        statistics.peak_held_bytes,
        statistics.wasted_bytes,
        statistics.chunks,
        statistics.recycled_chunks,
        statistics.source_calls,
    ]
}

impl Report {
    /// The report as one JSON object on one line: `{"allocators":[{"name":…,"kind":…,"live_objects":…,…}],
    /// "recycler":{"cached_bytes":…,"limit_bytes":…}}`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = String::from("{\"allocators\":[");
        for (index, allocator) in self.allocators.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str("{\"name\":");
            push_json_string(&mut json, &allocator.name);
            let _ = write!(json, ",\"kind\":\"{}\"", allocator.kind);
            for (column, figure) in COLUMNS.iter().zip(figures(&allocator.statistics)) {
                let _ = write!(json, ",\"{column}\":{figure}");
            }
            json.push('}');
        }
        let _ = write!(
            json,
            "],\"recycler\":{{\"cached_bytes\":{},\"limit_bytes\":{}}}}}",
            self.recycler_cached_bytes, self.recycler_limit_bytes
        );
        json
    }
}

fn push_json_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", control as u32);
            }
            other => json.push(other),
        }
    }
    json.push('"');
}

/// A name as one line of text: control characters are escaped.
pub(crate) fn printable(name: &str) -> String {
    let mut line = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.allocators.iter().map(|a| printable(&a.name)).collect();
        let longest = names.iter().map(|name| name.chars().count());
        let width = longest.chain([4]).max().unwrap_or(4);
        write!(f, "{:<width$}  {:<5}", "name", "kind")?;
        for column in COLUMNS {
            write!(f, "  {column:>12}")?;
        }
        writeln!(f)?;
        for (allocator, name) in self.allocators.iter().zip(names) {
            write!(f, "{name:<width$}  {:<5}", allocator.kind)?;
            for (column, figure) in COLUMNS.iter().zip(figures(&allocator.statistics)) {
                write!(f, "  {figure:>width$}", width = column.len().max(12))?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "recycler: {} bytes kept warm of at most {}",
            self.recycler_cached_bytes, self.recycler_limit_bytes
        )
    }
}
