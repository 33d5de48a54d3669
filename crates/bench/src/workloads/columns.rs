//! The columns of tables, and their figures as text.

use crate::console::statistics::Interval;
use crate::console::table::{figure, grouped, mebibytes, ratio, time};
use crate::workloads::measurement::{Measurement, Metric, RatioMetric, Scale};

/// One column of a table, with a value for each row.
#[derive(Debug, Clone)]
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The scale of the figures.
    pub scale: Scale,
    source: Source,
}

/// Where a column's values come from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Metric(&'static Metric),
    Label(&'static Metric, &'static str),
    Computed(fn(&Measurement) -> Option<f64>),
    /// The interval of a ratio, formatted by this function.
    Interval(&'static RatioMetric, fn(Interval) -> String),
    Verdict(&'static RatioMetric),
}

impl Column {
    fn new(heading: &str, scale: Scale, source: Source) -> Self {
        Self { heading: heading.to_owned(), scale, source }
    }

    /// A column with the figures of a metric.
    pub fn of(heading: &str, metric: &'static Metric) -> Self {
        Self::new(heading, metric.scale, Source::Metric(metric))
    }

    /// A column with the figures of one label of a metric.
    pub fn of_label(metric: &'static Metric, label: &'static str) -> Self {
        Self::new(&label.replace('_', " "), metric.scale, Source::Label(metric, label))
    }

    /// A column with figures that are computed from others.
    pub fn computed(heading: &str, scale: Scale, figure: fn(&Measurement) -> Option<f64>) -> Self {
        Self::new(heading, scale, Source::Computed(figure))
    }

    /// The columns of a ratio: the median, the interval and the verdict.
    pub fn of_ratio(ratio: &'static RatioMetric) -> [Self; 3] {
        let median = Self::new("ratio", Scale::Ratio, Source::Metric(&ratio.median));
        [median, Self::interval(ratio, span), Self::verdict(ratio)]
    }

    /// The columns of what a ratio saves: the share `saved`, its interval and the verdict.
    pub fn of_saving(
        ratio: &'static RatioMetric,
        saved: fn(&Measurement) -> Option<f64>,
    ) -> [Self; 3] {
        let interval = Self::interval(ratio, |Interval { low, high }| {
            format!("{:.0} to {:.0} %", (1.0 - high) * 100.0, (1.0 - low) * 100.0)
        });
        [Self::computed("saves", Scale::Share, saved), interval, Self::verdict(ratio)]
    }

    fn interval(ratio: &'static RatioMetric, words: fn(Interval) -> String) -> Self {
        Self::new("95 % interval", Scale::Ratio, Source::Interval(ratio, words))
    }

    fn verdict(ratio: &'static RatioMetric) -> Self {
        Self::new("verdict", Scale::Ratio, Source::Verdict(ratio))
    }

    /// The metric, and its label, if the column shows the figures of one metric.
    pub fn metric(&self) -> Option<(&'static Metric, Option<&'static str>)> {
        match self.source {
            Source::Metric(metric) => Some((metric, None)),
            Source::Label(metric, label) => Some((metric, Some(label))),
            Source::Computed(_) | Source::Interval(..) | Source::Verdict(_) => None,
        }
    }

    /// Its cell in a row: a dash if there is no value.
    pub fn cell(&self, row: &Measurement) -> String {
        let figure = |figure: Option<f64>| figure.map(|figure| text(self.scale, figure));
        let cell = match self.source {
            Source::Metric(metric) => figure(row.get(metric)),
            Source::Label(metric, label) => figure(row.get_label(metric, label)),
            Source::Computed(of) => figure(of(row)),
            Source::Interval(metric, words) => {
                row.ratio(metric).and_then(|ratio| ratio.interval).map(words)
            }
            Source::Verdict(metric) => row.verdict(metric).map(str::to_owned),
        };
        cell.unwrap_or_else(|| "-".to_owned())
    }
}

/// `1.012 to 1.034`.
pub fn span(Interval { low, high }: Interval) -> String {
    format!("{} to {}", ratio(low), ratio(high))
}

fn text(scale: Scale, value: f64) -> String {
    match scale {
        Scale::Count => grouped(value as u64),
        Scale::Bytes => mebibytes(Some(value as u64)),
        Scale::Number => figure(Some(value)),
        Scale::Seconds => time(Some(value * 1e3)),
        Scale::Milliseconds => time(Some(value)),
        Scale::PerSecond => format!("{value:.1}/s"),
        Scale::Share => format!("{:.0} %", value * 100.0),
        Scale::Ratio => ratio(value),
    }
}
