//! `/metrics` in the text format of Prometheus: the allocators' statistics by name, and the agent's
//! own counters.

use super::agent_objects::AgentObjects;
use super::allocator_table::{AllocatorRow, rows};
use crate::memory::Memory;
use crate::query::json::{JsonWriter, OutOfMemory};
use allocator_api2::alloc::Allocator;
use std::time::Duration;

/// The media type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Column = (&'static str, &'static str, fn(&AllocatorRow) -> u64);

const COLUMNS: [Column; 5] = [
    ("allotment_allocators", "Living allocators of this name.", |row| row.allocators),
    ("allotment_live_objects", "Live objects.", |row| row.live_objects),
    ("allotment_live_bytes", "Bytes of live objects.", |row| row.live_bytes),
    ("allotment_held_bytes", "Bytes that the allocators hold.", |row| row.held_bytes),
    // A sum over living allocators, which decreases when one is dropped.
    ("allotment_source_calls", "System calls for memory by living allocators.", |row| {
        row.source_calls
    }),
];

/// Writes all metrics.
pub fn render<M: Memory, A: Allocator + Copy>(
    text: &mut JsonWriter<A>,
    objects: &AgentObjects<M>,
) -> Result<(), OutOfMemory> {
    let (rows, report) = rows(objects);
    for (name, help, figure) in COLUMNS {
        head(text, name, help, "gauge")?;
        for ((allocator, kind), row) in &rows {
            text.raw(name)?;
            text.raw("{name=\"")?;
            label(text, allocator)?;
            text.raw("\",kind=\"")?;
            label(text, kind)?;
            text.raw("\"} ")?;
            text.whole(figure(row))?;
            text.raw("\n")?;
        }
    }
    let (counters, collector) = (&objects.counters, &objects.collector);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let gauges = [
        (
            "allotment_recycler_cached_bytes",
            "Bytes that the recycler keeps warm.",
            report.recycler_cached_bytes,
        ),
        (
            "allotment_recycler_limit_bytes",
            "The limit on the recycler's bytes.",
            report.recycler_limit_bytes,
        ),
        ("agent_connections", "Open connections.", counters.connections.get()),
        ("agent_sessions", "Number of sessions.", objects.sessions.with(|list| list.len() as u64)),
        (
            "agent_contexts",
            "Number of contexts.",
            objects.store.structure().contexts().len() as u64,
        ),
        (
            "agent_newest_second",
            "The newest second that all charts have.",
            u64::from(objects.store.newest()),
        ),
        (
            "agent_tick_longest_microseconds",
            "Duration of the longest tick.",
            micros(collector.longest()),
        ),
        ("agent_tick_last_microseconds", "Duration of the last tick.", micros(collector.last())),
    ];
    for (name, help, value) in gauges {
        one(text, name, help, "gauge", value)?;
    }
    let counters = [
        ("agent_ticks_total", "Seconds collected.", collector.ticks()),
        ("agent_ticks_missed_total", "Seconds that were not collected.", collector.ticks_missed()),
        ("agent_requests_answered_total", "Requests answered.", counters.answered.get()),
        (
            "agent_requests_refused_total",
            "Requests refused with a status from 400 to 499.",
            counters.refused.get(),
        ),
        (
            "agent_requests_busy_total",
            "Requests refused because the queue was full.",
            counters.busy.get(),
        ),
        (
            "agent_requests_abandoned_total",
            "Requests dropped because the client was gone.",
            counters.abandoned.get(),
        ),
        (
            "agent_requests_out_of_memory_total",
            "Requests refused because memory was used up.",
            counters.out_of_memory.get(),
        ),
        ("agent_requests_panicked_total", "Requests ended by a defect.", counters.panicked.get()),
        (
            "agent_contexts_listed_total",
            "Times that the list of contexts was rendered.",
            counters.contexts_listed.get(),
        ),
        (
            "agent_configurations_total",
            "Generations of the configuration.",
            counters.configurations.get(),
        ),
        ("agent_connections_accepted_total", "Connections accepted.", counters.accepted.get()),
        (
            "agent_connections_evicted_total",
            "Connections closed to make room for others.",
            counters.evicted.get(),
        ),
    ];
    for (name, help, value) in counters {
        one(text, name, help, "counter", value)?;
    }
    if let Some(budget) = &objects.limit {
        one(
            text,
            "agent_memory_limit_bytes",
            "The limit on all memory, in bytes.",
            "gauge",
            budget.limit() as u64,
        )?;
        one(
            text,
            "agent_memory_used_bytes",
            "Bytes used of the memory limit.",
            "gauge",
            budget.used() as u64,
        )?;
    }
    Ok(())
}

fn head<A: Allocator>(
    text: &mut JsonWriter<A>,
    name: &str,
    help: &str,
    kind: &str,
) -> Result<(), OutOfMemory> {
    for piece in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
        text.raw(piece)?;
    }
    Ok(())
}

fn one<A: Allocator>(
    text: &mut JsonWriter<A>,
    name: &str,
    help: &str,
    kind: &str,
    value: u64,
) -> Result<(), OutOfMemory> {
    head(text, name, help, kind)?;
    text.raw(name)?;
    text.raw(" ")?;
    text.whole(value)?;
    text.raw("\n")
}

/// Writes a label's value: backslash, quote and line feed are escaped.
fn label<A: Allocator>(text: &mut JsonWriter<A>, value: &str) -> Result<(), OutOfMemory> {
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        text.raw(&rest[..at])?;
        text.raw(match rest.as_bytes()[at] {
            b'\\' => "\\\\",
            b'"' => "\\\"",
            _ => "\\n",
        })?;
        rest = &rest[at + 1..];
    }
    text.raw(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

    #[test]
    fn labels_are_escaped() {
        let mut text = JsonWriter::new(Global, 16).unwrap();
        label(&mut text, "a\"b\\c\nd é").unwrap();
        assert_eq!(&text.into_bytes()[..], "a\\\"b\\\\c\\nd é".as_bytes());
    }
}
