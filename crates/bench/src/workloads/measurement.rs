//! The record of what one run measured. The same record goes from the thread that measures through
//! the child process and the rounds to the tables, the JSON and the plots: a figure is added where
//! it is measured, and read where it is shown.
//!
//! A [`Metric`] says what a figure is. [`METRICS`] lists all metrics that JSON has; which of them
//! belong to one workload alone says [`Workload::details`](super::Workload::details).

use crate::console::statistics::{Interval, Ratio};
use crate::workloads::task_threads::SteadyState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One quantity that runs measure.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in JSON.
    pub key: &'static str,
    /// What its figures are.
    pub scale: Scale,
    /// Which figure stands for several rounds.
    pub of_rounds: OfRounds,
    /// Whether there is a figure for each of several labels instead of one.
    pub labelled: bool,
}

/// What a figure is, and so how it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// A whole number.
    Count,
    /// A whole number of bytes.
    Bytes,
    /// Any number.
    Number,
    /// A time in seconds.
    Seconds,
    /// A time in milliseconds.
    Milliseconds,
    /// A number for each second.
    PerSecond,
    /// A part of a whole, from 0 to 1.
    Share,
    /// One figure divided by another: see [`RatioMetric`].
    Ratio,
}

impl Scale {
    /// Whether its figures are whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Count | Self::Bytes)
    }
}

/// Which figure stands for several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfRounds {
    /// The first round's: all rounds have the same, or nearly so.
    First,
    /// The median.
    Median,
}

const fn median(key: &'static str, scale: Scale) -> Metric {
    Metric { key, scale, of_rounds: OfRounds::Median, labelled: false }
}

const fn first(key: &'static str, scale: Scale) -> Metric {
    Metric { of_rounds: OfRounds::First, ..median(key, scale) }
}

const fn labelled(key: &'static str, scale: Scale) -> Metric {
    Metric { labelled: true, ..median(key, scale) }
}

/// A figure divided by the same figure of another row: the median of the ratios of single rounds,
/// with its 95 % interval and the verdict. JSON has a field for each of the four.
#[derive(Debug, PartialEq, Eq)]
pub struct RatioMetric {
    /// The median.
    pub median: Metric,
    /// The lower end of the interval.
    pub low: Metric,
    /// The upper end of the interval.
    pub high: Metric,
    /// The verdict's name in JSON.
    pub verdict: &'static str,
}

macro_rules! ratio {
    ($key:literal) => {
        RatioMetric {
            median: median($key, Scale::Ratio),
            low: median(concat!($key, "_low"), Scale::Ratio),
            high: median(concat!($key, "_high"), Scale::Ratio),
            verdict: concat!($key, "_verdict"),
        }
    };
}

