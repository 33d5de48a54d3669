//! What a workload measures besides time and memory: the columns of its second table.

use crate::workloads::columns::Column;
use crate::workloads::file_scan;
use crate::workloads::fixed_size::{CHURN_STEPS, Shape};
use crate::workloads::kind::WorkloadKind;
use crate::workloads::locking;
use crate::workloads::measurement::{
    ALLOC_SHARE, FREE_HUGE_PAGES, HUGE_BYTES, LIVE_BYTES, LOCKS_PER_OP, Metric, NS_PER_OP,
    NS_PER_OP_MAX, NS_PER_OP_MIN, QUERIES, QUERIES_PER_SECOND, RATIO_TO_REFERENCE, RESERVE_MS,
    RESPONSE_MS_AVG, RESPONSE_MS_MAX, RESPONSE_MS_MIN, RSS_STEPS, SECOND_MS_AVG, SECOND_MS_MAX,
    SECONDS, SYSTEM_CALLS, Scale, USER_NS_PER_OP, USER_RATIO_TO_OWN, WALK_NS_PER_NODE,
};
use crate::workloads::trees::{copy, many};
use crate::workloads::workload::Workload;

/// A second table, with a line for each row.
#[derive(Debug)]
pub struct Details {
    /// The heading of the names of the rows.
    pub names: String,
    /// The columns.
    pub columns: Vec<Column>,
}

impl Workload {
    /// What it measures besides time and memory, if that is anything.
    pub fn details(&self) -> Option<Details> {
        let unit = self.unit;
        let (names, mut columns) = match self.kind {
            WorkloadKind::Query => (
                "allocator".to_owned(),
                vec![
                    Column::of("transactions", &QUERIES),
                    Column::of("time", &SECONDS),
                    Column::of("rate", &QUERIES_PER_SECOND),
                    Column::of("avg response", &RESPONSE_MS_AVG),
                    Column::of("min", &RESPONSE_MS_MIN),
                    Column::of("max", &RESPONSE_MS_MAX),
                    Column::of("in allocator", &ALLOC_SHARE),
                ],
            ),
            WorkloadKind::Handler => (
                "allocator".to_owned(),
                vec![
                    Column::of("in allocator", &ALLOC_SHARE),
                    Column::computed(&format!("ns/{unit} inside"), Scale::Number, |row| {
                        Some(row.get(&NS_PER_OP)? * row.get(&ALLOC_SHARE)?)
                    }),
                    Column::computed("outside", Scale::Number, |row| {
                        Some(row.get(&NS_PER_OP)? * (1.0 - row.get(&ALLOC_SHARE)?))
                    }),
                ],
            ),
            WorkloadKind::FixedSize(Shape::Tiers(_)) => (
                "allocator".to_owned(),
                vec![
                    Column::of("boundary", &SECONDS),
                    Column::of("reserve", &RESERVE_MS),
                    Column::of("avg second", &SECOND_MS_AVG),
                    Column::of("worst second", &SECOND_MS_MAX),
                ],
            ),
            _ if self.is_cold() => ("first touch".to_owned(), Vec::new()),
            WorkloadKind::FixedSize(Shape::Churn) => memory(&CHURN_STEPS),
            WorkloadKind::TreeCopy { .. } => memory(&copy::STEPS),
            WorkloadKind::FixedSize(Shape::ManyTrees(_)) => {
                let (names, mut columns) = memory(&many::STEPS);
                columns.push(Column::of("walk, ns/node", &WALK_NS_PER_NODE));
                (names, columns)
            }
            WorkloadKind::Locking => {
                let labels = std::iter::once(locking::ALL_LOCKS).chain(locking::guarded());
                let columns = labels.map(|label| Column::of_label(&LOCKS_PER_OP, label));
                (format!("locks/{unit}"), columns.collect())
            }
            WorkloadKind::Client(_) => {
                let mut columns = vec![Column::of(&format!("user ns/{unit}"), &USER_NS_PER_OP)];
                columns.extend(Column::of_ratio(&USER_RATIO_TO_OWN));
                columns.push(Column::computed("of wall time", Scale::Share, |row| {
                    Some(row.get(&USER_NS_PER_OP)? / row.get(&NS_PER_OP)?)
                }));
                ("allocator".to_owned(), columns)
            }
            WorkloadKind::FileScan(_) => (
                "per search".to_owned(),
                vec![
                    Column::of("system calls", &SYSTEM_CALLS),
                    Column::computed("time", Scale::Milliseconds, |row| {
                        Some(row.get(&NS_PER_OP)? * file_scan::BYTES as f64 / 1e6)
                    }),
                ],
            ),
            _ => return None,
        };
        if self.is_cold() {
            columns.extend(first_touch());
        }
        Some(Details { names, columns })
    }

    /// The metrics that it measures besides time and memory, with the labels of their figures.
    fn own_metrics(&self) -> Vec<(&'static Metric, Option<&'static str>)> {
        let columns = self.details().map(|details| details.columns).unwrap_or_default();
        columns.iter().filter_map(Column::metric).collect()
    }

    /// Whether it measures this metric besides time and memory.
    pub fn measures(&self, metric: &Metric) -> bool {
        self.own_metrics().iter().any(|(own, _)| *own == metric)
    }

    /// The labels that a metric has in this workload.
    pub fn labels(&self, metric: &Metric) -> Vec<&'static str> {
        let own = self.own_metrics().into_iter().filter(|(own, _)| *own == metric);
        own.filter_map(|(_, label)| label).collect()
    }
}

/// What the first touch of memory got, and how much its time varies.
fn first_touch() -> Vec<Column> {
    let mut columns = vec![
        Column::of("huge pages", &HUGE_BYTES),
        Column::of("free before", &FREE_HUGE_PAGES),
        Column::computed("max/min", Scale::Ratio, |row| {
            Some(row.get(&NS_PER_OP_MAX)? / row.get(&NS_PER_OP_MIN)?)
        }),
    ];
    let [mut median, interval, _] = Column::of_ratio(&RATIO_TO_REFERENCE);
    median.heading = "to reference".to_owned();
    columns.extend([median, interval]);
    columns
}

/// The memory of live objects, and resident memory after each step.
fn memory(steps: &[&'static str]) -> (String, Vec<Column>) {
    let steps = steps.iter().map(|step| Column::of_label(&RSS_STEPS, step));
    let columns = std::iter::once(Column::of("live", &LIVE_BYTES)).chain(steps);
    ("MiB after".to_owned(), columns.collect())
}
