//! The tour: answers context queries over this machine's counters and over a synthetic store, with
//! malloc, with an arena, and with other allocators.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `machine` | this machine's counters, as charts |
//! | `snapshot` | a store as bytes, for child processes |
//! | `queries` | the child process that answers queries with one allocator |
//! | `tables` | the tables that the tour prints |

mod machine;
mod queries;
mod snapshot;
mod tables;

pub use queries::{QueriesArguments, answer as answer_queries};

use crate::console::failure::Failure;
use crate::console::print::{BEST, HEADING, NOTE, json_line, line, styled, wrapped};
use crate::console::progress::Progress;
use crate::console::statistics::{FEWEST_ROUNDS, Interval, Ratio};
use crate::console::table::{counted, grouped};
use crate::peers::About;
use crate::runner::child_process;
use crate::workloads::Measurement;
use crate::workloads::measurement::{Metric, SECONDS};
use crate::workloads::query::store::{CHARTS, DIMENSIONS};
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
struct TourSize {
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

const WHOLE: TourSize = TourSize {
    samples: 16,
    machine_queries: 400,
    charts: CHARTS,
    queries: 16,
    rounds: FEWEST_ROUNDS,
};
/// A short tour for tests.
const SMALL: TourSize =
    TourSize { samples: 2, machine_queries: 2, charts: 5, queries: 4, rounds: 1 };

/// A run takes about a second. A run that takes this long hangs: it is ended.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// One allocator's records: for each round, those of all contexts, or `None` if the run failed.
#[derive(Debug)]
struct AllocatorRounds {
    about: &'static About,
    rounds: Vec<Option<Vec<Measurement>>>,
}

impl AllocatorRounds {
    /// The records of one context, round by round.
    fn of(&self, context: usize) -> impl Iterator<Item = Option<&Measurement>> {
        self.rounds.iter().map(move |records| records.as_ref()?.get(context))
    }

