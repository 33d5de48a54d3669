//! Groups the sites that one change would serve, and judges each group.

use super::block_statistics::{BlockStatistics, share};
use super::cost_model::{self, RunContext};
use super::findings::{AdvisedAllocator, BlockFigures, ObjectCategory, Verdict};
use super::group_pass::GroupFigures;
use super::possible_groups::{GroupMembers, PossibleGroup};
use super::sites::SiteDraft;
use super::stack_pass::StackStatistics;
use super::verdict_rules::{self, LifetimesKnown};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// An inner piece of work replaces the one around it if it has at least this share of its gain, or
/// of the blocks that it builds.
const ENOUGH_OF_GAIN: f64 = 0.9;
const ENOUGH_OF_BLOCKS: f64 = 0.5;
/// The least share of a possible group that must be left after other groups took their sites.
const ENOUGH_LEFT: f64 = 0.5;
/// From this share of the allocations, or of the peak, on, a site is shown alone even if nothing is
/// advised for it.
const NOTABLE: f64 = 0.02;

/// The figures of a site or a group.
#[derive(Debug, Clone, Default)]
pub struct MeasuredBlocks {
    pub statistics: BlockStatistics,
    pub figures: GroupFigures,
}

impl MeasuredBlocks {
    fn merge(&mut self, other: &Self) {
        self.statistics.merge(&other.statistics);
        self.figures.merge(&other.figures);
    }

    /// The figures in the form of the findings.
    pub fn behaviour(&self) -> BlockFigures {
        let (statistics, figures) = (&self.statistics, &self.figures);
        let lifetimes = &figures.lifetimes;
        let freed = statistics.freed;
        BlockFigures {
            count: statistics.count,
            reallocated: statistics.reallocated,
            resized: statistics.resized,
            bytes: statistics.bytes,
            large_bytes: statistics.large_bytes,
            dominant_size: statistics.sizes.dominant().0,
            dominant_share: statistics.dominant_share(),
            sizes: statistics.sizes.different(),
            least_size: statistics.least_size,
            most_size: statistics.most_size,
            lifetime_ns: statistics.lifetime_ns.quantiles(),
            lifetime_allocations: statistics.lifetime_allocations.quantiles(),
            same_thread_share: statistics.same_thread_share(),
            threads: statistics.threads.count_ones(),
            last_in_first_out_share: share(figures.in_order, freed).unwrap_or(0.0).min(1.0),
            peak_live_objects: figures.peak_live,
            peak_live_bytes: figures.peak_live_bytes,
            never_freed: statistics.never_freed,
            freed_at_exit: statistics.freed_at_exit,
            burst_share: lifetimes.burst_share(),
            mean_burst: lifetimes.mean_burst(),
            returns_to_zero: lifetimes.returns,
            phase_objects: lifetimes.objects(),
            drag: lifetimes.drag(),
            peak_drag: lifetimes.peak_drag(),
            peak_held_bytes: lifetimes.peak_held,
            first_ns: statistics.first_ns,
            last_ns: statistics.last_ns,
        }
    }
}

impl GroupFigures {
    fn merge(&mut self, other: &Self) {
        self.lifetimes.merge(&other.lifetimes);
        self.in_order += other.in_order;
        self.peak_live += other.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(other.peak_live_bytes);
    }
}

/// A finished site: those stacks of a draft that are in one group.
#[derive(Debug)]
pub struct FinishedSite {
    pub draft: usize,
    pub stacks: Vec<u32>,
    pub measured: MeasuredBlocks,
    pub group: usize,
}

/// A finished group.
#[derive(Debug)]
pub struct FinishedGroup {
    pub name: GroupName,
    pub measured: BlockFigures,
    pub verdict: Verdict,
}

/// What a group is named after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupName {
    /// The function of a possible group, by its index.
    Work(usize),
    /// A site's function.
    Site(usize),
    /// A description.
    Words(&'static str),
}

