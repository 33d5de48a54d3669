//! The first pass: the program's totals, and for each stack what can be added up.

use super::ahead::prefetch;
use super::findings::{MOST_POINTS, Overlaps, Point};
use super::live::{Block, Live};
use super::moves::{Move, Moves};
use super::overlap::Check;
use super::pass::Watcher;
use super::phase::{Phase, Phases};
use super::resolve::{Done, Step};
use super::tally::Tally;
use std::collections::{HashMap, HashSet};
use trace_format::NodeId;
use trace_format::raw::Lock;

/// What an allocation costs the end of a program that only frees.
const ALLOCATION_AT_EXIT: u32 = 16;
/// So many allocations at most, however many frees came before, and it isn't the end.
const MOST_AT_EXIT: u32 = 64 * ALLOCATION_AT_EXIT;
/// The most locks of one place that are told apart.
const MOST_LOCKS: usize = 4096;

/// A stack that allocates.
#[derive(Debug, Default)]
pub struct Stack {
    pub node: u32,
    pub tally: Tally,
    /// Of all threads, once the pass is over.
    pub phases: Phases,
}

/// A stack and a thread.
#[derive(Debug)]
struct Cell {
    stack: u32,
    thread: u32,
    phase: Phase,
}

/// Waits of one stack for one kind of lock.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
    pub locks: HashSet<u64>,
}

/// The totals of the process.
#[derive(Debug, Default, Clone)]
pub struct Totals {
    pub events: u64,
    pub allocations: u64,
    pub frees: u64,
    pub reallocations: u64,
    pub bytes: u64,
    pub live_bytes: u64,
    pub peak_live_bytes: u64,
    pub peak_live_objects: u64,
    pub unknown_frees: u64,
    pub twice: u64,
    pub last_ns: u64,
    pub freed_at_exit: u64,
    /// The number of the event from which on the program only frees.
    pub exit_from: u64,
}

#[derive(Debug, Clone, Copy)]
struct Death {
    stack: u32,
    ns: u64,
    allocations: u32,
    by_own: bool,
}

/// The first pass.
#[derive(Debug)]
pub struct First {
    pub stacks: Vec<Stack>,
    pub totals: Totals,
    pub locks: HashMap<(NodeId, &'static str), Waits>,
    /// The stack of a node.
    stack_of: Vec<u32>,
    cells: Vec<Cell>,
    live_objects: u64,
    /// By thread: when it was first and last seen.
    seen: Vec<(u64, u64)>,
    timeline: Timeline,
    /// Frees that may be those at exit.
    pending: Vec<Death>,
    exit_score: u32,
    check: Option<Check>,
    moves: Moves,
}

const NONE: u32 = u32::MAX;

impl First {
    /// A pass that keeps so many steps at most.
    pub fn new(check: bool, most_kept: usize) -> Self {
        Self {
            stacks: Vec::new(),
            totals: Totals::default(),
            locks: HashMap::new(),
            stack_of: Vec::new(),
            cells: Vec::new(),
            live_objects: 0,
            seen: Vec::new(),
            timeline: Timeline::new(),
            pending: Vec::new(),
            exit_score: 0,
            check: check.then(Check::default),
            moves: Moves::new(most_kept),
        }
    }

