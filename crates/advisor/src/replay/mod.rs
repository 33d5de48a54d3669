//! Replays a recording with other allocators, and judges the advice by the result.
//!
//! Two passes over the events compile the recording to steps, in an unnamed file. A process of its
//! own performs the steps with one allocator or plan. This is repeated in rounds, which decide the
//! verdicts.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | does |
//! |---|---|
//! | [`installed_mallocs`] | the mallocs that this machine has as shared libraries |
//! | `number_map` | maps and bit sets by number |
//! | `event_stream` | reads events on another thread, shows the progress, and can be stopped |
//! | `thread_scan` | the first pass: which blocks another thread frees, and when each thread ran |
//! | `thread_chains` | which threads ran one after another, and can share a thread |
//! | `sequence` | a compiled recording: steps, and the shapes of blocks |
//! | `compile` | the second pass: writes the steps |
//! | `thread_memory` | a replayed thread's source of blocks: a malloc, or none |
//! | `without_groups`, `allocator_plan` | malloc without the cost of some groups; this project's allocators for some groups |
//! | `step_loop` | performs a thread's steps; the state that all threads share |
//! | `live_bytes` | the curve of live bytes, from a recording |
//! | `round_job` | a round of a row: its job, its result, and what its process prepares |
//! | `check` | performs the steps in the recorded order, and checks every block |
//! | `worker` | runs a round in a child process |
//! | `rounds` | runs all rows in interleaved rounds, and compares each row with glibc |
//! | `options` | the options, and the limits that follow from them |
//! | `judge`, `rows` | the verdicts; the rows of figures |
//! | `compiled_recording` | compiles a recording, and replays it |
//! | `memory_limit` | whether there is enough memory for a plan |
//! | `try_options` | `--try` |
//! | `results` | prints the results |

mod allocator_plan;
mod check;
mod compile;
mod compiled_recording;
mod event_stream;
pub mod installed_mallocs;
mod judge;
mod live_bytes;
mod memory_limit;
mod number_map;
mod options;
mod results;
mod round_job;
mod rounds;
mod rows;
mod sequence;
mod step_loop;
#[cfg(test)]
mod tests;
mod thread_chains;
mod thread_memory;
mod thread_scan;
mod try_options;
mod without_groups;
mod worker;

use crate::analyse::findings::{
    ObjectCategory, RecordedProgram, ReplayFindings, ReportNote, Verdict,
};
use crate::analyse::{self, Analysis};
use allocator_plan::Route;
use bench::console::failure::Failure;
use bench::console::print;
use bench::console::progress::Progress;
use bench::console::statistics::median_whole;
use compiled_recording::CompiledRecording;
use installed_mallocs::InstalledMalloc;
use round_job::{NULL, REST, Round, RowAllocator};
use rounds::{RoundLimits, RowSpec};
use rows::FinishedRows;
use std::path::{Path, PathBuf};
use std::time::Duration;
use try_options::TryOption;

pub use options::ReplayOptions;
pub use worker::run as run_round;

/// The most plans that are replayed: those of the groups with the largest gain.
const MOST_PLANS: usize = 12;
/// The share of the time for the rounds that judge each plan. The rest is for all confirmed plans
/// together, and for the ceilings.
const PLAN_ROUNDS_SHARE: f64 = 2.0 / 3.0;
/// The mallocs without `--allocators` that are replayed as built in if they aren't installed.
const MALLOCS: [&str; 3] = ["jemalloc", "mimalloc", "snmalloc"];

/// The row that runs the program itself, without the recorder.
const PROGRAM: &str = "the program itself";

/// Runs the program without the recorder. Returns the CPU time of the analysed process, or why there
/// is none.
pub type ProgramRun<'r> = &'r dyn Fn() -> Result<u64, String>;

/// The row in which all blocks of each thread come from a pool.
pub const POOL_FOR_EVERYTHING: &str = "pool for everything";

/// `allot replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArguments {
    /// A recording made by `allot record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replay everything also with these mallocs, as built in; by default with each malloc that is
    /// installed as a shared library, and with jemalloc, mimalloc and snmalloc as built in if they
    /// aren't installed
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Number of rounds; by default 3 to 15, as many as fit in --time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Time limit for all rounds together; at least one round runs. By default 60, and up to 180 if
    /// five rounds need it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: Option<u32>,
    /// Print figures and verdicts as one JSON object
    #[arg(long)]
    json: bool,
    /// Also check the replay: live bytes must equal the recording's after every step, and no two
    /// live blocks may overlap; exit code 1 if that fails
    #[arg(long)]
    check: bool,
    /// Replay this process of the recording, numbered from 0; by default the one with the most
    /// recorded data
    #[arg(long, value_name = "N")]
    process: Option<usize>,
    /// Replay a group with this allocator instead of the advised one. GROUP is a number in
    /// `allot analyse --json`, or all; ALLOCATOR is arena, arena-without-reset, reap, free-list,
    /// pool or slab
    #[arg(long = "try", value_name = "GROUP=ALLOCATOR")]
    tries: Vec<TryOption>,
}