/// The results of both passes.
pub struct GroupingInput<'a> {
    pub stacks: &'a [StackStatistics],
    pub drafts: &'a [SiteDraft],
    pub possible_groups: &'a [PossibleGroup],
    pub class_of_stack: &'a [u32],
    /// The figures of each draft, then of each possible group, then of each class.
    pub figures: &'a [GroupFigures],
    pub run_context: &'a RunContext,
    /// For each class: the sum over its stacks.
    pub classes: Vec<BlockStatistics>,
    /// The title of a piece of work or a site, for the lines to change.
    pub title: &'a mut dyn FnMut(&GroupName) -> String,
}

/// The sum over the stacks of each class.
pub fn sums(
    stacks: &[StackStatistics],
    class_of_stack: &[u32],
    classes: usize,
) -> Vec<BlockStatistics> {
    let mut sums = vec![BlockStatistics::default(); classes];
    for (stack, &class) in stacks.iter().zip(class_of_stack) {
        sums[class as usize].merge(&stack.statistics);
    }
    sums
}

/// Makes groups of all sites. The estimated costs of all groups sum to at most the cost of all
/// allocating: a group's blocks may seem to cost more than those of its sites, because more of them
/// are live. Then all groups are judged once more at a lower price.
pub fn make(mut input: GroupingInput<'_>) -> (Vec<FinishedSite>, Vec<FinishedGroup>) {
    let done = group_once(&mut input);
    let excess = excess(&done.1, input.run_context);
    if excess <= 1.0 {
        return done;
    }
    let run_context =
        RunContext { pace: input.run_context.pace / excess, ..input.run_context.clone() };
    let (sites, mut groups) = group_once(&mut GroupingInput {
        run_context: &run_context,
        classes: input.classes,
        title: &mut *input.title,
        ..input
    });
    // At the lower price there may be other groups.
    let excess = self::excess(&groups, &run_context).max(1.0);
    for gain in groups.iter_mut().filter_map(|group| group.verdict.gain.as_mut()) {
        gain.ceiling /= excess;
        gain.share /= excess;
    }
    (sites, groups)
}

/// The estimated costs of all groups, divided by the cost of all allocating.
fn excess(groups: &[FinishedGroup], run_context: &RunContext) -> f64 {
    let ceilings = groups.iter().filter_map(|group| group.verdict.gain);
    let all: f64 = ceilings.map(|gain| gain.ceiling).sum();
    run_context.allocator_share.filter(|share| *share > 0.0).map_or(1.0, |share| all / share)
}

fn group_once(input: &mut GroupingInput<'_>) -> (Vec<FinishedSite>, Vec<FinishedGroup>) {
    let mut taken: Vec<Option<usize>> = vec![None; input.stacks.len()];
    let mut groups = Vec::new();
    input.seal(&mut taken, &mut groups);
    input.arenas(&mut taken, &mut groups);
    let mut sites = input.split(&taken);
    input.rest(&mut sites, &mut groups);
    (sites, groups)
}

