//! The first pass over the events: the process's totals, and the statistics of each stack.

use super::block_statistics::BlockStatistics;
use super::event_pass::EventVisitor;
use super::findings::{MOST_POINTS, OverlapFindings, TimelinePoint};
use super::kept_events::{KeptEvent, KeptEvents};
use super::lifetimes::{GroupLifetimes, ThreadLifetimes};
use super::live_blocks::{LiveBlock, LiveBlocks};
use super::memory_hints::prefetch;
use super::overlap_check::OverlapCheck;
use super::resolver::{BlockAction, ResolvedEvent};
use std::collections::{HashMap, HashSet};
use trace_format::NodeId;
use trace_format::raw::LockKind;

/// The exit is the last run of frees. It may have a few allocations: each outweighs this many
/// frees.
const ALLOCATION_AT_EXIT: u32 = 16;
/// The most frees that count, so that 64 allocations always show that the exit has not begun.
const MOST_AT_EXIT: u32 = 64 * ALLOCATION_AT_EXIT;
/// The most different locks that are counted for one place.
const MOST_LOCKS: usize = 4096;

/// A stack that allocates.
#[derive(Debug, Default)]
pub struct StackStatistics {
    pub node: u32,
    pub statistics: BlockStatistics,
    /// Those of all threads, once the pass has ended.
    pub lifetimes: GroupLifetimes,
}

/// A cell: a stack and a thread that allocates there.
#[derive(Debug)]
struct AllocationCell {
    stack: u32,
    thread: u32,
    lifetimes: ThreadLifetimes,
}

/// Waits of one stack for one kind of lock.
#[derive(Debug, Clone, Default)]
pub struct LockWaits {
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
    pub locks: HashSet<u64>,
}

/// The totals of the process.
#[derive(Debug, Default, Clone)]
pub struct ProcessTotals {
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
    /// The number of the event from which the program only frees.
    pub exit_from: u64,
}

#[derive(Debug, Clone, Copy)]
struct FreedBlock {
    stack: u32,
    ns: u64,
    allocations: u32,
    by_own: bool,
}

/// The first pass.
#[derive(Debug)]
pub struct StackPass {
    pub stacks: Vec<StackStatistics>,
    pub totals: ProcessTotals,
    pub locks: HashMap<(NodeId, &'static str), LockWaits>,
    /// For each node: its index in `stacks`.
    stack_of: Vec<u32>,
    cells: Vec<AllocationCell>,
    live_objects: u64,
    /// For each thread: the times of its first and last event.
    seen: Vec<(u64, u64)>,
    /// For each thread: the stack of the block that it freed last.
    freed_last: Vec<u32>,
    timeline: Timeline,
    /// Frees that may belong to the exit.
    pending: Vec<FreedBlock>,
    exit_score: u32,
    check: Option<OverlapCheck>,
    kept_events: KeptEvents,
}

const NONE: u32 = u32::MAX;

impl StackPass {
    /// A pass that keeps at most `most_kept` events.
    pub fn new(check: bool, most_kept: usize) -> Self {
        Self {
            stacks: Vec::new(),
            totals: ProcessTotals::default(),
            locks: HashMap::new(),
            stack_of: Vec::new(),
            cells: Vec::new(),
            live_objects: 0,
            seen: Vec::new(),
            freed_last: Vec::new(),
            timeline: Timeline::new(),
            pending: Vec::new(),
            exit_score: 0,
            check: check.then(OverlapCheck::default),
            kept_events: KeptEvents::new(most_kept),
        }
    }

    #[inline]
    fn visit(&mut self, event: &ResolvedEvent) {
        self.kept_events.push(KeptEvent::of(event));
        if let BlockAction::Lost(block) = &event.action {
            return self.lost(block);
        }
        self.totals.events += 1;
        self.totals.last_ns = event.time_ns;
        match self.seen.get_mut(event.thread as usize) {
            Some(seen) => seen.1 = event.time_ns,
            None => self.seen.resize(event.thread as usize + 1, (event.time_ns, event.time_ns)),
        }
        match event.action {
            BlockAction::Allocated { address, size, site, cell, by_realloc } => {
                if cell as usize == self.cells.len() {
                    self.new_cell(site, event.thread);
                }
                if let Some(check) = &mut self.check {
                    check.allocated(address, size, event.time_ns);
                }
                self.allocated(event, size, cell, by_realloc);
            }
            BlockAction::Freed(block) => {
                if let Some(check) = &mut self.check {
                    check.freed(block.address);
                }
                self.freed(event, &block);
            }
            BlockAction::UnknownFree => {
                self.totals.frees += 1;
                self.totals.unknown_frees += 1;
            }
            BlockAction::Waited { address, lock, duration_ns, site } => {
                let kind = match lock {
                    LockKind::Mutex => "mutex",
                    LockKind::Read => "read",
                    LockKind::Write => "write",
                };
                let waits = self.locks.entry((site, kind)).or_default();
                waits.waits += 1;
                waits.waited_ns = waits.waited_ns.saturating_add(duration_ns);
                waits.longest_ns = waits.longest_ns.max(duration_ns);
                if waits.locks.len() < MOST_LOCKS {
                    waits.locks.insert(address);
                }
            }
            BlockAction::Lost(_) | BlockAction::Other => {}
        }
    }