/// For `allot replay --help`.
pub const EXAMPLES: &str = "
The table has these rows:
  null                  no allocator: the cost of the replay itself, contained in every other row
  glibc                 glibc's malloc for everything; the other rows are compared with it
  mimalloc, ...         another malloc for everything: the installed shared library, or the
                        built-in version if none is installed; the two may behave differently
  pool for everything   all blocks of each thread come from a pool of this library
  arena for group 0     a plan: the advised allocator for one group, glibc for the rest

Each row of each round runs in a fresh process, in the recorded order of each thread. A block that
another thread frees is freed after its allocation. Every byte of a new block is written once.
CPU time is that of all threads; memory is the peak beyond what the replay itself holds. The
replay covers allocating and freeing, not the program's own work, which may gain or lose by
another layout of its memory.

A change is confirmed if its plan
  - is faster than glibc by more than 1 %, at a significance level of 0.05 (signed-rank test of the
    ratios within each round; with 3 or 4 rounds, each must be faster by 5 % and by twice the
    typical distance of a round from the median; with 1 or 2 rounds, each by 20 %),
  - takes at most 1.5 times glibc's peak memory, or 1 MiB more,
  - saves at least 1 % of the program's CPU time.
Otherwise it is not confirmed, and the reason is printed. The confirmed plans are then run together,
and once more without any cost for their blocks. A change of the program may save more than that:
the replay has neither the cache misses on its blocks nor walks that only free. Only the twelve
groups with the largest gain are tried.

Of the mallocs, the fastest is named that is installed or that distributions have, and that takes
at most 1.5 times glibc's peak memory, or 8 MiB more. One that is faster still is named with its
drawback. If allocating and freeing takes less than 2 % of the program's CPU time, none is named.

All rounds together take about a minute, or up to three minutes if five rounds need them. At least
three rounds run, even if they take longer. --time changes these limits. The steps are in an unnamed
file in TMPDIR, 8 bytes per event. A child process holds the program's blocks (at most 64 MiB of
each is written), 8 bytes for each live block, 64 KiB for each thread, and 32 bytes for each
different size. A row that needs more memory than is available is not run. At most 4,096 threads are
started. Ctrl-C ends the replay and its children.

Examples:
  allot record -o jq.rec -- jq length big.json
  allot replay jq.rec
  allot replay jq.rec --allocators mimalloc,tcmalloc --rounds 9 --json
  allot replay jq.rec --try 0=reap       try another allocator for group 0
  allot replay jq.rec --check            check that the replay does what the program did";

