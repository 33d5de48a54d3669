//! `allot stress`: the array allocator's stress test, with a line for each second.

use crate::console::failure::Failure;
use crate::console::print::{HEADING, json_line, line, styled, to_errors};
use crate::console::table::{counted, grouped};
use crate::workloads::catalogue::MOST_THREADS;
use crate::workloads::fixed_size::stress::{self, ThreadCounts};
use crate::workloads::{Subject, Unobserved, Workload, can_run};
use clap::Args;
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The arguments of `allot stress`.
#[derive(Debug, Args)]
pub struct StressArguments {
    /// Threads that share one allocator, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Elements of 64 B for each thread, 10 to 10,000,000
    #[arg(long, value_name = "N", default_value_t = stress::ELEMENTS)]
    elements: usize,
    /// Duration in seconds, up to a day
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u32,
    /// The allocator
    #[arg(long, value_name = "NAME", default_value = "allotment-slab")]
    allocator: String,
    /// Print one JSON object per line: one for each second, then a summary
    #[arg(long)]
    json: bool,
}

/// For `allot stress --help`.
pub const EXAMPLES: &str = "
Each line shows how many objects all threads allocated and freed in that second; the last line is a
summary. Each thread finishes the cycle that it is in, so that it frees every object that it
allocated. Ctrl-C ends the run early, with the summary (exit code 130).

JSON (--json): one object for each second (second, malloc_per_second, free_per_second), then one with
allocator, threads, elements, seconds, malloc, free, malloc_per_second, ns_per_pair, interrupted,
policy and handicap (what keeps the allocator from its best on this machine, or null).

Examples:
  allot stress --threads 1
  allot stress --threads 16 --elements 10000 --seconds 5 --allocator glibc
";

const MOST_ELEMENTS: usize = 10_000_000;
const MOST_SECONDS: u32 = 24 * 60 * 60;

/// Set by an interrupt, to end early.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The counts of one second.
#[derive(Debug, PartialEq, Serialize)]
struct SecondRates {
    second: u32,
    malloc_per_second: f64,
    free_per_second: f64,
}

/// The summary of the run.
#[derive(Debug, PartialEq, Serialize)]
struct StressSummary<'s> {
    allocator: &'s str,
    threads: usize,
    elements: usize,
    seconds: f64,
    malloc: u64,
    free: u64,
    malloc_per_second: f64,
    ns_per_pair: f64,
    interrupted: bool,
    policy: &'s str,
    handicap: Option<&'s str>,
}

/// What all threads have done so far.
#[derive(Debug, Clone, Copy)]
struct Totals {
    at: Instant,
    malloc: u64,
    free: u64,
}

impl Totals {
    fn of(counts: &[ThreadCounts]) -> Self {
        Self {
            at: Instant::now(),
            malloc: counts.iter().map(ThreadCounts::allocated).sum(),
            free: counts.iter().map(ThreadCounts::freed).sum(),
        }
    }

    /// What was done between the sum `before` and this one.
    fn since(&self, before: &Self, second: u32) -> SecondRates {
        let time = (self.at - before.at).as_secs_f64();
        SecondRates {
            second,
            malloc_per_second: (self.malloc - before.malloc) as f64 / time,
            free_per_second: (self.free - before.free) as f64 / time,
        }
    }
}

/// Runs the stress test. An interrupt ends it early, with a summary and exit code 130.
pub fn run(arguments: &StressArguments) -> Result<(), Failure> {
    let about = check(arguments)?;
    restart_with(about.environment)?;
    // If the handler can't be set, an interrupt ends the process without a summary.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            // The second interrupt ends the process at once.
            std::process::exit(130);
        }
    });
    let StressArguments { threads, elements, seconds, json, .. } = *arguments;
    let handicap = (about.handicap)();
    if let Some(handicap) = handicap {
        to_errors(format!("allot: {} does not run at its best here: {handicap}", about.name));
    }
    if !json {
        line(styled(
            HEADING,
            format!(
                "{} under stress: {}, {} elements of 64 B each, for {}",
                about.name,
                counted(threads, "thread"),
                grouped(elements as u64),
                counted(seconds as usize, "second"),
            ),
        ))?;
    }
    let counts: Vec<ThreadCounts> = (0..threads).map(|_| ThreadCounts::default()).collect();
    let (wall, told) = work(about.name, elements, seconds, &counts, json)?;
    let sum = Totals::of(&counts);
    let summary = StressSummary {
        allocator: about.name,
        threads,
        elements,
        seconds: wall.as_secs_f64(),
        malloc: sum.malloc,
        free: sum.free,
        malloc_per_second: sum.malloc as f64 / wall.as_secs_f64(),
        ns_per_pair: wall.as_nanos() as f64 / sum.malloc as f64,
        interrupted: INTERRUPTED.load(Ordering::Relaxed),
        policy: about.policy,
        handicap,
    };
    told?;
    tell_all(&summary, json)?;
    if summary.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Checks the arguments and returns the allocator.
