//! The columns of the tables, and their figures as text.

use crate::console::table::{figure, grouped, mebibytes, time};
use crate::runner::row::{Row, calls, faults, net_end, net_peak};
use crate::workloads::measurement::{NS_PER_OP, NS_PER_OP_MAX, NS_PER_OP_MIN, RATIO_TO_OWN, Scale};
use crate::workloads::{Column, Workload};

/// The columns of the first table of every workload.
pub fn time_and_memory(workload: &Workload) -> Vec<Column> {
    vec![
        Column::of(&format!("ns/{}", workload.unit), &NS_PER_OP),
        Column::of("min", &NS_PER_OP_MIN),
        Column::of("max", &NS_PER_OP_MAX),
        Column::of("ratio", &RATIO_TO_OWN),
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

/// A row's figures. One that could not be measured is a dash.
pub fn cells<'c>(columns: &'c [Column], row: &'c Row) -> impl Iterator<Item = String> + 'c {
    columns.iter().map(|column| cell(column.scale, column.figure(&row.measurement)))
}

fn cell(scale: Scale, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match scale {
        Scale::Count => grouped(value as u64),
        Scale::Bytes => mebibytes(Some(value as u64)),
        Scale::Number => figure(Some(value)),
        Scale::Seconds => time(Some(value * 1e3)),
        Scale::Milliseconds => time(Some(value)),
        Scale::PerSecond => format!("{value:.1}/s"),
        Scale::Share => format!("{:.0} %", value * 100.0),
        Scale::Ratio => format!("{value:.2}"),
    }
}