    #[inline]
    fn take(&mut self, step: &Step) {
        self.moves.push(Move::of(step));
        if let Done::Lost(block) = &step.what {
            return self.lost(block);
        }
        self.totals.events += 1;
        self.totals.last_ns = step.time_ns;
        match self.seen.get_mut(step.thread as usize) {
            Some(seen) => seen.1 = step.time_ns,
            None => self.seen.resize(step.thread as usize + 1, (step.time_ns, step.time_ns)),
        }
        match step.what {
            Done::Made { address, size, site, cell, by_realloc } => {
                if cell as usize == self.cells.len() {
                    self.new_cell(site, step.thread);
                }
                if let Some(check) = &mut self.check {
                    check.allocated(address, size, step.time_ns);
                }
                self.allocated(step, size, cell, by_realloc);
            }
            Done::Gone(block) => {
                if let Some(check) = &mut self.check {
                    check.freed(block.address);
                }
                self.freed(step, &block);
            }
            Done::Unknown => {
                self.totals.frees += 1;
                self.totals.unknown_frees += 1;
            }
            Done::Waited { address, lock, duration_ns, site } => {
                let kind = match lock {
                    Lock::Mutex => "mutex",
                    Lock::Read => "read",
                    Lock::Write => "write",
                };
                let waits = self.locks.entry((site, kind)).or_default();
                waits.waits += 1;
                waits.waited_ns = waits.waited_ns.saturating_add(duration_ns);
                waits.longest_ns = waits.longest_ns.max(duration_ns);
                if waits.locks.len() < MOST_LOCKS {
                    waits.locks.insert(address);
                }
            }
            Done::Lost(_) | Done::Other => {}
        }
    }

    #[inline]
    fn allocated(&mut self, step: &Step, size: u64, cell: u32, by_realloc: bool) {
        let Cell { stack, thread, ref mut phase } = self.cells[cell as usize];
        phase.allocate(size, self.totals.allocations);
        let stack = &mut self.stacks[stack as usize];
        stack.tally.allocated(size, step.time_ns, thread, by_realloc);
        self.live_objects += 1;
        let totals = &mut self.totals;
        totals.allocations += 1;
        totals.reallocations += u64::from(by_realloc);
        totals.bytes = totals.bytes.saturating_add(size);
        totals.live_bytes = totals.live_bytes.saturating_add(size);
        totals.peak_live_bytes = totals.peak_live_bytes.max(totals.live_bytes);
        totals.peak_live_objects = totals.peak_live_objects.max(self.live_objects);
        self.exit_score = self.exit_score.saturating_sub(ALLOCATION_AT_EXIT);
        if self.exit_score == 0 {
            self.not_the_exit();
        }
        self.timeline.take(step.time_ns, self.totals.live_bytes, self.live_objects);
    }

    #[inline]
    fn freed(&mut self, step: &Step, block: &Block) {
        let totals = &mut self.totals;
        totals.frees += 1;
        let Cell { stack, thread: by, ref mut phase } = self.cells[block.cell as usize];
        phase.free(block.size, totals.allocations);
        self.live_objects -= 1;
        totals.live_bytes -= block.size.min(totals.live_bytes);
        if self.exit_score == 0 {
            totals.exit_from = totals.events - 1;
        }
        self.exit_score = (self.exit_score + 1).min(MOST_AT_EXIT);
        self.pending.push(Death {
            stack,
            ns: step.time_ns.saturating_sub(block.born_ns),
            allocations: (totals.allocations as u32).wrapping_sub(block.birth),
            by_own: by == step.thread,
        });
        self.timeline.take(step.time_ns, totals.live_bytes, self.live_objects);
    }

    #[cold]
    fn new_cell(&mut self, site: NodeId, thread: u32) {
        let index = site.0 as usize;
        if index >= self.stack_of.len() {
            self.stack_of.resize((index + 1).next_power_of_two(), NONE);
        }
        let mut stack = self.stack_of[index];
        if stack == NONE {
            stack = self.stacks.len() as u32;
            self.stacks.push(Stack { node: site.0, ..Stack::default() });
            self.stack_of[index] = stack;
        }
        self.cells.push(Cell { stack, thread, phase: Phase::default() });
    }

    /// The frees that were thought to be those at exit weren't.
    #[inline]
    fn not_the_exit(&mut self) {
        for death in self.pending.drain(..) {
            let tally = &mut self.stacks[death.stack as usize].tally;
            tally.freed(death.ns, u64::from(death.allocations), death.by_own);
        }
    }

