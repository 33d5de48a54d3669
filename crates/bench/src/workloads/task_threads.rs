//! The threads of a run that consists of tasks, each thread with an allocator of its own.

use crate::workloads::observer::Observer;
use crate::workloads::thread_group;
use nix::sys::resource::{UsageWho, getrusage};
use std::time::Duration;

/// Tasks of each thread that are left out of the steady-state figures.
pub const WARM_UP: u64 = 2;

/// The results of a run.
#[derive(Debug)]
pub struct Run<R> {
    /// The time from the common start until the last worker finishes.
    pub wall: Duration,
    /// What each worker returned.
    pub results: Vec<R>,
    /// The sum of the workers' steady states.
    pub steady: SteadyState,
}

/// Minor faults of the workers after their first [`WARM_UP`] tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SteadyState {
    /// Tasks counted.
    pub tasks: u64,
    /// Minor page faults of the workers in these tasks; `None` if the system does not count them.
    pub faults: Option<u64>,
}

impl SteadyState {
    /// Page faults for each task; `None` if no worker reached the steady state, or the system does
    /// not count faults.
    pub fn faults_per_task(self) -> Option<f64> {
        let faults = self.faults.filter(|_| self.tasks > 0)?;
        Some(faults as f64 / self.tasks as f64)
    }
}

/// One worker's count of its tasks.
pub struct TaskCounter<'w> {
    observer: &'w dyn Observer,
    /// Tasks before the steady state.
    warm_up: u64,
    done: u64,
    faults_when_steady: Option<u64>,
}

impl<'w> TaskCounter<'w> {
    fn new(observer: &'w dyn Observer, warm_up: u64) -> Self {
        let mut counter = Self { observer, warm_up, done: 0, faults_when_steady: None };
        if warm_up == 0 {
            counter.steady();
        }
        counter
    }

    /// Called by the worker after each task.
    pub fn task_done(&mut self) {
        self.done += 1;
        if self.done == self.warm_up {
            self.steady();
        }
    }

    fn steady(&mut self) {
        self.faults_when_steady = thread_faults();
        self.observer.steady();
    }

    fn finish(&self) -> SteadyState {
        self.observer.finished();
        let tasks = self.done.saturating_sub(self.warm_up);
        let faults = self
            .faults_when_steady
            .and_then(|before| thread_faults().map(|after| after.saturating_sub(before)));
        SteadyState { tasks, faults: if tasks == 0 { Some(0) } else { faults } }
    }
}

fn thread_faults() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    u64::try_from(usage.minor_page_faults()).ok()
}

/// Runs `work` on `threads` workers. Each has its own part `A` of an allocator.
///
/// Each worker first calls `prepare` on its own thread, which makes and touches its data. Then the
/// observer gets `ready`. Then each worker starts its allocator with `start`, and all begin at
/// once. The allocators outlive the measured part.
pub fn run<A, S, R>(
    threads: usize,
    observer: &dyn Observer,
    prepare: impl Fn(usize) -> S + Sync,
    start: impl Fn() -> A + Sync,
    work: impl Fn(&mut A, &mut S, &mut TaskCounter<'_>) -> R + Sync,
) -> Run<R>
where
    R: Send,
{
    run_from(WARM_UP, threads, observer, prepare, |_| start(), work)
}

/// Like [`run`]. The whole measured part is steady: `start` also does the tasks before that.
#[cfg(feature = "catalogue")]
pub fn run_warm<A, S, R>(
    threads: usize,
    observer: &dyn Observer,
    prepare: impl Fn(usize) -> S + Sync,
    start: impl Fn(&mut S) -> A + Sync,
    work: impl Fn(&mut A, &mut S, &mut TaskCounter<'_>) -> R + Sync,
) -> Run<R>
where
    R: Send,
{
    run_from(0, threads, observer, prepare, start, work)
}

fn run_from<A, S, R>(
    warm_up: u64,
    threads: usize,
    observer: &dyn Observer,
    prepare: impl Fn(usize) -> S + Sync,
    start: impl Fn(&mut S) -> A + Sync,
    work: impl Fn(&mut A, &mut S, &mut TaskCounter<'_>) -> R + Sync,
) -> Run<R>
where
    R: Send,
{
    let results = thread_group::run(threads, observer, prepare, |worker, mut state| {
        let mut allocator = start(&mut state);
        let mut done = None;
        let wall = worker.measured(|| {
            let mut counter = TaskCounter::new(observer, warm_up);
            let result = work(&mut allocator, &mut state, &mut counter);
            done = Some((result, counter.finish()));
        });
        (wall, done)
    });
    let mut run = Run {
        wall: results.first().map_or(Duration::ZERO, |(wall, _)| *wall),
        results: Vec::with_capacity(threads),
        steady: SteadyState { tasks: 0, faults: Some(0) },
    };
    for (result, steady) in results.into_iter().filter_map(|(_, done)| done) {
        run.results.push(result);
        run.steady.tasks += steady.tasks;
        run.steady.faults = run.steady.faults.zip(steady.faults).map(|(sum, own)| sum + own);
    }
    run
}
