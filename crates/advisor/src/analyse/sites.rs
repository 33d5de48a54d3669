//! Divides the stacks into sites: places in the program that allocate.
//!
//! Stacks with the same innermost frame are one site, unless that frame is a wrapper's or its
//! callers' blocks behave differently. Then they are divided by the caller, and so on outwards.

use super::block_statistics::BlockStatistics;
use super::stack_pass::StackStatistics;
use super::symbols::Symbols;
use hashbrown::HashSet;
use std::collections::BTreeMap;
use trace_format::{ModuleId, NodeId, Stacks};

/// If the stacks of a site differ from its mean by less than this on average, it is not divided.
const DIFFERENT: f64 = 0.2;
/// A division by callers must reduce the difference to at most this share.
const EXPLAINED: f64 = 0.6;
/// A function whose callers explain all but this part of a difference of at least [`VARIED`] is a
/// wrapper, if they are at least [`CALLERS`].
const WRAPPED: f64 = 0.35;
const VARIED: f64 = 0.35;
const CALLERS: usize = 4;
/// The most frames of a site, wrappers not counted, and the most callers that are searched for a
/// difference.
const DEEPEST: usize = 8;
/// The most frames that are skipped as wrappers.
const MOST_WRAPPERS: usize = 32;
/// Sites with fewer allocations and a smaller share of all are not divided.
const LEAST_COUNT: u64 = 256;
const LEAST_SHARE: f64 = 0.002;
/// Callers with a smaller share of a site's allocations stay together.
const FEW: f64 = 0.02;

/// A site that is being found.
#[derive(Debug, Default)]
pub struct SiteDraft {
    /// The frames that all its stacks have in common, the innermost first.
    pub path: Vec<NodeId>,
    /// The number of innermost frames that are wrappers', judged by their callers' behaviour.
    pub wrappers: usize,
    /// The site of the remaining callers, whose function has other callers that are sites of their
    /// own.
    pub rest: bool,
    /// Indexes of the stacks.
    pub stacks: Vec<u32>,
    pub statistics: BlockStatistics,
}

/// A stack and a position in it.
#[derive(Debug, Clone, Copy)]
struct StackPosition {
    stack: u32,
    at: NodeId,
}

/// The position of a frame in the code.
type CodeLocation = (Option<ModuleId>, u64);

/// Finds the sites of a program.
pub struct SiteFinder<'a, 'm> {
    stacks: &'a Stacks,
    all: &'a [StackStatistics],
    symbols: &'a mut Symbols<'m>,
    least: u64,
    found: Vec<SiteDraft>,
}

impl<'a, 'm> SiteFinder<'a, 'm> {
    pub fn new(
        stacks: &'a Stacks,
        all: &'a [StackStatistics],
        symbols: &'a mut Symbols<'m>,
    ) -> Self {
        let allocations: u64 = all.iter().map(|stack| stack.statistics.count).sum();
        let least = LEAST_COUNT.max((allocations as f64 * LEAST_SHARE) as u64);
        Self { stacks, all, symbols, least, found: Vec::new() }
    }

    /// The sites, the most frequent first.
    pub fn find(mut self) -> Vec<SiteDraft> {
        let position = |(index, stack): (usize, &StackStatistics)| StackPosition {
            stack: index as u32,
            at: NodeId(stack.node),
        };
        let positions: Vec<StackPosition> = self.all.iter().enumerate().map(position).collect();
        for (_, positions) in self.by_frame(&positions) {
            self.divide(positions, Vec::new(), 0, 0);
        }
        self.found.sort_by(|a, b| {
            b.statistics.count.cmp(&a.statistics.count).then_with(|| a.stacks.cmp(&b.stacks))
        });
        self.found
    }

    fn key(&self, node: NodeId) -> CodeLocation {
        if node.is_root() {
            return (None, u64::from(node.0));
        }
        (self.stacks.module(node), self.stacks.return_address(node))
    }

    fn by_frame(&self, positions: &[StackPosition]) -> BTreeMap<CodeLocation, Vec<StackPosition>> {
        let mut parts: BTreeMap<CodeLocation, Vec<StackPosition>> = BTreeMap::new();
        for &position in positions {
            parts.entry(self.key(position.at)).or_default().push(position);
        }
        parts
    }

    fn callers(&self, positions: &[StackPosition]) -> Vec<StackPosition> {
        positions
            .iter()
            .map(|position| {
                let at = if position.at.is_root() {
                    position.at
                } else {
                    self.stacks.parent(position.at)
                };
                StackPosition { at, ..*position }
            })
            .collect()
    }

    fn sum(&self, positions: &[StackPosition]) -> BlockStatistics {
        let mut sum = BlockStatistics::default();
        positions
            .iter()
            .for_each(|position| sum.merge(&self.all[position.stack as usize].statistics));
        sum
    }

