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
mod perform;
mod plan;
mod rounds;
mod sequence;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod tried;
mod worker;

use crate::analyse::findings::{Category, Note, Replay, ReplayFailure, ReplayRow, Verdict};
use crate::analyse::{self, Analysis, NO_SITE};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::statistics::{median, median_whole};
use crate::table::grouped;
use allot_trace::Reader;
use check::Curve;
use compile::Purpose;
use judge::Rival;
use plan::Route;
use rounds::{Entry, Found, Limits, Standing};
use sequence::{NO_GROUP, Sequence};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tried::Try;
use worker::{Job, REST, Round, Who};

pub use worker::run as run_round;

/// Plans of one group each that are replayed: those with the largest gain.
const MOST_PLANS: usize = 12;
/// Rounds that are run where nobody says how many: as many as there is time for, but so many at least and at most.
const LEAST_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 15;
const TIME: Duration = Duration::from_secs(60);
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
    /// How many rounds; without it 5 to 15, as many as there are in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
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

An advice is confirmed if its plan beats glibc by more than the noise, takes at most 1.5 times its memory, and saves at least
1 % of the program's CPU time; else it is withdrawn. The noise is twice what a round typically lies from the median, and at least
1 %; 20 % where there are fewer than three rounds.

The steps wait in a file without a name in TMPDIR, 8 bytes an event; each child has them in memory. Blocks are
written to up to 64 MiB.

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