    /// One record for all rounds.
    fn figures(&self, context: usize) -> Measurement {
        Measurement::of_rounds(&self.of(context).flatten().collect::<Vec<_>>())
    }
}

/// A figure of one context with the arena, divided by the same with malloc.
fn arena_to_malloc(entries: &[AllocatorRounds], context: usize, metric: &Metric) -> Option<Ratio> {
    let rounds = |name| -> Option<Vec<Option<f64>>> {
        let entry = entries.iter().find(|entry| entry.about.name == name)?;
        Some(entry.of(context).map(|record| record?.get(metric)).collect())
    };
    Ratio::of_rounds(&rounds(ARENA)?, &rounds(MALLOC)?)
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
    let contexts = tables::contexts(&store, &own);
    if json {
        contexts.rows.iter().try_for_each(json_line)?;
    } else if store.charts.is_empty() {
        line(format!("{}: nothing can be read from /proc.", styled(HEADING, "This machine")))?;
        line("")?;
    } else {
        contexts.print(&format!(
            "{}: {} charts with {} dimensions, read from /proc {} times",
            styled(HEADING, "This machine"),
            grouped(store.charts.len() as u64),
            grouped(store.dimensions() as u64),
            size.samples,
        ))?;
    }

    let progress = Progress::new(2 * size.rounds * full_size.len());
    let sequential = QueriesArguments::synthetic(size.charts, size.queries, 1, 1);
    let sequential = rounds(size.rounds, &full_size, &progress, &sequential, None);
    let parallel = QueriesArguments::synthetic(size.charts, size.queries, workers, size.queries);
    let parallel = rounds(size.rounds, &full_size, &progress, &parallel, None);
    drop(progress);
    let workers = counted(workers, "worker");
    let tables = [
        ("sequential test, 1 caller".to_owned(), tables::full_size("sequential", &sequential)),
        (
            format!("parallel test, {} callers served by {workers}", size.queries),
            tables::full_size("parallel", &parallel),
        ),
    ];
    if !json {
        say(format!(
            "{}: {} charts of {DIMENSIONS} dimensions, {} queries, medians of {} rounds",
            styled(HEADING, "Full size"),
            size.charts,
            size.queries,
            size.rounds,
        ))?;
        say(String::new())?;
    }
    for (title, table) in &tables {
        if json { table.rows.iter().try_for_each(json_line)? } else { table.print(title)? }
    }

    let saved = |entries| arena_to_malloc(entries, 0, &SECONDS);
    for text in take_home(saved(&sequential), saved(&parallel), size.queries).into_iter().flatten()
    {
        say(styled(BEST, wrapped(&text)))?;
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
) -> Vec<AllocatorRounds> {
    let mut entries: Vec<AllocatorRounds> =
        allocators.iter().map(|about| AllocatorRounds { about, rounds: Vec::new() }).collect();
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

/// The conclusion in two lines: the arena's time compared with malloc's, for one caller and for
/// many. They are the same lines if the arena loses.
fn take_home(one: Option<Ratio>, many: Option<Ratio>, callers: usize) -> Option<[String; 2]> {
    let (one, many) = (one?, many?);
    let saved = (1.0 - one.median) * 100.0;
    let percent = format!("{:.0}", saved.abs());
    let time = match percent.as_str() {
        "0" => "the same time as".to_owned(),
        _ => format!("{percent} % {} time than", if saved > 0.0 { "less" } else { "more" }),
    };
    // The sign of the saving, as in the words before it.
    let percents = |Interval { low, high }: Interval| {
        let (least, most) =
            if saved > 0.0 { (1.0 - high, 1.0 - low) } else { (low - 1.0, high - 1.0) };
        format!("{:.0} to {:.0} %", least * 100.0, most * 100.0)
    };
    let speed = many.inverse();
    let times = |Interval { low, high }: Interval| format!("{low:.2} to {high:.2} times");
    Some([
        format!("Here an arena answers one caller in {time} malloc: {}.", remark(&one, percents)),
        format!(
            "It answers {callers} callers {:.2} times as fast as malloc: {}.",
            speed.median,
            remark(&many, |_| speed.interval.map(times).unwrap_or_default()),
        ),
    ])
}

/// The verdict of a ratio of times, with the interval in words.
fn remark(time: &Ratio, words: impl Fn(Interval) -> String) -> String {
    match time.verdict().zip(time.interval) {
        Some((verdict, interval)) => format!("{verdict} (95 % interval {})", words(interval)),
        None => format!("too few rounds for an interval, which takes {FEWEST_ROUNDS}"),
    }
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

    fn of(median: f64, low: f64, high: f64) -> Option<Ratio> {
        Some(Ratio { median, interval: Some(Interval { low, high }) })
    }

    #[test]
    fn the_lines_to_take_home_are_honest_also_if_we_lose() {
        assert_eq!(
            take_home(of(0.6, 0.58, 0.61), of(0.4, 0.35, 0.5), 16).unwrap(),
            [
                "Here an arena answers one caller in 40 % less time than malloc: ahead (95 % interval 39 to 42 %).",
                "It answers 16 callers 2.50 times as fast as malloc: ahead (95 % interval 2.00 to 2.86 times).",
            ]
        );
        assert_eq!(
            take_home(of(1.25, 1.2, 1.3), of(1.01, 0.98, 1.03), 16).unwrap(),
            [
                "Here an arena answers one caller in 25 % more time than malloc: behind (95 % interval 20 to 30 %).",
                "It answers 16 callers 0.99 times as fast as malloc: level (95 % interval 0.97 to 1.02 times).",
            ]
        );
        let lines = take_home(of(1.0, 0.9, 1.1), of(2.0, 1.9, 2.2), 16).unwrap();
        assert!(lines[0].contains("in the same time as malloc: level"), "{lines:?}");
        assert!(lines[1].contains("0.50 times as fast as malloc: behind"), "{lines:?}");
        assert_eq!(take_home(None, of(1.0, 1.0, 1.0), 16), None);
        let one_round = Some(Ratio { median: 0.6, interval: None });
        let lines = take_home(one_round, one_round, 16).unwrap();
        assert!(lines.iter().all(|line| line.contains("too few rounds")), "{lines:?}");
    }

    #[test]
    fn the_lines_to_take_home_fit_in_lines() {
        let lines = take_home(of(0.123, -0.1, 1.12), of(0.0123, 0.0121, 0.0125), 256).unwrap();
        for line in lines {
            assert!(line.chars().count() <= crate::console::print::WIDTH, "{line}");
        }
    }
}