fn check(arguments: &StressArguments) -> Result<&'static crate::peers::About, Failure> {
    let usage = |why: String| Err(Failure::Usage(why));
    let StressArguments { threads, elements, seconds, .. } = *arguments;
    if !(1..=MOST_THREADS).contains(&threads) {
        return usage(format!("{threads} threads: must be 1 to {MOST_THREADS}"));
    }
    // With fewer elements, some of the parts would be empty.
    if !(10..=MOST_ELEMENTS).contains(&elements) {
        return usage(format!(
            "{elements} elements: must be 10 to {}",
            grouped(MOST_ELEMENTS as u64)
        ));
    }
    if !(1..=MOST_SECONDS).contains(&seconds) {
        return usage(format!("{seconds} seconds: must be 1 to {MOST_SECONDS}"));
    }
    let about = crate::peers::about(&arguments.allocator)
        .map_err(|unknown| Failure::Usage(unknown.to_string()))?;
    let workload =
        Workload::named("stress").map_err(|unknown| Failure::Failed(unknown.to_string()))?;
    match can_run(workload, Subject::Allocator(about), threads) {
        Ok(()) => Ok(about),
        Err(lacks) => {
            let threads = counted(threads, "thread");
            usage(format!("'{}' can't run the stress test with {threads}: {lacks}", about.name))
        }
    }
}

/// Restarts this program with the environment variables that an allocator needs, unless they are
/// set.
fn restart_with(environment: &[(&str, &str)]) -> Result<(), Failure> {
    let there = |(name, value): &(&str, &str)| std::env::var(name).is_ok_and(|is| is == *value);
    if environment.iter().all(there) {
        return Ok(());
    }
    let failed = |error: std::io::Error| {
        Failure::Failed(format!(
            "can't restart the program with other environment variables: {error}"
        ))
    };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1)).envs(environment.iter().copied());
    // `exec` returns only if it fails.
    Err(failed(command.exec()))
}

/// Runs the threads and prints a line each second. Returns the time that it took, and the result of
/// printing.
fn work(
    allocator: &str,
    elements: usize,
    seconds: u32,
    counts: &[ThreadCounts],
    json: bool,
) -> Result<(Duration, Result<(), Failure>), Failure> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running =
            scope.spawn(|| stress::until_stopped(allocator, elements, counts, &stop, &Unobserved));
        let told = watch(seconds, counts, json);
        stop.store(true, Ordering::Relaxed);
        let wall = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((wall.map_err(|unknown| Failure::Usage(unknown.to_string()))?, told))
    })
}

/// Prints the counts of each second, until the time is over, an interrupt comes, or printing fails.
fn watch(seconds: u32, counts: &[ThreadCounts], json: bool) -> Result<(), Failure> {
    /// The time after which an interrupt is noticed at the latest.
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    // First the threads touch their arrays.
    while counts.iter().any(|count| count.allocated() == 0) {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    let mut before = Totals::of(counts);
    let began = before.at;
    for second in 1..=seconds {
        let end = began + Duration::from_secs(u64::from(second));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if INTERRUPTED.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
        let now = Totals::of(counts);
        tell(&now.since(&before, second), json)?;
        before = now;
    }
    Ok(())
}

fn tell(second: &SecondRates, json: bool) -> Result<(), Failure> {
    if json {
        return json_line(second);
    }
    line(format!(
        "{:>5} s  {:.2} M malloc and {:.2} M free operations/s",
        second.second,
        second.malloc_per_second / 1e6,
        second.free_per_second / 1e6
    ))
}

fn tell_all(summary: &StressSummary<'_>, json: bool) -> Result<(), Failure> {
    if json {
        return json_line(summary);
    }
    let early = if summary.interrupted { "interrupted: " } else { "" };
    line(format!(
        "{early}{} malloc and {} free on {} in {:.2} s: {:.2} M/s of each, {:.2} ns a pair",
        grouped(summary.malloc),
        grouped(summary.free),
        counted(summary.threads, "thread"),
        summary.seconds,
        summary.malloc_per_second / 1e6,
        summary.ns_per_pair
    ))
}