    /// The distance of the stacks' behaviours from that of their sum: the sum weighted by
    /// allocations.
    fn spread(&self, positions: &[StackPosition], sum: &BlockStatistics) -> f64 {
        let far = |position: &StackPosition| {
            let statistics = &self.all[position.stack as usize].statistics;
            statistics.count as f64 * statistics.distance(sum)
        };
        positions.iter().map(far).sum()
    }

    /// Makes sites of stacks that have the frame after `path` in common.
    fn divide(
        &mut self,
        positions: Vec<StackPosition>,
        mut path: Vec<NodeId>,
        wrappers: usize,
        depth: usize,
    ) {
        let node = positions[0].at;
        if node.is_root() {
            return self.emit(positions, path, wrappers, false);
        }
        path.push(node);
        let named = path.len() == wrappers + 1
            && self.symbols.at(self.stacks, node).iter().all(|frame| frame.wrapper);
        if named && path.len() < MOST_WRAPPERS {
            let callers = self.callers(&positions);
            for (_, part) in self.by_frame(&callers) {
                self.divide(part, path.clone(), wrappers + 1, depth);
            }
            return;
        }
        let sum = self.sum(&positions);
        if positions.len() == 1 || depth >= DEEPEST || sum.count < self.least {
            return self.emit(positions, path, wrappers, false);
        }
        let spread = self.spread(&positions, &sum);
        if spread < DIFFERENT * sum.count as f64 {
            return self.emit(positions, path, wrappers, false);
        }
        let mut level = self.callers(&positions);
        let mut levels = vec![level.clone()];
        for further in 1..=DEEPEST - depth {
            let parts = self.by_path(&levels);
            let left: f64 = parts.iter().map(|part| self.spread(part, &self.sum(part))).sum();
            if left <= EXPLAINED * spread {
                let count = sum.count as f64;
                let is_wrapper = path.len() == wrappers + 1
                    && further == 1
                    && left <= WRAPPED * spread
                    && spread >= VARIED * count
                    && self.functions(&parts) >= CALLERS;
                let wrappers = if is_wrapper { wrappers + 1 } else { wrappers };
                return self.each(parts, &path, wrappers, depth + further, sum.count, further);
            }
            level = self.callers(&level);
            if level.iter().all(|position| position.at.is_root()) {
                break;
            }
            levels.push(level.clone());
        }
        self.emit(positions, path, wrappers, false);
    }

    /// Stacks that have all of several levels of callers in common, at the last of those levels.
    fn by_path(&self, levels: &[Vec<StackPosition>]) -> Vec<Vec<StackPosition>> {
        let Some(last) = levels.last() else { return Vec::new() };
        let mut parts: BTreeMap<Vec<CodeLocation>, Vec<StackPosition>> = BTreeMap::new();
        for (index, &position) in last.iter().enumerate() {
            let path = levels.iter().map(|level| self.key(level[index].at)).collect();
            parts.entry(path).or_default().push(position);
        }
        parts.into_values().collect()
    }

    fn functions(&mut self, parts: &[Vec<StackPosition>]) -> usize {
        let mut names = HashSet::new();
        for part in parts {
            if let Some(node) =
                part.first().map(|position| position.at).filter(|node| !node.is_root())
                && let Some(frame) = self.symbols.at(self.stacks, node).last()
            {
                names.insert(frame.function.clone());
            }
        }
        names.len()
    }

    /// Makes sites of each part, those with few allocations together.
    fn each(
        &mut self,
        parts: Vec<Vec<StackPosition>>,
        path: &[NodeId],
        wrappers: usize,
        depth: usize,
        count: u64,
        further: usize,
    ) {
        let mut rest = Vec::new();
        for part in parts {
            let own: u64 = part
                .iter()
                .map(|position| self.all[position.stack as usize].statistics.count)
                .sum();
            let wrapped = path.len() == wrappers;
            if !wrapped && (own as f64) < FEW * count as f64 {
                rest.extend(part);
                continue;
            }
            // The frames in between are the same for all of the part.
            let mut own_path = path.to_vec();
            let node = NodeId(self.all[part[0].stack as usize].node);
            let between = self.stacks.frames(node).skip(path.len()).take(further - 1);
            own_path.extend(between);
            self.divide(part, own_path, wrappers, depth);
        }
        if !rest.is_empty() {
            self.emit(rest, path.to_vec(), wrappers, true);
        }
    }

    fn emit(
        &mut self,
        positions: Vec<StackPosition>,
        path: Vec<NodeId>,
        wrappers: usize,
        rest: bool,
    ) {
        let statistics = self.sum(&positions);
        let stacks = positions.iter().map(|position| position.stack).collect();
        self.found.push(SiteDraft { path, wrappers, rest, stacks, statistics });
    }
}