impl GroupingInput<'_> {
    fn of_possible(&self, possible: usize) -> MeasuredBlocks {
        let mut measured = MeasuredBlocks {
            figures: self.figures[self.drafts.len() + possible].clone(),
            ..MeasuredBlocks::default()
        };
        // A class has the same possible groups for all of its stacks.
        let mut seen = vec![false; self.classes.len()];
        for &stack in &self.possible_groups[possible].stacks {
            let class = self.class_of_stack[stack as usize] as usize;
            if !std::mem::replace(&mut seen[class], true) {
                measured.statistics.merge(&self.classes[class]);
            }
        }
        measured
    }

    fn count(&self, stacks: &[u32]) -> u64 {
        stacks.iter().map(|&stack| self.stacks[stack as usize].statistics.count).sum()
    }

    /// Makes a possible group a group if other groups left enough of it. Returns whether it did.
    fn take(&self, possible: usize, taken: &mut [Option<usize>], group: usize) -> bool {
        let stacks = &self.possible_groups[possible].stacks;
        let left: Vec<u32> =
            stacks.iter().copied().filter(|&stack| taken[stack as usize].is_none()).collect();
        if (self.count(&left) as f64) < ENOUGH_LEFT * self.count(stacks) as f64 || left.is_empty() {
            return false;
        }
        left.iter().for_each(|&stack| taken[stack as usize] = Some(group));
        true
    }

    /// Groups of blocks that are built once and stay.
    fn seal(&mut self, taken: &mut [Option<usize>], groups: &mut Vec<FinishedGroup>) {
        let mut found: Vec<(usize, BlockFigures, u32)> = (0..self.possible_groups.len())
            .filter(|&possible| self.possible_groups[possible].members == GroupMembers::Lasting)
            .filter_map(|possible| {
                let behaviour = self.of_possible(possible).behaviour();
                let others = verdict_rules::sealed(&behaviour, self.run_context)?;
                Some((possible, behaviour, others))
            })
            .collect();
        found.sort_by_key(|(possible, behaviour, _)| {
            (std::cmp::Reverse(behaviour.count), *possible)
        });
        for (possible, behaviour, others) in
            self.innermost(&found, ENOUGH_OF_BLOCKS, |found| found.count as f64)
        {
            let group = groups.len();
            if !self.take(possible, taken, group) {
                continue;
            }
            let name = GroupName::Work(possible);
            let title = (self.title)(&name);
            let verdict = verdict_rules::seal(&behaviour, &title, others, self.run_context);
            groups.push(FinishedGroup { name, measured: behaviour, verdict });
        }
    }

    /// Inserts before each possible group the smallest inner one that has most of its value.
    fn innermost<T: Copy>(
        &self,
        found: &[(usize, BlockFigures, T)],
        most: f64,
        value: impl Fn(&BlockFigures) -> f64,
    ) -> Vec<(usize, BlockFigures, T)> {
        let sets: Vec<HashSet<u32>> = found
            .iter()
            .map(|(possible, ..)| self.possible_groups[*possible].stacks.iter().copied().collect())
            .collect();
        let mut order = Vec::new();
        for outer in 0..found.len() {
            // The smallest one that still has most of the gain.
            let within = (0..found.len()).rev().find(|&inner| {
                sets[inner].len() <= sets[outer].len()
                    && sets[inner].is_subset(&sets[outer])
                    && value(&found[inner].1) >= most * value(&found[outer].1)
            });
            for index in within.into_iter().chain([outer]) {
                if !order.contains(&index) {
                    order.push(index);
                }
            }
        }
        order.into_iter().map(|index| found[index].clone()).collect()
    }

    /// Groups of pieces of work whose blocks are freed together.
    fn arenas(&mut self, taken: &mut [Option<usize>], groups: &mut Vec<FinishedGroup>) {
        if self
            .run_context
            .allocator_share
            .is_some_and(|share| share < verdict_rules::LEAST_ALLOCATOR_SHARE)
        {
            return;
        }
        let mut found: Vec<(usize, BlockFigures, ())> = (0..self.possible_groups.len())
            .map(|possible| (possible, self.of_possible(possible).behaviour(), ()))
            .filter(|(possible, behaviour, ())| {
                let moments = self.possible_groups[*possible].moments;
                verdict_rules::arena(behaviour)
                    .is_ok_and(|without_reset| !(without_reset && moments))
                    && verdict_rules::worth(cost_model::gain(
                        behaviour,
                        AdvisedAllocator::Arena,
                        self.run_context,
                    ))
            })
            .collect();
        let value = |behaviour: &BlockFigures| {
            cost_model::gain(behaviour, AdvisedAllocator::Arena, self.run_context)
                .map_or(0.0, |gain| gain.share)
        };
        found.sort_by(|a, b| value(&b.1).total_cmp(&value(&a.1)).then(a.0.cmp(&b.0)));
        for (possible, behaviour, ()) in self.innermost(&found, ENOUGH_OF_GAIN, value) {
            let group = groups.len();
            if !self.take(possible, taken, group) {
                continue;
            }
            let name = GroupName::Work(possible);
            let title = (self.title)(&name);
            let verdict = verdict_rules::judge(
                &behaviour,
                &title,
                LifetimesKnown::Measured,
                None,
                self.run_context,
            );
            groups.push(FinishedGroup { name, measured: behaviour, verdict });
        }
    }

    /// The sites. A site is divided if only a part of it is in a group.
    fn split(&self, taken: &[Option<usize>]) -> Vec<FinishedSite> {
        let mut sites = Vec::new();
        for (index, draft) in self.drafts.iter().enumerate() {
            let mut parts: BTreeMap<Option<usize>, Vec<u32>> = BTreeMap::new();
            for &stack in &draft.stacks {
                parts.entry(taken[stack as usize]).or_default().push(stack);
            }
            let whole = parts.len() == 1;
            for (group, stacks) in parts {
                let measured = if whole {
                    MeasuredBlocks {
                        statistics: draft.statistics.clone(),
                        figures: self.figures[index].clone(),
                    }
                } else {
                    self.part(&stacks)
                };
                let group = group.unwrap_or(usize::MAX);
                sites.push(FinishedSite { draft: index, stacks, measured, group });
            }
        }
        sites.sort_by_key(|site| (std::cmp::Reverse(site.measured.statistics.count), site.draft));
        sites
    }

    /// The figures of some stacks of a site: the sum over their classes.
    fn part(&self, stacks: &[u32]) -> MeasuredBlocks {
        let mut measured = MeasuredBlocks::default();
        let mut seen = HashSet::new();
        for &stack in stacks {
            measured.statistics.merge(&self.stacks[stack as usize].statistics);
            let class = self.class_of_stack[stack as usize] as usize;
            if seen.insert(class) {
                measured
                    .figures
                    .merge(&self.figures[self.drafts.len() + self.possible_groups.len() + class]);
            }
        }
        measured
    }

    /// The largest piece of work that most of a site's stacks are in, without its lasting blocks.
    fn surrounding_work(&self, stacks: &[u32]) -> Option<BlockFigures> {
        let own: HashSet<u32> = stacks.iter().copied().collect();
        let total = self.count(stacks);
        let covers = |possible: &PossibleGroup| {
            let common: Vec<u32> =
                possible.stacks.iter().copied().filter(|stack| own.contains(stack)).collect();
            self.count(&common) * 2 > total
        };
        let possible = (0..self.possible_groups.len())
            .filter(|&possible| {
                matches!(
                    self.possible_groups[possible].members,
                    GroupMembers::Transient | GroupMembers::Kept
                )
            })
            .filter(|&possible| covers(&self.possible_groups[possible]))
            .max_by_key(|&possible| self.count(&self.possible_groups[possible].stacks))?;
        Some(self.of_possible(possible).behaviour())
    }

    /// Groups for the remaining sites: those worth a change of their own, one group for a pool, and
    /// the rest.
    fn rest(&mut self, sites: &mut [FinishedSite], groups: &mut Vec<FinishedGroup>) {
        let (mut pooled, mut foreign, mut large, mut left) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for index in (0..sites.len()).filter(|&index| sites[index].group == usize::MAX) {
            let behaviour = sites[index].measured.behaviour();
            let allocator = verdict_rules::allocator(&behaviour, LifetimesKnown::Measured);
            let gain = cost_model::gain(&behaviour, allocator, self.run_context);
            let lasts = sites[index].measured.statistics.permanent_share() > 0.5;
            match allocator {
                _ if lasts => left.push((vec![index], GroupName::Site(sites[index].draft))),
                AdvisedAllocator::FreeList | AdvisedAllocator::Slab | AdvisedAllocator::Reap
                    if verdict_rules::worth(gain) =>
                {
                    left.push((vec![index], GroupName::Site(sites[index].draft)));
                }
                AdvisedAllocator::FreeList | AdvisedAllocator::Pool | AdvisedAllocator::Reap => {
                    pooled.push(index)
                }
                AdvisedAllocator::Arena if behaviour.returns_to_zero > 0 => pooled.push(index),
                AdvisedAllocator::None if verdict_rules::is_mostly_large(&behaviour) => {
                    large.push(index)
                }
                AdvisedAllocator::Slab | AdvisedAllocator::None => foreign.push(index),
                _ => left.push((vec![index], GroupName::Site(sites[index].draft))),
            }
        }
        for (indexes, words) in [
            (pooled, "blocks freed by their own thread"),
            (foreign, "blocks passed between threads"),
            (large, "blocks of more than 32 KiB"),
        ] {
            let summed = self.summed(sites, &indexes);
            let gain = cost_model::gain(
                &summed,
                verdict_rules::allocator(&summed, LifetimesKnown::Summed),
                self.run_context,
            );
            if verdict_rules::worth(gain) && !indexes.is_empty() {
                left.push((indexes, GroupName::Words(words)));
            } else {
                let alone = |&index: &usize| (vec![index], GroupName::Site(sites[index].draft));
                left.extend(indexes.iter().map(alone));
            }
        }
        self.judge_rest(sites, left, groups);
    }

    fn summed(&self, sites: &[FinishedSite], indexes: &[usize]) -> BlockFigures {
        let mut measured = MeasuredBlocks::default();
        indexes.iter().for_each(|&index| measured.merge(&sites[index].measured));
        measured.behaviour()
    }

    fn judge_rest(
        &mut self,
        sites: &mut [FinishedSite],
        candidates: Vec<(Vec<usize>, GroupName)>,
        groups: &mut Vec<FinishedGroup>,
    ) {
        let allocations: u64 = self.stacks.iter().map(|stack| stack.statistics.count).sum();
        let peak = self.run_context.peak_live_bytes;
        let mut minor = Vec::new();
        for (indexes, name) in candidates {
            let measured = self.summed(sites, &indexes);
            let stacks: Vec<u32> =
                indexes.iter().flat_map(|&index| sites[index].stacks.iter().copied()).collect();
            let notable = measured.count as f64 >= NOTABLE * allocations as f64
                || measured.peak_live_bytes as f64 >= 0.1 * peak as f64;
            let together =
                if indexes.len() == 1 { LifetimesKnown::Measured } else { LifetimesKnown::Summed };
            let verdict = if notable {
                let wider = self.surrounding_work(&stacks);
                let title = (self.title)(&name);
                verdict_rules::judge(&measured, &title, together, wider.as_ref(), self.run_context)
            } else {
                verdict_rules::judge(&measured, "", together, None, self.run_context)
            };
            if !notable && verdict.category == ObjectCategory::LeaveIt {
                minor.extend(indexes);
                continue;
            }
            let group = groups.len();
            indexes.iter().for_each(|&index| sites[index].group = group);
            groups.push(FinishedGroup { name, measured, verdict });
        }
        if !minor.is_empty() {
            let group = groups.len();
            let measured = self.summed(sites, &minor);
            minor.iter().for_each(|&index| sites[index].group = group);
            let mut verdict =
                verdict_rules::judge(&measured, "", LifetimesKnown::Summed, None, self.run_context);
            if verdict.category != ObjectCategory::LeaveIt {
                verdict = verdict_rules::scattered(&measured, minor.len(), self.run_context);
            }
            groups.push(FinishedGroup {
                name: GroupName::Words("everything else"),
                measured,
                verdict,
            });
        }
    }
}
