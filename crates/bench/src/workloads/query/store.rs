//! The metrics that queries read: charts of dimensions, each with its collected values.

use crate::workloads::random::Random;

/// Charts, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Store {
    /// The charts.
    pub charts: Vec<Chart>,
}

/// One monitored object: a process, a disk, a network interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What the chart shows. A context query reads every chart of one context.
    pub context: String,
    /// The object's name.
    pub name: String,
    /// Its counters.
    pub dimensions: Vec<Dimension>,
}

/// One counter of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// Unique in the store.
    pub id: String,
    /// The name, by which queries group.
    pub name: String,
    /// The collected values, oldest first; NaN for a missing value.
    pub values: Vec<f64>,
}

/// The number of charts of the full-size store.
pub const CHARTS: usize = 1000;
/// The number of dimensions of each of its charts.
pub const DIMENSIONS: usize = 100;
/// The number of values of each of its dimensions.
pub const VALUES: usize = 60;

/// The context of all charts of a synthetic store.
pub const SYNTHETIC_CONTEXT: &str = "app.load";

impl Store {
    /// A store with `charts` charts of `dimensions` dimensions with `values` values each, all in
    /// [`SYNTHETIC_CONTEXT`]. The values are random walks, the same in each run.
    pub fn synthetic(charts: usize, dimensions: usize, values: usize) -> Self {
        let chart = |chart: usize| {
            let name = format!("app_{chart:04}");
            let dimension = |index: usize| {
                let mut random = Random::stream((chart * dimensions + index) as u64);
                let mut level = f64::from(random.below(10_000)) / 100.0;
                let mut step = || {
                    level = (level + f64::from(random.below(401)) / 100.0 - 2.0).max(0.0);
                    level
                };
                Dimension {
                    id: format!("{name}.worker_{index:02}"),
                    name: format!("worker_{index:02}"),
                    values: (0..values).map(|_| step()).collect(),
                }
            };
            Chart {
                context: SYNTHETIC_CONTEXT.to_owned(),
                dimensions: (0..dimensions).map(dimension).collect(),
                name,
            }
        };
        Self { charts: (0..charts).map(chart).collect() }
    }

    /// The charts of one context.
    pub fn of_context<'a>(&'a self, context: &'a str) -> impl Iterator<Item = &'a Chart> {
        self.charts.iter().filter(move |chart| chart.context == context)
    }

    /// The contexts, in the order of their first appearance.
    pub fn contexts(&self) -> Vec<&str> {
        let mut contexts: Vec<&str> = Vec::new();
        for chart in &self.charts {
            if !contexts.contains(&chart.context.as_str()) {
                contexts.push(&chart.context);
            }
        }
        contexts
    }

    /// The total number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.charts.iter().map(|chart| chart.dimensions.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthetic_store_has_the_shape_asked_for_and_repeats_itself() {
        let store = Store::synthetic(3, 4, 5);
        assert_eq!(store.charts.len(), 3);
        assert_eq!(store.dimensions(), 12);
        assert_eq!(store.contexts(), [SYNTHETIC_CONTEXT]);
        let values: Vec<_> =
            store.charts.iter().flat_map(|c| &c.dimensions).map(|d| d.values.len()).collect();
        assert_eq!(values, [5; 12]);
        assert_eq!(store, Store::synthetic(3, 4, 5));
    }

    #[test]
    fn a_context_has_its_own_charts_only() {
        let chart = |context: &str, name: &str| Chart {
            context: context.to_owned(),
            name: name.to_owned(),
            dimensions: Vec::new(),
        };
        let store = Store { charts: vec![chart("a", "1"), chart("b", "2"), chart("a", "3")] };
        let names: Vec<_> = store.of_context("a").map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["1", "3"]);
        assert_eq!(store.contexts(), ["a", "b"]);
    }
}
