//! Groups the sites that one change would serve, and judges each group.

use super::contexts::{Members, Watch};
use super::costs::{self, Setting};
use super::findings::{Allocator, Behaviour, Category, Verdict};
use super::first::Stack;
use super::rules::{self, Together};
use super::second::Watched;
use super::sites::Draft;
use super::tally::{Tally, share};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// An inner piece of work replaces the one around it if it has at least this share of its gain, or of
/// the blocks that it builds.
const MOST_OF_IT: f64 = 0.9;
const CORE: f64 = 0.5;
/// The least share of a possible group that must be left after other groups took their sites.
const LEFT: f64 = 0.5;
/// From this share of the allocations, or of the peak, on, a site is shown alone even if nothing is
/// advised for it.
const NOTABLE: f64 = 0.02;

/// The figures of a site or a group.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub tally: Tally,
    pub watched: Watched,
}

impl Known {
    fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.watched.merge(&other.watched);
    }

    /// The figures in the form of the findings.
    pub fn behaviour(&self) -> Behaviour {
        let (tally, watched) = (&self.tally, &self.watched);
        let phases = &watched.phases;
        let freed = tally.freed;
        Behaviour {
            count: tally.count,
            reallocated: tally.reallocated,
            bytes: tally.bytes,
            large_bytes: tally.large_bytes,
            dominant_size: tally.sizes.dominant().0,
            dominant_share: tally.dominant_share(),
            sizes: tally.sizes.different(),
            least_size: tally.least_size,
            most_size: tally.most_size,
            lifetime_ns: tally.lifetime_ns.quantiles(),
            lifetime_allocations: tally.lifetime_allocations.quantiles(),
            same_thread_share: tally.same_thread_share(),
            threads: tally.threads.count_ones(),
            last_in_first_out_share: share(watched.in_order, freed).unwrap_or(0.0).min(1.0),
            peak_live_objects: watched.peak_live,
            peak_live_bytes: watched.peak_live_bytes,
            never_freed: tally.never_freed,
            freed_at_exit: tally.freed_at_exit,
            burst_share: phases.burst_share(),
            mean_burst: phases.mean_burst(),
            returns_to_zero: phases.returns,
            phase_objects: phases.objects(),
            drag: phases.drag(),
            peak_drag: phases.peak_drag(),
            peak_held_bytes: phases.peak_held,
            first_ns: tally.first_ns,
            last_ns: tally.last_ns,
        }
    }
}

impl Watched {
    fn merge(&mut self, other: &Self) {
        self.phases.merge(&other.phases);
        self.in_order += other.in_order;
        self.peak_live += other.peak_live;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(other.peak_live_bytes);
    }
}

/// A finished site: those stacks of a draft that are in one group.
#[derive(Debug)]
pub struct DoneSite {
    pub draft: usize,
    pub stacks: Vec<u32>,
    pub known: Known,
    pub group: usize,
}

/// A finished group.
#[derive(Debug)]
pub struct DoneGroup {
    pub name: Name,
    pub known: Behaviour,
    pub verdict: Verdict,
}

/// What a group is named after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// The function of a watch's node.
    Work(usize),
    /// A site's function.
    Site(usize),
    /// A description.
    Words(&'static str),
}

/// The results of both passes.
pub struct Material<'a> {
    pub stacks: &'a [Stack],
    pub drafts: &'a [Draft],
    pub watches: &'a [Watch],
    pub class_of_stack: &'a [u32],
    /// For each draft, then each watch, then each class.
    pub watched: &'a [Watched],
    pub setting: &'a Setting,
    /// For each class: the sum over its stacks.
    pub classes: Vec<Tally>,
    /// The title of a piece of work or a site, for the lines to change.
    pub title: &'a mut dyn FnMut(&Name) -> String,
}

/// The sum over the stacks of each class.
pub fn sums(stacks: &[Stack], class_of_stack: &[u32], classes: usize) -> Vec<Tally> {
    let mut sums = vec![Tally::default(); classes];
    for (stack, &class) in stacks.iter().zip(class_of_stack) {
        sums[class as usize].merge(&stack.tally);
    }
    sums
}

