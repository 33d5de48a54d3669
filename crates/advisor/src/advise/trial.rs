//! Trials: runs of the program in which the blocks of advised groups get memory like that of the
//! advised allocator, from the recorder's library.
//!
//! A replay knows which calls were made, but not what the program does with its blocks. A trial is
//! the program itself, with its own accesses to them.

use super::allocator_times;
use super::bare_run::{BareProgram, RunFigures};
use crate::analyse::findings::{AdvisedAllocator, Findings, SiteGroup};
use crate::analyse::screen;
use crate::analyse::{Analysis, NO_SITE};
use crate::record;
use recorder::clock;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use trace_format::raw::{
    HEADER_SIZE, MeasuredCall, ROOT, RawFileHeader, TICK_SHIFT, TrialPlace, TrialSitesWriter,
    module_identity, state,
};
use trace_format::{Modules, NodeId, Stacks};

/// The most changes that are tried alone.
const MOST_CHANGES: usize = 3;
/// A change that saves less is not worth it.
pub const LEAST_GAIN: f64 = 0.01;
/// The most memory that a change may take, compared with the program as it is.
pub const MOST_MEMORY: f64 = 1.5;
/// A change that takes longer in the replay, compared with glibc, is not tried.
const MOST_TIME: f64 = 1.25;
/// The time in which the processor's clock is compared with the system's.
const CLOCK_TIME: Duration = Duration::from_millis(20);

/// A change, or several together.
#[derive(Debug)]
pub struct TriedChange {
    pub groups: Vec<u32>,
    pub name: String,
    pub blocks: Vec<ChangedBlocks>,
}

/// The blocks of a group in a change.
#[derive(Debug, Clone, Copy)]
pub struct ChangedBlocks {
    pub count: u64,
    /// They get an arena's memory, or that of lists.
    pub in_arena: bool,
    /// The time of empty calls in place of malloc and free, less that of the advised allocator's code
    /// for a block, from allocation to free.
    pub saved_ns: f64,
}

impl TriedChange {
    fn of(group: &SiteGroup, findings: &Findings) -> Self {
        let allocator = group.verdict.allocator;
        // A function that only passes the call on, as `operator new`, is not called either.
        let sites = || group.sites.iter().filter_map(|site| findings.sites.get(*site as usize));
        let calls: u64 = sites()
            .map(|site| {
                let wrappers = site.frames.iter().take_while(|frame| frame.wrapper).count();
                site.behaviour.count * (1 + wrappers as u64)
            })
            .sum();
        let depth =
            calls as f64 / sites().map(|site| site.behaviour.count).sum::<u64>().max(1) as f64;
        let size = group.behaviour.dominant_size as usize;
        let blocks = ChangedBlocks {
            count: group.behaviour.count,
            in_arena: letter(allocator) == b'a',
            saved_ns: depth * allocator_times::empty_calls_ns()
                - allocator_times::pair_ns(allocator, size),
        };
        Self {
            groups: vec![group.id],
            name: format!("{} for {}", screen::name(allocator), group.title),
            blocks: vec![blocks],
        }
    }
}

