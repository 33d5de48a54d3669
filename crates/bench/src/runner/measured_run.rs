//! `allot child`: one measured run in a process of its own. It prints one line of JSON.

use crate::console::failure::Failure;
use crate::console::print::json_line;
use crate::runner::system_calls::{self, Counts, TracedCalls, marks::Mark};
use crate::runner::{child_process, resources};
use crate::workloads::measurement::{
    BASE_RSS_BYTES, END_RSS_BYTES, FREE_HUGE_PAGES, HUGE_BYTES, MINOR_FAULTS, OPS, PEAK_RSS_BYTES,
    RSS_STEPS, SYSTEM_CALLS, USER_NS_PER_OP,
};
use crate::workloads::{Effort, Measurement, Observer, RunSpec, Setting, Workload};
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

/// The answer of a timed or traced run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What the workload measured of itself, and what its process measured.
    pub measurement: Measurement,
    /// What kept the allocator from its best in this process.
    pub handicap: Option<String>,
}

impl RunReport {
    /// What a traced child printed, if it was a run of a workload.
    pub fn of_traced(counts: &Counts) -> Option<Self> {
        serde_json::from_str(&counts.printed).ok()
    }
}

/// Runs the workload and prints the results.
pub fn run(arguments: &ChildArguments) -> Result<(), Failure> {
    child_process::end_with_parent();
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let spec = RunSpec {
        workload: Workload::named(&arguments.workload).map_err(|error| usage(&error))?,
        setting: Setting { threads: arguments.threads, callers: arguments.callers },
        effort: match arguments.pass {
            Pass::Traced => Effort::Counted,
            _ if arguments.quick => Effort::Quick,
            _ => Effort::Full,
        },
    };
    if arguments.pass == Pass::Share {
        let share = spec.share(&arguments.allocator).map_err(|error| usage(&error))?;
        json_line(&share)
    } else {
        let calls = if spec.workload.measures(&SYSTEM_CALLS) {
            TracedCalls::All
        } else {
            TracedCalls::Memory
        };
        let observer = ProcessObserver::new((arguments.pass == Pass::Traced).then_some(calls));
        let outcome =
            spec.measure(&arguments.allocator, &observer).map_err(|error| usage(&error))?;
        let measurement = observer.add_to(outcome, spec.workload);
        let about = crate::peers::about(&arguments.allocator).ok();
        let handicap = about.and_then(|about| (about.handicap)()).map(str::to_owned);
        json_line(&RunReport { measurement, handicap })
    }
}

/// Measures the process at the observed moments: memory, page faults and user time. Sets marks for
/// the tracer.
#[derive(Debug)]
pub struct ProcessObserver {
    traced: bool,
    figures: Mutex<Measurement>,
    /// At the start of the measured part.
    start: Mutex<Start>,
    /// The user time of the measured part.
    user_time: Mutex<Option<Duration>>,
}

/// What has been used when the measured part begins.
#[derive(Debug, Default)]
struct Start {
    huge: Option<u64>,
    minor_faults: Option<u64>,
    user_time: Option<Duration>,
}

impl ProcessObserver {
    /// An observer of the process. With `calls`, the tracer may attach, and counts these calls.
    pub fn new(calls: Option<TracedCalls>) -> Self {
        if let Some(calls) = calls {
            system_calls::let_tracer_in(calls);
        }
        Self {
            traced: calls.is_some(),
            figures: Mutex::default(),
            start: Mutex::default(),
            user_time: Mutex::default(),
        }
    }

    /// What `workload` has measured of itself, with the figures of the process.
    pub fn add_to(self, mut measured: Measurement, workload: &Workload) -> Measurement {
        measured.extend(self.figures.into_inner().unwrap_or_default());
        if workload.measures(&USER_NS_PER_OP) {
            let user_time = self.user_time.into_inner().unwrap_or_default();
            let ns = user_time.map(|time| time.as_nanos() as f64);
            let per_op = ns.zip(measured.get(&OPS)).map(|(ns, ops)| ns / ops);
            measured.set(&USER_NS_PER_OP, per_op);
        }
        measured
    }

    fn mark(&self, mark: Mark) {
        if self.traced {
            system_calls::marks::set(mark);
        }
    }

    fn note(&self, note: impl FnOnce(&mut Measurement)) {
        if let Ok(mut figures) = self.figures.lock() {
            note(&mut figures);
        }
    }
}

impl Observer for ProcessObserver {
    fn ready(&self) {
        resources::map_programs();
        let resident = resources::resident();
        self.note(|figures| {
            figures.set(&BASE_RSS_BYTES, resident.map(whole));
            figures.set(&FREE_HUGE_PAGES, resources::free_huge_pages().map(whole));
        });
        // The allocators that a build links in may have huge pages from the start of the process.
        if let Ok(mut start) = self.start.lock() {
            start.huge = resources::huge();
        }
        resources::forget_peak();
    }

    fn begin(&self) {
        // Page faults are read last here, and first in `end`: reading files causes page faults too.
        if let Ok(mut start) = self.start.lock() {
            start.user_time = resources::user_time();
            start.minor_faults = resources::minor_faults();
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
        let faults = resources::minor_faults();
        let user_time = resources::user_time();
        let Ok(start) = self.start.lock() else { return };
        let faults = faults.zip(start.minor_faults);
        let faults = faults.map(|(after, before)| whole(after.saturating_sub(before)));
        let huge =
            resources::huge().zip(start.huge).map(|(after, before)| after.saturating_sub(before));
        let user_time = user_time.zip(start.user_time);
        if let Ok(mut spent) = self.user_time.lock() {
            *spent = user_time.map(|(after, before)| after.saturating_sub(before));
        }
        self.note(|figures| {
            figures.set(&MINOR_FAULTS, faults);
            figures.set(&PEAK_RSS_BYTES, resources::peak_resident().map(whole));
            figures.set(&END_RSS_BYTES, resources::resident().map(whole));
            figures.set(&HUGE_BYTES, huge.map(whole));
        });
    }

    fn step(&self, name: &'static str) {
        let now = resources::resident().map(whole);
        self.note(|figures| {
            let net = now.zip(figures.get(&BASE_RSS_BYTES));
            figures.set_label(&RSS_STEPS, name, net.map(|(now, base)| (now - base).max(0.0)));
        });
    }
}

fn whole(number: u64) -> f64 {
    number as f64
}
