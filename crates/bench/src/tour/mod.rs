//! The tour: answers context queries over this machine's counters and over a synthetic store, with
//! malloc, with an arena, and with other allocators.

mod machine;
mod queries;
mod snapshot;
mod tables;

pub use queries::{QueriesArguments, answer as answer_queries};

use crate::console::failure::Failure;
use crate::console::print::{BEST, HEADING, NOTE, line, styled, wrapped};
use crate::console::progress::Progress;
use crate::console::statistics::ratio;
use crate::peers::About;
use crate::runner::child_process;
use crate::workloads::query::store::{CHARTS, DIMENSIONS};
use queries::QueryReport;
use serde::Serialize;
use std::num::NonZero;
use std::time::Duration;

/// The C library's malloc, with which the tour compares: `libc` if it is not glibc.
const MALLOC: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };
/// The project's own row.
const ARENA: &str = "allotment-arena";
/// The allocators of the tests at full size. The tour leaves out those that this build lacks, and
/// reports them.
const FULL_SIZE: [&str; 6] = [MALLOC, "mimalloc", "jemalloc", "tcmalloc", "bumpalo", ARENA];

/// How much the tour does.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Readings of this machine's counters.
    samples: u32,
    /// Queries on each context of these counters.
    machine_queries: usize,
    /// Charts of the synthetic store.
    charts: usize,
    /// Queries on the synthetic store in one run, and callers of the parallel run.
    queries: usize,
    /// Rounds. They are interleaved.
    rounds: usize,
}

const WHOLE: Size =
    Size { samples: 16, machine_queries: 400, charts: CHARTS, queries: 16, rounds: 5 };
/// A short tour for tests.
const SMALL: Size = Size { samples: 2, machine_queries: 2, charts: 5, queries: 4, rounds: 1 };

/// A run takes about a second. A run that takes this long hangs: it is ended.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// One allocator's reports: for each round, the reports of all contexts, or `None` if the run
/// failed.
#[derive(Debug)]
struct Entry {
    about: &'static About,
    rounds: Vec<Option<Vec<QueryReport>>>,
}

impl Entry {
    /// A figure of one context in each round.
    fn each(&self, context: usize, of: fn(&QueryReport) -> f64) -> Vec<Option<f64>> {
        let figure = |reports: &Vec<QueryReport>| reports.get(context).map(of);
        self.rounds.iter().map(|reports| reports.as_ref().and_then(figure)).collect()
    }

    /// A report of one context from any round, for the figures that are the same in all rounds.
    fn any(&self, context: usize) -> Option<&QueryReport> {
        self.rounds.iter().flatten().find_map(|reports| reports.get(context))
    }
}

/// Runs the tour.
pub fn run(json: bool, small: bool) -> Result<(), Failure> {
    let size = if small { SMALL } else { WHOLE };
    let say = |text: String| if json { Ok(()) } else { line(text) };
    say(styled(HEADING, "How much time does an arena save, compared with malloc?"))?;
    say(wrapped(
        "Each test answers queries over charts of metrics. For each dimension of a chart, a query \
         allocates a structure, two strings, an array of points and an entry in a map of groups. It sums \
         the groups, renders JSON and frees everything: with malloc object by object, with an arena at \
         once.",
    ))?;
    say(String::new())?;
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let full_size = known(&FULL_SIZE);

    let both = known(&[MALLOC, ARENA]);
    let progress = Progress::new(size.samples as usize + size.rounds * both.len());
    let store = machine::read(size.samples, || {
        progress.step();
        progress.say("reading this machine's counters from /proc");
    });
    let bytes = snapshot::write(&store).map_err(|error| Failure::Failed(error.to_string()))?;
    let arguments = QueriesArguments::on_stdin(size.machine_queries);
    let own = rounds(size.rounds, &both, &progress, &arguments, Some(&bytes));
    drop(progress);
    let own_figures = tables::machine(&store, &own);
    if json {
        print_json(&own_figures)?;
    } else {
        tables::print_machine(&store, size.samples, &own_figures)?;
    }

    let progress = Progress::new(2 * size.rounds * full_size.len());
    let sequential = QueriesArguments::synthetic(size.charts, size.queries, 1, 1);
    let sequential = rounds(size.rounds, &full_size, &progress, &sequential, None);
    let parallel = QueriesArguments::synthetic(size.charts, size.queries, workers, size.queries);
    let parallel = rounds(size.rounds, &full_size, &progress, &parallel, None);
    drop(progress);
    let figures =
        [tables::full_size("sequential", &sequential), tables::full_size("parallel", &parallel)];
    if json {
        print_json(&figures.concat())?;
    } else {
        say(format!(
            "{}: {} charts of {DIMENSIONS} dimensions, {} queries, medians of {} rounds",
            styled(HEADING, "Full size"),
            size.charts,
            size.queries,
            size.rounds,
        ))?;
        say(String::new())?;
        let workers = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
        tables::print_full_size("sequential test, 1 caller", &figures[0])?;
        tables::print_full_size(
            &format!("parallel test, {} callers served by {workers}", size.queries),
            &figures[1],
        )?;
    }

    let saved = |entries: &[Entry]| {
        let times = |name| {
            let entry = entries.iter().find(|entry| entry.about.name == name)?;
            Some(entry.each(0, |report| report.wall_seconds))
        };
        ratio(&times(ARENA)?, &times(MALLOC)?)
    };
    if let Some(text) = take_home(saved(&sequential), saved(&parallel), size.queries) {
        say(styled(BEST, text))?;
    }
    if let Some(text) = left_out() {
        say(styled(NOTE, wrapped(&text)))?;
    }
    say(format!(
        "Next: {}  {}",
        styled(HEADING, next_command()),
        styled(NOTE, "more peers, more queries")
    ))?;
    let runs = [&own, &sequential, &parallel].into_iter().flatten();
    match runs.filter(|entry| entry.rounds.iter().any(Option::is_none)).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of the tour's rows failed"))),
    }
}

