//! Replays a recording with other allocators, and judges the advice by the result.
//!
//! Two more passes over the events prepare this: [survey] finds the blocks that one thread allocates and
//! another frees, and [compile] writes [steps](sequence) to an unnamed file. A [worker] in a process of
//! its own performs them with one allocator or [plan], in [rounds]; [judge] gives the verdicts. [check]
//! verifies that the steps do what was recorded.

mod blocks;
mod check;
mod compile;
mod judge;
mod lanes;
mod memory;
mod nowhere;
mod perform;
mod plan;
mod room;
mod rounds;
mod rows;
mod sequence;
mod stage;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod tried;
mod watch;
mod worker;

use crate::analyse::findings::{Category, Note, Program, Replay, Verdict};
use crate::analyse::{self, Analysis};
use bench::console::failure::Failure;
use bench::console::print;
use bench::console::progress::Progress;
use plan::Route;
use rounds::{Entry, Limits};
use rows::Rows;
use stage::Stage;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tried::Try;
use worker::{REST, Who};

pub use worker::run as run_round;

/// The most plans that are replayed: those of the groups with the largest gain.
const MOST_PLANS: usize = 12;
/// Rounds without `--rounds`: as many as fit in [`TIME`], up to `MOST_ROUNDS`; `WANTED_ROUNDS` if they fit
/// in three times [`TIME`]; always at least `LEAST_ROUNDS`.
const MOST_ROUNDS: usize = 15;
const WANTED_ROUNDS: usize = 5;
const LEAST_ROUNDS: usize = 3;
/// The time for all rounds without `--time`.
const TIME: Duration = Duration::from_secs(60);
/// The part of the time for the rounds that judge each plan; the rest is for all confirmed plans
/// together, and for the ceilings.
const FIRST_PART: f64 = 2.0 / 3.0;
/// If glibc's calls take a larger share of the program's CPU time in the replay, one of the two figures
/// is wrong.
const MOST_OF_PROGRAM: f64 = 0.9;
/// The mallocs without `--allocators`.
const MALLOCS: [&str; 3] = ["jemalloc", "mimalloc", "snmalloc"];
const NULL: &str = "null";

/// `allot replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArguments {
    /// A recording made by `allot record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replay everything also with these mallocs; by default those of jemalloc, mimalloc and snmalloc
    /// that are built in
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Number of rounds; by default 3 to 15, as many as fit in --time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Time limit for all rounds together; at least one round runs. By default 60, and up to 180 if five rounds need it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: Option<u32>,
    /// Print figures and verdicts as one JSON object
    #[arg(long)]
    json: bool,
    /// Also check the replay: live bytes must equal the recording's after every step, and no two
    /// live blocks may overlap; exit code 1 if that fails
    #[arg(long)]
    check: bool,
    /// Replay this process of the recording, numbered from 0; by default the one with the most events
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Replay a group with this allocator instead of the advised one. GROUP is a number in
    /// `allot analyse --json`, or all; ALLOCATOR is arena, arena-without-reset, reap, free-list,
    /// pool or slab
    #[arg(long = "try", value_name = "GROUP=ALLOCATOR")]
    tries: Vec<Try>,
}

/// For `allot replay --help`.
pub const EXAMPLES: &str = "
The table has these rows:
  null                  no allocator: the cost of the replay itself, contained in every other row
  glibc                 glibc's malloc for everything; the other rows are compared with it
  mimalloc, ...         another malloc for everything
  arena for group 0     a plan: the advised allocator for one group, glibc for the rest

Each row of each round runs in a fresh process, in the recorded order of each thread. A block that
another thread frees is freed after its allocation. Every byte of a new block is written once.
CPU time is that of all threads; memory is the peak beyond what the replay itself holds. The
replay covers allocating and freeing, not the program's own work, which may gain or lose by
another layout of its memory.

An advice is confirmed if its plan
  - is faster than glibc by more than 1 %; the probability that chance alone looks like that has to
    be below 1 in 20 (signed-rank test of the ratios within each round; with 3 or 4 rounds, each
    must be faster by 5 % and by twice the typical distance of a round from the median; with 1 or
    2 rounds, by 20 %),
  - takes at most 1.5 times glibc's peak memory, or 1 MiB more,
  - saves at least 1 % of the program's CPU time.
Otherwise it is not confirmed, and the reason is printed. The confirmed plans are then run together,
and once more without any cost for their blocks: no allocator can save more than that. Only the
twelve groups with the largest gain are tried.

All rounds take a minute, up to three minutes if five rounds need them, and longer only for the
first three; --time changes that. The steps are in an unnamed file in TMPDIR, 8 bytes per event. A
child process holds the program's blocks, of which up to 64 MiB each is written, 8 bytes for each
live block, 64 KiB per thread and 32 bytes per different size. A row that needs more memory than
there is isn't run. At most 4,096 threads are started. Ctrl-C ends the replay and its children.

