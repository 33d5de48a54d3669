//! The tour's tables.

use super::{ARENA, AllocatorRounds, MALLOC, arena_to_malloc};
use crate::console::failure::Failure;
use crate::console::print::line;
use crate::console::table::{Emphasis, Line, render};
use crate::workloads::measurement::{
    Figure, Metric, QUERIES, QUERIES_PER_SECOND, RESPONSE_MS_AVG, RESPONSE_MS_MAX, RESPONSE_MS_MIN,
    RatioMetric, SECONDS, Scale, first, median, ratio,
};
use crate::workloads::query::Question;
use crate::workloads::query::store::Store;
use crate::workloads::{Column, Measurement};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Charts, dimensions and series of a context.
static CHARTS: Metric = first("charts", Scale::Count);
static DIMENSIONS: Metric = first("dimensions", Scale::Count);
static SERIES: Metric = first("series", Scale::Count);
/// The average response time with malloc, and with the arena.
static MALLOC_MS: Metric = median("malloc_ms", Scale::Milliseconds);
static ARENA_MS: Metric = median("arena_ms", Scale::Milliseconds);
/// The arena's time divided by malloc's.
static RATIO: RatioMetric = ratio!("ratio", "the arena's time divided by malloc's");
/// [`QUERIES`] and [`QUERIES_PER_SECOND`] at full size.
static TRANSACTIONS: Metric = first("transactions", Scale::Count);
static TRANSACTIONS_PER_SECOND: Metric = median("transactions_per_second", Scale::PerSecond);

/// The figures of a context in JSON.
static CONTEXT_METRICS: [&Metric; 6] =
    [&CHARTS, &DIMENSIONS, &SERIES, &QUERIES, &MALLOC_MS, &ARENA_MS];

/// The figures of an allocator at full size in JSON.
static ALLOCATOR_METRICS: [&Metric; 6] = [
    &TRANSACTIONS,
    &SECONDS,
    &TRANSACTIONS_PER_SECOND,
    &RESPONSE_MS_AVG,
    &RESPONSE_MS_MIN,
    &RESPONSE_MS_MAX,
];

/// A table, which is printed as text, or as one line of JSON for each row.
#[derive(Debug)]
pub struct TourTable {
    /// The heading of the first column, which has the names of the rows.
    names: &'static str,
    columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<TourRow>,
}

/// A row of a table.
#[derive(Debug)]
pub struct TourRow {
    name: String,
    /// The fields of JSON other than figures.
    facts: Vec<(&'static str, Value)>,
    figures: Measurement,
    metrics: &'static [&'static Metric],
    ratio: Option<&'static RatioMetric>,
    emphasis: Emphasis,
}

impl Serialize for TourRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        for (key, fact) in &self.facts {
            row.serialize_entry(key, fact)?;
        }
        for metric in self.metrics {
            row.serialize_entry(metric.key, &Figure(metric, self.figures.get(metric)))?;
        }
        if let Some(ratio) = self.ratio {
            self.figures.serialize_ratio(ratio, &mut row)?;
        }
        row.end()
    }
}

impl TourTable {
    /// Prints the table under its title.
    pub fn print(&self, title: &str) -> Result<(), Failure> {
        line(title)?;
        line("")?;
        let headings = self.columns.iter().map(|column| column.heading.as_str());
        let head: Vec<&str> = std::iter::once(self.names).chain(headings).collect();
        let cells = |row: &TourRow| {
            let cells = self.columns.iter().map(|column| column.cell(&row.figures));
            std::iter::once(row.name.clone()).chain(cells).collect()
        };
        let lines: Vec<Line> = self.rows.iter().map(|row| (row.emphasis, cells(row))).collect();
        line(render(&head, &lines))?;
        line("")
    }
}

/// The contexts of this machine's counters, each with malloc and with the arena.
pub fn contexts(store: &Store, entries: &[AllocatorRounds]) -> TourTable {
    let figures_of = |name: &str, context| {
        let entry = entries.iter().find(|entry| entry.about.name == name);
        entry.map(|entry| entry.figures(context)).unwrap_or_default()
    };
    let row = |(index, context): (usize, &str)| {
        let [malloc, arena] = [MALLOC, ARENA].map(|name| figures_of(name, index));
        let queries = malloc.get(&QUERIES).or(arena.get(&QUERIES))?;
        let expected = Question::new(store, context).expected();
        let mut figures = Measurement::default()
            .with(&CHARTS, store.of_context(context).count() as f64)
            .with(&DIMENSIONS, expected.dimensions as f64)
            .with(&SERIES, expected.series as f64)
            .with(&QUERIES, queries)
            .with(&MALLOC_MS, malloc.get(&RESPONSE_MS_AVG))
            .with(&ARENA_MS, arena.get(&RESPONSE_MS_AVG));
        figures.set_ratio(&RATIO, arena_to_malloc(entries, index, &RESPONSE_MS_AVG));
        Some(TourRow {
            name: context.to_owned(),
            facts: vec![("part", "machine".into()), ("context", context.into())],
            figures,
            metrics: &CONTEXT_METRICS,
            ratio: Some(&RATIO),
            emphasis: Emphasis::Plain,
        })
    };
    let mut columns = vec![
        Column::of("charts", &CHARTS),
        Column::of("dimensions", &DIMENSIONS),
        Column::of("series", &SERIES),
        Column::of("malloc", &MALLOC_MS),
        Column::of("arena", &ARENA_MS),
    ];
    columns.extend(Column::of_saving(&RATIO, |row| Some(1.0 - row.get(&RATIO.median)?)));
    let rows = store.contexts().into_iter().enumerate().filter_map(row).collect();
    TourTable { names: "context", columns, rows }
}

