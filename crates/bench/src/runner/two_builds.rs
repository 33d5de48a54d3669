//! Two builds of this program in one interleaved run, for `allot bench --against`.
//!
//! Both builds run each case in the same way: `allot bench WORKLOAD --allocators ROW --threads N
//! --rounds 1 --json`. This command and the fields that are read here are older than the arguments
//! of `allot child`, so the other build may be another version.

use crate::console::failure::Failure;
use crate::runner::child_process::{self, ChildFailure};
use crate::runner::measured_run::RunReport;
use crate::runner::plan::{Build, Case};
use crate::runner::rounds::{LONGEST_RUN, Runner};
use crate::runner::system_calls::Counts;
use crate::workloads::Measurement;
use crate::workloads::measurement::METRICS;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs each case with its build.
#[derive(Debug)]
pub struct BuildRuns {
    this: PathBuf,
    other: PathBuf,
    quick: bool,
}

impl BuildRuns {
    /// Runs with this build and with the program `other`.
    pub fn new(other: PathBuf, quick: bool) -> Result<Self, Failure> {
        let this = std::env::current_exe()
            .map_err(|error| Failure::Failed(format!("can't find this program: {error}")))?;
        let mut version = Command::new(&other);
        let version = version.arg("--version").stdin(Stdio::null()).output();
        let failed =
            |why: String| Failure::Usage(format!("can't run '{}': {why}", other.display()));
        match version {
            Ok(output) if output.status.success() => Ok(Self { this, other, quick }),
            Ok(output) => Err(failed(format!("--version ended with {}", output.status))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn arguments(&self, case: &Case) -> Vec<String> {
        let threads = case.setting.threads.to_string();
        let words = [
            "bench",
            case.workload.name,
            "--allocators",
            case.subject.name(),
            "--threads",
            &threads,
            "--rounds",
            "1",
            "--json",
        ];
        words.into_iter().chain(self.quick.then_some("--quick")).map(str::to_owned).collect()
    }
}

impl Runner for BuildRuns {
    fn timed(&self, case: &Case) -> Result<RunReport, ChildFailure> {
        let program = match case.build {
            Build::This => &self.this,
            Build::Other => &self.other,
        };
        let row: Value = child_process::ask_program(program, &self.arguments(case), LONGEST_RUN)?;
        Ok(report(&row))
    }

    /// The timed run has counted them.
    fn traced(&self, _: &Case) -> Result<Result<Counts, String>, ChildFailure> {
        Ok(Err("counted in the timed run's call".to_owned()))
    }

    /// The timed run has measured it.
    fn share(&self, _: &Case) -> Result<Option<f64>, ChildFailure> {
        Ok(None)
    }
}

/// The figures of a row in JSON that don't compare it with others. Figures that only one of the
/// builds knows stay absent.
fn report(row: &Value) -> RunReport {
    let mut measurement = Measurement::default();
    for metric in METRICS {
        measurement.set(metric, row[metric.key].as_f64());
        for (label, figure) in row[metric.key].as_object().into_iter().flatten() {
            measurement.set_label(metric, label, figure.as_f64());
        }
    }
    RunReport { measurement, handicap: row["handicap"].as_str().map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::measurement::{NS_PER_OP, RATIO_TO_OWN, RESERVE_MS, RSS_STEPS};

    #[test]
    fn a_row_in_json_is_read_whatever_it_lacks_or_has_beside() {
        let row = serde_json::json!({
            "workload": "churn", "ns_per_op": 2.5, "ratio_to_own": 1.0, "reserve_ms": null,
            "rss_steps": {"burst": 4096, "frees": null}, "unknown": [1],
        });
        let report = report(&row);
        assert_eq!(report.measurement.get(&NS_PER_OP), Some(2.5));
        assert_eq!(report.measurement.get(&RESERVE_MS), None);
        assert_eq!(report.measurement.get_label(&RSS_STEPS, "burst"), Some(4096.0));
        assert_eq!(report.measurement.ratio(&RATIO_TO_OWN), None, "it compares with itself");
    }

    #[test]
    fn what_is_no_program_is_a_wrong_argument() {
        for path in ["/no/such/program", "/etc/hostname"] {
            let failure = BuildRuns::new(PathBuf::from(path), true).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{failure}");
            assert!(failure.to_string().starts_with(&format!("can't run '{path}': ")), "{failure}");
        }
    }
}