/// Which memory the blocks get in a run.
#[derive(Debug, Clone, Copy)]
pub enum TrialVariant<'t> {
    /// The control run: malloc's, though the library does all that it does in the other runs.
    Control,
    /// That of a change; all others are as in the control run.
    Change(&'t TriedChange),
    /// The same, and consecutive frees are timed.
    Timed(&'t TriedChange),
}

/// What a trial took.
#[derive(Debug, Clone, Copy)]
pub struct TrialRun {
    pub figures: RunFigures,
    /// The time between consecutive frees, if they were timed.
    pub between_ns: f64,
}

/// The letter of the recorder's library for an allocator's memory.
fn letter(allocator: AdvisedAllocator) -> u8 {
    match allocator {
        AdvisedAllocator::Arena => b'a',
        AdvisedAllocator::None | AdvisedAllocator::Sealed => b'-',
        _ => b'l',
    }
}

/// The groups whose changes are tried: those that the replay confirmed, and those that were not much
/// slower than glibc in it and needed no more than half as much memory again.
fn tried(findings: &Findings) -> Vec<&SiteGroup> {
    let is_tried = |group: &&SiteGroup| {
        let verdict = &group.verdict;
        letter(verdict.allocator) != b'-'
            && !verdict.candidate
            && verdict.gain.is_some_and(|gain| gain.ceiling >= LEAST_GAIN)
            && verdict.replayed.as_ref().is_some_and(|outcome| {
                outcome.confirmed
                    || outcome.time_ratio.is_some_and(|time| time <= MOST_TIME)
                        && outcome.memory_ratio.is_none_or(|memory| memory <= MOST_MEMORY)
            })
    };
    // They are in the order of their estimated gain.
    findings.groups.iter().filter(is_tried).take(MOST_CHANGES).collect()
}

/// All that the trials of a program need.
#[derive(Debug)]
pub struct Trials {
    folder: tempfile::TempDir,
    library: PathBuf,
    sites: PathBuf,
    /// By route: the group, and the letter of its memory.
    routes: Vec<(u32, u8)>,
    changes: Vec<TriedChange>,
    ns_of_stamp: f64,
}

impl Trials {
    /// The trials of the changes that are worth one; `None` if there are none. An error says
    /// why they can't be tried.
    pub fn of(analysis: &Analysis) -> Option<Result<Self, String>> {
        let groups = tried(&analysis.findings);
        if groups.is_empty() {
            return None;
        }
        Some(Self::of_groups(analysis, &groups).map_err(|error| error.to_string()))
    }

    fn of_groups(analysis: &Analysis, groups: &[&SiteGroup]) -> io::Result<Self> {
        let (folder, library) = record::temporary_library()?;
        let routes: Vec<(u32, u8)> =
            groups.iter().map(|group| (group.id, letter(group.verdict.allocator))).collect();
        let route_of = |site: &u32| {
            let site = analysis.findings.sites.get(*site as usize)?;
            let route = routes.iter().position(|(group, _)| *group == site.group)?;
            Some(route as u8 + 1)
        };
        let stacks: Vec<RoutedStack> = analysis
            .site_of
            .iter()
            .enumerate()
            .filter(|(_, site)| **site != NO_SITE)
            .map(|(node, site)| RoutedStack {
                at: NodeId(node as u32),
                route: route_of(site).unwrap_or(0),
            })
            .collect();
        let mut frames = FrameRoutes {
            stacks: &analysis.stacks,
            modules: &analysis.modules,
            writer: TrialSitesWriter::default(),
            is_full: false,
        };
        frames.divide(stacks, ROOT);
        if frames.is_full {
            return Err(io::Error::other("the program has too many call stacks"));
        }
        let writer = frames.writer;
        let sites = folder.path().join("sites");
        fs::write(&sites, writer.finish())?;
        let mut changes: Vec<TriedChange> =
            groups.iter().map(|group| TriedChange::of(group, &analysis.findings)).collect();
        if groups.len() > 1 {
            changes.push(TriedChange {
                groups: groups.iter().map(|group| group.id).collect(),
                name: format!("all {} changes together", groups.len()),
                blocks: changes.iter().flat_map(|change| change.blocks.clone()).collect(),
            });
        }
        Ok(Self { folder, library, sites, routes, changes, ns_of_stamp: ns_of_stamp() })
    }

    /// The number of changes that are tried, all together among them.
    pub fn count(findings: &Findings) -> usize {
        match tried(findings).len() {
            one @ (0 | 1) => one,
            several => several + 1,
        }
    }

    /// The changes: each by itself, then all together if there are several.
    pub fn changes(&self) -> &[TriedChange] {
        &self.changes
    }

    /// Runs the program once.
    pub fn run(
        &self,
        program: &BareProgram<'_>,
        variant: TrialVariant<'_>,
    ) -> io::Result<TrialRun> {
        let files = tempfile::tempdir_in(self.folder.path())?;
        let letters: String = self.routes.iter().map(|route| variant.letter(*route)).collect();
        let environment = [
            ("ALLOT_RECORD_DIR", files.path().as_os_str()),
            ("ALLOT_TRIAL_SITES", self.sites.as_os_str()),
            ("ALLOT_TRIAL_MEMORY", OsStr::new(&letters)),
        ];
        let figures = program.run_with(Some(&self.library), &environment)?;
        let mut sums = WalkSums::default();
        for file in fs::read_dir(files.path())? {
            sums.add(&file?.path())?;
        }
        Ok(TrialRun { figures, between_ns: sums.between() * self.ns_of_stamp })
    }
}

/// Consecutive frees of all processes of a run: their number and the stamps between them, first with
/// the program's code in between, and then without it.
#[derive(Debug, Default)]
struct WalkSums([(u64, u64); 2]);

impl WalkSums {
    /// Adds those of a process. A trial records no calls, so the header's fields of frees and
    /// reallocations hold them. An error says why the process was no trial.
    fn add(&mut self, file: &Path) -> io::Result<()> {
        let mut page = vec![0; HEADER_SIZE];
        File::open(file)?.read_exact(&mut page)?;
        // A process that has only just begun has no header yet.
        let Ok(header) = RawFileHeader::read(&page) else { return Ok(()) };
        if header.state & state::NO_TRIAL != 0 {
            return Err(io::Error::other(
                "the recorder's library got no addresses for its memory, or could not read its file",
            ));
        }
        for (sum, call) in self.0.iter_mut().zip([MeasuredCall::Free, MeasuredCall::Reallocation]) {
            let (count, stamps) = header.costs.calls[call as usize];
            *sum = (sum.0 + count, sum.1 + stamps);
        }
        Ok(())
    }

    /// The stamps of the program's code.
    fn between(&self) -> f64 {
        let [(count, between), (empty_count, empty)] = self.0;
        // Without a measured empty walk, the hooks' own part is unknown.
        if empty_count == 0 {
            return 0.0;
        }
        let empty = empty as f64 / empty_count as f64 * count as f64;
        (between as f64 - empty).max(0.0)
    }
}

impl TrialVariant<'_> {
    fn letter(self, (group, letter): (u32, u8)) -> char {
        match (self, letter) {
            (Self::Change(change), _) if change.groups.contains(&group) => letter.into(),
            (Self::Timed(change), b'a') if change.groups.contains(&group) => 'A',
            (Self::Timed(change), _) if change.groups.contains(&group) => letter.into(),
            (_, b'a') => 's',
            _ => 't',
        }
    }
}

