//! `allot child`: one measured run in a process of its own. It prints one line of JSON.

use crate::console::failure::Failure;
use crate::runner::responses::{ResponseReport, milliseconds};
use crate::runner::system_calls::{self, Counts, Traced, marks::Mark};
use crate::runner::{child_process, resources};
use crate::workloads::fixed_size::Seconds;
use crate::workloads::{Effort, Load, Observer, Outcome, Setting, Workload};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Duration;

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Pass {
    /// The run is timed.
    Timed,
    /// The run's system calls are counted.
    Traced,
    /// The run measures the part of the time spent in the allocator.
    Share,
}

/// The arguments of `allot child`, which `allot bench` starts.
#[derive(Debug, Clone, Args)]
pub struct ChildArguments {
    /// The workload's name
    pub workload: String,
    /// The allocator's name, or that of another row of the workload
    pub allocator: String,
    /// Threads that do the work
    #[arg(long)]
    pub threads: usize,
    /// Callers that wait for answers, in workloads that have them
    #[arg(long)]
    pub callers: Option<usize>,
    /// Do less work
    #[arg(long)]
    pub quick: bool,
    /// The purpose of the run
    #[arg(long, value_enum, default_value = "timed")]
    pub pass: Pass,
}

impl ChildArguments {
    /// These arguments as words of a command line.
    pub fn line(&self) -> Vec<String> {
        let mut line = vec!["child".to_owned(), self.workload.clone(), self.allocator.clone()];
        line.push(format!("--threads={}", self.threads));
        line.extend(self.callers.map(|callers| format!("--callers={callers}")));
        line.extend(self.quick.then(|| "--quick".to_owned()));
        let pass = match self.pass {
            Pass::Timed => "timed",
            Pass::Traced => "traced",
            Pass::Share => "share",
        };
        line.push(format!("--pass={pass}"));
        line
    }
}

/// The results of a timed run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub ops: u64,
    /// `None` for a workload without tasks.
    pub tasks: Option<u64>,
    pub wall_seconds: f64,
    pub ns_per_op: f64,
    /// User time of all threads in the measured part, for each operation, if the workload reports
    /// it.
    pub user_ns_per_op: Option<f64>,
    pub memory: MemoryReport,
    pub live_bytes: Option<u64>,
    pub steady_tasks: u64,
    pub steady_faults_per_task: Option<f64>,
    pub responses: Option<ResponseReport>,
    pub seconds: Option<SecondsReport>,
    /// Nanoseconds for each visited node.
    pub walk_ns: Option<f64>,
    /// Lock acquisitions for each operation, by the guarded object.
    pub locks: Option<Vec<(String, f64)>>,
    /// What kept the allocator from its best in this process.
    pub handicap: Option<String>,
}

/// The memory and page faults of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    pub base_rss_bytes: Option<u64>,
    pub peak_rss_bytes: Option<u64>,
    pub end_rss_bytes: Option<u64>,
    pub minor_faults: Option<u64>,
    /// Resident bytes beyond the base, after each step of the work that was reached.
    pub steps: Vec<(String, Option<u64>)>,
}

/// Times of ordinary seconds and of a reservation, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SecondsReport {
    /// `None` if the allocator can't reserve memory, or was not asked to.
    pub reserve_ms: Option<f64>,
    pub average_ms: f64,
    pub worst_ms: f64,
}

impl From<Seconds> for SecondsReport {
    fn from(seconds: Seconds) -> Self {
        Self {
            reserve_ms: seconds.reserve.map(milliseconds),
            average_ms: milliseconds(seconds.average),
            worst_ms: milliseconds(seconds.worst),
        }
    }
}

impl Report {
    /// What a traced child printed, if it was a run of a workload.
    pub fn of_traced(counts: &Counts) -> Option<Self> {
        serde_json::from_str(&counts.printed).ok()
    }

    fn new(allocator: &str, outcome: &Outcome, gauge: Gauge, user_time: bool) -> Self {
        let (memory, user) = gauge.into_report();
        let user = user.filter(|_| user_time);
        let about = crate::peers::about(allocator).ok();
        Self {
            ops: outcome.ops,
            tasks: outcome.tasks,
            wall_seconds: outcome.wall.as_secs_f64(),
            ns_per_op: outcome.ns_per_op(),
            user_ns_per_op: user.map(|user| user.as_nanos() as f64 / outcome.ops as f64),
            memory,
            live_bytes: outcome.live_bytes,
            steady_tasks: outcome.steady.tasks,
            steady_faults_per_task: outcome.steady.faults_per_task(),
            responses: outcome.responses.map(ResponseReport::from),
            seconds: outcome.seconds.map(SecondsReport::from),
            walk_ns: outcome.walk,
            locks: outcome.locks.map(|locks| {
                locks.by_guarded().map(|(guarded, count)| (guarded.to_owned(), count)).to_vec()
            }),
            handicap: about.and_then(|about| (about.handicap)()).map(str::to_owned),
        }
    }
}

