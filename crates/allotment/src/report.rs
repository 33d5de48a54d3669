//! The report: every named living allocator, as text or JSON.

use core::fmt::{self, Write};

use crate::memory::process::recycler;
use crate::slab::each_slab;
use crate::statistics::{Kind, Record, Statistics, printable, record_of};

/// One allocator in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorReport {
    /// The name that it was given.
    pub name: String,
    /// What it is: `arena`, `slab`, `free list`, `reap`, `pool` or `sealed`.
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
        .filter(|(name, kind, _)| !name.is_empty() && *kind != Kind::Slab)
        .map(|(name, kind, statistics)| AllocatorReport { name, kind: kind.word(), statistics })
        .collect();
    // A slab's figures are spread over its pages and threads, and summed up when they are asked for.
    each_slab(|slab| {
        if let Some(name) = slab.name() {
            let statistics = slab.statistics();
            allocators.push(AllocatorReport {
                name: name.to_owned(),
                kind: Kind::Slab.word(),
                statistics,
            });
        }
    });
    allocators.sort_by(|a, b| a.name.cmp(&b.name));
    Report {
        allocators,
        recycler_cached_bytes: recycler().cached_bytes() as u64,
        recycler_limit_bytes: recycler().limit() as u64,
    }
}

/// The allocator that holds this address, if it registers its segments: a slab and sealed memory do, and a
/// hardened arena on mappings.
///
/// The address is not touched, so it may be any at all. The answer is certain while the memory there is
/// kept alive, and a snapshot otherwise. Two loads, then the copy of the name and figures; of a slab these cost a look
/// at each of its pages.
#[must_use]
pub fn owner_of<T>(pointer: *const T) -> Option<AllocatorReport> {
    let record = record_of(pointer.addr())?;
    let (name, kind, mut statistics) = record.snapshot()?;
    if kind == Kind::Slab {
        // Pages are registered by the granule, the rest of which may be malloc's.
        let mut holds = false;
        each_slab(|slab| {
            if core::ptr::eq(slab.record(), record) && slab.holds(pointer.addr()) {
                statistics = slab.statistics();
                holds = true;
            }
        });
        if !holds {
            return None;
        }
    }
    Some(AllocatorReport { name, kind: kind.word(), statistics })
}

const COLUMNS: [&str; 10] = [
    "live_objects",
    "live_bytes",
    "held_bytes",
    "peak_held_bytes",
    "wasted_bytes",
    "free_bytes",
    "structure_bytes",
    "chunks",
    "recycled_chunks",
    "source_calls",
];

fn figures(statistics: &Statistics) -> [u64; 10] {
    [
        statistics.live_objects,
        statistics.live_bytes,
        statistics.held_bytes,
        statistics.peak_held_bytes,
        statistics.wasted_bytes,
        statistics.free_bytes,
        statistics.structure_bytes,
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.allocators.iter().map(|a| printable(&a.name)).collect();
        let longest = names.iter().map(|name| name.chars().count());
        let width = longest.chain([4]).max().unwrap_or(4);
        write!(f, "{:<width$}  {:<9}", "name", "kind")?;
        for column in COLUMNS {
            write!(f, "  {column:>12}")?;
        }
        writeln!(f)?;
        for (allocator, name) in self.allocators.iter().zip(names) {
            write!(f, "{name:<width$}  {:<9}", allocator.kind)?;
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
