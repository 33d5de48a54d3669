//! The rounds of a plan: every case once, then every case again, so that drift hits all alike.

use super::plan::{Case, Plan};
use console::spawn::{self, ChildFailure};
use crate::child::{Pass, Report};
use crate::progress::Progress;
use crate::trace::{Answer, Counts};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most rounds.
    pub rounds: usize,
    /// No round begins that would not end within this, judged by the longest so far, and nothing is
    /// counted beside the rounds any more. The first round is always run.
    pub time: Option<Duration>,
}

impl Limits {
    /// Whether something that takes `more` and begins now would end too late.
    fn too_late(&self, began: Instant, more: Duration) -> bool {
        self.time.is_some_and(|time| began.elapsed() + more > time)
    }
}

/// All that was found about one case.
#[derive(Debug, Default)]
pub struct Found {
    /// Each round's report; `None` from the round on that failed.
    pub reports: Vec<Option<Report>>,
    /// The system calls, if they could be counted.
    pub counts: Option<Counts>,
    /// The allocator's part of the time, if it could be had.
    pub share: Option<f64>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// What runs one case. A test puts another in its place.
pub trait Runner: Sync {
    /// A timed run.
    fn timed(&self, case: &Case) -> Result<Report, ChildFailure>;
    /// An untimed run whose system calls are counted; the reason if that is not permitted.
    fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure>;
    /// A run that finds the allocator's part of the time.
    fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure>;
}

/// Runs each case in a child process of its own.
#[derive(Debug)]
pub struct Children {
    /// Less work a run.
    pub quick: bool,
}

/// No run takes as long; one that does hangs.
const LONGEST_RUN: Duration = Duration::from_secs(600);

impl Runner for Children {
    fn timed(&self, case: &Case) -> Result<Report, ChildFailure> {
        spawn::ask(
            &case.arguments(self.quick, Pass::Timed).line(),
            &case.environment(),
            None,
            LONGEST_RUN,
        )
    }

    fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure> {
        let mut line = vec!["trace".to_owned(), "--".to_owned()];
        line.extend(case.arguments(self.quick, Pass::Traced).line());
        Ok(match spawn::ask(&line, &case.environment(), None, LONGEST_RUN)? {
            Answer::Counted(counts) => Ok(counts),
            Answer::Refused(why) => Err(why),
        })
    }

    fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure> {
        spawn::ask(
            &case.arguments(self.quick, Pass::Share).line(),
            &case.environment(),
            None,
            LONGEST_RUN,
        )
    }
}

/// Runs a plan. Whatever fails is told on standard error at once, and its case is not run again.
pub fn run(plan: &Plan, limits: Limits, runner: &impl Runner) -> Vec<Found> {
    let began = Instant::now();
    let cases = &plan.cases;
    let mut found: Vec<Found> = cases.iter().map(|_| Found::default()).collect();
    let passes = limits.rounds + 1 + usize::from(plan.workload.has_share());
    let progress = Progress::new(passes * cases.len());
    let mut longest = Duration::ZERO;
    for round in 0..limits.rounds {
        let round_began = Instant::now();
        if round > 0 && limits.too_late(began, longest) {
            progress.fewer((limits.rounds - round) * cases.len());
            break;
        }
        for (case, found) in cases.iter().zip(&mut found) {
            progress.say(&format!("round {}: {case}", round + 1));
            let report = match &found.failure {
                Some(_) => None,
                None => found.take(runner.timed(case), case, &progress),
            };
            found.reports.push(report);
            progress.step();
        }
        longest = longest.max(round_began.elapsed());
        // After the first round, so that its time is known when the others are judged.
        if round == 0 {
            let too_late = || limits.too_late(began, Duration::ZERO);
            count_calls(cases, &mut found, runner, &progress, &too_late);
            if plan.workload.has_share() {
                find_shares(cases, &mut found, runner, &progress, &too_late);
            }
        }
    }
    found
}

impl Found {
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

/// Counts system calls, as many cases at a time as there are cores: nothing is timed here.
fn count_calls(
    cases: &[Case],
    found: &mut [Found],
    runner: &impl Runner,
    progress: &Progress,
    too_late: &(impl Fn() -> bool + Sync),
) {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let found = Mutex::new(found);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(cases.len()) {
            scope.spawn(|| {
                while let Some((index, case)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(index).map(|case| (index, case))
                } {
                    progress.say(&format!("counting system calls: {case}"));
                    let failed = found.lock().map_or(true, |found| found[index].failure.is_some());
                    let result = (!failed && !too_late()).then(|| runner.traced(case));
                    let Ok(mut found) = found.lock() else { return };
                    let answer =
                        result.and_then(|result| found[index].take(result, case, progress));
                    found[index].counts = answer.and_then(Result::ok);
                    progress.step();
                }
            });
        }
    });
}

