//! The second pass over the events: for sites and possible groups, the figures that are not sums
//! over stacks.
//!
//! A *target* is a site or a possible group. Targets are independent of each other, so they are
//! divided among a few shards, and each shard visits all events on a thread of its own. If the
//! events were not [kept](super::kept_events), one thread reads them again, and another one serves
//! all shards.

use super::event_pass::{EventVisitor, FAR_DISTANCE, NEAR_DISTANCE, STEPS};
use super::kept_events::{KeptEvent, KeptEventKind};
use super::lifetimes::{GroupLifetimes, ThreadLifetimes, YoungestBlocks};
use super::memory_hints::prefetch;
use super::resolver::ResolvedEvent;
use bench::console::progress::Progress;
use hashbrown::HashMap;
use std::num::NonZero;

/// Stacks that have the same targets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StackClass {
    /// The site.
    pub site: u32,
    /// The possible groups.
    pub possible_groups: Vec<u32>,
}

/// The live blocks of a target, over all threads.
#[derive(Debug, Clone, Default)]
struct LiveCount {
    live: u64,
    bytes: u64,
    peak_live: u64,
    peak_bytes: u64,
}

/// The states that a shard has for a class of stacks and a thread.
#[derive(Debug, Clone, Copy)]
struct StateRange {
    /// The range in `members`.
    begin: u32,
    end: u32,
    youngest: u32,
}

/// The blocks of a target that one thread allocated.
#[derive(Debug)]
struct TargetState {
    target: u32,
    /// No other thread allocates blocks of this target, so its live count is that of `lifetimes`.
    has_one_thread: bool,
    lifetimes: ThreadLifetimes,
}

/// The figures of a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupFigures {
    pub lifetimes: GroupLifetimes,
    pub in_order: u64,
    pub peak_live: u64,
    pub peak_live_bytes: u64,
}

/// The most shards; each visits all events.
const MOST_SHARDS: usize = 4;
const NONE: u32 = u32::MAX;

/// The targets of the pass. They are numbered: first the sites, then the possible groups.
#[derive(Debug)]
pub struct GroupPassInput<'a> {
    pub classes: &'a [StackClass],
    /// By class: allocations.
    pub counts: &'a [u64],
    /// For each cell (a stack and a thread): the class of the stack, and the thread.
    pub cells: &'a [(u32, u32)],
    pub sites: usize,
    pub possible_groups: usize,
    /// The number of the first event that is ignored.
    pub exit_from: u64,
}

impl GroupPassInput<'_> {
    /// The targets of a class.
    fn targets(&self, class: u32) -> impl Iterator<Item = u32> {
        let StackClass { site, possible_groups } = &self.classes[class as usize];
        let sites = self.sites as u32;
        std::iter::once(*site).chain(possible_groups.iter().map(move |&target| sites + target))
    }

    /// Assigns each target to a shard, so that the shards have about the same work.
    fn distribute(&self, shards: usize) -> Vec<u32> {
        let mut loads: Vec<(u64, u32)> =
            (0..(self.sites + self.possible_groups) as u32).map(|target| (0, target)).collect();
        for (class, &count) in self.counts.iter().enumerate() {
            self.targets(class as u32).for_each(|target| loads[target as usize].0 += count);
        }
        // A site also has its youngest blocks to follow.
        loads[..self.sites].iter_mut().for_each(|load| load.0 *= 2);
        loads.sort_unstable_by_key(|&(load, target)| (std::cmp::Reverse(load), target));
        let mut loads_of_shards = vec![0_u64; shards];
        let mut shard_of = vec![0; loads.len()];
        for (load, target) in loads {
            let least = (0..shards).min_by_key(|&shard| loads_of_shards[shard]).unwrap_or(0);
            loads_of_shards[least] += load;
            shard_of[target as usize] = least as u32;
        }
        shard_of
    }
}

/// Some of the targets.
#[derive(Debug)]
struct Shard {
    exit_from: u64,
    /// For each cell: its index in `ranges`.
    range_of_cell: Vec<u32>,
    ranges: Vec<StateRange>,
    /// Indexes in `states`.
    members: Vec<u32>,
    states: Vec<TargetState>,
    youngest_blocks: Vec<(u32, YoungestBlocks)>,
    /// For each target, those of other shards included.
    live_counts: Vec<LiveCount>,
    events: u64,
    clock: u64,
}

