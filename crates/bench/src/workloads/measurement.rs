//! The record of what one run measured. The same record goes from the thread that measures through
//! the child process and the rounds to the tables, the JSON and the plots: a figure is added where
//! it is measured, and read where it is shown.
//!
//! A [`Metric`] says what a figure is. [`METRICS`] lists all metrics that JSON has; which of them
//! belong to one workload alone says [`Workload::details`](super::Workload::details).

use crate::console::statistics::{Interval, Ratio, RatioVerdict};
use crate::workloads::task_threads::SteadyState;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// One quantity that runs measure.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its meaning, for `allot bench --help`.
    pub meaning: &'static str,
    /// What its figures are.
    pub scale: Scale,
    /// Which figure is reported for several rounds.
    pub of_rounds: RoundSummary,
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

/// Which figure is reported for several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundSummary {
    /// The first round's: all rounds have the same figure, or nearly the same.
    First,
    /// The median.
    Median,
}

/// A metric that reports the median of the rounds.
pub const fn median(key: &'static str, scale: Scale) -> Metric {
    Metric { key, meaning: "", scale, of_rounds: RoundSummary::Median, labelled: false }
}

/// A metric that is the same in all rounds: it reports the first round's figure.
pub const fn first(key: &'static str, scale: Scale) -> Metric {
    Metric { of_rounds: RoundSummary::First, ..median(key, scale) }
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

impl RatioMetric {
    /// The median and the two ends of the interval.
    pub fn figures(&self) -> [&Metric; 3] {
        [&self.median, &self.low, &self.high]
    }
}

/// The ratio with this key and this meaning.
macro_rules! ratio {
    ($key:literal, $meaning:literal) => {
        $crate::workloads::measurement::RatioMetric {
            median: $crate::workloads::measurement::Metric { meaning: $meaning, ..ratio!($key) },
            low: ratio!(concat!($key, "_low")),
            high: ratio!(concat!($key, "_high")),
            verdict: concat!($key, "_verdict"),
        }
    };
    ($key:expr) => {
        $crate::workloads::measurement::median($key, $crate::workloads::measurement::Scale::Ratio)
    };
}
pub(crate) use ratio;

/// Makes a metric of each line: the figure reported for several rounds, the key in JSON, the scale,
/// and the meaning.
macro_rules! metrics {
    ($( $name:ident = $of_rounds:ident($key:literal, $scale:ident), $meaning:literal; )+) => {
        $(
            #[doc = $meaning]
            pub static $name: Metric =
                Metric { meaning: $meaning, ..$of_rounds($key, Scale::$scale) };
        )+

        /// All metrics but ratios, in the order in which JSON has them.
        pub static METRICS: &[&Metric] = &[$( &$name, )+];
    };
}

/// As `metrics`, for ratios: the key in JSON and the meaning.
macro_rules! ratios {
    ($( $name:ident = $key:literal, $meaning:literal; )+) => {
        $(
            #[doc = $meaning]
            pub static $name: RatioMetric = ratio!($key, $meaning);
        )+

        /// All ratios.
        pub static RATIOS: &[&RatioMetric] = &[$( &$name, )+];
    };
}

metrics! {
    OPS = first("ops", Count), "operations of one run, over all threads";
    NS_PER_OP = median("ns_per_op", Number),
        "wall time, from the common start until the last thread finishes, divided by the operations of all \
         threads; the median of the rounds";
    NS_PER_OP_MIN = median("ns_per_op_min", Number), "the minimum over the rounds";
    NS_PER_OP_MAX = median("ns_per_op_max", Number), "the maximum over the rounds";
    USER_NS_PER_OP = median("user_ns_per_op", Number), "client: user time of all threads per operation";
    BASE_RSS_BYTES = median("base_rss_bytes", Bytes),
        "resident memory before the work, with the harness's own arrays";
    PEAK_RSS_BYTES = median("peak_rss_bytes", Bytes),
        "the peak of resident memory. It includes base_rss_bytes; the tables subtract it";
    END_RSS_BYTES = median("end_rss_bytes", Bytes),
        "resident memory after the measured part, which includes base_rss_bytes too";
    LIVE_BYTES = first("live_bytes", Bytes),
        "the most bytes that live objects of all threads request at a time; in churn, during the \
         replacements; in mixed, at the end; in scope, at the end of a request; in pool-request, in a full \
         cache and the largest request";
    RSS_STEPS = labelled("rss_steps", Bytes),
        "resident memory beyond base_rss_bytes after each step. churn: the burst, the frees, the \
         replacements, all objects freed, trimmed (each thread has asked the allocator to release what it \
         keeps). many-trees: trees built, pruned, rebuilt, freed. tree-copy: trees built, laid out, trimmed";
    HUGE_BYTES = median("huge_bytes", Bytes),
        "resident memory in huge pages at the end of the measured part, less what there was before it";
    FREE_HUGE_PAGES = median("free_huge_pages", Count),
        "huge pages that the kernel could give before the run without compaction (/proc/buddyinfo)";
    MINOR_FAULTS = median("minor_faults", Count), "page faults of the measured part, over all threads";
    MMAP_CALLS = median("mmap_calls", Count),
        "calls of mmap, munmap, mremap, madvise, mprotect and brk, counted in a separate traced run that \
         does less work";
    TRACED_QUERIES = median("traced_queries", Count), "queries of that traced run";
    SYSTEM_CALLS = median("system_calls", Count),
        "letters: all system calls of one search, in the traced run";
    LOCKS_PER_OP = labelled("locks_per_op", Number),
        "categories: lock acquisitions per request, in total and by the object guarded";
    QUERIES = first("queries", Count), "queries, replies or requests of one run, over all threads";
    FAULTS_PER_QUERY = median("faults_per_query", Number),
        "page faults of the steady state, which begins after each thread's first two queries (pool-request: \
         once its cache is full), per query. \
         query-alloc, query-small, typed, typed-small and pool-request measure only the steady state";
    MMAP_CALLS_PER_QUERY = median("mmap_calls_per_query", Number),
        "calls for memory of the traced run's steady state, per query";
    SECONDS = median("seconds", Seconds),
        "the time from the common start until the last thread finishes";
    QUERIES_PER_SECOND = median("queries_per_second", PerSecond), "queries in each second";
    RESPONSE_MS_AVG = median("response_ms_avg", Milliseconds), "query: the mean response time";
    RESPONSE_MS_MIN = median("response_ms_min", Milliseconds), "the shortest response time";
    RESPONSE_MS_MAX = median("response_ms_max", Milliseconds), "the longest response time";
    RESERVE_MS = median("reserve_ms", Milliseconds),
        "tiers: the time of the reservation before the measured part";
    SECOND_MS_AVG = median("second_ms_avg", Milliseconds),
        "tiers: the time to replace the buffers that fill up in an ordinary second";
    SECOND_MS_MAX = median("second_ms_max", Milliseconds), "the same in the worst second";
    WALK_NS_PER_NODE = median("walk_ns_per_node", Number),
        "many-trees: time to walk all trees after they are rebuilt, per node";
    ALLOC_SHARE = median("alloc_share", Share),
        "query, handler: the part of the time that is spent in the allocator, from a separate run; query \
         reads the time stamp counter, handler is sampled";
}

ratios! {
    RATIO_TO_OWN = "ratio_to_own",
        "ns_per_op divided by that of the row named own; the median of all rounds. own is allotment-arena; \
         allotment-slab where objects have one size; allotment-free-list for trees; compact-copy for copies \
         of trees; allotment-pool for mixed and handler; allotment-pool-request for pool-request; \
         allotment-reap for scope; for a std::pmr resource, Allotment's resource that does the same work";
    USER_RATIO_TO_OWN = "user_ratio_to_own", "client: the same of user_ns_per_op";
    RATIO_TO_BEST_PEER = "ratio_to_best_peer",
        "ns_per_op divided by that of best_peer: the fastest of glibc, jemalloc, mimalloc, snmalloc and \
         tcmalloc, or of the variants that are not Allotment's";
    RATIO_TO_REFERENCE = "ratio_to_reference",
        "query-alloc-cold, burst-alloc-cold, tiers-cold: ns_per_op divided by that of reference: the faster \
         of mmap-huge and mmap-small";
    RATIO_TO_OTHER_BUILD = "ratio_to_other_build",
        "--against: ns_per_op divided by that of the same row of the other build; other ratios compare rows \
         of one build, which build names: this or other";
}

/// Tasks in the steady state, by which the figures of a traced run are divided. Not in JSON.
pub static STEADY_QUERIES: Metric = first("steady_queries", Scale::Count);

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

    /// The verdict on the row by this ratio, if the ratio has an interval.
    pub fn verdict(&self, metric: &RatioMetric) -> Option<&'static str> {
        self.ratio(metric)?.verdict().map(RatioVerdict::word)
    }

    /// Writes a ratio into a JSON object, with its interval and its verdict.
    pub fn serialize_ratio<M: SerializeMap>(
        &self,
        ratio: &RatioMetric,
        object: &mut M,
    ) -> Result<(), M::Error> {
        for metric in ratio.figures() {
            object.serialize_entry(metric.key, &Figure(metric, self.get(metric)))?;
        }
        object.serialize_entry(ratio.verdict, &self.verdict(ratio))
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
    /// first round's figure, and the rate that follows. Rounds that lack a figure don't count.
    pub fn of_rounds(rounds: &[&Self]) -> Self {
        let mut of_rounds = Self::default();
        for key in rounds.iter().flat_map(|round| round.0.keys()) {
            let figures = || rounds.iter().filter_map(|round| round.0.get(key).copied());
            let name = key.split_once(LABEL).map_or(key.as_str(), |(name, _)| name);
            let metric = METRICS.iter().find(|metric| metric.key == name);
            let figure = match metric {
                Some(metric) if metric.of_rounds == RoundSummary::Median => {
                    let median = crate::console::statistics::median(figures());
                    median.map(|one| if metric.scale.is_whole() { one.round() } else { one })
                }
                _ => figures().next(),
            };
            of_rounds.insert(key.clone(), figure);
        }
        let rate = of_rounds.get(&QUERIES).zip(of_rounds.get(&SECONDS));
        of_rounds.set(&QUERIES_PER_SECOND, rate.map(|(queries, seconds)| queries / seconds));
        of_rounds
    }
}

/// A figure in JSON.
#[derive(Debug)]
pub struct Figure<'m>(pub &'m Metric, pub Option<f64>);

impl Serialize for Figure<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            None => serializer.serialize_none(),
            Some(figure) if self.0.scale.is_whole() => serializer.serialize_u64(figure as u64),
            Some(figure) => serializer.serialize_f64(figure),
        }
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
        let ratios = RATIOS.iter().flat_map(|ratio| ratio.figures().map(|metric| metric.key));
        let verdicts = RATIOS.iter().map(|ratio| ratio.verdict);
        let keys: Vec<&str> =
            METRICS.iter().map(|metric| metric.key).chain(ratios).chain(verdicts).collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key) && !key.contains(LABEL), "{key}");
        }
        assert!(METRICS.iter().all(|metric| !metric.meaning.is_empty()));
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