/// Makes groups of all sites. The estimated costs of all groups sum to at most the cost of all
/// allocating: a group's blocks may seem to cost more than those of its sites, because more of them are
/// live. Then all groups are judged once more at a lower price.
pub fn make(mut material: Material<'_>) -> (Vec<DoneSite>, Vec<DoneGroup>) {
    let done = at_once(&mut material);
    let excess = excess(&done.1, material.setting);
    if excess <= 1.0 {
        return done;
    }
    let setting = Setting { pace: material.setting.pace / excess, ..material.setting.clone() };
    let (sites, mut groups) = at_once(&mut Material {
        setting: &setting,
        classes: material.classes,
        title: &mut *material.title,
        ..material
    });
    // At the lower price there may be other groups.
    let excess = self::excess(&groups, &setting).max(1.0);
    for gain in groups.iter_mut().filter_map(|group| group.verdict.gain.as_mut()) {
        gain.ceiling /= excess;
        gain.share /= excess;
    }
    (sites, groups)
}

/// The estimated costs of all groups, divided by the cost of all allocating.
fn excess(groups: &[DoneGroup], setting: &Setting) -> f64 {
    let ceilings = groups.iter().filter_map(|group| group.verdict.gain);
    let all: f64 = ceilings.map(|gain| gain.ceiling).sum();
    setting.allocator_share.filter(|share| *share > 0.0).map_or(1.0, |share| all / share)
}

fn at_once(material: &mut Material<'_>) -> (Vec<DoneSite>, Vec<DoneGroup>) {
    let mut taken: Vec<Option<usize>> = vec![None; material.stacks.len()];
    let mut groups = Vec::new();
    material.seal(&mut taken, &mut groups);
    material.arenas(&mut taken, &mut groups);
    let mut sites = material.split(&taken);
    material.rest(&mut sites, &mut groups);
    (sites, groups)
}