impl Shard {
    fn new(input: &GroupPassInput<'_>, is_own: impl Fn(u32) -> bool) -> Self {
        let mut shard = Self {
            exit_from: input.exit_from,
            range_of_cell: Vec::with_capacity(input.cells.len()),
            ranges: Vec::new(),
            members: Vec::new(),
            states: Vec::new(),
            youngest_blocks: Vec::new(),
            live_counts: vec![LiveCount::default(); input.sites + input.possible_groups],
            events: 0,
            clock: 0,
        };
        let (mut ranges, mut states, mut youngest_blocks) =
            (HashMap::new(), HashMap::new(), HashMap::new());
        for &(class, thread) in input.cells {
            let range = *ranges.entry((class, thread)).or_insert_with(|| {
                let begin = shard.members.len() as u32;
                for target in input.targets(class).filter(|&target| is_own(target)) {
                    shard.members.push(*states.entry((target, thread)).or_insert_with(|| {
                        shard.states.push(TargetState {
                            target,
                            has_one_thread: false,
                            lifetimes: ThreadLifetimes::default(),
                        });
                        shard.states.len() as u32 - 1
                    }));
                }
                let site = input.classes[class as usize].site;
                let youngest = is_own(site).then(|| {
                    *youngest_blocks.entry((site, thread)).or_insert_with(|| {
                        shard.youngest_blocks.push((site, YoungestBlocks::default()));
                        shard.youngest_blocks.len() as u32 - 1
                    })
                });
                let end = shard.members.len() as u32;
                shard.ranges.push(StateRange { begin, end, youngest: youngest.unwrap_or(NONE) });
                shard.ranges.len() as u32 - 1
            });
            shard.range_of_cell.push(range);
        }
        let mut threads = vec![0_u32; shard.live_counts.len()];
        shard.states.iter().for_each(|state| threads[state.target as usize] += 1);
        for state in &mut shard.states {
            state.has_one_thread = threads[state.target as usize] == 1;
        }
        shard
    }

    #[inline]
    fn range(&self, event: &KeptEvent) -> Option<StateRange> {
        self.range_of_cell.get(event.cell as usize).map(|&range| self.ranges[range as usize])
    }

    /// Prefetches what [`prefetch_near`](Self::prefetch_near) needs.
    #[inline]
    fn prefetch_far(&self, event: &KeptEvent) {
        if let Some(range) = self.range_of_cell.get(event.cell as usize) {
            prefetch(&self.ranges[*range as usize]);
        }
    }

    /// Prefetches what [`visit`](Self::visit) needs.
    #[inline]
    fn prefetch_near(&self, event: &KeptEvent) {
        let Some(range) = self.range(event) else { return };
        if let Some(youngest) = self.youngest_blocks.get(range.youngest as usize) {
            prefetch(youngest);
        }
        for &state in &self.members[range.begin as usize..range.end as usize] {
            prefetch(&self.states[state as usize]);
        }
    }

    /// Visits an event. Returns false if all further events are ignored.
    #[inline]
    fn visit(&mut self, event: &KeptEvent) -> bool {
        if self.events == self.exit_from {
            return false;
        }
        match event.kind() {
            KeptEventKind::Allocated => {
                self.allocated(event);
                self.clock += 1;
            }
            KeptEventKind::Freed => self.freed(event),
            KeptEventKind::Lost => {
                self.freed(event);
                return true;
            }
            KeptEventKind::Other => {}
        }
        self.events += 1;
        true
    }

    #[inline]
    fn allocated(&mut self, event: &KeptEvent) {
        let Some(range) = self.range(event) else { return };
        let size = event.size();
        for &state in &self.members[range.begin as usize..range.end as usize] {
            let state = &mut self.states[state as usize];
            state.lifetimes.allocate(size, self.clock);
            if state.has_one_thread {
                continue;
            }
            let live_count = &mut self.live_counts[state.target as usize];
            live_count.live += 1;
            live_count.bytes = live_count.bytes.saturating_add(size);
            live_count.peak_live = live_count.peak_live.max(live_count.live);
            live_count.peak_bytes = live_count.peak_bytes.max(live_count.bytes);
        }
        if let Some((_, youngest)) = self.youngest_blocks.get_mut(range.youngest as usize) {
            youngest.allocate(self.clock as u32);
        }
    }