/// Runs the command.
pub fn run(arguments: &ReplayArguments) -> Result<(), Failure> {
    let options = ReplayOptions {
        allocators: arguments.allocators.clone(),
        rounds: arguments.rounds.map(|rounds| rounds as usize),
        check: arguments.check,
        time: arguments.time.map(|seconds| Duration::from_secs(seconds.into())),
        progress: true,
        ..ReplayOptions::default()
    };
    mallocs(&options)?;
    let analysing = analyse::AnalyseOptions {
        process: arguments.process,
        progress: true,
        // The analysis takes the smallest part of a replay's time; it must not need most of the
        // memory.
        frugal: true,
        ..analyse::AnalyseOptions::default()
    };
    let mut analysis = analyse::analyse(&arguments.file, &analysing)?;
    for option in &arguments.tries {
        option.apply(&mut analysis.findings)?;
    }
    replay(&arguments.file, &mut analysis, &options, None)?;
    let findings = &analysis.findings;
    if arguments.json {
        print::json_line(&results::json(findings))?;
    } else {
        print::line(results::table(findings).trim_end())?;
    }
    match findings.replay.as_ref().and_then(|replay| replay.faithful) {
        Some(false) => Err(Failure::Failed(
            "the replay differs from the recording, as said above; don't rely on its figures"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Replays the analysed process. Fills in
/// [`Findings::replay`](analyse::findings::Findings::replay), and the outcome and gain of each
/// advice. If it fails or is stopped too early, the analysis stays as it was.
///
/// With `program`, each round also runs the program, and its CPU time becomes the median of these
/// runs. The pace of the machine then is the same for what is saved and for what it is a share of.
pub fn replay(
    path: &Path,
    analysis: &mut Analysis,
    options: &ReplayOptions,
    program: Option<ProgramRun<'_>>,
) -> Result<(), Failure> {
    let mallocs = mallocs(options)?;
    let routes: Vec<Route> = analysis
        .findings
        .groups
        .iter()
        .filter(|group| wants_plan(&group.verdict))
        .filter_map(Route::of)
        .collect();
    let (planned, left) = routes.split_at(routes.len().min(MOST_PLANS));
    let mut recording = CompiledRecording::new(path, analysis, planned, options)?;

    let (available, peak) = (memory_limit::available(), recording.sequence.peak_touched);
    if let Some(why) = memory_limit::refuse(peak, available) {
        return Err(Failure::Failed(format!("{} can't be replayed: {why}", path.display())));
    }
    let refused = |route: &Route| {
        memory_limit::refuse(
            peak.saturating_add(memory_limit::extra_bytes(route, &analysis.findings)),
            available,
        )
    };
    let mut not_replayed: Vec<(u32, String)> = left
        .iter()
        .map(|route| {
            (route.group, format!("only the {MOST_PLANS} groups with the largest gain are"))
        })
        .collect();
    not_replayed.extend(planned.iter().filter_map(|route| Some((route.group, refused(route)?))));
    let planned: Vec<Route> =
        planned.iter().filter(|route| refused(route).is_none()).copied().collect();

    let specs = specs(&mallocs, &planned);
    let faithful = recording.check(&specs)?;
    let limits = options.limits(PLAN_ROUNDS_SHARE);
    let (plan_rows, bare) = rounds_of(&recording, specs, limits, options, program);
    if let Some(bare) = bare {
        analysis.findings.program.bare_cpu_ns = Some(bare);
    }
    let confirmed = plan_rows.judge_plans(&mut analysis.findings)?;
    for (group, why) in &not_replayed {
        judge::not_replayed(&mut analysis.findings.groups[*group as usize], why);
    }
    let confirmed_rows = (!confirmed.is_empty() && !options.is_stopped()).then(|| {
        let limits = options.limits(1.0 - PLAN_ROUNDS_SHARE);
        let limits = RoundLimits { most: plan_rows.glibc().len().min(limits.most), ..limits };
        let specs = specs_together(&confirmed, &planned);
        rounds_of(&recording, specs, limits, options, None).0.at_the_pace_of(&plan_rows)
    });
    let findings = &mut analysis.findings;
    let together = confirmed_rows
        .as_ref()
        .and_then(|confirmed_rows| plan_rows.together(confirmed_rows, &confirmed, findings));
    let (better_malloc, faster_malloc) = plan_rows.judge_mallocs(together.as_ref(), findings);
    let mut replay = plan_rows.summary(confirmed_rows.as_ref(), &findings.program);
    (replay.together, replay.better_malloc) = (together, better_malloc);
    replay.faster_malloc = faster_malloc;
    replay.steps = recording.sequence.steps;
    replay.threads = recording.sequence.chains.iter().map(Vec::len).sum::<usize>() as u32;
    replay.faithful = faithful;
    replay.interrupted = options.is_stopped();
    findings.notes.extend(recording.notes());
    findings.notes.extend(doubts(&findings.program, &replay));
    findings.replay = Some(replay);
    Ok(())
}

/// The rows that judge each plan.
fn specs(mallocs: &[RowSpec], planned: &[Route]) -> Vec<RowSpec> {
    let mut specs = vec![
        RowSpec { name: NULL.to_owned(), groups: Vec::new(), allocator: RowAllocator::Null },
        malloc(REST),
    ];
    specs.extend(mallocs.iter().cloned());
    specs.push(RowSpec {
        name: POOL_FOR_EVERYTHING.to_owned(),
        groups: Vec::new(),
        allocator: RowAllocator::Plan(vec![Route::POOL_FOR_EVERYTHING]),
    });
    specs.extend(planned.iter().map(|route| RowSpec {
        name: format!("{} for group {}", try_options::allocator_name(route), route.group),
        groups: vec![route.group],
        allocator: RowAllocator::Plan(vec![*route]),
    }));
    specs
}

/// The rows for the confirmed plans: all of them together, and the ceilings of each and of all.
fn specs_together(confirmed: &[u32], planned: &[Route]) -> Vec<RowSpec> {
    let without = |groups: &[u32]| RowSpec {
        name: match groups {
            [one] => format!("without group {one}"),
            _ => "without all of them".to_owned(),
        },
        groups: groups.to_vec(),
        allocator: RowAllocator::Without(groups.to_vec()),
    };
    let mut specs = vec![malloc(REST)];
    if confirmed.len() > 1 {
        let routes: Vec<Route> =
            planned.iter().filter(|route| confirmed.contains(&route.group)).copied().collect();
        specs.push(RowSpec {
            name: "all that was confirmed".to_owned(),
            groups: confirmed.to_vec(),
            allocator: RowAllocator::Plan(routes),
        });
        specs.push(without(confirmed));
    }
    specs.extend(confirmed.iter().map(|group| without(&[*group])));
    specs
}

/// Runs the rounds. With `program`, each of them also runs the program; the second result is the
/// median of its CPU times.
fn rounds_of(
    recording: &CompiledRecording,
    mut specs: Vec<RowSpec>,
    limits: RoundLimits,
    options: &ReplayOptions,
    program: Option<ProgramRun<'_>>,
) -> (FinishedRows, Option<u64>) {
    if program.is_some() {
        specs.push(RowSpec {
            name: PROGRAM.to_owned(),
            groups: Vec::new(),
            allocator: RowAllocator::Null,
        });
    }
    let progress = Progress::shown_if(options.progress, limits.most * specs.len());
    let stopped = || options.is_stopped();
    let mut found =
        rounds::run(&specs, limits, &progress, &stopped, |spec| match (program, &*spec.name) {
            (Some(run), PROGRAM) => run().map(|time_ns| Round { time_ns, ..Round::default() }),
            _ => recording.round(spec),
        });
    let runs = program.and_then(|_| {
        specs.pop();
        found.pop()?.ok()
    });
    let bare = runs.and_then(|runs| median_whole(&runs, |run| Some(run.time_ns)));
    (FinishedRows::new(specs, found), bare)
}

/// Warnings about the figures.
fn doubts(program: &RecordedProgram, replay: &ReplayFindings) -> Vec<ReportNote> {
    let mut notes = Vec::new();
    if cfg!(debug_assertions) {
        notes.push(
            "This allot was built without optimisation, so the times of the replay and the gains mean nothing. Build it with --release."
                .to_owned(),
        );
    }
    if replay.is_too_high() {
        let why = if program.bare_measured {
            "the replay's threads, which do nothing else, contend more for locks and cache lines than the program's do. The gains are too high: make the change and measure it."
        } else {
            "the machine was busier than during the recording, or the program's CPU time is estimated too low. The gains are too high. Run it again on an idle machine, or with --against-bare."
        };
        notes.push(format!(
            "In the replay, glibc's calls take nearly as long as the whole program did: {why}"
        ));
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
    notes.into_iter().map(|text| ReportNote { warning: true, text }).collect()
}

/// Whether the verdict advises an allocator that the replay has to try.
fn wants_plan(verdict: &Verdict) -> bool {
    matches!(
        verdict.category,
        ObjectCategory::Transient | ObjectCategory::Shared | ObjectCategory::ReadOnlyShared
    )
}

fn malloc(name: &str) -> RowSpec {
    RowSpec {
        name: name.to_owned(),
        groups: Vec::new(),
        allocator: RowAllocator::Malloc(name.to_owned()),
    }
}

/// The wanted mallocs besides glibc.
fn mallocs(options: &ReplayOptions) -> Result<Vec<RowSpec>, Failure> {
    let known = || {
        bench::peers::known()
            .iter()
            .filter(|about| about.serves(bench::peers::Service::Global))
            .map(|about| about.name)
    };
    let Some(asked) = &options.allocators else {
        let installed = installed_mallocs::installed();
        let is_installed = |name: &str| installed.iter().any(|malloc| malloc.name == name);
        let built_in = MALLOCS
            .iter()
            .filter(|name| !is_installed(name) && known().any(|known| known == **name))
            .map(|name| malloc(name));
        return Ok(installed.iter().map(preloaded).chain(built_in).collect());
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
    Ok(names.iter().map(|name| malloc(name)).collect())
}

fn preloaded(installed: &InstalledMalloc) -> RowSpec {
    RowSpec {
        name: installed.name.to_owned(),
        groups: Vec::new(),
        allocator: RowAllocator::Preloaded(installed.library.clone()),
    }
}
