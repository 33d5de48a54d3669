//! What each allocator of the agent holds: for the page, and for `/metrics`.

use super::agent_objects::AgentObjects;
use crate::memory::Memory;
use crate::query::json::{JsonWriter, OutOfMemory};
use allocator_api2::alloc::Allocator;
use std::collections::BTreeMap;

/// All allocators of one name and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorRow {
    /// The number of allocators. An arena that a worker's request has taken away keeps the worker's
    /// name.
    pub allocators: u64,
    /// Objects in use.
    pub live_objects: u64,
    /// Bytes of these objects.
    pub live_bytes: u64,
    /// Bytes taken from the system, or from the recycler.
    pub held_bytes: u64,
    /// Calls to the system for memory.
    pub source_calls: u64,
}

/// Returns all named allocators of the process, and the store's buffers, by name and kind.
pub fn rows<M: Memory>(
    objects: &AgentObjects<M>,
) -> (BTreeMap<(String, &'static str), AllocatorRow>, allotment::report::Report) {
    let mut rows: BTreeMap<(String, &'static str), AllocatorRow> = BTreeMap::new();
    let report = allotment::report();
    for allocator in &report.allocators {
        let row = rows.entry((allocator.name.clone(), allocator.kind)).or_default();
        row.allocators += 1;
        row.live_objects += allocator.statistics.live_objects;
        row.live_bytes += allocator.statistics.live_bytes;
        row.held_bytes += allocator.statistics.held_bytes;
        row.source_calls += allocator.statistics.source_calls;
    }
    // The slabs of first buffers have no names.
    for statistics in objects.store.memory().buffer_statistics() {
        rows.entry((statistics.name.to_owned(), "slab")).or_insert(AllocatorRow {
            allocators: 1,
            live_objects: statistics.live,
            live_bytes: statistics.live_bytes,
            held_bytes: statistics.held_bytes,
            source_calls: statistics.system_calls,
        });
    }
    (rows, report)
}

/// `{"allocators":[{"name","kind","allocators","live_objects","live_bytes","held_bytes","source_calls"}],"recycler":{...}}`
pub fn render<M: Memory, A: Allocator + Copy>(
    json: &mut JsonWriter<A>,
    objects: &AgentObjects<M>,
) -> Result<(), OutOfMemory> {
    let (rows, report) = rows(objects);
    json.raw("{\"allocators\":[")?;
    for (index, ((name, kind), row)) in rows.iter().enumerate() {
        json.raw(if index == 0 { "\n{\"name\":" } else { ",\n{\"name\":" })?;
        json.string(name)?;
        json.raw(",\"kind\":")?;
        json.string(kind)?;
        for (key, figure) in [
            ("allocators", row.allocators),
            ("live_objects", row.live_objects),
            ("live_bytes", row.live_bytes),
            ("held_bytes", row.held_bytes),
            ("source_calls", row.source_calls),
        ] {
            json.raw(",")?;
            json.key(key)?;
            json.whole(figure)?;
        }
        json.raw("}")?;
    }
    json.raw("\n],\"recycler\":{\"cached_bytes\":")?;
    json.whole(report.recycler_cached_bytes)?;
    json.raw(",\"limit_bytes\":")?;
    json.whole(report.recycler_limit_bytes)?;
    json.raw("}}\n")
}
