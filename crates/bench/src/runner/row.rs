//! One row: a workload with one allocator in one setting, over all rounds.

use super::measured_run::RunReport;
use super::plan::{Build, Case};
use super::rounds::CaseResults;
use crate::console::statistics::{Ratio, median};
use crate::workloads::measurement::{
    ALLOC_SHARE, BASE_RSS_BYTES, END_RSS_BYTES, FAULTS_PER_QUERY, Figure, METRICS, MINOR_FAULTS,
    MMAP_CALLS, MMAP_CALLS_PER_QUERY, Metric, NS_PER_OP, NS_PER_OP_MAX, NS_PER_OP_MIN,
    PEAK_RSS_BYTES, QUERIES, RATIO_TO_BEST_PEER, RATIO_TO_OTHER_BUILD, RATIO_TO_OWN,
    RATIO_TO_REFERENCE, RATIOS, STEADY_QUERIES, SYSTEM_CALLS, TRACED_QUERIES, USER_NS_PER_OP,
    USER_RATIO_TO_OWN,
};
use crate::workloads::{Measurement, Setting, Subject, Workload};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A row. As JSON it has every metric; a figure that could not be measured is null.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The workload.
    pub workload: &'static Workload,
    /// The allocator, or the variant in a workload that compares variants.
    pub allocator: &'static str,
    /// The row that `ratio_to_own` compares with: the project's own row of this workload, or, if
    /// there are several, the one that does the same work.
    pub own: &'static str,
    /// `malloc` (objects are freed one by one), `arena` (all together), `fixed size` (one by one,
    /// all of one size), `pool`, `placement`, or `variant`.
    pub kind: String,
    /// Threads and callers.
    pub setting: Setting,
    /// The build that ran it, if there were two.
    pub build: Option<Build>,
    /// Rounds that ran to their end.
    pub rounds: usize,
    /// The figures over all rounds. Empty if the run failed.
    pub measurement: Measurement,
    /// The fastest of the general-purpose allocators, or of the variants that are not the
    /// project's, in this setting.
    pub best_peer: Option<&'static str>,
    /// The faster of Allotment on huge pages alone and on ordinary pages alone, in this setting.
    pub reference: Option<&'static str>,
    /// Whether this row is the fastest of its setting.
    pub best: bool,
    /// What kept the allocator from its best in this call, and the remedy.
    pub handicap: Option<String>,
    /// The release policy in force.
    pub policy: &'static str,
    /// Why figures are missing, if the run failed.
    pub error: Option<String>,
}

impl Row {
    /// The figure of a metric.
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.measurement.get(metric)
    }

    /// Its name in tables: the allocator or the variant, and the build if there were two.
    pub fn name(&self) -> String {
        match self.build {
            None => self.allocator.to_owned(),
            Some(build) => format!("{}, {}", self.allocator, word(build)),
        }
    }

    /// Whether it is the row that others of this workload are compared with.
    pub fn is_own(&self) -> bool {
        self.allocator == self.own
    }
}

fn word(build: Build) -> &'static str {
    match build {
        Build::This => "this",
        Build::Other => "other",
    }
}

/// Peak resident memory beyond the harness's own.
pub fn net_peak(row: &Measurement) -> Option<f64> {
    Some((row.get(&PEAK_RSS_BYTES)? - row.get(&BASE_RSS_BYTES)?).max(0.0))
}

/// Resident memory at the end beyond the harness's own.
pub fn net_end(row: &Measurement) -> Option<f64> {
    Some((row.get(&END_RSS_BYTES)? - row.get(&BASE_RSS_BYTES)?).max(0.0))
}

/// Page faults: for each query, or of the whole measured part of a workload without queries.
pub fn faults(row: &Measurement) -> Option<f64> {
    row.get(if row.get(&QUERIES).is_some() { &FAULTS_PER_QUERY } else { &MINOR_FAULTS })
}