/// Operations of one run, over all threads.
pub static OPS: Metric = first("ops", Scale::Count);
/// Wall time divided by the operations of all threads.
pub static NS_PER_OP: Metric = median("ns_per_op", Scale::Number);
/// The least [`NS_PER_OP`] of the rounds.
pub static NS_PER_OP_MIN: Metric = median("ns_per_op_min", Scale::Number);
/// The greatest [`NS_PER_OP`] of the rounds.
pub static NS_PER_OP_MAX: Metric = median("ns_per_op_max", Scale::Number);
/// User time of all threads in the measured part, for each operation.
pub static USER_NS_PER_OP: Metric = median("user_ns_per_op", Scale::Number);
/// The row's time divided by the own row's.
pub static RATIO_TO_OWN: RatioMetric = ratio!("ratio_to_own");
/// The row's user time divided by the own row's.
pub static USER_RATIO_TO_OWN: RatioMetric = ratio!("user_ratio_to_own");
/// The row's time divided by the best peer's.
pub static RATIO_TO_BEST_PEER: RatioMetric = ratio!("ratio_to_best_peer");
/// The row's time divided by that of the better reference: Allotment on huge pages alone, or on
/// ordinary pages alone.
pub static RATIO_TO_REFERENCE: RatioMetric = ratio!("ratio_to_reference");
/// The row's time divided by that of the same row in the other build.
pub static RATIO_TO_OTHER_BUILD: RatioMetric = ratio!("ratio_to_other_build");
/// Resident memory before the work, with the harness's own arrays.
pub static BASE_RSS_BYTES: Metric = median("base_rss_bytes", Scale::Bytes);
/// The peak of resident memory.
pub static PEAK_RSS_BYTES: Metric = median("peak_rss_bytes", Scale::Bytes);
/// Resident memory after the measured part.
pub static END_RSS_BYTES: Metric = median("end_rss_bytes", Scale::Bytes);
/// The most bytes that live objects of all threads request at a time; in `churn` and `mixed`, at
/// the end.
pub static LIVE_BYTES: Metric = first("live_bytes", Scale::Bytes);
/// Resident memory beyond [`BASE_RSS_BYTES`] after each step of the work.
pub static RSS_STEPS: Metric = labelled("rss_steps", Scale::Bytes);
/// Resident memory in huge pages after the measured part.
pub static HUGE_BYTES: Metric = median("huge_bytes", Scale::Bytes);
/// Huge pages that the kernel could give without compaction, before the work.
pub static FREE_HUGE_PAGES: Metric = median("free_huge_pages", Scale::Count);
/// Page faults of the measured part, over all threads.
pub static MINOR_FAULTS: Metric = median("minor_faults", Scale::Count);
/// System calls for memory in the measured part of a traced run.
pub static MMAP_CALLS: Metric = median("mmap_calls", Scale::Count);
/// Tasks of that traced run.
pub static TRACED_QUERIES: Metric = median("traced_queries", Scale::Count);
/// All system calls in the measured part of a traced run.
pub static SYSTEM_CALLS: Metric = median("system_calls", Scale::Count);
/// Lock acquisitions for each operation: the total, and one figure for each guarded object.
pub static LOCKS_PER_OP: Metric = labelled("locks_per_op", Scale::Number);
/// Tasks (queries, replies, requests) of one run, over all threads.
pub static QUERIES: Metric = first("queries", Scale::Count);
/// Page faults for each task in the steady state.
pub static FAULTS_PER_QUERY: Metric = median("faults_per_query", Scale::Number);
/// System calls for memory for each task in the steady state.
pub static MMAP_CALLS_PER_QUERY: Metric = median("mmap_calls_per_query", Scale::Number);
/// The time from the common start until the last thread finishes.
pub static SECONDS: Metric = median("seconds", Scale::Seconds);
/// Tasks in each second.
pub static QUERIES_PER_SECOND: Metric = median("queries_per_second", Scale::PerSecond);
/// The mean response time.
pub static RESPONSE_MS_AVG: Metric = median("response_ms_avg", Scale::Milliseconds);
/// The shortest response time.
pub static RESPONSE_MS_MIN: Metric = median("response_ms_min", Scale::Milliseconds);
/// The longest response time.
pub static RESPONSE_MS_MAX: Metric = median("response_ms_max", Scale::Milliseconds);
/// The time of the reservation before the measured part.
pub static RESERVE_MS: Metric = median("reserve_ms", Scale::Milliseconds);
/// The time of the work in an ordinary second before the measured part: the average.
pub static SECOND_MS_AVG: Metric = median("second_ms_avg", Scale::Milliseconds);
/// The same in the worst second.
pub static SECOND_MS_MAX: Metric = median("second_ms_max", Scale::Milliseconds);
/// The time of a walk of all trees after the measured part, for each node visited.
pub static WALK_NS_PER_NODE: Metric = median("walk_ns_per_node", Scale::Number);
/// The part of the time that is spent in the allocator.
pub static ALLOC_SHARE: Metric = median("alloc_share", Scale::Share);

/// Tasks in the steady state, by which the figures of a traced run are divided. Not in JSON.
pub static STEADY_QUERIES: Metric = first("steady_queries", Scale::Count);