    #[inline]
    fn freed(&mut self, event: &KeptEvent) {
        let Some(range) = self.range(event) else { return };
        let size = event.size();
        for &state in &self.members[range.begin as usize..range.end as usize] {
            let state = &mut self.states[state as usize];
            state.lifetimes.free(size, self.clock);
            if state.has_one_thread {
                continue;
            }
            let live_count = &mut self.live_counts[state.target as usize];
            live_count.live -= 1;
            live_count.bytes = live_count.bytes.saturating_sub(size);
        }
        if let Some((_, youngest)) = self.youngest_blocks.get_mut(range.youngest as usize) {
            youngest.free(event.birth);
        }
    }

    /// Visits the events that are not ignored, and calls `done` with the length of each piece.
    fn visit_all(&mut self, pieces: &[Vec<KeptEvent>], mut done: impl FnMut(usize)) {
        for piece in pieces {
            for (index, event) in piece.iter().enumerate() {
                if let Some(far) = piece.get(index + FAR_DISTANCE) {
                    self.prefetch_far(far);
                }
                if let Some(near) = piece.get(index + NEAR_DISTANCE) {
                    self.prefetch_near(near);
                }
                if !self.visit(event) {
                    return;
                }
            }
            done(piece.len());
        }
    }

    /// Adds the figures to `all`, which is indexed by target.
    fn finish(self, all: &mut [GroupFigures]) {
        for mut state in self.states {
            state.lifetimes.finish(self.clock);
            let live_count = &self.live_counts[state.target as usize];
            let figures = &mut all[state.target as usize];
            figures.lifetimes.add(&state.lifetimes);
            (figures.peak_live, figures.peak_live_bytes) = if state.has_one_thread {
                (state.lifetimes.peak_live, state.lifetimes.peak_live_bytes)
            } else {
                (live_count.peak_live, live_count.peak_bytes)
            };
        }
        for (site, youngest) in self.youngest_blocks {
            all[site as usize].in_order += youngest.in_order;
        }
    }
}

/// The second pass.
#[derive(Debug)]
pub struct GroupPass {
    shards: Vec<Shard>,
    target_count: usize,
}

impl GroupPass {
    /// A pass with one shard per processor, up to [`MOST_SHARDS`].
    pub fn new(input: &GroupPassInput<'_>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::in_shards(input, processors.min(MOST_SHARDS))
    }

    fn in_shards(input: &GroupPassInput<'_>, shards: usize) -> Self {
        let shard_of = input.distribute(shards);
        let shard =
            |shard: usize| Shard::new(input, |target| shard_of[target as usize] == shard as u32);
        Self {
            shards: (0..shards).map(shard).collect(),
            target_count: input.sites + input.possible_groups,
        }
    }

    /// Visits events that were kept.
    pub fn visit_all(&mut self, pieces: &[Vec<KeptEvent>], progress: Option<&Progress>) {
        let all: usize = pieces.iter().map(Vec::len).sum();
        let (mut steps, mut seen) = (0, 0);
        std::thread::scope(|scope| {
            let Some((own, others)) = self.shards.split_first_mut() else { return };
            others.iter_mut().for_each(|shard| {
                scope.spawn(|| shard.visit_all(pieces, |_| ()));
            });
            own.visit_all(pieces, |loads_of_shards| {
                seen += loads_of_shards;
                let due = seen * STEPS / all;
                progress.iter().for_each(|progress| (steps..due).for_each(|_| progress.step()));
                steps = due;
            });
        });
        progress.iter().for_each(|progress| (steps..STEPS).for_each(|_| progress.step()));
    }

    /// Ends the pass. Returns the figures of the sites, then those of the possible groups.
    pub fn finish(self) -> Vec<GroupFigures> {
        let mut all = vec![GroupFigures::default(); self.target_count];
        self.shards.into_iter().for_each(|shard| shard.finish(&mut all));
        all
    }
}

impl EventVisitor for GroupPass {
    #[inline]
    fn prefetch_far(&self, event: &ResolvedEvent) {
        let event = KeptEvent::of(event);
        self.shards.iter().for_each(|shard| shard.prefetch_far(&event));
    }

    #[inline]
    fn prefetch_near(&self, event: &ResolvedEvent) {
        let event = KeptEvent::of(event);
        self.shards.iter().for_each(|shard| shard.prefetch_near(&event));
    }

    #[inline]
    fn visit(&mut self, event: &ResolvedEvent) -> bool {
        let event = KeptEvent::of(event);
        // All shards ignore the same events.
        self.shards.iter_mut().fold(true, |_, shard| shard.visit(&event))
    }
}

#[cfg(test)]
mod tests {
    use super::super::live_blocks::LiveBlock;
    use super::super::resolver::BlockAction;
    use super::*;
    use trace_format::NodeId;