    #[inline]
    fn allocated(&mut self, event: &ResolvedEvent, size: u64, cell: u32, by_realloc: bool) {
        let AllocationCell { stack, thread, ref mut lifetimes } = self.cells[cell as usize];
        lifetimes.allocate(size, self.totals.allocations);
        let stack = &mut self.stacks[stack as usize];
        stack.statistics.allocated(size, event.time_ns, thread, by_realloc);
        if by_realloc {
            self.count_resized(event.thread);
        }
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
        self.timeline.take(event.time_ns, self.totals.live_bytes, self.live_objects);
    }

    #[inline]
    fn freed(&mut self, event: &ResolvedEvent, block: &LiveBlock) {
        let totals = &mut self.totals;
        totals.frees += 1;
        let AllocationCell { stack, thread: by, ref mut lifetimes } =
            self.cells[block.cell as usize];
        lifetimes.free(block.size, totals.allocations);
        self.live_objects -= 1;
        totals.live_bytes -= block.size.min(totals.live_bytes);
        if let Some(last) = self.freed_last.get_mut(event.thread as usize) {
            *last = stack;
        } else {
            self.freed_last.resize(event.thread as usize + 1, stack);
        }
        if self.exit_score == 0 {
            totals.exit_from = totals.events - 1;
        }
        self.exit_score = (self.exit_score + 1).min(MOST_AT_EXIT);
        self.pending.push(FreedBlock {
            stack,
            ns: event.time_ns.saturating_sub(block.born_ns),
            allocations: (totals.allocations as u32).wrapping_sub(block.birth),
            by_own: by == event.thread,
        });
        self.timeline.take(event.time_ns, totals.live_bytes, self.live_objects);
    }

    /// Counts a block as resized: the one that the thread freed last, for its call of realloc.
    fn count_resized(&mut self, thread: u32) {
        if let Some(&stack) = self.freed_last.get(thread as usize) {
            self.stacks[stack as usize].statistics.resized += 1;
        }
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
            self.stacks.push(StackStatistics { node: site.0, ..StackStatistics::default() });
            self.stack_of[index] = stack;
        }
        self.cells.push(AllocationCell { stack, thread, lifetimes: ThreadLifetimes::default() });
    }

    /// Counts the pending frees as frees before the exit.
    #[inline]
    fn not_the_exit(&mut self) {
        for death in self.pending.drain(..) {
            let statistics = &mut self.stacks[death.stack as usize].statistics;
            statistics.freed(death.ns, u64::from(death.allocations), death.by_own);
        }
    }

    /// A block was allocated at the address of a live one, whose free was not recorded.
    #[cold]
    fn lost(&mut self, block: &LiveBlock) {
        self.totals.twice += 1;
        self.live_objects -= 1;
        self.totals.live_bytes = self.totals.live_bytes.saturating_sub(block.size);
        let AllocationCell { stack, ref mut lifetimes, .. } = self.cells[block.cell as usize];
        lifetimes.free(block.size, self.totals.allocations);
        self.stacks[stack as usize].statistics.never_freed += 1;
    }

    /// Ends the pass. `live` has the blocks that were never freed.
    pub fn finish(mut self, live: &LiveBlocks) -> (Vec<StackStatistics>, StackPassResult) {
        let at_exit = self.exit_score > 0;
        if at_exit {
            for death in self.pending.drain(..) {
                self.stacks[death.stack as usize].statistics.freed_at_exit += 1;
                self.totals.freed_at_exit += 1;
            }
        } else {
            self.totals.exit_from = self.totals.events;
        }
        for block in live.iter() {
            let stack = self.cells[block.cell as usize].stack;
            self.stacks[stack as usize].statistics.never_freed += 1;
        }
        for cell in &mut self.cells {
            cell.lifetimes.finish(self.totals.allocations);
            self.stacks[cell.stack as usize].lifetimes.add(&cell.lifetimes);
        }
        let end = StackPassResult {
            live_at_end: self.live_objects,
            totals: self.totals,
            threads: self.seen,
            locks: self.locks,
            timeline: self.timeline.finish(),
            overlaps: self.check.map(OverlapCheck::finish),
            cells: self.cells.iter().map(|cell| (cell.stack, cell.thread)).collect(),
            kept_events: self.kept_events.whole(),
        };
        (self.stacks, end)
    }
}

impl EventVisitor for StackPass {
    #[inline]
    fn prefetch_far(&self, event: &ResolvedEvent) {
        if let Some(cell) = event.cell().and_then(|cell| self.cells.get(cell as usize)) {
            prefetch(cell);
        }
    }

    #[inline]
    fn prefetch_near(&self, event: &ResolvedEvent) {
        if let Some(cell) = event.cell().and_then(|cell| self.cells.get(cell as usize)) {
            let statistics = &self.stacks[cell.stack as usize].statistics;
            prefetch(&statistics.count);
            prefetch(&statistics.lifetime_ns);
        }
    }