Examples:
  allot record -o jq.rec -- jq length big.json
  allot replay jq.rec
  allot replay jq.rec --allocators mimalloc,tcmalloc --rounds 9 --json
  allot replay jq.rec --try 0=reap       try another allocator for group 0
  allot replay jq.rec --check            check that the replay does what the program did";

/// Options of a replay.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Mallocs besides glibc; `None`: jemalloc, mimalloc and snmalloc, as far as they are built in.
    pub allocators: Option<Vec<String>>,
    /// `None`: as many as fit in the time.
    pub rounds: Option<usize>,
    /// Compare live bytes with the recording's.
    pub check: bool,
    /// Time limit for all rounds; `None`: about a minute, longer for the least number of rounds.
    pub time: Option<Duration>,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// Once it is set, the running round is ended and no further one begins. The verdicts use the rounds
    /// done so far; if these are too few, the replay fails with [`Failure::Interrupted`].
    pub stop: Option<&'static AtomicBool>,
}

impl Options {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The limits of rounds that may take this part of the time.
    fn limits(&self, part: f64) -> Limits {
        let (least, wanted) = match self.time {
            Some(_) => (1, 1),
            None => (LEAST_ROUNDS, WANTED_ROUNDS),
        };
        let time = self.time.unwrap_or(TIME).mul_f64(part);
        match (self.rounds, self.time) {
            (Some(rounds), None) => Limits { most: rounds, least: rounds, wanted: rounds, time },
            (most, _) => Limits { most: most.unwrap_or(MOST_ROUNDS), least, wanted, time },
        }
    }
}

