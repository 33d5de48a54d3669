//! Asks whether to measure the program itself.

use super::AdviseArguments;
use super::recording::Recording;
use super::trial::Trials;
use crate::analyse::findings::Findings;
use crate::analyse::formatting;
use crate::replay::installed_mallocs::InstalledMalloc;
use bench::console::print::{self, wrapped};
use bench::console::statistics::FEWEST_ROUNDS;
use bench::console::table::counted;
use std::io::{self, BufRead, IsTerminal, Write};

/// The most runs with each malloc.
const MOST_RUNS: u32 = 11;
/// The target time of all runs together; at least [`FEWEST_ROUNDS`] are made.
const TIME_NS: u64 = 60_000_000_000;

/// Asks, if the program can be run again and standard input and error are a terminal. Returns the
/// number of runs with each malloc after a yes.
pub fn runs(
    recording: &Recording,
    arguments: &AdviseArguments,
    mallocs: &[InstalledMalloc],
    findings: &Findings,
) -> Option<u32> {
    let changes = Trials::count(findings);
    let can_answer = io::stdin().is_terminal() && io::stderr().is_terminal();
    if recording.repeatable.as_ref().is_none_or(|program| program.was_interrupted)
        || arguments.repeat.is_some()
        || arguments.json
        || mallocs.is_empty() && changes == 0
        || !can_answer
    {
        return None;
    }
    // A trial takes longer than the program, and frees are timed in some runs.
    let trials = if changes == 0 { 0 } else { 2 * (changes as u64 + 1) };
    let rows = mallocs.len() as u64 + 1 + trials;
    let each = findings.program.wall_ns.max(1).saturating_mul(rows);
    let runs = runs_in(TIME_NS, each);
    print::to_errors(format!("\n{}", wrapped(&question(mallocs, changes, runs, each))));
    eprint!("[y/N] ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    is_yes(&answer).then_some(runs)
}

/// As many runs as fit in `time`, but enough to tell a difference from chance.
fn runs_in(time: u64, each: u64) -> u32 {
    u32::try_from(time / each).unwrap_or(u32::MAX).clamp(FEWEST_ROUNDS as u32, MOST_RUNS)
}

fn question(mallocs: &[InstalledMalloc], changes: usize, runs: u32, each: u64) -> String {
    let mut others: Vec<String> = mallocs.iter().map(|malloc| malloc.name.to_owned()).collect();
    others.extend(
        (changes > 0)
            .then(|| format!("{} (and as many to compare)", counted(changes, "tried change"))),
    );
    format!(
        "Measure the program itself? It would run {runs} more times as it is and {runs} times each with {}, about {} in all. Every run repeats the program's effects, such as files that it writes. Its output is discarded.",
        others.join(", "),
        formatting::time(each.saturating_mul(runs.into())),
    )
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yesterday\n", "1\n"].into_iter().any(is_yes));
    }

    #[test]
    fn short_programs_run_more_often() {
        assert_eq!(runs_in(60, 1), MOST_RUNS);
        assert_eq!(runs_in(60, 8), 7);
        assert_eq!(runs_in(60, 1_000), FEWEST_ROUNDS as u32);
    }
}