    #[inline]
    fn visit(&mut self, event: &ResolvedEvent) -> bool {
        StackPass::visit(self, event);
        true
    }
}

/// What the first pass found besides stacks.
#[derive(Debug)]
pub struct StackPassResult {
    pub totals: ProcessTotals,
    /// For each thread: the times of its first and last event.
    pub threads: Vec<(u64, u64)>,
    pub live_at_end: u64,
    pub locks: HashMap<(NodeId, &'static str), LockWaits>,
    pub timeline: Vec<TimelinePoint>,
    pub overlaps: Option<OverlapFindings>,
    /// For each cell: its stack and its thread.
    pub cells: Vec<(u32, u32)>,
    /// The kept events; `None` if there were too many.
    pub kept_events: Option<Vec<Vec<KeptEvent>>>,
}

/// Live memory over time. The interval of its points doubles when there are too many.
#[derive(Debug)]
struct Timeline {
    points: Vec<TimelinePoint>,
    step_ns: u64,
    next_ns: u64,
    most: u64,
    now: TimelinePoint,
}

const NOTHING: TimelinePoint = TimelinePoint { time_ns: 0, bytes: 0, objects: 0, most_bytes: 0 };

impl Timeline {
    fn new() -> Self {
        let step_ns = 1000;
        Self { points: Vec::with_capacity(MOST_POINTS), step_ns, next_ns: 0, most: 0, now: NOTHING }
    }

    #[inline]
    fn take(&mut self, time_ns: u64, bytes: u64, objects: u64) {
        self.most = self.most.max(bytes);
        self.now = TimelinePoint { time_ns, bytes, objects, most_bytes: self.most };
        if time_ns >= self.next_ns {
            self.point();
        }
    }

    #[cold]
    fn point(&mut self) {
        // The last point is reserved for the last event.
        if self.points.len() + 1 == MOST_POINTS {
            self.step_ns *= 2;
            let halves = self.points.chunks(2).map(|pair| {
                let most_bytes = pair.iter().map(|point| point.most_bytes).max().unwrap_or(0);
                TimelinePoint { most_bytes, ..*pair.last().unwrap_or(&NOTHING) }
            });
            self.points = halves.collect();
        }
        self.points.push(self.now);
        self.most = self.now.bytes;
        self.next_ns = self.now.time_ns + self.step_ns;
    }

    fn finish(mut self) -> Vec<TimelinePoint> {
        if self.points.last().is_some_and(|last| last.time_ns < self.now.time_ns) {
            self.points.push(self.now);
        }
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolver::Resolver;
    use super::*;
    use trace_format::raw::{AllocationFlags, AllocationFunction};
    use trace_format::{Event, EventAction};

    fn run(
        stack_pass: &mut StackPass,
        events: impl Iterator<Item = (u64, Option<u32>)>,
    ) -> Resolver {
        let flags = AllocationFlags::new(AllocationFunction::Malloc);
        let (mut resolver, mut steps) = (Resolver::new(), Vec::new());
        for (number, (address, site)) in events.enumerate() {
            let action = match site {
                Some(site) => EventAction::Alloc { address, size: 64, site: NodeId(site), flags },
                None => EventAction::Free { address, by_realloc: false },
            };
            resolver
                .resolve(&Event { time_ns: number as u64 * 100, thread: 0, action }, &mut steps);
            steps.drain(..).for_each(|event| stack_pass.visit(&event));
        }
        resolver
    }

    /// `count` allocations and frees over 10 stacks, with 500 live blocks.
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
            let mut stack_pass = StackPass::new(false, 0);
            let resolver = run(&mut stack_pass, pairs(events));
            assert_eq!(
                (stack_pass.stacks.len(), stack_pass.cells.len(), stack_pass.live_objects),
                (10, 10, 500)
            );
            assert_eq!(resolver.live.len(), 500);
            assert!(stack_pass.timeline.points.len() <= MOST_POINTS);
            resolver.memory() + stack_pass.pending.capacity() * size_of::<FreedBlock>()
        };
        assert_eq!(memory(2_000), memory(2_000_000));
    }

    #[test]
    fn only_the_last_run_of_frees_is_the_exit() {
        let mut stack_pass = StackPass::new(false, 0);
        let blocks = |from: u64, to: u64| (from..to).map(|i| 0x10_0000 + i * 64);
        let make = |address| (address, Some(2));
        let free = |address| (address, None);
        let events = blocks(0, 1000)
            .map(make)
            .chain(blocks(0, 400).map(free))
            // Too many allocations for an exit.
            .chain(blocks(2000, 2100).map(make))
            .chain(blocks(400, 700).map(free))
            // An exit may include a few allocations.
            .chain(blocks(3000, 3003).map(make))
            .chain(blocks(700, 1000).map(free));
        let resolver = run(&mut stack_pass, events);
        let (stacks, end) = stack_pass.finish(&resolver.live);
        let statistics = &stacks[0].statistics;
        assert_eq!(
            (statistics.freed, statistics.freed_at_exit, statistics.never_freed),
            (400, 600, 103)
        );
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
