//! The report: all named allocators that are alive, as text or JSON.

use core::fmt::{self, Write};

use crate::memory::first_touch::FreshMemory;
use crate::memory::recycler::recycler;
use crate::slab::SlabShared;
use crate::statistics::{AllocatorKind, Record, Statistics, printable, record_of};

/// One allocator in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorReport {
    /// The allocator's name.
    pub name: String,
    /// The kind of allocator: `arena`, `slab`, `free list`, `reap`, `pool` or `sealed`.
    pub kind: &'static str,
    /// The allocator's figures.
    pub statistics: Statistics,
}

/// All named allocators that are alive, and the recycler.
///
/// `Display` prints a table; [`to_json`](Self::to_json) returns one JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The named allocators, sorted by name.
    pub allocators: Vec<AllocatorReport>,
    /// The bytes that the process-wide recycler holds.
    pub recycler_cached_bytes: u64,
    /// The recycler's limit, in bytes.
    pub recycler_limit_bytes: u64,
    /// The memory that came fresh from the system.
    pub fresh_memory: FreshMemory,
}

/// Reports on every named allocator of the process that is alive.
///
/// Any thread can call this at any time; it stops no allocator. The figures of an allocator are
/// exact if no thread is inside it at that moment. The cost is a few nanoseconds for each record;
/// there are as many records as there were allocators alive at one time, at the peak.
#[must_use]
pub fn report() -> Report {
    let mut allocators: Vec<_> = Record::all()
        .filter_map(Record::snapshot)
        .filter(|(name, kind, _)| !name.is_empty() && *kind != AllocatorKind::Slab)
        .map(|(name, kind, statistics)| AllocatorReport { name, kind: kind.as_str(), statistics })
        .collect();
    // The figures of a slab are spread over its pages and threads, and summed up on request.
    SlabShared::visit_live(|slab| {
        if let Some(name) = slab.name() {
            let statistics = slab.statistics();
            allocators.push(AllocatorReport {
                name: name.to_owned(),
                kind: AllocatorKind::Slab.as_str(),
                statistics,
            });
        }
    });
    allocators.sort_by(|a, b| a.name.cmp(&b.name));
    Report {
        allocators,
        recycler_cached_bytes: recycler().cached_bytes() as u64,
        recycler_limit_bytes: recycler().limit() as u64,
        fresh_memory: recycler().fresh_memory(),
    }
}

/// Returns the allocator that holds this address, if it registers its memory.
///
/// These allocators register their memory: every slab, all sealed memory, and an arena or a free
/// list that is both hardened and on [`Mmap`](crate::Mmap).
///
/// This function never reads the memory at `pointer`, so any address is allowed. The answer is
/// certain while the caller keeps the memory there alive; otherwise it is a snapshot. The cost is
/// two loads and a copy of the name and the figures. For a slab, summing up the figures also visits
/// each of its pages.
#[must_use]
pub fn owner_of<T>(pointer: *const T) -> Option<AllocatorReport> {
    let record = record_of(pointer.addr())?;
    let (name, kind, mut statistics) = record.snapshot()?;
    if kind == AllocatorKind::Slab {
        // A slab registers whole granules. The rest of a granule may belong to malloc.
        let mut holds = false;
        SlabShared::visit_live(|slab| {
            if core::ptr::eq(slab.record(), record) && slab.holds(pointer.addr()) {
                statistics = slab.statistics();
                holds = true;
            }
        });
        if !holds {
            return None;
        }
    }
    Some(AllocatorReport { name, kind: kind.as_str(), statistics })
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
    /// The report as one JSON object on one line:
    /// `{"allocators":[{"name":…,"kind":…,"live_objects":…,…}],
    /// "recycler":{"cached_bytes":…,"limit_bytes":…},
    /// "fresh_memory":{"huge_bytes":…,"refused_bytes":…,"small_bytes":…,"huge_page_nanos":…,
    /// "small_pages_nanos":…,"populated_pages_nanos":…}}`.
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
            "],\"recycler\":{{\"cached_bytes\":{},\"limit_bytes\":{}}}",
            self.recycler_cached_bytes, self.recycler_limit_bytes
        );
        let fresh = &self.fresh_memory;
        let _ = write!(
            json,
            ",\"fresh_memory\":{{\"huge_bytes\":{},\"refused_bytes\":{},\"small_bytes\":{},\
             \"huge_page_nanos\":{},\"small_pages_nanos\":{},\"populated_pages_nanos\":{}}}}}",
            fresh.huge_bytes,
            fresh.refused_bytes,
            fresh.small_bytes,
            fresh.huge_page_nanos,
            fresh.small_pages_nanos,
            fresh.populated_pages_nanos
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
        )?;
        writeln!(
            f,
            "fresh memory: {} bytes in huge pages, {} in small ones",
            self.fresh_memory.huge_bytes,
            self.fresh_memory.refused_bytes + self.fresh_memory.small_bytes
        )
    }
}