/// Fails if the replay was stopped.
fn interrupted(options: &Options) -> Result<(), Failure> {
    if options.is_stopped() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Runs the command.
pub fn run(arguments: &ReplayArguments) -> Result<(), Failure> {
    let options = Options {
        allocators: arguments.allocators.clone(),
        rounds: arguments.rounds.map(|rounds| rounds as usize),
        check: arguments.check,
        time: arguments.time.map(|seconds| Duration::from_secs(seconds.into())),
        progress: true,
        ..Options::default()
    };
    mallocs(&options)?;
    let analysing = analyse::AnalyseOptions {
        process: arguments.process,
        progress: true,
        // The analysis takes the smallest part of a replay's time; it must not need most of the memory.
        frugal: true,
        ..analyse::AnalyseOptions::default()
    };
    let mut analysis = analyse::analyse(&arguments.file, &analysing)?;
    for tried in &arguments.tries {
        tried.apply(&mut analysis.findings)?;
    }
    replay(&arguments.file, &mut analysis, &options)?;
    let findings = &analysis.findings;
    if arguments.json {
        print::line(table::json(findings)?)?;
    } else {
        print::line(table::table(findings).trim_end())?;
    }
    match findings.replay.as_ref().and_then(|replay| replay.faithful) {
        Some(false) => Err(Failure::Failed(
            "the replay differs from the recording, as said above; don't rely on its figures"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Replays the analysed process. Fills in [`Findings::replay`](analyse::findings::Findings::replay), and
/// the outcome and gain of each advice. If it fails or is stopped too early, the analysis stays as it was.
pub fn replay(path: &Path, analysis: &mut Analysis, options: &Options) -> Result<(), Failure> {
    let mallocs = mallocs(options)?;
    let routes: Vec<Route> = analysis
        .findings
        .groups
        .iter()
        .filter(|group| wants_plan(&group.verdict))
        .filter_map(Route::of)
        .collect();
    let (planned, left) = routes.split_at(routes.len().min(MOST_PLANS));
    let mut stage = Stage::new(path, analysis, planned, options)?;

    let (room, peak) = (room::available(), stage.sequence.peak_touched);
    if let Some(why) = room::refuse(peak, room) {
        return Err(Failure::Failed(format!("{} can't be replayed: {why}", path.display())));
    }
    let refused = |route: &Route| {
        room::refuse(peak.saturating_add(room::held(route, &analysis.findings)), room)
    };
    let mut unproved: Vec<(u32, String)> = left
        .iter()
        .map(|route| {
            (route.group, format!("only the {MOST_PLANS} groups with the largest gain are"))
        })
        .collect();
    unproved.extend(planned.iter().filter_map(|route| Some((route.group, refused(route)?))));
    let planned: Vec<Route> =
        planned.iter().filter(|route| refused(route).is_none()).copied().collect();

    let entries = entries(&mallocs, &planned);
    let faithful = stage.check(&entries)?;
    let first = rounds_of(&stage, entries, options.limits(FIRST_PART), options);
    let confirmed = first.judge_plans(&mut analysis.findings)?;
    for (group, why) in &unproved {
        judge::unproved(&mut analysis.findings.groups[*group as usize], why);
    }
    let second = (!confirmed.is_empty() && !options.is_stopped()).then(|| {
        let limits = options.limits(1.0 - FIRST_PART);
        let limits = Limits { most: first.glibc().len().min(limits.most), ..limits };
        rounds_of(&stage, entries_together(&confirmed, &planned), limits, options)
            .at_the_pace_of(&first)
    });
    let findings = &mut analysis.findings;
    let together = second.as_ref().and_then(|second| first.together(second, &confirmed, findings));
    let better_malloc = first.judge_mallocs(together.as_ref(), findings);
    let mut replay = first.summary(second.as_ref(), &findings.program);
    (replay.together, replay.better_malloc) = (together, better_malloc);
    replay.steps = stage.sequence.steps;
    replay.threads = stage.sequence.lanes.iter().map(Vec::len).sum::<usize>() as u32;
    replay.faithful = faithful;
    replay.interrupted = options.is_stopped();
    findings.notes.extend(stage.notes());
    findings.notes.extend(doubts(&findings.program, &replay));
    findings.replay = Some(replay);
    Ok(())
}

/// The rows that judge each plan.
fn entries(mallocs: &[String], planned: &[Route]) -> Vec<Entry> {
    let mut entries =
        vec![Entry { name: NULL.to_owned(), groups: Vec::new(), who: Who::Null }, malloc(REST)];
    entries.extend(mallocs.iter().map(|name| malloc(name)));
    entries.extend(planned.iter().map(|route| Entry {
        name: format!("{} for group {}", tried::word(route), route.group),
        groups: vec![route.group],
        who: Who::Plan(vec![*route]),
    }));
    entries
}

/// The rows for the confirmed plans: all of them together, and the ceilings of each and of all.
fn entries_together(confirmed: &[u32], planned: &[Route]) -> Vec<Entry> {
    let without = |groups: &[u32]| Entry {
        name: match groups {
            [one] => format!("without group {one}"),
            _ => "without all of them".to_owned(),
        },
        groups: groups.to_vec(),
        who: Who::Without(groups.to_vec()),
    };
    let mut entries = vec![malloc(REST)];
    if confirmed.len() > 1 {
        let routes: Vec<Route> =
            planned.iter().filter(|route| confirmed.contains(&route.group)).copied().collect();
        entries.push(Entry {
            name: "all that was confirmed".to_owned(),
            groups: confirmed.to_vec(),
            who: Who::Plan(routes),
        });
        entries.push(without(confirmed));
    }
    entries.extend(confirmed.iter().map(|group| without(&[*group])));
    entries
}

fn rounds_of(stage: &Stage, entries: Vec<Entry>, limits: Limits, options: &Options) -> Rows {
    let progress = Progress::shown_if(options.progress, limits.most * entries.len());
    let stopped = || options.is_stopped();
    let found = rounds::run(&entries, limits, &progress, &stopped, |entry| stage.round(entry));
    Rows::new(entries, found)
}

/// Warnings about the figures.
fn doubts(program: &Program, replay: &Replay) -> Vec<Note> {
    let mut notes = Vec::new();
    if cfg!(debug_assertions) {
        notes.push(
            "This allot was built without optimisation, so the times of the replay and the gains mean nothing. Build it with --release."
                .to_owned(),
        );
    }
    if replay.ceiling.is_some_and(|ceiling| ceiling > MOST_OF_PROGRAM) {
        notes.push(
            "In the replay, glibc's calls take nearly as long as the whole program did: the machine was busier than during the recording, or the program's CPU time is estimated too low. The gains are too high. Run it again on an idle machine, or with --against-bare."
                .to_owned(),
        );
    }
    if replay.interrupted {
        notes.push("The replay was interrupted, so it has fewer rounds than planned.".to_owned());
    }
    if program.truncated {
        notes.push(
            "The recording ends before the program did; gains are shares of the CPU time of the whole program, if that is known."
                .to_owned(),
        );
    }
    notes.into_iter().map(|text| Note { warning: true, text }).collect()
}

/// Whether the verdict advises an allocator that the replay has to try.
fn wants_plan(verdict: &Verdict) -> bool {
    matches!(verdict.category, Category::Transient | Category::Shared | Category::ReadOnlyShared)
}

fn malloc(name: &str) -> Entry {
    Entry { name: name.to_owned(), groups: Vec::new(), who: Who::Malloc(name.to_owned()) }
}

/// The wanted mallocs besides glibc.
fn mallocs(options: &Options) -> Result<Vec<String>, Failure> {
    let known =
        || bench::peers::known().iter().filter(|about| about.global).map(|about| about.name);
    let Some(asked) = &options.allocators else {
        let there = MALLOCS.iter().filter(|name| known().any(|known| known == **name));
        return Ok(there.map(|name| (*name).to_owned()).collect());
    };
    let mut names: Vec<String> = Vec::new();
    for name in asked {
        if name != NULL && !known().any(|known| known == name) {
            let known: Vec<&str> = known().collect();
            return Err(Failure::Usage(format!(
                "'{name}' is not a malloc that can replay everything; choose from {NULL}, {}",
                known.join(", ")
            )));
        }
        if name != NULL && name != REST && !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}