fn known(names: &[&str]) -> Vec<&'static About> {
    names
        .iter()
        .filter_map(|name| crate::peers::known().iter().find(|about| about.name == *name))
        .collect()
}

/// Runs each allocator in a child process of its own, round after round.
fn rounds(
    rounds: usize,
    allocators: &[&'static About],
    progress: &Progress,
    arguments: &QueriesArguments,
    input: Option<&[u8]>,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        allocators.iter().map(|about| Entry { about, rounds: Vec::new() }).collect();
    for round in 0..rounds {
        for entry in &mut entries {
            let name = entry.about.name;
            progress.say(&format!("{} with {name}, round {}", arguments.meaning(), round + 1));
            let answer = child_process::ask(
                &arguments.line(name),
                entry.about.environment,
                input,
                LONGEST_RUN,
            );
            if let Err(failure) = &answer {
                progress.warn(&format!("{} with {name}: {failure}", arguments.meaning()));
            }
            entry.rounds.push(answer.ok());
            progress.step();
        }
    }
    entries
}

fn print_json(figures: &[impl Serialize]) -> Result<(), Failure> {
    for figure in figures {
        line(serde_json::to_string(figure).map_err(|error| Failure::Failed(error.to_string()))?)?;
    }
    Ok(())
}

/// The conclusion in one line: the arena's time compared with malloc's, for one caller and for
/// many. It is the same line if the arena loses.
fn take_home(one: Option<f64>, many: Option<f64>, callers: usize) -> Option<String> {
    /// A smaller difference counts as none.
    const NOTHING: f64 = 0.03;
    let (one, many) = (one?, many?);
    let one = match one {
        ratio if (ratio - 1.0).abs() <= NOTHING => "in the same time as malloc".to_owned(),
        ratio if ratio < 1.0 => format!("in {:.0} % less time than malloc", (1.0 - ratio) * 100.0),
        ratio => format!("in {:.0} % more time than malloc", (ratio - 1.0) * 100.0),
    };
    let many = match 1.0 / many {
        speed if (speed - 1.0).abs() <= NOTHING => "no faster".to_owned(),
        speed => format!("{speed:.2} times as fast"),
    };
    Some(format!("Here an arena answers one caller {one}, and {callers} callers {many}."))
}

/// The next command for the reader to type: through cargo, if cargo started this process.
fn next_command() -> &'static str {
    if std::env::var_os("CARGO").is_some() {
        "cargo allot bench query --quick"
    } else {
        "allot bench query --quick"
    }
}

/// A line with the allocators that this build lacks and the command that includes them.
fn left_out() -> Option<String> {
    let names: Vec<_> = crate::peers::missing()
        .map(|(name, _)| name)
        .filter(|name| FULL_SIZE.contains(name))
        .collect();
    let command = if std::env::var_os("CARGO").is_some() {
        "`cargo run --release --features all-peers`"
    } else {
        "A build with --features all-peers"
    };
    (!names.is_empty())
        .then(|| format!("Not in this build: {}. {command} includes them.", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_take_home_is_honest_also_if_we_lose() {
        assert_eq!(
            take_home(Some(0.6), Some(0.4), 16).unwrap(),
            "Here an arena answers one caller in 40 % less time than malloc, and 16 callers 2.50 times as \
             fast."
        );
        assert_eq!(
            take_home(Some(1.25), Some(1.01), 16).unwrap(),
            "Here an arena answers one caller in 25 % more time than malloc, and 16 callers no faster."
        );
        assert!(take_home(Some(1.0), Some(2.0), 16).unwrap().contains("same time as malloc"));
        assert!(take_home(Some(1.0), Some(2.0), 16).unwrap().contains("0.50 times as fast"));
        assert_eq!(take_home(None, Some(1.0), 16), None);
    }

    #[test]
    fn the_line_to_take_home_fits_in_a_line() {
        let line = take_home(Some(0.123), Some(0.0123), 16).unwrap();
        assert!(line.chars().count() <= crate::console::print::WIDTH);
    }
}