    /// 60,000 events on blocks of 40 stacks and 3 threads; some blocks are lost.
    fn steps() -> Vec<ResolvedEvent> {
        let mut by_chance = 1_u64;
        let mut chance = move |of: u64| {
            by_chance ^= by_chance << 13;
            by_chance ^= by_chance >> 7;
            by_chance ^= by_chance << 17;
            by_chance % of
        };
        let (mut live, mut steps, mut births): (Vec<LiveBlock>, Vec<ResolvedEvent>, u32) =
            Default::default();
        for time_ns in 0..60_000 {
            let action = match chance(100) {
                0 => BlockAction::Other,
                1..50 if !live.is_empty() => {
                    let block = if chance(3) == 0 {
                        live.swap_remove(chance(live.len() as u64) as usize)
                    } else {
                        live.pop().unwrap()
                    };
                    if chance(50) == 0 {
                        BlockAction::Lost(block)
                    } else {
                        BlockAction::Freed(block)
                    }
                }
                _ => {
                    let (cell, size) = (chance(120) as u32, 16 + chance(100) * 8);
                    let address = time_ns * 1024;
                    live.push(LiveBlock { address, born_ns: time_ns, size, birth: births, cell });
                    births += 1;
                    BlockAction::Allocated {
                        address,
                        size,
                        site: NodeId(2),
                        cell,
                        by_realloc: false,
                    }
                }
            };
            steps.push(ResolvedEvent { time_ns, thread: 0, action });
        }
        steps
    }

    #[test]
    fn shards_and_kept_events_give_the_same_figures_as_one_shard_that_reads_events() {
        let steps = steps();
        let classes: Vec<StackClass> = (0..40)
            .map(|class| StackClass {
                site: class % 11,
                possible_groups: (0..7).filter(|target| class >> target & 1 == 1).collect(),
            })
            .collect();
        let counts: Vec<u64> = (0..40).map(|class| class * class).collect();
        // The sites 9 and 10 have one thread, the others three.
        let thread = |cell: u32| if cell % 40 % 11 < 9 { cell / 40 } else { 0 };
        let cells: Vec<(u32, u32)> = (0..120).map(|cell| (cell % 40, thread(cell))).collect();
        let kept_events: Vec<KeptEvent> = steps.iter().map(KeptEvent::of).collect();
        for exit_from in [0, 50_000, u64::MAX] {
            let (classes, counts, cells) = (&*classes, &*counts, &*cells);
            let input =
                GroupPassInput { classes, counts, cells, sites: 11, possible_groups: 7, exit_from };
            let found = |shards: usize, kept: bool| {
                let mut group_pass = GroupPass::in_shards(&input, shards);
                if kept {
                    let pieces: Vec<Vec<KeptEvent>> =
                        kept_events.chunks(7000).map(<[KeptEvent]>::to_vec).collect();
                    group_pass.visit_all(&pieces, None);
                } else {
                    let _ = steps.iter().all(|event| EventVisitor::visit(&mut group_pass, event));
                }
                group_pass.finish()
            };
            let right = found(1, false);
            assert_eq!(right.iter().any(|figures| figures.peak_live > 100), exit_from > 0);
            assert_eq!(right[..11].iter().any(|figures| figures.in_order > 100), exit_from > 0);
            for (shards, kept) in [(1, true), (2, true), (3, false), (4, true)] {
                assert_eq!(found(shards, kept), right, "{shards} shards, kept: {kept}");
            }
        }
    }

    #[test]
    fn shards_have_about_the_same_work() {
        let classes: Vec<StackClass> = (0..30)
            .map(|class| StackClass { site: class, possible_groups: vec![class / 10] })
            .collect();
        let counts = vec![1000; 30];
        let input = GroupPassInput {
            classes: &classes,
            counts: &counts,
            cells: &[],
            sites: 30,
            possible_groups: 3,
            exit_from: 0,
        };
        let shard_of = input.distribute(2);
        let load = |shard: u32| -> u64 {
            let own = |&(_, &of_shard): &(usize, &u32)| of_shard == shard;
            let load = |(target, _)| if target < 30 { 2000 } else { 10_000 };
            shard_of.iter().enumerate().filter(own).map(load).sum()
        };
        assert_eq!(load(0) + load(1), 90_000);
        assert!(load(0).abs_diff(load(1)) <= 2000, "{} and {}", load(0), load(1));
    }
}