impl Material<'_> {
    fn of_watch(&self, watch: usize) -> Known {
        let mut known =
            Known { watched: self.watched[self.drafts.len() + watch].clone(), ..Known::default() };
        // A class has the same watches for all of its stacks.
        let mut seen = vec![false; self.classes.len()];
        for &stack in &self.watches[watch].stacks {
            let class = self.class_of_stack[stack as usize] as usize;
            if !std::mem::replace(&mut seen[class], true) {
                known.tally.merge(&self.classes[class]);
            }
        }
        known
    }

    fn count(&self, stacks: &[u32]) -> u64 {
        stacks.iter().map(|&stack| self.stacks[stack as usize].tally.count).sum()
    }

    /// Makes a possible group a group, if enough of it is left.
    fn take(&self, watch: usize, taken: &mut [Option<usize>], group: usize) -> bool {
        let stacks = &self.watches[watch].stacks;
        let left: Vec<u32> =
            stacks.iter().copied().filter(|&stack| taken[stack as usize].is_none()).collect();
        if (self.count(&left) as f64) < LEFT * self.count(stacks) as f64 || left.is_empty() {
            return false;
        }
        left.iter().for_each(|&stack| taken[stack as usize] = Some(group));
        true
    }

    /// Groups of blocks that are built once and stay.
    fn seal(&mut self, taken: &mut [Option<usize>], groups: &mut Vec<DoneGroup>) {
        let mut found: Vec<(usize, Behaviour, u32)> = (0..self.watches.len())
            .filter(|&watch| self.watches[watch].members == Members::Lasting)
            .filter_map(|watch| {
                let behaviour = self.of_watch(watch).behaviour();
                let others = rules::sealed(&behaviour, self.setting)?;
                Some((watch, behaviour, others))
            })
            .collect();
        found.sort_by_key(|(watch, behaviour, _)| (std::cmp::Reverse(behaviour.count), *watch));
        for (watch, behaviour, others) in self.innermost(&found, CORE, |found| found.count as f64) {
            let group = groups.len();
            if !self.take(watch, taken, group) {
                continue;
            }
            let name = Name::Work(watch);
            let title = (self.title)(&name);
            let verdict = rules::seal(&behaviour, &title, others, self.setting);
            groups.push(DoneGroup { name, known: behaviour, verdict });
        }
    }

    /// Puts before each possible group the inner ones that have most of its gain.
    fn innermost<T: Copy>(
        &self,
        found: &[(usize, Behaviour, T)],
        most: f64,
        value: impl Fn(&Behaviour) -> f64,
    ) -> Vec<(usize, Behaviour, T)> {
        let sets: Vec<HashSet<u32>> = found
            .iter()
            .map(|(watch, ..)| self.watches[*watch].stacks.iter().copied().collect())
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
    fn arenas(&mut self, taken: &mut [Option<usize>], groups: &mut Vec<DoneGroup>) {
        if self.setting.allocator_share.is_some_and(|share| share < rules::LEAST_ALLOCATOR_SHARE) {
            return;
        }
        let mut found: Vec<(usize, Behaviour, ())> = (0..self.watches.len())
            .map(|watch| (watch, self.of_watch(watch).behaviour(), ()))
            .filter(|(watch, behaviour, ())| {
                let moments = self.watches[*watch].moments;
                rules::arena(behaviour).is_ok_and(|without_reset| !(without_reset && moments))
                    && rules::worth(costs::gain(behaviour, Allocator::Arena, self.setting))
            })
            .collect();
        let value = |behaviour: &Behaviour| {
            costs::gain(behaviour, Allocator::Arena, self.setting).map_or(0.0, |gain| gain.share)
        };
        found.sort_by(|a, b| value(&b.1).total_cmp(&value(&a.1)).then(a.0.cmp(&b.0)));
        for (watch, behaviour, ()) in self.innermost(&found, MOST_OF_IT, value) {
            let group = groups.len();
            if !self.take(watch, taken, group) {
                continue;
            }
            let name = Name::Work(watch);
            let title = (self.title)(&name);
            let verdict = rules::judge(&behaviour, &title, Together::Watched, None, self.setting);
            groups.push(DoneGroup { name, known: behaviour, verdict });
        }
    }

    /// The sites. A site is divided if only a part of it is in a group.
    fn split(&self, taken: &[Option<usize>]) -> Vec<DoneSite> {
        let mut sites = Vec::new();
        for (index, draft) in self.drafts.iter().enumerate() {
            let mut parts: BTreeMap<Option<usize>, Vec<u32>> = BTreeMap::new();
            for &stack in &draft.stacks {
                parts.entry(taken[stack as usize]).or_default().push(stack);
            }
            let whole = parts.len() == 1;
            for (group, stacks) in parts {
                let known = if whole {
                    Known { tally: draft.tally.clone(), watched: self.watched[index].clone() }
                } else {
                    self.part(&stacks)
                };
                let group = group.unwrap_or(usize::MAX);
                sites.push(DoneSite { draft: index, stacks, known, group });
            }
        }
        sites.sort_by_key(|site| (std::cmp::Reverse(site.known.tally.count), site.draft));
        sites
    }

    /// The figures of some stacks of a site: the sum over their classes.
    fn part(&self, stacks: &[u32]) -> Known {
        let mut known = Known::default();
        let mut seen = HashSet::new();
        for &stack in stacks {
            known.tally.merge(&self.stacks[stack as usize].tally);
            let class = self.class_of_stack[stack as usize] as usize;
            if seen.insert(class) {
                known.watched.merge(&self.watched[self.drafts.len() + self.watches.len() + class]);
            }
        }
        known
    }

    /// The largest piece of work that most of a site's stacks are in, without its lasting blocks.
    fn around(&self, stacks: &[u32]) -> Option<Behaviour> {
        let own: HashSet<u32> = stacks.iter().copied().collect();
        let total = self.count(stacks);
        let covers = |watch: &Watch| {
            let common: Vec<u32> =
                watch.stacks.iter().copied().filter(|stack| own.contains(stack)).collect();
            self.count(&common) * 2 > total
        };
        let watch = (0..self.watches.len())
            .filter(|&watch| {
                matches!(self.watches[watch].members, Members::Transient | Members::Kept)
            })
            .filter(|&watch| covers(&self.watches[watch]))
            .max_by_key(|&watch| self.count(&self.watches[watch].stacks))?;
        Some(self.of_watch(watch).behaviour())
    }

    /// Groups for the remaining sites: those worth a change of their own, one group for a pool, and the rest.
    fn rest(&mut self, sites: &mut [DoneSite], groups: &mut Vec<DoneGroup>) {
        let (mut pooled, mut foreign, mut large, mut left) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for index in (0..sites.len()).filter(|&index| sites[index].group == usize::MAX) {
            let behaviour = sites[index].known.behaviour();
            let allocator = rules::allocator(&behaviour, Together::Watched);
            let gain = costs::gain(&behaviour, allocator, self.setting);
            let lasts = sites[index].known.tally.permanent_share() > 0.5;
            match allocator {
                _ if lasts => left.push((vec![index], Name::Site(sites[index].draft))),
                Allocator::FreeList | Allocator::Slab | Allocator::Reap if rules::worth(gain) => {
                    left.push((vec![index], Name::Site(sites[index].draft)));
                }
                Allocator::FreeList | Allocator::Pool | Allocator::Reap => pooled.push(index),
                Allocator::Arena if behaviour.returns_to_zero > 0 => pooled.push(index),
                Allocator::None if rules::is_mostly_large(&behaviour) => large.push(index),
                Allocator::Slab | Allocator::None => foreign.push(index),
                _ => left.push((vec![index], Name::Site(sites[index].draft))),
            }
        }
        for (indexes, words) in [
            (pooled, "blocks freed by their own thread"),
            (foreign, "blocks passed between threads"),
            (large, "blocks of more than 32 KiB"),
        ] {
            let gathered = self.gathered(sites, &indexes);
            let gain =
                costs::gain(&gathered, rules::allocator(&gathered, Together::Summed), self.setting);
            if rules::worth(gain) && !indexes.is_empty() {
                left.push((indexes, Name::Words(words)));
            } else {
                let alone = |&index: &usize| (vec![index], Name::Site(sites[index].draft));
                left.extend(indexes.iter().map(alone));
            }
        }
        self.judge_rest(sites, left, groups);
    }

    fn gathered(&self, sites: &[DoneSite], indexes: &[usize]) -> Behaviour {
        let mut known = Known::default();
        indexes.iter().for_each(|&index| known.merge(&sites[index].known));
        known.behaviour()
    }

    fn judge_rest(
        &mut self,
        sites: &mut [DoneSite],
        candidates: Vec<(Vec<usize>, Name)>,
        groups: &mut Vec<DoneGroup>,
    ) {
        let allocations: u64 = self.stacks.iter().map(|stack| stack.tally.count).sum();
        let peak = self.setting.peak_live_bytes;
        let mut unnotable = Vec::new();
        for (indexes, name) in candidates {
            let known = self.gathered(sites, &indexes);
            let stacks: Vec<u32> =
                indexes.iter().flat_map(|&index| sites[index].stacks.iter().copied()).collect();
            let notable = known.count as f64 >= NOTABLE * allocations as f64
                || known.peak_live_bytes as f64 >= 0.1 * peak as f64;
            let together = if indexes.len() == 1 { Together::Watched } else { Together::Summed };
            let verdict = if notable {
                let wider = self.around(&stacks);
                let title = (self.title)(&name);
                rules::judge(&known, &title, together, wider.as_ref(), self.setting)
            } else {
                rules::judge(&known, "", together, None, self.setting)
            };
            if !notable && verdict.category == Category::LeaveIt {
                unnotable.extend(indexes);
                continue;
            }
            let group = groups.len();
            indexes.iter().for_each(|&index| sites[index].group = group);
            groups.push(DoneGroup { name, known, verdict });
        }
        if !unnotable.is_empty() {
            let group = groups.len();
            let known = self.gathered(sites, &unnotable);
            unnotable.iter().for_each(|&index| sites[index].group = group);
            let mut verdict = rules::judge(&known, "", Together::Summed, None, self.setting);
            if verdict.category != Category::LeaveIt {
                verdict = rules::scattered(&known, unnotable.len(), self.setting);
            }
            groups.push(DoneGroup { name: Name::Words("everything else"), known, verdict });
        }
    }
}
