//! What some workloads tell besides time: the memory after each step, the times beside the measured part, the
//! allocator's part of the time, user time, locks, all system calls.

use super::row::Row;
use crate::table::{figure, grouped, mebibytes, time};
use workloads::categories::guarded;
use workloads::{Workload, letters};

/// A second table, with a line for each row.
#[derive(Debug)]
pub struct Details {
    /// The headings; the first one stands over the allocators' names.
    pub head: Vec<String>,
    cells: fn(&Row) -> Vec<String>,
}

impl Details {
    /// Those of a workload, if it has any.
    pub fn of(workload: &Workload) -> Option<Self> {
        if workload.has_seconds() {
            let head = ["allocator", "boundary", "reserve", "avg second", "worst second"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: seconds })
        } else if !workload.steps().is_empty() {
            let steps = workload.steps().iter().map(|name| name.replace('_', " "));
            let mut head: Vec<String> =
                ["MiB after", "live"].map(str::to_owned).into_iter().chain(steps).collect();
            if workload.has_walk() {
                head.push("walk, ns/node".to_owned());
                return Some(Self { head, cells: memory_and_walk });
            }
            Some(Self { head, cells: memory })
        } else if workload.has_share() && !workload.has_callers() {
            // Where there are callers, it stands in their table.
            let beside = format!("ns/{} in it", workload.unit);
            let head = ["allocator", "in allocator", &beside, "beside it"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: share })
        } else if workload.has_locks() {
            let guarded = guarded().map(|name| name.replace('_', " "));
            let head = [format!("locks/{}", workload.unit), "total".to_owned()];
            Some(Self { head: head.into_iter().chain(guarded).collect(), cells: locks })
        } else if workload.has_user_time() {
            let user = format!("user ns/{}", workload.unit);
            let head = ["allocator", &user, "ratio", "of all time"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: user_time })
        } else if workload.counts_all_calls() {
            let head = ["a search", "system calls", "time"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: searches })
        } else {
            None
        }
    }

    /// A row's figures, under all headings but the first.
    pub fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = (self.cells)(row);
        // A row that failed has none.
        cells.resize(self.head.len() - 1, "-".to_owned());
        cells
    }
}

/// The boundary as a whole, and what was timed before it.
fn seconds(row: &Row) -> Vec<String> {
    let boundary = row.seconds.map(|seconds| seconds * 1e3);
    [boundary, row.reserve_ms, row.second_ms_avg, row.second_ms_max].map(time).to_vec()
}

/// The allocator's part of the time, that of an operation which it is, and the rest.
fn share(row: &Row) -> Vec<String> {
    let ns = |part: fn(f64) -> f64| {
        row.ns_per_op.zip(row.alloc_share).map(|(ns, share)| ns * part(share))
    };
    let percent =
        row.alloc_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    vec![percent, figure(ns(|share| share)), figure(ns(|share| 1.0 - share))]
}

/// Lock acquisitions for each operation, in all and by what they guard.
fn locks(row: &Row) -> Vec<String> {
    row.locks_per_op.iter().flatten().map(|(_, locks)| figure(*locks)).collect()
}

/// User time of an operation, and how it compares.
fn user_time(row: &Row) -> Vec<String> {
    let part = row.user_ns_per_op.zip(row.ns_per_op).map(|(user, ns)| user / ns * 100.0);
    vec![
        figure(row.user_ns_per_op),
        row.user_ratio_to_own.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        part.map_or_else(|| "-".to_owned(), |part| format!("{part:.0} %")),
    ]
}

/// System calls and time of one search of the file.
fn searches(row: &Row) -> Vec<String> {
    let calls = row.system_calls.map_or_else(|| "-".to_owned(), grouped);
    let ms = row.ns_per_op.map(|ns| ns * letters::BYTES as f64 / 1e6);
    vec![calls, time(ms)]
}

/// The memory held after each step, beyond the harness's own.
fn memory(row: &Row) -> Vec<String> {
    let steps = row.rss_steps.iter().flatten().map(|(_, bytes)| mebibytes(*bytes));
    std::iter::once(mebibytes(row.live_bytes)).chain(steps).collect()
}

/// The same, and what a walk of all trees took for each node.
fn memory_and_walk(row: &Row) -> Vec<String> {
    let mut cells = memory(row);
    // A row that failed has no steps, and no figure behind them.
    cells.extend(row.walk_ns_per_node.map(|ns| figure(Some(ns))));
    cells
}