/// A stack, a position in it, and the route of its blocks.
#[derive(Debug, Clone, Copy)]
struct RoutedStack {
    at: NodeId,
    route: u8,
}

/// Builds the file: finds out how many frames of a stack decide its route.
struct FrameRoutes<'a> {
    stacks: &'a Stacks,
    modules: &'a Modules,
    writer: TrialSitesWriter,
    /// There are more frames than a file can have.
    is_full: bool,
}

impl FrameRoutes<'_> {
    /// Adds the frames at the positions of stacks that have the same frames from there down to malloc;
    /// `callee` is the number of the last of those. Goes on to the callers where routes differ.
    fn divide(&mut self, stacks: Vec<RoutedStack>, callee: u32) {
        let mut parts: BTreeMap<(u32, u64), Vec<RoutedStack>> = BTreeMap::new();
        for stack in stacks {
            // A stack whose last frame is reached, or a frame in no file, has no route.
            if let Some(module) =
                Some(stack.at).filter(|at| !at.is_root()).and_then(|at| self.stacks.module(at))
            {
                let module = self.modules.get(module);
                let identity = module_identity(&module.build_id, module.path.as_bytes());
                let offset = self.stacks.return_address(stack.at).wrapping_sub(module.bias);
                parts.entry((self.writer.module(identity), offset)).or_default().push(stack);
            }
        }
        for ((module, offset), part) in parts {
            let first = part[0].route;
            let decides = part.iter().all(|stack| stack.route == first);
            if decides && first == 0 {
                continue;
            }
            let place = TrialPlace { callee, module, offset };
            let Some(number) = self.writer.add(place, decides.then_some(first)) else {
                self.is_full = true;
                return;
            };
            if !decides {
                let caller = |stack: &RoutedStack| RoutedStack {
                    at: self.stacks.parent(stack.at),
                    route: stack.route,
                };
                self.divide(part.iter().map(caller).collect(), number);
            }
        }
    }
}

/// The nanoseconds of one stamp of the recorder's clock.
fn ns_of_stamp() -> f64 {
    let from = clock::now();
    thread::sleep(CLOCK_TIME);
    let to = clock::now();
    let stamps = to.ticks.wrapping_sub(from.ticks) << TICK_SHIFT;
    to.ns.saturating_sub(from.ns) as f64 / stamps.max(1) as f64
}