    /// A block came where one was live: its free was not seen.
    #[cold]
    fn lost(&mut self, block: &Block) {
        self.totals.twice += 1;
        self.live_objects -= 1;
        self.totals.live_bytes = self.totals.live_bytes.saturating_sub(block.size);
        let Cell { stack, ref mut phase, .. } = self.cells[block.cell as usize];
        phase.free(block.size, self.totals.allocations);
        self.stacks[stack as usize].tally.never_freed += 1;
    }

    /// Ends the pass, with what is live.
    pub fn finish(mut self, live: &Live) -> (Vec<Stack>, FirstEnd) {
        let at_exit = self.exit_score > 0;
        if at_exit {
            for death in self.pending.drain(..) {
                self.stacks[death.stack as usize].tally.freed_at_exit += 1;
                self.totals.freed_at_exit += 1;
            }
        } else {
            self.totals.exit_from = self.totals.events;
        }
        for block in live.iter() {
            let stack = self.cells[block.cell as usize].stack;
            self.stacks[stack as usize].tally.never_freed += 1;
        }
        for cell in &mut self.cells {
            cell.phase.finish(self.totals.allocations);
            self.stacks[cell.stack as usize].phases.add(&cell.phase);
        }
        let end = FirstEnd {
            live_at_end: self.live_objects,
            totals: self.totals,
            threads: self.seen,
            locks: self.locks,
            timeline: self.timeline.finish(),
            overlaps: self.check.map(Check::finish),
            cells: self.cells.iter().map(|cell| (cell.stack, cell.thread)).collect(),
            moves: self.moves.whole(),
        };
        (self.stacks, end)
    }
}

impl Watcher for First {
    #[inline]
    fn expect(&self, step: &Step) {
        if let Some(cell) = step.cell().and_then(|cell| self.cells.get(cell as usize)) {
            prefetch(cell);
        }
    }

    #[inline]
    fn expect_soon(&self, step: &Step) {
        if let Some(cell) = step.cell().and_then(|cell| self.cells.get(cell as usize)) {
            let tally = &self.stacks[cell.stack as usize].tally;
            prefetch(&tally.count);
            prefetch(&tally.lifetime_ns);
        }
    }

    #[inline]
    fn take(&mut self, step: &Step) -> bool {
        First::take(self, step);
        true
    }
}

/// What the first pass found besides stacks.
#[derive(Debug)]
pub struct FirstEnd {
    pub totals: Totals,
    /// By thread: when it was first and last seen.
    pub threads: Vec<(u64, u64)>,
    pub live_at_end: u64,
    pub locks: HashMap<(NodeId, &'static str), Waits>,
    pub timeline: Vec<Point>,
    pub overlaps: Option<Overlaps>,
    /// By cell of the steps: its stack and its thread.
    pub cells: Vec<(u32, u32)>,
    /// What the steps did, if they were few enough to be kept.
    pub moves: Option<Vec<Vec<Move>>>,
}

/// Live memory over time, in steps that double when there are too many.
#[derive(Debug)]
struct Timeline {
    points: Vec<Point>,
    step_ns: u64,
    next_ns: u64,
    most: u64,
    now: Point,
}

const NOTHING: Point = Point { time_ns: 0, bytes: 0, objects: 0, most_bytes: 0 };

impl Timeline {
    fn new() -> Self {
        let step_ns = 1000;
        Self { points: Vec::with_capacity(MOST_POINTS), step_ns, next_ns: 0, most: 0, now: NOTHING }
    }

    #[inline]
    fn take(&mut self, time_ns: u64, bytes: u64, objects: u64) {
        self.most = self.most.max(bytes);
        self.now = Point { time_ns, bytes, objects, most_bytes: self.most };
        if time_ns >= self.next_ns {
            self.point();
        }
    }

    #[cold]
    fn point(&mut self) {
        // The last place is kept for the last event.
        if self.points.len() + 1 == MOST_POINTS {
            self.step_ns *= 2;
            let halves = self.points.chunks(2).map(|pair| {
                let most_bytes = pair.iter().map(|point| point.most_bytes).max().unwrap_or(0);
                Point { most_bytes, ..*pair.last().unwrap_or(&NOTHING) }
            });
            self.points = halves.collect();
        }
        self.points.push(self.now);
        self.most = self.now.bytes;
        self.next_ns = self.now.time_ns + self.step_ns;
    }