/// Runs the workload and prints the results.
pub fn run(arguments: &ChildArguments) -> Result<(), Failure> {
    child_process::end_with_parent();
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let load = Load {
        workload: Workload::named(&arguments.workload).map_err(|error| usage(&error))?,
        setting: Setting { threads: arguments.threads, callers: arguments.callers },
        effort: match arguments.pass {
            Pass::Traced => Effort::Counted,
            _ if arguments.quick => Effort::Quick,
            _ => Effort::Full,
        },
    };
    let printed = if arguments.pass == Pass::Share {
        let share = load.share(&arguments.allocator).map_err(|error| usage(&error))?;
        serde_json::to_string(&share)
    } else {
        let calls = if load.workload.counts_all_calls() { Traced::All } else { Traced::Memory };
        let gauge = Gauge::new((arguments.pass == Pass::Traced).then_some(calls));
        let outcome = load.measure(&arguments.allocator, &gauge).map_err(|error| usage(&error))?;
        let user_time = load.workload.has_user_time();
        serde_json::to_string(&Report::new(&arguments.allocator, &outcome, gauge, user_time))
    };
    let printed = printed.map_err(|error| Failure::Failed(error.to_string()))?;
    crate::console::print::line(printed)
}

/// Reads memory, page faults and user time at the observed moments, and sets marks for the tracer.
#[derive(Debug)]
pub struct Gauge {
    traced: bool,
    report: Mutex<MemoryReport>,
    /// User time: first at the start of the measured part, then what the measured part took.
    user: Mutex<Option<Duration>>,
}

impl Gauge {
    /// A gauge. With `calls`, the tracer may attach, and counts these calls.
    pub fn new(calls: Option<Traced>) -> Self {
        if let Some(calls) = calls {
            system_calls::let_tracer_in(calls);
        }
        Self { traced: calls.is_some(), report: Mutex::default(), user: Mutex::default() }
    }

    /// The memory figures and the user time.
    pub fn into_report(self) -> (MemoryReport, Option<Duration>) {
        let user = self.user.into_inner().unwrap_or_default();
        (self.report.into_inner().unwrap_or_default(), user)
    }

    fn mark(&self, mark: Mark) {
        if self.traced {
            system_calls::marks::set(mark);
        }
    }

    fn note(&self, note: impl FnOnce(&mut MemoryReport)) {
        if let Ok(mut report) = self.report.lock() {
            note(&mut report);
        }
    }
}

impl Observer for Gauge {
    fn ready(&self) {
        resources::map_programs();
        self.note(|report| report.base_rss_bytes = resources::resident());
        resources::forget_peak();
    }

    fn begin(&self) {
        // Page faults are read last here, and first in `end`: reading files causes page faults too.
        self.note(|report| report.minor_faults = resources::minor_faults());
        if let Ok(mut user) = self.user.lock() {
            *user = resources::user_time();
        }
        self.mark(Mark::Begin);
    }

    fn steady(&self) {
        self.mark(Mark::Steady);
    }

    fn finished(&self) {
        self.mark(Mark::Finished);
    }

    fn end(&self) {
        self.mark(Mark::End);
        if let Ok(mut user) = self.user.lock() {
            *user = resources::user_time()
                .zip(*user)
                .map(|(after, before)| after.saturating_sub(before));
        }
        let faults = resources::minor_faults();
        self.note(|report| {
            report.minor_faults =
                faults.zip(report.minor_faults).map(|(after, before)| after.saturating_sub(before));
            report.peak_rss_bytes = resources::peak_resident();
            report.end_rss_bytes = resources::resident();
        });
    }

    fn step(&self, name: &'static str) {
        let now = resources::resident();
        self.note(|report| {
            let net = now.zip(report.base_rss_bytes).map(|(now, base)| now.saturating_sub(base));
            report.steps.push((name.to_owned(), net));
        });
    }
}
