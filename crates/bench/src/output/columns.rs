//! The columns that the tables of all workloads have.

use crate::console::statistics::{FEWEST_ROUNDS, Ratio};
use crate::console::table::ratio;
use crate::runner::row::{Row, calls, faults, net_end, net_peak};
use crate::workloads::measurement::{
    NS_PER_OP, NS_PER_OP_MAX, NS_PER_OP_MIN, RATIO_TO_OTHER_BUILD, RATIO_TO_OWN, Scale,
};
use crate::workloads::{Column, Workload, span};

/// The times of every workload, and their ratios to the own row's; if there are two builds, to the
/// other build's.
pub fn times(workload: &Workload, rows: &[Row]) -> Vec<Column> {
    let mut columns = vec![
        Column::of(&format!("ns/{}", workload.unit), &NS_PER_OP),
        Column::of("min", &NS_PER_OP_MIN),
        Column::of("max", &NS_PER_OP_MAX),
    ];
    let two_builds = rows.iter().any(|row| row.build.is_some());
    let ratio = if two_builds { &RATIO_TO_OTHER_BUILD } else { &RATIO_TO_OWN };
    columns.extend(Column::of_ratio(ratio));
    columns
}

/// The memory of every workload, its page faults and its system calls.
pub fn memory() -> Vec<Column> {
    vec![
        Column::computed("peak", Scale::Bytes, net_peak),
        Column::computed("end", Scale::Bytes, net_end),
        Column::computed("faults", Scale::Number, faults),
        Column::computed("calls", Scale::Number, calls),
    ]
}

/// The heading of the column with the names of a workload's rows.
pub fn names(workload: &Workload) -> &'static str {
    if workload.variants().is_empty() { "allocator" } else { "variant" }
}

/// A row's cells.
pub fn cells<'c>(columns: &'c [Column], row: &'c Row) -> impl Iterator<Item = String> + 'c {
    columns.iter().map(|column| column.cell(&row.measurement))
}

/// The median of a ratio, and a remark with its interval and its verdict.
pub fn median_and_interval(ratio: &Ratio) -> (String, String) {
    let remark = match ratio.interval.zip(ratio.verdict()) {
        Some((interval, verdict)) => format!("95 % interval {}: {verdict}", span(interval)),
        None => format!("no interval: it takes {FEWEST_ROUNDS} rounds"),
    };
    (self::ratio(ratio.median), remark)
}
