//! The rounds of a plan: every case runs once, then every case runs again. A drift of the machine
//! affects all cases alike.

use super::plan::{Case, Plan};
use crate::console::progress::Progress;
use crate::runner::child_process::{self, ChildFailure};
use crate::runner::fragments::Fragments;
use crate::runner::measured_run::{Pass, RunReport};
use crate::runner::system_calls::{Counts, TraceAnswer};
use crate::workloads::measurement::ALLOC_SHARE;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most rounds.
    pub rounds: usize,
    /// The time for all rounds. A further round begins only if it would end within this time,
    /// judged by the longest round so far. When the time is over, no system calls are counted and
    /// no shares are measured. The first round always runs.
    pub time: Option<Duration>,
}

impl Limits {
    /// Whether work that takes `more` and begins now would end too late.
    fn too_late(&self, began: Instant, more: Duration) -> bool {
        self.time.is_some_and(|time| began.elapsed() + more > time)
    }
}

/// The results of one case.
#[derive(Debug, Default)]
pub struct CaseResults {
    /// Each round's report; `None` for a round that failed and for all later rounds.
    pub reports: Vec<Option<RunReport>>,
    /// The system calls, if they could be counted.
    pub counts: Option<Counts>,
    /// The part of the time spent in the allocator, if it could be measured.
    pub share: Option<f64>,
    /// Why the case failed, if it did.
    pub failure: Option<String>,
}

/// Runs one case. Tests replace it.
pub trait Runner: Sync {
    /// A timed run.
    fn timed(&self, case: &Case) -> Result<RunReport, ChildFailure>;
    /// An untimed run whose system calls are counted. The inner error is the reason if tracing is
    /// not permitted.
    fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure>;
    /// A run that measures the part of the time spent in the allocator.
    fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure>;
}

/// Runs each case in a child process of its own.
#[derive(Debug)]
pub struct ChildRuns {
    /// Less work in each run.
    pub quick: bool,
    /// Free memory is fragmented before each timed run.
    pub fragmented: bool,
}

/// A run that takes this long hangs: it is ended.
pub const LONGEST_RUN: Duration = Duration::from_secs(600);

impl Runner for ChildRuns {
    fn timed(&self, case: &Case) -> Result<RunReport, ChildFailure> {
        let fragments = self.fragmented.then(Fragments::make).transpose();
        let _held = fragments.map_err(|error| ChildFailure::Lost(error.to_string()))?;
        child_process::ask(
            &case.arguments(self.quick, Pass::Timed).line(),
            &case.environment(),
            None,
            LONGEST_RUN,
        )
    }

    fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure> {
        let mut line = vec!["trace".to_owned(), "--".to_owned()];
        line.extend(case.arguments(self.quick, Pass::Traced).line());
        Ok(match child_process::ask(&line, &case.environment(), None, LONGEST_RUN)? {
            TraceAnswer::Counted(counts) => Ok(counts),
            TraceAnswer::Refused(why) => Err(why),
        })
    }

    fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure> {
        child_process::ask(
            &case.arguments(self.quick, Pass::Share).line(),
            &case.environment(),
            None,
            LONGEST_RUN,
        )
    }
}

/// Runs a plan. A failure is reported on standard error at once, and its case does not run again.
pub fn run(plan: &Plan, limits: Limits, runner: &impl Runner) -> Vec<CaseResults> {
    let began = Instant::now();
    let cases = &plan.cases;
    let mut results: Vec<CaseResults> = cases.iter().map(|_| CaseResults::default()).collect();
    let passes = limits.rounds + 1 + usize::from(plan.workload.measures(&ALLOC_SHARE));
    let progress = Progress::new(passes * cases.len());
    let mut longest = Duration::ZERO;
    for round in 0..limits.rounds {
        let round_began = Instant::now();
        if round > 0 && limits.too_late(began, longest) {
            progress.fewer((limits.rounds - round) * cases.len());
            break;
        }
        for (case, results) in cases.iter().zip(&mut results) {
            progress.say(&format!("round {}: {case}", round + 1));
            let report = match &results.failure {
                Some(_) => None,
                None => results.take(runner.timed(case), case, &progress),
            };
            results.reports.push(report);
            progress.step();
        }
        longest = longest.max(round_began.elapsed());
        // After the first round, so that the length of a round is known when this decides about
        // time.
        if round == 0 {
            let too_late = || limits.too_late(began, Duration::ZERO);
            count_calls(cases, &mut results, runner, &progress, &too_late);
            if plan.workload.measures(&ALLOC_SHARE) {
                find_shares(cases, &mut results, runner, &progress, &too_late);
            }
        }
    }
    results
}