/// All metrics, in the order in which JSON has them.
pub static METRICS: [&Metric; 45] = [
    &OPS,
    &NS_PER_OP,
    &NS_PER_OP_MIN,
    &NS_PER_OP_MAX,
    &USER_NS_PER_OP,
    &RATIO_TO_OWN.median,
    &RATIO_TO_OWN.low,
    &RATIO_TO_OWN.high,
    &USER_RATIO_TO_OWN.median,
    &USER_RATIO_TO_OWN.low,
    &USER_RATIO_TO_OWN.high,
    &RATIO_TO_BEST_PEER.median,
    &RATIO_TO_BEST_PEER.low,
    &RATIO_TO_BEST_PEER.high,
    &RATIO_TO_REFERENCE.median,
    &RATIO_TO_REFERENCE.low,
    &RATIO_TO_REFERENCE.high,
    &RATIO_TO_OTHER_BUILD.median,
    &RATIO_TO_OTHER_BUILD.low,
    &RATIO_TO_OTHER_BUILD.high,
    &BASE_RSS_BYTES,
    &PEAK_RSS_BYTES,
    &END_RSS_BYTES,
    &LIVE_BYTES,
    &RSS_STEPS,
    &HUGE_BYTES,
    &FREE_HUGE_PAGES,
    &MINOR_FAULTS,
    &MMAP_CALLS,
    &TRACED_QUERIES,
    &SYSTEM_CALLS,
    &LOCKS_PER_OP,
    &QUERIES,
    &FAULTS_PER_QUERY,
    &MMAP_CALLS_PER_QUERY,
    &SECONDS,
    &QUERIES_PER_SECOND,
    &RESPONSE_MS_AVG,
    &RESPONSE_MS_MIN,
    &RESPONSE_MS_MAX,
    &RESERVE_MS,
    &SECOND_MS_AVG,
    &SECOND_MS_MAX,
    &WALK_NS_PER_NODE,
    &ALLOC_SHARE,
];

/// All ratios.
pub static RATIOS: [&RatioMetric; 5] = [
    &RATIO_TO_OWN,
    &USER_RATIO_TO_OWN,
    &RATIO_TO_BEST_PEER,
    &RATIO_TO_REFERENCE,
    &RATIO_TO_OTHER_BUILD,
];

/// The figures of a run, or of several rounds of it, by metric and label. A figure that could not
/// be measured is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measurement(BTreeMap<String, f64>);

impl Measurement {
    /// The record of `ops` operations that took `wall`.
    pub fn timed(ops: u64, wall: Duration) -> Self {
        Self::default()
            .with(&OPS, ops as f64)
            .with(&SECONDS, wall.as_secs_f64())
            .with(&NS_PER_OP, wall.as_nanos() as f64 / ops as f64)
    }

    /// Adds the tasks of all threads, and the figures of their steady state.
    pub fn with_tasks(self, tasks: u64, steady: SteadyState) -> Self {
        self.with(&QUERIES, tasks as f64)
            .with(&STEADY_QUERIES, steady.tasks as f64)
            .with(&FAULTS_PER_QUERY, steady.faults_per_task())
    }

    /// Adds a figure, if there is one.
    pub fn with(mut self, metric: &Metric, figure: impl Into<Option<f64>>) -> Self {
        self.set(metric, figure);
        self
    }

    /// Adds or replaces a figure, if there is one.
    pub fn set(&mut self, metric: &Metric, figure: impl Into<Option<f64>>) {
        self.insert(metric.key.to_owned(), figure.into());
    }

    /// Adds or replaces the figure of one label, if there is one.
    pub fn set_label(&mut self, metric: &Metric, label: &str, figure: impl Into<Option<f64>>) {
        self.insert(labelled_key(metric, label), figure.into());
    }

    /// Adds a ratio, if there is one, with its interval, if there is one.
    pub fn set_ratio(&mut self, metric: &RatioMetric, ratio: Option<Ratio>) {
        let interval = ratio.and_then(|ratio| ratio.interval);
        self.set(&metric.median, ratio.map(|ratio| ratio.median));
        self.set(&metric.low, interval.map(|interval| interval.low));
        self.set(&metric.high, interval.map(|interval| interval.high));
    }

    /// A ratio, with its interval.
    pub fn ratio(&self, metric: &RatioMetric) -> Option<Ratio> {
        let interval = self.get(&metric.low).zip(self.get(&metric.high));
        Some(Ratio {
            median: self.get(&metric.median)?,
            interval: interval.map(|(low, high)| Interval { low, high }),
        })
    }