/// The allocators of the sequential or the parallel test.
pub fn full_size(part: &'static str, entries: &[AllocatorRounds]) -> TourTable {
    let all: Vec<Measurement> = entries.iter().map(|entry| entry.figures(0)).collect();
    let least = all.iter().filter_map(|figures| figures.get(&SECONDS)).min_by(f64::total_cmp);
    let row = |(entry, figures): (&AllocatorRounds, Measurement)| {
        let best = least.is_some() && figures.get(&SECONDS) == least;
        let [queries, rate] = [&QUERIES, &QUERIES_PER_SECOND].map(|metric| figures.get(metric));
        TourRow {
            name: entry.about.name.to_owned(),
            facts: vec![
                ("part", part.into()),
                ("allocator", entry.about.name.into()),
                ("policy", entry.about.policy.into()),
                ("rounds", entry.rounds.iter().flatten().count().into()),
                ("best", best.into()),
            ],
            figures: figures.with(&TRANSACTIONS, queries).with(&TRANSACTIONS_PER_SECOND, rate),
            metrics: &ALLOCATOR_METRICS,
            ratio: None,
            emphasis: match (best, entry.about.name == ARENA) {
                (true, _) => Emphasis::Best,
                (_, true) => Emphasis::Own,
                _ => Emphasis::Plain,
            },
        }
    };
    let columns = vec![
        Column::of("transactions", &TRANSACTIONS),
        Column::of("time to complete", &SECONDS),
        Column::of("rate", &TRANSACTIONS_PER_SECOND),
        Column::of("average response", &RESPONSE_MS_AVG),
        Column::of("min", &RESPONSE_MS_MIN),
        Column::of("max", &RESPONSE_MS_MAX),
    ];
    TourTable { names: "allocator", columns, rows: entries.iter().zip(all).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::SteadyState;
    use std::time::Duration;

    /// An allocator that answers a query in `ms`, in each of six rounds.
    fn entry(name: &str, ms: u64) -> AllocatorRounds {
        let record = Measurement::timed(60, Duration::from_millis(2 * ms))
            .with_tasks(2, SteadyState::default())
            .with(&RESPONSE_MS_AVG, ms as f64)
            .with(&RESPONSE_MS_MIN, ms as f64)
            .with(&RESPONSE_MS_MAX, ms as f64);
        let about = crate::peers::about(name).unwrap();
        AllocatorRounds { about, rounds: vec![Some(vec![record]); 6] }
    }

    fn json(table: &TourTable, row: usize) -> serde_json::Map<String, Value> {
        let Value::Object(row) = serde_json::to_value(&table.rows[row]).unwrap() else {
            panic!("an object")
        };
        row
    }

    fn cells(table: &TourTable, row: usize) -> Vec<String> {
        table.columns.iter().map(|column| column.cell(&table.rows[row].figures)).collect()
    }

    #[test]
    fn a_context_has_its_size_both_times_and_what_the_arena_saves() {
        let store = Store::synthetic(3, 2, 5);
        let table = contexts(&store, &[entry(MALLOC, 40), entry(ARENA, 30)]);
        assert_eq!(
            cells(&table, 0),
            ["3", "6", "2", "40 ms", "30 ms", "25 %", "25 to 25 %", "ahead"]
        );
        let row = json(&table, 0);
        let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "arena_ms",
                "charts",
                "context",
                "dimensions",
                "malloc_ms",
                "part",
                "queries",
                "ratio",
                "ratio_high",
                "ratio_low",
                "ratio_verdict",
                "series"
            ]
        );
        assert_eq!((&row["queries"], &row["ratio"]), (&2.into(), &0.75.into()));
        // Without a run of malloc there is nothing to compare with.
        let failed = AllocatorRounds { rounds: vec![None], ..entry(MALLOC, 1) };
        let row = json(&contexts(&store, &[failed, entry(ARENA, 30)]), 0);
        assert_eq!((&row["malloc_ms"], &row["ratio_verdict"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn the_best_allocator_is_marked_and_a_row_has_every_figure() {
        let table = full_size("sequential", &[entry(MALLOC, 500), entry("bumpalo", 250)]);
        assert_eq!(cells(&table, 1), ["2", "500 ms", "4.0/s", "250 ms", "250 ms", "250 ms"]);
        assert_eq!(table.rows[1].emphasis, Emphasis::Best);
        let row = json(&table, 0);
        let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "allocator",
                "best",
                "part",
                "policy",
                "response_ms_avg",
                "response_ms_max",
                "response_ms_min",
                "rounds",
                "seconds",
                "transactions",
                "transactions_per_second"
            ]
        );
        assert_eq!((&row["best"], &row["seconds"]), (&false.into(), &1.0.into()));
    }
}
