//! Replays a recording on other allocators, and says which advice holds.
//!
//! The events are read twice more: [survey] finds which blocks cross from thread to thread, [compile] makes
//! [steps](sequence) in a file without a name. A [worker] in a process of its own does them by one allocator or [plan],
//! in [rounds]; [judge] says what that means for the advice. [check] shows that the steps are what was recorded.

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
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
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

/// Plans of one group each that are replayed: those with the largest gain.
const MOST_PLANS: usize = 12;
/// Rounds that are run where nobody says how many: as many as there is time for, at most so many; so many within three times that
/// time; and in any case so many.
const MOST_ROUNDS: usize = 15;
const WANTED_ROUNDS: usize = 5;
const LEAST_ROUNDS: usize = 3;
/// The time for them where nobody says another.
const TIME: Duration = Duration::from_secs(60);
/// Part of it for the rounds that judge each plan; the rest is for all together, and for the ceilings.
const FIRST_PART: f64 = 2.0 / 3.0;
/// What glibc's calls take of a program's CPU time in its replay, from which on one of the two figures is wrong.
const MOST_OF_PROGRAM: f64 = 0.9;
/// The mallocs that a program is replayed on where nobody says which.
const MALLOCS: [&str; 3] = ["jemalloc", "mimalloc", "snmalloc"];
const NULL: &str = "null";

/// `allot replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArguments {
    /// What `allot record` made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Allocators that take everything, beside null and glibc; without it jemalloc, mimalloc and snmalloc
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// How many rounds; without it 3 to 15, as many as there is time for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Time for all rounds, in seconds; there is one round in any case. Without it a minute, and up to three for five rounds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: Option<u32>,
    /// Figures and verdicts as one JSON object
    #[arg(long)]
    json: bool,
    /// Compare live bytes with the recording's after every step, and check that no two live blocks overlap; exit code 1 if
    /// that fails
    #[arg(long)]
    check: bool,
    /// Which process of the recording, counted from 0; without it the one with the most events
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Try an allocator for a group instead of what is advised: arena, arena-without-reset, reap, free-list, pool, slab; a group by
    /// its number in `allot analyse --json`, or `all`
    #[arg(long = "try", value_name = "GROUP=ALLOCATOR")]
    tries: Vec<Try>,
}

/// What help says below the options.
pub const EXAMPLES: &str = "
Every allocator, and every plan, runs the recorded allocations and frees in a fresh process, in the recorded order of each
thread; blocks that another thread frees wait for their allocation. Each byte of a new block is written once. A plan follows
one advice of `allot analyse`, and leaves the rest to glibc. Time is CPU time with the harness, whose own is the row null;
memory is the peak beyond what the harness holds. What is replayed is the allocating, not the program: its own
loads from memory may gain or lose by another layout.

An advice is confirmed if its plan is quicker than glibc by more than 1 %, as far as chance would make it look so less than once
in twenty (a signed-rank test of the ratios within each round), takes at most 1.5 times its memory, and saves at least 1 % of the
program's CPU time; else it is withdrawn. Of three or four rounds all have to be quicker by 5 %, and by twice what a round typically
lies from the median; of fewer by 20 %. What was confirmed is then run together, and once more with
its blocks from nowhere, which is the most that can be saved. Plans of the twelve groups with the largest gain are tried.

Rounds take a minute in all, up to three if five rounds need them, and longer only for the first three; --time says otherwise.
The steps wait in a file without a name in TMPDIR, 8 bytes an event. A child holds the program's blocks, written to up to 64 MiB
each, and some 10 bytes for each block that is live; what would need more memory than there is isn't run. At most 4,096 threads are
started. Ctrl-C ends it and its children.

Examples:
  allot record -o jq.rec -- jq length big.json
  allot replay jq.rec
  allot replay jq.rec --allocators mimalloc,tcmalloc --rounds 9 --json
  allot replay jq.rec --try 0=reap       another allocator than the one that is advised
  allot replay jq.rec --check            does the replay do what the program did?";