    /// Adds the figures of another record.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn insert(&mut self, key: String, figure: Option<f64>) {
        // JSON has no infinity: the child's answer could not be read.
        if let Some(figure) = figure.filter(|figure| figure.is_finite()) {
            self.0.insert(key, figure);
        }
    }

    /// The figure of a metric.
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.0.get(metric.key).copied()
    }

    /// The figure of a label of a metric.
    pub fn get_label(&self, metric: &Metric, label: &str) -> Option<f64> {
        self.0.get(&labelled_key(metric, label)).copied()
    }

    /// The record that stands for several rounds: for each metric the median of the rounds, or the
    /// first round's figure. Rounds that lack a figure don't count.
    pub fn of_rounds(rounds: &[&Self]) -> Self {
        let mut of_rounds = Self::default();
        for key in rounds.iter().flat_map(|round| round.0.keys()) {
            let figures = || rounds.iter().filter_map(|round| round.0.get(key).copied());
            let name = key.split_once(LABEL).map_or(key.as_str(), |(name, _)| name);
            let metric = METRICS.iter().find(|metric| metric.key == name);
            let figure = match metric {
                Some(metric) if metric.of_rounds == OfRounds::Median => {
                    let median = crate::console::statistics::median(figures());
                    median.map(|one| if metric.scale.is_whole() { one.round() } else { one })
                }
                _ => figures().next(),
            };
            of_rounds.insert(key.clone(), figure);
        }
        of_rounds
    }
}

/// Between a metric's key and a label.
const LABEL: char = '/';

fn labelled_key(metric: &Metric, label: &str) -> String {
    format!("{}{LABEL}{label}", metric.key)
}

/// `time` in milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
impl Measurement {
    /// The whole number of a metric that must be there.
    pub fn count(&self, metric: &Metric) -> u64 {
        self.get(metric).unwrap_or_else(|| panic!("no {}: {self:?}", metric.key)) as u64
    }

    /// Operations.
    pub fn ops(&self) -> u64 {
        self.count(&OPS)
    }

    /// Bytes of live objects.
    pub fn live_bytes(&self) -> u64 {
        self.count(&LIVE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_key_of_its_own() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..index].iter().all(|other| other.key != metric.key), "{metric:?}");
            assert!(!metric.key.contains(LABEL), "{metric:?}");
        }
        for ratio in RATIOS {
            assert!(METRICS.iter().all(|metric| metric.key != ratio.verdict), "{ratio:?}");
        }
    }

    #[test]
    fn a_ratio_keeps_its_interval_and_lacks_one_if_it_had_none() {
        let interval = Some(Interval { low: 1.1, high: 1.3 });
        for ratio in [Ratio { median: 1.2, interval }, Ratio { median: 1.2, interval: None }] {
            let mut record = Measurement::default();
            assert_eq!(record.ratio(&RATIO_TO_OWN), None);
            record.set_ratio(&RATIO_TO_OWN, Some(ratio));
            assert_eq!(record.ratio(&RATIO_TO_OWN), Some(ratio));
        }
    }

    #[test]
    fn a_record_survives_json() {
        let mut record = Measurement::timed(3, Duration::from_nanos(10)).with(&LIVE_BYTES, 64.0);
        record.set_label(&RSS_STEPS, "burst", 4096.0);
        record.set(&RESERVE_MS, None);
        record.set(&WALK_NS_PER_NODE, f64::NAN);
        let text = serde_json::to_string(&record).unwrap();
        let again: Measurement = serde_json::from_str(&text).unwrap();
        assert_eq!((again.ops(), again.live_bytes()), (3, 64));
        assert_eq!(again.get_label(&RSS_STEPS, "burst"), Some(4096.0));
        assert_eq!(again.get_label(&RSS_STEPS, "frees"), None);
        assert_eq!((again.get(&RESERVE_MS), again.get(&WALK_NS_PER_NODE)), (None, None));
    }

    #[test]
    fn rounds_become_their_median_and_whole_figures_stay_whole() {
        let round = |ns: u64, faults: Option<f64>| {
            let mut round = Measurement::timed(1, Duration::from_nanos(ns));
            round.set(&MINOR_FAULTS, faults);
            round.set_label(&RSS_STEPS, "burst", ns as f64);
            round
        };
        let rounds = [round(10, Some(1.0)), round(40, None), round(20, Some(4.0))];
        let all = Measurement::of_rounds(&rounds.each_ref());
        assert_eq!((all.get(&NS_PER_OP), all.get(&MINOR_FAULTS)), (Some(20.0), Some(3.0)));
        assert_eq!(all.get_label(&RSS_STEPS, "burst"), Some(20.0));
        assert_eq!(Measurement::of_rounds(&[]), Measurement::default());
    }
}