/// System calls for memory: for each query, or of the whole measured part of a workload without
/// queries.
pub fn calls(row: &Measurement) -> Option<f64> {
    row.get(if row.get(&QUERIES).is_some() { &MMAP_CALLS_PER_QUERY } else { &MMAP_CALLS })
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry("workload", self.workload.name)?;
        row.serialize_entry("allocator", self.allocator)?;
        row.serialize_entry("own", self.own)?;
        row.serialize_entry("kind", &self.kind)?;
        row.serialize_entry("threads", &self.setting.threads)?;
        row.serialize_entry("callers", &self.setting.callers)?;
        row.serialize_entry("build", &self.build.map(word))?;
        row.serialize_entry("rounds", &self.rounds)?;
        row.serialize_entry("unit", self.workload.unit)?;
        for &metric in METRICS {
            if metric.labelled {
                row.serialize_entry(metric.key, &Labelled { row: self, metric })?;
            } else {
                row.serialize_entry(metric.key, &Figure(metric, self.get(metric)))?;
            }
        }
        for ratio in RATIOS {
            self.measurement.serialize_ratio(ratio, &mut row)?;
        }
        row.serialize_entry("best_peer", &self.best_peer)?;
        row.serialize_entry("reference", &self.reference)?;
        row.serialize_entry("best", &self.best)?;
        row.serialize_entry("handicap", &self.handicap)?;
        row.serialize_entry("policy", self.policy)?;
        row.serialize_entry("error", &self.error)?;
        row.end()
    }
}

/// The figures of all labels of a metric in JSON: null if the workload does not measure it, or if
/// the run failed.
struct Labelled<'r> {
    row: &'r Row,
    metric: &'r Metric,
}

impl Serialize for Labelled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let labels = self.row.workload.labels(self.metric);
        if labels.is_empty() || self.row.rounds == 0 {
            return serializer.serialize_none();
        }
        let mut object = serializer.serialize_map(Some(labels.len()))?;
        for label in labels {
            let figure = self.row.measurement.get_label(self.metric, label);
            object.serialize_entry(label, &Figure(self.metric, figure))?;
        }
        object.end()
    }
}

/// The rows of a plan's cases, in the order of the cases. Except for the ratio to the other build,
/// rows are compared with rows of their own build.
pub fn rows(cases: &[Case], results: &[CaseResults]) -> Vec<Row> {
    let each_round = |results: &CaseResults, metric: &Metric| -> Vec<Option<f64>> {
        results.reports.iter().map(|report| report.as_ref()?.measurement.get(metric)).collect()
    };
    let two_builds = cases.iter().any(|case| case.build == Build::Other);
    let mut rows: Vec<Row> = cases
        .iter()
        .zip(results)
        .map(|(case, own_results)| {
            let mut row = row(case, own_results);
            row.build = two_builds.then_some(case.build);
            if own_results.failure.is_some() {
                return row;
            }
            let of_setting = || of_setting(case, cases, results);
            let ratio_to = |(_, other): (&Case, &CaseResults), metric: &Metric| {
                // The rounds before a crash prove nothing.
                if other.failure.is_some() {
                    return None;
                }
                Ratio::of_rounds(&each_round(own_results, metric), &each_round(other, metric))
            };
            let own = of_setting().find(|(other, _)| other.subject.name() == case.own());
            let peer = fastest(of_setting(), Subject::is_peer);
            let reference = fastest(of_setting(), Subject::is_reference);
            let other = cases.iter().zip(results).find(|(other, _)| {
                other.setting == case.setting
                    && other.subject.name() == case.subject.name()
                    && other.build != case.build
            });
            for (ratio, to, metric) in [
                (&RATIO_TO_OWN, own, &NS_PER_OP),
                (&USER_RATIO_TO_OWN, own, &USER_NS_PER_OP),
                (&RATIO_TO_BEST_PEER, peer, &NS_PER_OP),
                (&RATIO_TO_REFERENCE, reference, &NS_PER_OP),
                (&RATIO_TO_OTHER_BUILD, other, &NS_PER_OP),
            ] {
                row.measurement.set_ratio(ratio, to.and_then(|to| ratio_to(to, metric)));
            }
            row
        })
        .collect();
    for (row, case) in rows.iter_mut().zip(cases) {
        let name = |may_be: fn(Subject) -> bool| {
            let (case, _) = fastest(of_setting(case, cases, results), may_be)?;
            Some(case.subject.name())
        };
        row.best_peer = name(Subject::is_peer);
        row.reference = name(Subject::is_reference);
    }
    mark_best(&mut rows);
    rows
}