/// How to replay.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Mallocs beside glibc; `None`: those that are there of the usual ones.
    pub allocators: Option<Vec<String>>,
    /// `None`: as many as there is time for.
    pub rounds: Option<usize>,
    /// Compare live bytes with the recording's.
    pub check: bool,
    /// How long all rounds may take; `None`: a minute or so, and enough rounds in any case.
    pub time: Option<Duration>,
    /// Show the progress on a terminal.
    pub progress: bool,
    /// Once it is set, no further round begins, and the one that runs is ended: there is a verdict of those that were done, and
    /// [`Failure::Interrupted`] where that are too few for one.
    pub stop: Option<&'static AtomicBool>,
}

impl Options {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The rounds of a part of the time.
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

/// An error where somebody has stopped it.
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
    let analysing = analyse::Options {
        process: arguments.process,
        progress: true,
        // Of what a replay takes, the analysis is the smallest part of the time, and must not be the largest of the memory.
        frugal: true,
        ..analyse::Options::default()
    };
    let mut analysis = analyse::analyse(&arguments.file, &analysing)?;
    for tried in &arguments.tries {
        tried.apply(&mut analysis.findings)?;
    }
    replay(&arguments.file, &mut analysis, &options)?;
    let findings = &analysis.findings;
    if arguments.json {
        output::line(table::json(findings)?)?;
    } else {
        output::line(table::table(findings).trim_end())?;
    }
    match findings.replay.as_ref().and_then(|replay| replay.faithful) {
        Some(false) => Err(Failure::Failed(
            "the replay doesn't do what was recorded; what differs is said above".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Replays the process that was analysed; fills in [`Findings::replay`](analyse::findings::Findings::replay), what it says of
/// each advice, and what each gains. Where it fails, or is stopped too early, the analysis stays as it was.
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
        return Err(Failure::Failed(format!("{}: it can't be replayed: {why}", path.display())));
    }
    let refused = |route: &Route| {
        room::refuse(peak.saturating_add(room::held(route, &analysis.findings)), room)
    };
    let mut unproved: Vec<(u32, String)> = left
        .iter()
        .map(|route| (route.group, format!("only the {MOST_PLANS} with the largest gain are")))
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

/// What is run to judge each plan.
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

/// What is run of the plans that were confirmed: all of them together, and what each, and all, can save at most.
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

/// What puts the figures in doubt.
fn doubts(program: &Program, replay: &Replay) -> Vec<Note> {
    let mut notes = Vec::new();
    if cfg!(debug_assertions) {
        notes.push(
            "This allot was built without optimisation: the times of its replay, and the gains, mean nothing. Build it with --release."
                .to_owned(),
        );
    }
    if replay.ceiling.is_some_and(|ceiling| ceiling > MOST_OF_PROGRAM) {
        notes.push(
            "glibc's calls take nearly as long in the replay as the whole program did: the machine was busier than then, or the program's CPU time is estimated too low. Gains are too high."
                .to_owned(),
        );
    }
    if replay.interrupted {
        notes.push("The replay was interrupted: it has fewer rounds than were wanted.".to_owned());
    }
    if program.truncated {
        notes.push(
            "The recording ends before the program did; gains are set against the CPU time of the whole program where that is known."
                .to_owned(),
        );
    }
    notes.into_iter().map(|text| Note { warning: true, text }).collect()
}

/// Whether there is an advice whose allocator has to be tried.
fn wants_plan(verdict: &Verdict) -> bool {
    matches!(verdict.category, Category::Transient | Category::Shared | Category::ReadOnlyShared)
}

fn malloc(name: &str) -> Entry {
    Entry { name: name.to_owned(), groups: Vec::new(), who: Who::Malloc(name.to_owned()) }
}

/// The mallocs beside glibc that are asked for.
fn mallocs(options: &Options) -> Result<Vec<String>, Failure> {
    let known = || peers::known().iter().filter(|about| about.global).map(|about| about.name);
    let Some(asked) = &options.allocators else {
        let there = MALLOCS.iter().filter(|name| known().any(|known| known == **name));
        return Ok(there.map(|name| (*name).to_owned()).collect());
    };
    let mut names: Vec<String> = Vec::new();
    for name in asked {
        if name != NULL && !known().any(|known| known == name) {
            let known: Vec<&str> = known().collect();
            return Err(Failure::Usage(format!(
                "'{name}' isn't a malloc that everything can be replayed on; there are {NULL}, {}",
                known.join(", ")
            )));
        }
        if name != NULL && name != REST && !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}