impl CaseResults {
    fn take<T>(
        &mut self,
        result: Result<T, ChildFailure>,
        case: &Case,
        progress: &Progress,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(failure) => {
                progress.warn(&format!("{case}: {failure}"));
                self.failure = Some(failure.to_string());
                None
            }
        }
    }
}

/// Counts system calls. Nothing is timed here, so as many cases run at a time as there are cores.
fn count_calls(
    cases: &[Case],
    results: &mut [CaseResults],
    runner: &impl Runner,
    progress: &Progress,
    too_late: &(impl Fn() -> bool + Sync),
) {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let results = Mutex::new(results);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(cases.len()) {
            scope.spawn(|| {
                while let Some((index, case)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(index).map(|case| (index, case))
                } {
                    progress.say(&format!("counting system calls: {case}"));
                    let failed =
                        results.lock().map_or(true, |results| results[index].failure.is_some());
                    let result = (!failed && !too_late()).then(|| runner.traced(case));
                    let Ok(mut results) = results.lock() else { return };
                    let answer =
                        result.and_then(|result| results[index].take(result, case, progress));
                    results[index].counts = answer.and_then(Result::ok);
                    progress.step();
                }
            });
        }
    });
}

/// Measures the part of the time spent in the allocator, one case at a time.
fn find_shares(
    cases: &[Case],
    results: &mut [CaseResults],
    runner: &impl Runner,
    progress: &Progress,
    too_late: &impl Fn() -> bool,
) {
    for (case, results) in cases.iter().zip(results) {
        progress.say(&format!("measuring the time in the allocator: {case}"));
        if results.failure.is_none() && !too_late() {
            let result = runner.share(case);
            results.share = results.take(result, case, progress).flatten();
        }
        progress.step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::plan::{Selection, plans};

    /// Records what is run, and makes one allocator crash in its second round.
    #[derive(Default)]
    struct Diary(Mutex<Vec<String>>);

    impl Diary {
        fn timed(&self) -> Vec<String> {
            let lines = self.0.lock().unwrap();
            lines.iter().filter(|line| !line.contains(' ')).cloned().collect()
        }

        fn note(&self, line: String) -> usize {
            let mut lines = self.0.lock().unwrap();
            lines.push(line);
            lines.len()
        }
    }

    impl Runner for Diary {
        fn timed(&self, case: &Case) -> Result<RunReport, ChildFailure> {
            let name = case.subject.name();
            if name == "bumpalo" && self.timed().contains(&name.to_owned()) {
                self.note(name.to_owned());
                return Err(ChildFailure::Signal(11, String::new()));
            }
            let count = self.note(name.to_owned());
            Ok(crate::runner::row::tests::report(count as f64))
        }

        fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure> {
            self.note(format!("{} traced", case.subject.name()));
            Ok(Err("not here".to_owned()))
        }

        fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure> {
            self.note(format!("{} share", case.subject.name()));
            Ok(Some(0.5))
        }
    }

    fn plan(workload: &str) -> Plan {
        let selection = Selection {
            workloads: vec![workload.to_owned()],
            allocators: vec!["glibc".to_owned(), "bumpalo".to_owned()],
            threads: vec![1],
        };
        plans(&selection).unwrap().plans.remove(0)
    }

    #[test]
    fn rounds_are_interleaved_and_a_case_that_crashed_is_not_run_again() {
        let plan = plan("grow");
        let names: Vec<_> = plan.cases.iter().map(|case| case.subject.name()).collect();
        let diary = Diary::default();
        let limits = Limits { rounds: 3, time: None };
        let results = run(&plan, limits, &diary);
        let expected: Vec<_> = [&names[..], &names[..], &["glibc"]].concat();
        assert_eq!(diary.timed(), expected);
        let bumpalo = &results[names.iter().position(|name| *name == "bumpalo").unwrap()];
        assert_eq!(bumpalo.failure.as_deref(), Some("ended by SIGSEGV"));
        assert_eq!(
            bumpalo.reports.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, false]
        );
    }

    #[test]
    fn the_first_round_is_run_whatever_the_time() {
        let limits = Limits { rounds: 9, time: Some(Duration::ZERO) };
        let results = run(&plan("grow"), limits, &Diary::default());
        assert!(results.iter().all(|results| results.reports.len() == 1));
    }

    #[test]
    fn only_what_has_other_work_has_a_share() {
        let limits = Limits { rounds: 1, time: None };
        let share = |workload| {
            let results = run(&plan(workload), limits, &Diary::default());
            results[0].share
        };
        assert_eq!((share("query"), share("query-alloc")), (Some(0.5), None));
        assert_eq!(share("handler"), Some(0.5));
    }
}