/// The cases of a case's setting and build, with their results.
fn of_setting<'c>(
    case: &'c Case,
    cases: &'c [Case],
    results: &'c [CaseResults],
) -> impl Iterator<Item = (&'c Case, &'c CaseResults)> {
    let alike = |other: &Case| other.setting == case.setting && other.build == case.build;
    cases.iter().zip(results).filter(move |(other, _)| alike(other))
}

/// The fastest of the cases whose subject `may_be` it, without those that failed.
fn fastest<'c>(
    cases: impl Iterator<Item = (&'c Case, &'c CaseResults)>,
    may_be: fn(Subject) -> bool,
) -> Option<(&'c Case, &'c CaseResults)> {
    let time = |results: &CaseResults| {
        let rounds = results.reports.iter().flatten();
        median(rounds.filter_map(|report| report.measurement.get(&NS_PER_OP)))
    };
    cases
        .filter(|(case, results)| may_be(case.subject) && results.failure.is_none())
        .filter_map(|case| Some((case, time(case.1)?)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(case, _)| case)
}

/// A row without what compares it with others.
fn row(case: &Case, results: &CaseResults) -> Row {
    // The row of a failed case has no figures: the other rounds of a crashing allocator prove
    // nothing.
    let reports: Vec<&RunReport> = match results.failure {
        Some(_) => Vec::new(),
        None => results.reports.iter().flatten().collect(),
    };
    Row {
        workload: case.workload,
        allocator: case.subject.name(),
        own: case.own(),
        kind: case.subject.kind(),
        setting: case.setting,
        build: None,
        rounds: reports.len(),
        measurement: match results.failure {
            Some(_) => Measurement::default(),
            None => measurement(&reports, results),
        },
        best_peer: None,
        reference: None,
        best: false,
        handicap: reports.first().and_then(|report| report.handicap.clone()),
        policy: case.subject.policy(),
        error: results.failure.clone(),
    }
}

/// The figures over all rounds, with those of the traced run and of the run that measures the
/// allocator's part.
fn measurement(reports: &[&RunReport], results: &CaseResults) -> Measurement {
    let rounds: Vec<&Measurement> = reports.iter().map(|report| &report.measurement).collect();
    let times = || rounds.iter().filter_map(|round| round.get(&NS_PER_OP));
    let mut all = Measurement::of_rounds(&rounds)
        .with(&NS_PER_OP_MIN, times().min_by(f64::total_cmp))
        .with(&NS_PER_OP_MAX, times().max_by(f64::total_cmp))
        .with(&ALLOC_SHARE, results.share);
    if let Some(counts) = &results.counts {
        let traced =
            RunReport::of_traced(counts).map(|report| report.measurement).unwrap_or_default();
        let steady_queries = traced.get(&STEADY_QUERIES).filter(|queries| *queries > 0.0);
        let per_query = steady_queries.map(|queries| counts.steady_calls as f64 / queries);
        all.set(&MMAP_CALLS, counts.total() as f64);
        all.set(&TRACED_QUERIES, traced.get(&QUERIES));
        all.set(&SYSTEM_CALLS, counts.all().map(|calls| calls as f64));
        all.set(&MMAP_CALLS_PER_QUERY, per_query);
    }
    all
}

fn mark_best(rows: &mut [Row]) {
    for index in 0..rows.len() {
        let setting = rows[index].setting;
        let least = rows
            .iter()
            .filter(|row| row.setting == setting)
            .filter_map(|row| row.get(&NS_PER_OP))
            .min_by(f64::total_cmp);
        rows[index].best = least.is_some() && rows[index].get(&NS_PER_OP) == least;
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::runner::plan::{Selection, plans};
    use crate::workloads::SteadyState;
    use crate::workloads::measurement::{OPS, RSS_STEPS};
    use std::time::Duration;

    /// A report of a run with this time per operation, in nanoseconds.
    pub fn report(ns_per_op: f64) -> RunReport {
        let measurement = Measurement::timed(1000, Duration::from_secs_f64(ns_per_op * 1e-6))
            .with(&NS_PER_OP, ns_per_op)
            .with_tasks(10, SteadyState { tasks: 8, faults: Some(0) })
            .with(&BASE_RSS_BYTES, 100.0)
            .with(&PEAK_RSS_BYTES, 300.0)
            .with(&END_RSS_BYTES, 90.0)
            .with(&MINOR_FAULTS, 0.0);
        RunReport { measurement, handicap: None }
    }

    fn found(times: &[f64]) -> CaseResults {
        CaseResults {
            reports: times.iter().map(|ns| Some(report(*ns))).collect(),
            ..CaseResults::default()
        }
    }

    const OWN: &str = "allotment-arena";

    fn cases() -> Vec<Case> {
        let selection = Selection {
            workloads: vec!["grow".to_owned()],
            allocators: vec![OWN.to_owned(), "glibc".to_owned(), "bumpalo".to_owned()],
            threads: vec![1],
        };
        plans(&selection).unwrap().plans.remove(0).cases
    }

    #[test]
    fn a_row_has_the_median_the_extremes_and_the_ratio() {
        let cases = cases();
        let rows = rows(&cases, &[found(&[1.0, 2.0, 4.0]), found(&[3.0, 8.0, 8.0]), found(&[9.0])]);
        assert_eq!(rows[0].allocator, OWN);
        assert_eq!((rows[0].get(&RATIO_TO_OWN.median), rows[0].best), (Some(1.0), true));
        assert_eq!(rows[1].get(&NS_PER_OP), Some(8.0));
        assert_eq!(
            (rows[1].get(&NS_PER_OP_MIN), rows[1].get(&NS_PER_OP_MAX)),
            (Some(3.0), Some(8.0))
        );
        assert_eq!((rows[1].get(&RATIO_TO_OWN.median), rows[1].best), (Some(3.0), false));
        assert_eq!(
            (net_peak(&rows[1].measurement), net_end(&rows[1].measurement)),
            (Some(200.0), Some(0.0))
        );
        // glibc is the only general-purpose allocator here.
        assert!(rows.iter().all(|row| row.best_peer == Some("glibc")));
        assert_eq!(rows[0].get(&RATIO_TO_BEST_PEER.median), Some(1.0 / 3.0));
        assert_eq!(rows[1].get(&RATIO_TO_BEST_PEER.median), Some(1.0));
    }

    #[test]
    fn a_ratio_has_an_interval_and_a_verdict_if_there_are_rounds_enough() {
        let json = |rounds: usize| {
            let own = found(&vec![2.0; rounds]);
            let glibc: Vec<f64> = (0..rounds).map(|round| 3.0 + round as f64 / 10.0).collect();
            let rows = rows(&cases(), &[own, found(&glibc), found(&vec![1.0; rounds])]);
            serde_json::to_value(&rows[1]).unwrap()
        };
        let six = json(6);
        assert_eq!(
            (&six["ratio_to_own_low"], &six["ratio_to_own_high"]),
            (&1.5.into(), &1.75.into())
        );
        assert_eq!(
            (&six["ratio_to_own"], &six["ratio_to_own_verdict"]),
            (&1.625.into(), &"behind".into())
        );
        assert_eq!(six["ratio_to_best_peer_verdict"], "level", "it is that peer");
        let five = json(5);
        assert_eq!(five["ratio_to_own"], 1.6);
        for field in ["ratio_to_own_low", "ratio_to_own_high", "ratio_to_own_verdict"] {
            assert_eq!(five.get(field), Some(&serde_json::Value::Null), "{field}");
        }
    }

    #[test]
    fn two_builds_are_compared_row_by_row() {
        let selection = Selection {
            workloads: vec!["grow".to_owned()],
            allocators: vec![OWN.to_owned(), "glibc".to_owned()],
            threads: vec![1],
        };
        let plan = plans(&selection).unwrap().plans.remove(0).with_both_builds();
        let results = [found(&[2.0; 6]), found(&[4.0; 6]), found(&[6.0; 6]), found(&[6.0; 6])];
        let rows = rows(&plan.cases, &results);
        let names: Vec<String> = rows.iter().map(Row::name).collect();
        assert_eq!(
            names,
            [&format!("{OWN}, this"), &format!("{OWN}, other"), "glibc, this", "glibc, other"]
        );
        let ratio = |row: &Row, metric| row.measurement.ratio(metric).unwrap();
        let to_other: Vec<_> = rows.iter().map(|row| ratio(row, &RATIO_TO_OTHER_BUILD)).collect();
        assert_eq!(
            to_other.iter().map(|ratio| ratio.median).collect::<Vec<_>>(),
            [0.5, 2.0, 1.0, 1.0]
        );
        let words = to_other.iter().map(|ratio| ratio.verdict().unwrap().word());
        assert_eq!(words.collect::<Vec<_>>(), ["ahead", "behind", "level", "level"]);
        // Other ratios stay within their build.
        assert_eq!(ratio(&rows[2], &RATIO_TO_OWN).median, 3.0);
        assert_eq!(ratio(&rows[3], &RATIO_TO_OWN).median, 1.5);
        let json = serde_json::to_value(&rows[1]).unwrap();
        assert_eq!(
            (&json["build"], &json["ratio_to_other_build_verdict"]),
            (&"other".into(), &"behind".into())
        );
    }

    #[test]
    fn cold_rows_compare_with_the_faster_of_huge_and_small_pages() {
        let names = ["allotment-slab", "mmap-huge", "mmap-small"];
        let selection = Selection {
            workloads: vec!["burst-alloc-cold".to_owned()],
            allocators: names.map(str::to_owned).to_vec(),
            threads: vec![1],
        };
        let cases = plans(&selection).unwrap().plans.remove(0).cases;
        let times = [found(&[6.0; 6]), found(&[9.0; 6]), found(&[4.0; 6])];
        let rows = rows(&cases, &times);
        assert_eq!(rows.iter().map(|row| row.allocator).collect::<Vec<_>>(), names);
        assert!(rows.iter().all(|row| row.reference == Some("mmap-small")));
        assert!(rows.iter().all(|row| row.best_peer.is_none()));
        let ratios = rows.iter().map(|row| row.get(&RATIO_TO_REFERENCE.median).unwrap());
        assert_eq!(ratios.collect::<Vec<_>>(), [1.5, 2.25, 1.0]);
    }

    #[test]
    fn a_peer_that_failed_is_not_the_best_one() {
        let failed = CaseResults { failure: Some("ended by SIGSEGV".to_owned()), ..found(&[1.0]) };
        let rows = rows(&cases(), &[found(&[2.0]), failed, found(&[3.0])]);
        assert!(rows.iter().all(|row| row.best_peer.is_none()));
        assert_eq!(rows[0].get(&RATIO_TO_BEST_PEER.median), None);
    }

    #[test]
    fn steps_are_medians_by_name_and_one_that_was_not_reached_is_null() {
        let selection = Selection {
            workloads: vec!["churn".to_owned()],
            allocators: vec!["sharded-slab".to_owned()],
            threads: vec![1],
        };
        let cases = plans(&selection).unwrap().plans.remove(0).cases;
        let with = |bytes: u64| {
            let mut report = report(1.0);
            report.measurement.set_label(&RSS_STEPS, "burst", bytes as f64);
            Some(report)
        };
        let found =
            CaseResults { reports: vec![with(10), with(30), with(20)], ..CaseResults::default() };
        let rows = rows(&cases, &[found]);
        let json = serde_json::to_value(&rows[0]).unwrap();
        let steps = json["rss_steps"].as_object().unwrap();
        assert_eq!(steps["burst"], 20);
        assert_eq!(steps.len(), cases[0].workload.labels(&RSS_STEPS).len());
        assert!(steps.iter().all(|(name, bytes)| name == "burst" || bytes.is_null()));
    }

    #[test]
    fn a_failed_case_has_no_figures_but_its_row_stays() {
        let cases = cases();
        let failed = CaseResults {
            reports: vec![Some(report(1.0)), None],
            failure: Some("ended by SIGSEGV".to_owned()),
            ..CaseResults::default()
        };
        let rows = rows(&cases, &[found(&[2.0, 2.0]), failed, found(&[3.0, 3.0])]);
        assert_eq!(rows[1].rounds, 0);
        assert_eq!(
            (rows[1].get(&NS_PER_OP), rows[1].get(&RATIO_TO_OWN.median), rows[1].get(&OPS)),
            (None, None, None)
        );
        assert_eq!(rows[1].error.as_deref(), Some("ended by SIGSEGV"));
        assert!(rows[0].best && !rows[1].best);
    }

    #[test]
    fn a_figure_that_could_not_be_had_is_null_and_never_zero() {
        let cases = cases();
        let json =
            serde_json::to_value(&rows(&cases, &[found(&[1.0]), found(&[1.0]), found(&[1.0])])[1]);
        let json = json.unwrap();
        assert!(json["mmap_calls"].is_null() && json["response_ms_avg"].is_null());
        assert_eq!(json["minor_faults"], 0);
    }
}
