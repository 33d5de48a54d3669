//! One row: a workload with one allocator in one setting, over all rounds.

use super::plan::Case;
use super::responses::ResponseReport;
use super::rounds::CaseResults;
use crate::console::statistics::{median, median_whole, ratio};
use crate::runner::measured_run::{Report, SecondsReport};
use crate::runner::system_calls::Counts;
use crate::workloads::locking::guarded;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A row as `--json` prints it. A figure that could not be measured is null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub workload: &'static str,
    /// The allocator, or the variant in a workload that compares variants.
    pub allocator: &'static str,
    /// The row that `ratio_to_own` compares with: the project's own row of this workload, or, if
    /// there are several, the one that does the same work.
    pub own: &'static str,
    /// `malloc` (objects are freed one by one), `arena` (all together), `fixed size` (one by one,
    /// all of one size), `pool`, `placement`, or `variant`.
    pub kind: String,
    pub threads: usize,
    pub callers: Option<usize>,
    /// Rounds that ran to their end.
    pub rounds: usize,
    /// Operations of one run, over all threads.
    pub ops: Option<u64>,
    pub unit: &'static str,
    pub ns_per_op: Option<f64>,
    pub ns_per_op_min: Option<f64>,
    pub ns_per_op_max: Option<f64>,
    /// User time for each operation, of the workloads that are other projects' programs.
    pub user_ns_per_op: Option<f64>,
    /// This row's time divided by the own row's, the median of the ratios of single rounds.
    pub ratio_to_own: Option<f64>,
    /// The same ratio of user times.
    pub user_ratio_to_own: Option<f64>,
    /// This row's time divided by the best peer's, the median of the ratios of single rounds.
    pub ratio_to_best_peer: Option<f64>,
    /// The fastest of the general-purpose allocators, or of the variants that are not the project's, in
    /// this setting.
    pub best_peer: Option<&'static str>,
    /// Whether this row is the fastest of its setting.
    pub best: bool,
    pub base_rss_bytes: Option<u64>,
    pub peak_rss_bytes: Option<u64>,
    pub end_rss_bytes: Option<u64>,
    pub live_bytes: Option<u64>,
    /// Resident bytes beyond `base_rss_bytes` after each step of the work.
    #[serde(serialize_with = "as_object")]
    pub rss_steps: Option<Vec<(&'static str, Option<u64>)>>,
    /// Page faults of the measured part, over all threads.
    pub minor_faults: Option<u64>,
    /// Memory system calls in the measured part of a traced run, which has `traced_queries`
    /// queries.
    pub mmap_calls: Option<u64>,
    pub traced_queries: Option<u64>,
    /// All system calls in the measured part of a traced run: of one search, in the workloads that
    /// count them.
    pub system_calls: Option<u64>,
    /// Lock acquisitions for each operation: the total, and one figure for each guarded object.
    #[serde(serialize_with = "as_object")]
    pub locks_per_op: Option<Vec<(&'static str, Option<f64>)>>,
    /// Tasks (queries, replies, requests) of one run, over all threads; null for a workload without
    /// tasks.
    pub queries: Option<u64>,
    /// Page faults for each query in the steady state.
    pub faults_per_query: Option<f64>,
    /// Memory system calls for each query in the steady state.
    pub mmap_calls_per_query: Option<f64>,
    /// Seconds from the common start until the last thread finishes.
    pub seconds: Option<f64>,
    pub queries_per_second: Option<f64>,
    pub response_ms_avg: Option<f64>,
    pub response_ms_min: Option<f64>,
    pub response_ms_max: Option<f64>,
    /// The time of the reservation before the measured part.
    pub reserve_ms: Option<f64>,
    /// The time of the work in an ordinary second before the measured part: average and worst.
    pub second_ms_avg: Option<f64>,
    pub second_ms_max: Option<f64>,
    /// A walk of all trees after the measured part: nanoseconds for each node visited.
    pub walk_ns_per_node: Option<f64>,
    /// The part of the time that is spent in the allocator, from 0 to 1.
    pub alloc_share: Option<f64>,
    /// What kept the allocator from its best in this call, and the remedy.
    pub handicap: Option<String>,
    /// The release policy in force.
    pub policy: &'static str,
    /// Why figures are missing, if the run failed.
    pub error: Option<String>,
}

impl Row {
    /// Peak resident memory beyond the harness's own.
    pub fn peak_net(&self) -> Option<u64> {
        Some(self.peak_rss_bytes?.saturating_sub(self.base_rss_bytes?))
    }

    /// Page faults: for each query, or of the whole measured part of a workload without queries.
    pub fn faults(&self) -> Option<f64> {
        match self.queries {
            Some(_) => self.faults_per_query,
            None => self.minor_faults.map(|faults| faults as f64),
        }
    }

    /// Memory system calls: for each query, or of the whole measured part of a workload without
    /// queries.
    pub fn calls(&self) -> Option<f64> {
        match self.queries {
            Some(_) => self.mmap_calls_per_query,
            None => self.mmap_calls.map(|calls| calls as f64),
        }
    }

    /// Resident memory at the end beyond the harness's own.
    pub fn end_net(&self) -> Option<u64> {
        Some(self.end_rss_bytes?.saturating_sub(self.base_rss_bytes?))
    }
}

fn as_object<S: Serializer, F: Serialize>(
    figures: &Option<Vec<(&'static str, Option<F>)>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Some(figures) = figures else { return serializer.serialize_none() };
    let mut object = serializer.serialize_map(Some(figures.len()))?;
    for (name, figure) in figures {
        object.serialize_entry(name, figure)?;
    }
    object.end()
}

/// The rows of a plan's cases, in the order of the cases.
pub fn rows(cases: &[Case], found: &[CaseResults]) -> Vec<Row> {
    let times = |found: &CaseResults| -> Vec<Option<f64>> {
        found.reports.iter().map(|report| report.as_ref().map(|report| report.ns_per_op)).collect()
    };
    let user_times = |found: &CaseResults| -> Vec<Option<f64>> {
        found.reports.iter().map(|report| report.as_ref()?.user_ns_per_op).collect()
    };
    let mut rows: Vec<Row> = cases
        .iter()
        .zip(found)
        .map(|(case, found_here)| {
            let beside =
                || cases.iter().zip(found).filter(|(other, _)| other.setting == case.setting);
            let to = |(_, other): (&Case, &CaseResults)| ratio(&times(found_here), &times(other));
            let user_to = |(_, other): (&Case, &CaseResults)| {
                ratio(&user_times(found_here), &user_times(other))
            };
            let own = beside().find(|(other, _)| other.subject.name() == case.own());
            let best_peer = beside()
                .filter(|(other, found)| other.subject.is_peer() && found.failure.is_none())
                .filter_map(|peer| Some((peer, median(times(peer.1).into_iter().flatten())?)))
                .min_by(|(_, one), (_, other)| one.total_cmp(other))
                .map(|(peer, _)| peer);
            Row {
                best_peer: best_peer.map(|(peer, _)| peer.subject.name()),
                user_ratio_to_own: own.and_then(user_to).filter(|_| found_here.failure.is_none()),
                ratio_to_own: own.and_then(to).filter(|_| found_here.failure.is_none()),
                ratio_to_best_peer: best_peer.and_then(to).filter(|_| found_here.failure.is_none()),
                ..row(case, found_here)
            }
        })
        .collect();
    mark_best(&mut rows);
    rows
}

fn row(case: &Case, found: &CaseResults) -> Row {
    // The row of a failed case has no figures: the other rounds of a crashing allocator prove
    // nothing.
    let reports: Vec<&Report> = match found.failure {
        Some(_) => Vec::new(),
        None => found.reports.iter().flatten().collect(),
    };
    let first = reports.first();
    let each = |of: fn(&Report) -> f64| median(reports.iter().map(|report| of(report)));
    let whole = |of: fn(&Report) -> Option<u64>| median_whole(&reports, |report| of(report));
    let response = |of: fn(&ResponseReport) -> f64| {
        median(reports.iter().filter_map(|report| report.responses.as_ref().map(of)))
    };
    let times = || reports.iter().map(|report| report.ns_per_op);
    let counts = found.counts.as_ref().filter(|_| found.failure.is_none());
    let traced = counts.and_then(Report::of_traced);
    let seconds = each(|report| report.wall_seconds);
    let queries = first.and_then(|report| report.tasks);
    let second = |of: fn(&SecondsReport) -> Option<f64>| {
        median(reports.iter().filter_map(|report| of(report.seconds.as_ref()?)))
    };
    let steps = || {
        let bytes = |name: &str| {
            let of = |report: &&Report| {
                report.memory.steps.iter().find(|(step, _)| step == name).and_then(|step| step.1)
            };
            median_whole(&reports, of)
        };
        case.workload.steps().iter().map(|name| (*name, bytes(name))).collect()
    };
    let locks = || {
        let by_guarded = |name: &str| {
            let of = |report: &&Report| {
                report.locks.iter().flatten().find(|(guarded, _)| guarded == name).map(|one| one.1)
            };
            median(reports.iter().filter_map(of))
        };
        let by_guarded: Vec<_> =
            guarded().into_iter().map(|name| (name, by_guarded(name))).collect();
        let total = by_guarded.iter().map(|(_, locks)| *locks).sum::<Option<f64>>();
        [("total", total)].into_iter().chain(by_guarded).collect()
    };
    Row {
        workload: case.workload.name,
        allocator: case.subject.name(),
        own: case.own(),
        kind: case.subject.kind(),
        threads: case.setting.threads,
        callers: case.setting.callers,
        rounds: reports.len(),
        ops: first.map(|report| report.ops),
        unit: case.workload.unit,
        ns_per_op: each(|report| report.ns_per_op),
        ns_per_op_min: times().min_by(f64::total_cmp),
        ns_per_op_max: times().max_by(f64::total_cmp),
        user_ns_per_op: median(reports.iter().filter_map(|report| report.user_ns_per_op)),
        ratio_to_own: None,
        user_ratio_to_own: None,
        ratio_to_best_peer: None,
        best_peer: None,
        best: false,
        base_rss_bytes: whole(|report| report.memory.base_rss_bytes),
        peak_rss_bytes: whole(|report| report.memory.peak_rss_bytes),
        end_rss_bytes: whole(|report| report.memory.end_rss_bytes),
        live_bytes: first.and_then(|report| report.live_bytes),
        rss_steps: (!case.workload.steps().is_empty() && first.is_some()).then(steps),
        minor_faults: whole(|report| report.memory.minor_faults),
        mmap_calls: counts.map(|counts| counts.total()),
        traced_queries: traced.as_ref().and_then(|report| report.tasks),
        system_calls: counts.and_then(Counts::all),
        locks_per_op: (case.workload.has_locks() && first.is_some()).then(locks),
        queries,
        faults_per_query: median(reports.iter().filter_map(|report| report.steady_faults_per_task)),
        mmap_calls_per_query: counts.zip(traced.as_ref()).and_then(|(counts, report)| {
            (report.steady_tasks > 0)
                .then(|| counts.steady_calls as f64 / report.steady_tasks as f64)
        }),
        seconds,
        queries_per_second: queries.zip(seconds).map(|(queries, time)| queries as f64 / time),
        response_ms_avg: response(|response| response.average_ms),
        response_ms_min: response(|response| response.min_ms),
        response_ms_max: response(|response| response.max_ms),
        reserve_ms: second(|second| second.reserve_ms),
        second_ms_avg: second(|second| Some(second.average_ms)),
        second_ms_max: second(|second| Some(second.worst_ms)),
        walk_ns_per_node: median(reports.iter().filter_map(|report| report.walk_ns)),
        alloc_share: found.share.filter(|_| found.failure.is_none()),
        handicap: first.and_then(|report| report.handicap.clone()),
        policy: case.subject.policy(),
        error: found.failure.clone(),
    }
}

fn mark_best(rows: &mut [Row]) {
    for index in 0..rows.len() {
        let (threads, callers) = (rows[index].threads, rows[index].callers);
        let least = rows
            .iter()
            .filter(|row| (row.threads, row.callers) == (threads, callers))
            .filter_map(|row| row.ns_per_op)
            .min_by(f64::total_cmp);
        rows[index].best = least.is_some() && rows[index].ns_per_op == least;
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::runner::measured_run::MemoryReport;
    use crate::runner::plan::{Selection, plans};

    /// A report of a run with this time per operation, in nanoseconds.
    pub fn report(ns_per_op: f64) -> Report {
        Report {
            ops: 1000,
            tasks: Some(10),
            wall_seconds: ns_per_op * 1e-6,
            ns_per_op,
            user_ns_per_op: None,
            memory: MemoryReport {
                base_rss_bytes: Some(100),
                peak_rss_bytes: Some(300),
                end_rss_bytes: Some(90),
                minor_faults: Some(0),
                steps: Vec::new(),
            },
            live_bytes: None,
            steady_tasks: 8,
            steady_faults_per_task: Some(0.0),
            responses: None,
            seconds: None,
            walk_ns: None,
            locks: None,
            handicap: None,
        }
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
        assert_eq!((rows[0].ratio_to_own, rows[0].best), (Some(1.0), true));
        assert_eq!(rows[1].ns_per_op, Some(8.0));
        assert_eq!((rows[1].ns_per_op_min, rows[1].ns_per_op_max), (Some(3.0), Some(8.0)));
        assert_eq!((rows[1].ratio_to_own, rows[1].best), (Some(3.0), false));
        assert_eq!((rows[1].peak_net(), rows[1].end_net()), (Some(200), Some(0)));
        // glibc is the only general-purpose allocator here.
        assert!(rows.iter().all(|row| row.best_peer == Some("glibc")));
        assert_eq!(rows[0].ratio_to_best_peer, Some(1.0 / 3.0));
        assert_eq!(rows[1].ratio_to_best_peer, Some(1.0));
    }

    #[test]
    fn a_peer_that_failed_is_not_the_best_one() {
        let failed = CaseResults { failure: Some("ended by SIGSEGV".to_owned()), ..found(&[1.0]) };
        let rows = rows(&cases(), &[found(&[2.0]), failed, found(&[3.0])]);
        assert!(rows.iter().all(|row| row.best_peer.is_none()));
        assert_eq!(rows[0].ratio_to_best_peer, None);
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
            report.memory.steps =
                vec![("burst".to_owned(), Some(bytes)), ("frees".to_owned(), None)];
            Some(report)
        };
        let found =
            CaseResults { reports: vec![with(10), with(30), with(20)], ..CaseResults::default() };
        let rows = rows(&cases, &[found]);
        let json = serde_json::to_value(&rows[0]).unwrap();
        let steps = json["rss_steps"].as_object().unwrap();
        assert_eq!(steps["burst"], 20);
        assert_eq!(steps.len(), cases[0].workload.steps().len());
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
        assert_eq!((rows[1].ns_per_op, rows[1].ratio_to_own, rows[1].ops), (None, None, None));
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
