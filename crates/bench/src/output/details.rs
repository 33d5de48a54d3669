//! The second table of some workloads: memory after each step, times outside the measured part, the
//! part of the time spent in the allocator, user time, locks, or all system calls.

use crate::console::table::{figure, grouped, mebibytes, time};
use crate::runner::measurement::Row;
use crate::workloads::locking::guarded;
use crate::workloads::{Workload, file_scan};

/// A second table, with a line for each row.
#[derive(Debug)]
pub struct Details {
    /// The headings. The first one belongs to the names of the rows.
    pub head: Vec<String>,
    cells: fn(&Row) -> Vec<String>,
}

impl Details {
    /// The second table of `workload`, if it has one.
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
            // With callers, the table of responses has the allocator's part.
            let beside = format!("ns/{} inside", workload.unit);
            let head = ["allocator", "in allocator", &beside, "outside"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: share })
        } else if workload.has_locks() {
            let guarded = guarded().map(|name| name.replace('_', " "));
            let head = [format!("locks/{}", workload.unit), "total".to_owned()];
            Some(Self { head: head.into_iter().chain(guarded).collect(), cells: locks })
        } else if workload.has_user_time() {
            let user = format!("user ns/{}", workload.unit);
            let head = ["allocator", &user, "ratio", "of wall time"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: user_time })
        } else if workload.counts_all_calls() {
            let head = ["per search", "system calls", "time"];
            Some(Self { head: head.map(str::to_owned).to_vec(), cells: searches })
        } else {
            None
        }
    }

    /// A row's figures, for all headings but the first.
    pub fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = (self.cells)(row);
        // A row that failed has no figures.
        cells.resize(self.head.len() - 1, "-".to_owned());
        cells
    }
}

/// The time of the hour boundary, of the reservation, and of the ordinary seconds.
fn seconds(row: &Row) -> Vec<String> {
    let boundary = row.seconds.map(|seconds| seconds * 1e3);
    [boundary, row.reserve_ms, row.second_ms_avg, row.second_ms_max].map(time).to_vec()
}

/// The part of the time spent in the allocator, then the time of an operation inside and outside
/// it.
fn share(row: &Row) -> Vec<String> {
    let ns = |part: fn(f64) -> f64| {
        row.ns_per_op.zip(row.alloc_share).map(|(ns, share)| ns * part(share))
    };
    let percent =
        row.alloc_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    vec![percent, figure(ns(|share| share)), figure(ns(|share| 1.0 - share))]
}

/// Lock acquisitions for each operation: the total, then one figure for each guarded object.
fn locks(row: &Row) -> Vec<String> {
    row.locks_per_op.iter().flatten().map(|(_, locks)| figure(*locks)).collect()
}

/// User time of an operation, its ratio to the own row's, and its part of the wall time.
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
    let ms = row.ns_per_op.map(|ns| ns * file_scan::BYTES as f64 / 1e6);
    vec![calls, time(ms)]
}

/// Resident memory after each step, beyond the harness's own.
fn memory(row: &Row) -> Vec<String> {
    let steps = row.rss_steps.iter().flatten().map(|(_, bytes)| mebibytes(*bytes));
    std::iter::once(mebibytes(row.live_bytes)).chain(steps).collect()
}

/// Memory as in [`memory()`], and the time per node of a walk of all trees.
fn memory_and_walk(row: &Row) -> Vec<String> {
    let mut cells = memory(row);
    // A row that failed has no steps and no time of a walk.
    cells.extend(row.walk_ns_per_node.map(|ns| figure(Some(ns))));
    cells
}