    fn finish(mut self) -> Vec<Point> {
        if self.points.last().is_some_and(|last| last.time_ns < self.now.time_ns) {
            self.points.push(self.now);
        }
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::Resolver;
    use super::*;
    use trace_format::raw::{Flags, Origin};
    use trace_format::{Event, What};

    fn run(first: &mut First, events: impl Iterator<Item = (u64, Option<u32>)>) -> Resolver {
        let flags = Flags::new(Origin::Malloc);
        let (mut resolver, mut steps) = (Resolver::new(), Vec::new());
        for (number, (address, site)) in events.enumerate() {
            let what = match site {
                Some(site) => What::Alloc { address, size: 64, site: NodeId(site), flags },
                None => What::Free { address, by_realloc: false },
            };
            resolver.resolve(&Event { time_ns: number as u64 * 100, thread: 0, what }, &mut steps);
            steps.drain(..).for_each(|step| first.take(&step));
        }
        resolver
    }

    /// So many pairs over 10 stacks, 500 blocks live.
    fn pairs(count: u64) -> impl Iterator<Item = (u64, Option<u32>)> {
        let place = |i: u64| 0x10_0000 + i % 600 * 64;
        (0..count).flat_map(move |i| {
            let free = i.checked_sub(500).map(|i| (place(i), None));
            free.into_iter().chain([(place(i), Some(2 + (i % 10) as u32))])
        })
    }

    #[test]
    fn memory_grows_with_sites_and_live_blocks_and_not_with_events() {
        let memory = |events: u64| {
            let mut first = First::new(false, 0);
            let resolver = run(&mut first, pairs(events));
            assert_eq!((first.stacks.len(), first.cells.len(), first.live_objects), (10, 10, 500));
            assert_eq!(resolver.live.len(), 500);
            assert!(first.timeline.points.len() <= MOST_POINTS);
            resolver.memory() + first.pending.capacity() * size_of::<Death>()
        };
        assert_eq!(memory(2_000), memory(2_000_000));
    }

    #[test]
    fn only_the_last_run_of_frees_is_the_exit() {
        let mut first = First::new(false, 0);
        let blocks = |from: u64, to: u64| (from..to).map(|i| 0x10_0000 + i * 64);
        let make = |address| (address, Some(2));
        let free = |address| (address, None);
        let events = blocks(0, 1000)
            .map(make)
            .chain(blocks(0, 400).map(free))
            // More than a program does that only ends.
            .chain(blocks(2000, 2100).map(make))
            .chain(blocks(400, 700).map(free))
            // A program that ends may still make something.
            .chain(blocks(3000, 3003).map(make))
            .chain(blocks(700, 1000).map(free));
        let resolver = run(&mut first, events);
        let (stacks, end) = first.finish(&resolver.live);
        let tally = &stacks[0].tally;
        assert_eq!((tally.freed, tally.freed_at_exit, tally.never_freed), (400, 600, 103));
        assert_eq!((end.totals.freed_at_exit, end.totals.exit_from), (600, 1500));
        assert_eq!(end.live_at_end, 103);
    }

    #[test]
    fn a_timeline_of_any_length_keeps_its_peaks_and_has_a_thousand_points_at_most() {
        let mut timeline = Timeline::new();
        for i in 0..3_000_000_u64 {
            let bytes = if i == 1_234_567 { 9999 } else { i % 100 };
            timeline.take(i * 10, bytes, 1);
        }
        let points = timeline.finish();
        assert!((400..=MOST_POINTS).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|point| point.most_bytes).max(), Some(9999));
        assert!(points.is_sorted_by_key(|point| point.time_ns));
        assert_eq!(points.last().unwrap().time_ns, 29_999_990);
    }
}