/// Runs the command.
pub fn run(arguments: &ReplayArguments) -> Result<(), Failure> {
    let options = Options {
        allocators: arguments.allocators.clone(),
        rounds: arguments.rounds.map(|rounds| rounds as usize),
        check: arguments.check,
        progress: true,
        ..Options::default()
    };
    mallocs(&options)?;
    let analysing = analyse::Options {
        process: arguments.process,
        progress: true,
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

/// Replays the process that was analysed; fills in [`Findings::replay`](analyse::findings::Findings::replay) and what it says of
/// each advice.
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
    let mut entries =
        vec![Entry { name: NULL.to_owned(), groups: Vec::new(), who: Who::Null }, malloc(REST)];
    entries.extend(mallocs.iter().map(|name| malloc(name)));
    entries.extend(planned.iter().map(|route| Entry {
        name: format!("{} for group {}", tried::word(route), route.group),
        groups: vec![route.group],
        who: Who::Plan(vec![*route]),
    }));
    let most = options.rounds.unwrap_or(MOST_ROUNDS);
    let least = options.rounds.unwrap_or(LEAST_ROUNDS);
    let limits = Limits { most, least, time: TIME };
    let progress = Progress::new(2 + usize::from(options.check) + most * entries.len());
    let mut stage = Stage::new(path, analysis, planned, options.check, &progress)?;
    let faithful = if options.check { Some(stage.check(&entries, &progress)?) } else { None };
    let found = rounds::run(&entries, limits, &progress, |entry| stage.round(entry));
    drop(progress);
    let mut ran: Vec<(Entry, Found)> = entries.into_iter().zip(found).collect();
    let glibc: Vec<Round> = match &ran[1].1 {
        Ok(rounds) => rounds.clone(),
        Err(why) => {
            return Err(Failure::Failed(format!(
                "{REST}'s row failed, so nothing can be compared: {why}"
            )));
        }
    };
    let confirmed = judge_plans(&ran, &glibc, analysis);
    for route in left {
        let group = &mut analysis.findings.groups[route.group as usize];
        judge::unproved(group, "only the twelve with the largest gain are");
    }
    let best = judge::best(rivals(&ran, &glibc));
    let mut glibc_then = glibc.clone();
    let together = match confirmed.as_slice() {
        [] => None,
        [one] => standing_of(&ran, &glibc, *one),
        several => {
            let routes: Vec<Route> =
                planned.iter().filter(|route| several.contains(&route.group)).copied().collect();
            let entry = Entry {
                name: "all that was confirmed".to_owned(),
                groups: several.to_vec(),
                who: Who::Plan(routes),
            };
            let both = [malloc(REST), entry.clone()];
            let limits = Limits { most: glibc.len(), least: glibc.len(), time: TIME };
            let progress = Progress::new(2 * limits.most);
            let mut found = rounds::run(&both, limits, &progress, |entry| stage.round(entry));
            let own = found.pop().unwrap_or_else(|| Ok(Vec::new()));
            let base = found.pop().and_then(Result::ok).unwrap_or_default();
            let standing = own.as_ref().ok().and_then(|own| Standing::of(own, &base));
            glibc_then = base;
            ran.push((entry, own));
            standing
        }
    };
    if let (Some(best), Some(together)) = (&best, &together)
        && judge::gives_as_much(best, together)
    {
        for group in &confirmed {
            judge::prefer_malloc(&mut analysis.findings.groups[*group as usize], best, together);
        }
    }
    for group in &mut analysis.findings.groups {
        if group.verdict.category == Category::BetterMalloc && group.verdict.replayed.is_none() {
            judge::malloc(group, best.as_ref());
        }
    }
    analysis.findings.replay =
        Some(summary(&ran, [&glibc, &glibc_then], confirmed.len() > 1, &stage.sequence, faithful));
    analysis.findings.notes.extend(stage.notes());
    Ok(())
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

/// The groups whose plan is confirmed by itself.
fn judge_plans(ran: &[(Entry, Found)], glibc: &[Round], analysis: &mut Analysis) -> Vec<u32> {
    let findings = &mut analysis.findings;
    let mut confirmed = Vec::new();
    for (entry, found) in ran {
        let [group] = entry.groups[..] else { continue };
        let group = &mut findings.groups[group as usize];
        let standing = found.as_ref().ok().and_then(|rounds| Standing::of(rounds, glibc));
        match (standing, found) {
            (Some(standing), _) => {
                let outcome = if group.verdict.candidate {
                    judge::candidate(&standing)
                } else {
                    judge::plan(&standing, &findings.program)
                };
                if outcome.confirmed && !group.verdict.candidate {
                    confirmed.push(group.id);
                }
                judge::settle(group, outcome, &standing, &findings.program);
            }
            (None, Err(why)) => judge::unproved(group, why),
            (None, Ok(_)) => judge::unproved(group, "glibc has no rounds to compare it with"),
        }
    }
    confirmed
}

fn standing_of(ran: &[(Entry, Found)], glibc: &[Round], group: u32) -> Option<Standing> {
    let (_, found) = ran.iter().find(|(entry, _)| entry.groups == [group])?;
    Standing::of(found.as_ref().ok()?, glibc)
}

fn rivals(ran: &[(Entry, Found)], glibc: &[Round]) -> Vec<Rival> {
    ran.iter()
        .filter(|(entry, _)| matches!(&entry.who, Who::Malloc(name) if name != REST))
        .filter_map(|(entry, found)| {
            let standing = Standing::of(found.as_ref().ok()?, glibc)?;
            Some(Rival { name: entry.name.clone(), standing })
        })
        .collect()
}

/// The figures. The last row, if there is one for all plans together, is beside a glibc of its own.
fn summary(
    ran: &[(Entry, Found)],
    glibc: [&[Round]; 2],
    together: bool,
    sequence: &Sequence,
    faithful: Option<bool>,
) -> Replay {
    let mut replay = Replay {
        rounds: glibc[0].len() as u32,
        noise: median(ran.iter().filter_map(|(_, found)| rounds::spread(found.as_ref().ok()?)))
            .unwrap_or_default(),
        steps: sequence.steps,
        threads: sequence.lanes.iter().map(Vec::len).sum::<usize>() as u32,
        faithful,
        ..Replay::default()
    };
    for (at, (entry, found)) in ran.iter().enumerate() {
        let rounds = match found {
            Ok(rounds) => rounds,
            Err(reason) => {
                let (name, reason) = (entry.name.clone(), reason.clone());
                replay.failed.push(ReplayFailure { name, reason });
                continue;
            }
        };
        let base = glibc[usize::from(together && at + 1 == ran.len())];
        let standing = Standing::of(rounds, base);
        let times = || rounds.iter().map(|round| round.time_ns);
        replay.rows.push(ReplayRow {
            name: entry.name.clone(),
            groups: entry.groups.clone(),
            time_ns: median_whole(rounds, |round| Some(round.time_ns)).unwrap_or_default(),
            least_ns: times().min().unwrap_or_default(),
            most_ns: times().max().unwrap_or_default(),
            wall_ns: median_whole(rounds, |round| Some(round.wall_ns)).unwrap_or_default(),
            peak_resident: rounds::peak(rounds),
            minor_faults: median_whole(rounds, |round| round.minor_faults),
            time_ratio: standing.map(|standing| standing.time),
            memory_ratio: standing.and_then(|standing| standing.memory),
            gain: None,
        });
    }
    replay
}

/// A compiled recording, and the file of its steps.
struct Stage {
    sequence: Sequence,
    steps: File,
    /// The curve of the recording, where it is to be compared.
    curve: Option<Curve>,
    doubts: Vec<String>,
}

impl Stage {
    fn new(
        path: &Path,
        analysis: &Analysis,
        routes: &[Route],
        check: bool,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let told =
            |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
        let reader = Reader::open(path).map_err(|error| told(&error))?;
        let events = || reader.events(analysis.process).map_err(|error| told(&error));
        progress.say("reading which blocks go from thread to thread");
        let survey = survey::survey(&mut events()?).map_err(|error| told(&error))?;
        if survey.events == 0 {
            return Err(told(
                &"the process neither allocated nor freed, so there is nothing to replay",
            ));
        }
        progress.step();
        progress.say("making the steps to replay");
        let groups = analysis.findings.groups.len();
        let mut purpose =
            Purpose { group_of: Vec::new(), scoped: vec![false; groups], turns: check };
        for route in routes {
            purpose.scoped[route.group as usize] = route.is_scoped();
        }
        purpose.group_of = analysis
            .site_of
            .iter()
            .map(|site| match site {
                &NO_SITE => NO_GROUP,
                site => Some(analysis.findings.sites[*site as usize].group)
                    .filter(|group| routes.iter().any(|route| route.group == *group))
                    .unwrap_or(NO_GROUP),
            })
            .collect();
        let mut steps =
            tempfile::tempfile().map_err(|error| told(&compile::CompileError::Write(error)))?;
        let sequence = compile::compile(&mut events()?, &survey, &purpose, &mut steps)
            .map_err(|error| told(&error))?;
        progress.step();
        let curve = if check {
            Some(check::recorded(&mut events()?).map_err(|error| told(&error))?)
        } else {
            None
        };
        Ok(Self { sequence, steps, curve, doubts: Vec::new() })
    }

    fn job(&self, who: &Who, check: bool) -> Job {
        Job {
            // Ours is the only name that it has.
            file: PathBuf::from(format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                self.steps.as_raw_fd()
            )),
            sequence: self.sequence.clone(),
            who: who.clone(),
            check,
        }
    }

    fn round(&self, entry: &Entry) -> Result<Round, String> {
        rounds::in_child(&self.job(&entry.who, false))
    }

    /// Whether glibc and all plans hold what the program held, with no blocks overlapping.
    fn check(&mut self, entries: &[Entry], progress: &Progress) -> Result<bool, Failure> {
        let Some(recorded) = &self.curve else { return Ok(true) };
        let mut doubts = Vec::new();
        for entry in entries {
            if !matches!(&entry.who, Who::Plan(_)) && entry.name != REST {
                continue;
            }
            progress.say(&format!("comparing live bytes with the recording's: {}", entry.name));
            let round = rounds::in_child(&self.job(&entry.who, true))
                .map_err(|why| Failure::Failed(format!("{}: {why}", entry.name)))?;
            let curve = round.curve.unwrap_or_default();
            if curve.overlaps > 0 {
                doubts.push(format!(
                    "{}: {} blocks overlap a live one",
                    entry.name,
                    grouped(curve.overlaps)
                ));
            }
            if (Curve { overlaps: 0, ..curve.clone() }) != *recorded {
                doubts.push(format!(
                    "{}: its live bytes are not the recording's: {} points up to {} bytes, recorded {} up to {}",
                    entry.name,
                    grouped(curve.points),
                    grouped(curve.most),
                    grouped(recorded.points),
                    grouped(recorded.most),
                ));
            }
        }
        progress.step();
        for doubt in &doubts {
            progress.warn(doubt);
        }
        self.doubts = doubts;
        Ok(self.doubts.is_empty())
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> =
            self.doubts.iter().map(|text| Note { warning: true, text: text.clone() }).collect();
        let skipped = self.sequence.skipped;
        let mut note = |text: String| notes.push(Note { warning: false, text });
        if skipped.unknown_frees > 0 {
            note(format!(
                "The replay leaves out {} frees of blocks from before the recording.",
                grouped(skipped.unknown_frees)
            ));
        }
        if skipped.lost_frees > 0 {
            note(format!(
                "{} blocks were given out again although nobody was seen to free them; the replay frees them there.",
                grouped(skipped.lost_frees)
            ));
        }
        let threads: usize = self.sequence.lanes.iter().map(Vec::len).sum();
        if threads > worker::MOST_THREADS {
            note(format!(
                "Of {} threads, those that ran after each other share one in the replay: more than {} are not started.",
                grouped(threads as u64),
                grouped(worker::MOST_THREADS as u64)
            ));
        }
        notes
    }
}