/// Finds the allocator's part of the time, one case at a time.
fn find_shares(
    cases: &[Case],
    found: &mut [Found],
    runner: &impl Runner,
    progress: &Progress,
    too_late: &impl Fn() -> bool,
) {
    for (case, found) in cases.iter().zip(found) {
        progress.say(&format!("the allocator's part: {case}"));
        if found.failure.is_none() && !too_late() {
            let result = runner.share(case);
            found.share = found.take(result, case, progress).flatten();
        }
        progress.step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{Wishes, plans};

    /// Writes down what is run, and lets one allocator crash in its second round.
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
        fn timed(&self, case: &Case) -> Result<Report, ChildFailure> {
            let name = case.contender.name();
            if name == "bumpalo" && self.timed().contains(&name.to_owned()) {
                self.note(name.to_owned());
                return Err(ChildFailure::Signal(11, String::new()));
            }
            let count = self.note(name.to_owned());
            Ok(crate::bench::row::tests::report(count as f64))
        }

        fn traced(&self, case: &Case) -> Result<Result<Counts, String>, ChildFailure> {
            self.note(format!("{} traced", case.contender.name()));
            Ok(Err("not here".to_owned()))
        }

        fn share(&self, case: &Case) -> Result<Option<f64>, ChildFailure> {
            self.note(format!("{} share", case.contender.name()));
            Ok(Some(0.5))
        }
    }

    fn plan(workload: &str) -> Plan {
        let wishes = Wishes {
            workloads: vec![workload.to_owned()],
            allocators: vec!["glibc".to_owned(), "bumpalo".to_owned()],
            threads: vec![1],
        };
        plans(&wishes).unwrap().plans.remove(0)
    }

    #[test]
    fn rounds_are_interleaved_and_a_case_that_crashed_is_not_run_again() {
        let plan = plan("grow");
        let names: Vec<_> = plan.cases.iter().map(|case| case.contender.name()).collect();
        let diary = Diary::default();
        let limits = Limits { rounds: 3, time: None };
        let found = run(&plan, limits, &diary);
        let expected: Vec<_> = [&names[..], &names[..], &["glibc"]].concat();
        assert_eq!(diary.timed(), expected);
        let bumpalo = &found[names.iter().position(|name| *name == "bumpalo").unwrap()];
        assert_eq!(bumpalo.failure.as_deref(), Some("ended by SIGSEGV"));
        assert_eq!(
            bumpalo.reports.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, false]
        );
    }

    #[test]
    fn the_first_round_is_run_whatever_the_time() {
        let limits = Limits { rounds: 9, time: Some(Duration::ZERO) };
        let found = run(&plan("grow"), limits, &Diary::default());
        assert!(found.iter().all(|found| found.reports.len() == 1));
    }

    #[test]
    fn only_what_has_other_work_has_a_share() {
        let limits = Limits { rounds: 1, time: None };
        let share = |workload| {
            let found = run(&plan(workload), limits, &Diary::default());
            found[0].share
        };
        assert_eq!((share("query"), share("query-alloc")), (Some(0.5), None));
        assert_eq!(share("handler"), Some(0.5));
    }
}
