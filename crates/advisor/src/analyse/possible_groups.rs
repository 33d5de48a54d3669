//! Finds pieces of work that may have an arena of their own: calls below which much is allocated.
//!
//! For each such call there are up to four possible groups ([`GroupMembers`]). The second pass
//! follows all of them.

use super::stack_pass::StackStatistics;
use hashbrown::HashMap;
use trace_format::{NodeId, Stacks};

/// The least share of all allocations of a piece of work, and the least number.
const LEAST_SHARE: f64 = 0.01;
const LEAST_COUNT: u64 = 64;
/// A callee replaces its caller if it has at least this share of the caller's allocations.
const SAME: f64 = 0.97;
/// The most possible groups of each kind, and the most nested ones that a stack is in.
const MOST: usize = 48;
const MOST_NESTED: usize = 6;
/// A stack whose own blocks have more drag than this isn't for an arena.
const MOST_DRAG: f64 = 3.0;
/// If nine in ten blocks of a stack are freed within this many allocations, they are momentary.
const MOMENT: u64 = 32;
/// A stack lasts if more than this share of its blocks lasts to the end.
const LASTS: f64 = 0.5;

/// The blocks of a piece of work that are in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupMembers {
    /// The blocks that are freed before the end.
    Transient,
    /// The same without momentary blocks.
    Kept,
    /// The blocks that last to the end.
    Lasting,
    /// All blocks but momentary ones.
    All,
}

const NONE: u32 = u32::MAX;

/// A possible group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossibleGroup {
    /// The call below which its blocks are allocated.
    pub node: NodeId,
    pub members: GroupMembers,
    pub stacks: Vec<u32>,
    /// Some of its blocks are momentary: an arena without reset would hold them all.
    pub moments: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackKind {
    Moment,
    Kept,
    Lasting,
    Churn,
}

fn kind(stack: &StackStatistics) -> StackKind {
    let statistics = &stack.statistics;
    if statistics.permanent_share() > LASTS {
        return StackKind::Lasting;
    }
    let moment = statistics.lifetime_allocations.quantiles().is_some_and(|ages| ages.p90 <= MOMENT);
    if moment {
        StackKind::Moment
    } else if stack.lifetimes.drag() > MOST_DRAG {
        StackKind::Churn
    } else {
        StackKind::Kept
    }
}

/// The possible groups of a program.
pub fn possible_groups(stacks: &Stacks, all: &[StackStatistics]) -> Vec<PossibleGroup> {
    let kinds: Vec<StackKind> = all.iter().map(kind).collect();
    let total: u64 = all.iter().map(|stack| stack.statistics.count).sum();
    let least = LEAST_COUNT.max((total as f64 * LEAST_SHARE) as u64);
    let transient = |kind| matches!(kind, StackKind::Moment | StackKind::Kept);
    let lasting = |kind| kind == StackKind::Lasting;
    let either = |kind| matches!(kind, StackKind::Kept | StackKind::Lasting);
    let mut possible_groups = Vec::new();
    for (members, wanted) in [
        (GroupMembers::Transient, &transient as &dyn Fn(StackKind) -> bool),
        (GroupMembers::Lasting, &lasting),
        (GroupMembers::All, &either),
    ] {
        let counts = counts(stacks, all, |index| wanted(kinds[index]));
        let mut nodes = calls_with_work(stacks, &counts, least);
        // A table that is built once counts even if others allocate much more.
        if members == GroupMembers::Lasting {
            nodes.extend(calls_with_work(stacks, &counts, LEAST_COUNT));
        }
        nodes.sort_by_key(|node| (std::cmp::Reverse(counts[node.0 as usize]), node.0));
        nodes.dedup();
        nodes.truncate(MOST);
        for (node, stacks) in members_of(stacks, all, &nodes, |index| wanted(kinds[index])) {
            let mut moments = false;
            if members == GroupMembers::Transient {
                let is_kept = |&stack: &u32| kinds[stack as usize] == StackKind::Kept;
                let kept: Vec<u32> = stacks.iter().copied().filter(is_kept).collect();
                moments = kept.len() < stacks.len();
                if !kept.is_empty() && moments {
                    let members = GroupMembers::Kept;
                    possible_groups.push(PossibleGroup {
                        node,
                        members,
                        stacks: kept,
                        moments: false,
                    });
                }
            }
            let known = |group: &PossibleGroup| group.stacks == stacks;
            if !possible_groups.iter().any(known) {
                possible_groups.push(PossibleGroup { node, members, stacks, moments });
            }
        }
    }
    possible_groups
}

/// For each node: the allocations of wanted stacks below it, and its own.
fn counts(stacks: &Stacks, all: &[StackStatistics], wanted: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut counts = vec![0; stacks.len()];
    for (index, stack) in all.iter().enumerate().filter(|&(index, _)| wanted(index)) {
        debug_assert!((stack.node as usize) < counts.len(), "stack {index}");
        counts[stack.node as usize] += stack.statistics.count;
    }
    // Parents have smaller numbers.
    for node in (0..counts.len()).rev() {
        if !NodeId(node as u32).is_root() {
            counts[stacks.parent(NodeId(node as u32)).0 as usize] += counts[node];
        }
    }
    counts
}

/// The calls below which at least this much is allocated. Of a chain of calls with nearly the same
/// allocations, only the innermost is kept.
fn calls_with_work(stacks: &Stacks, counts: &[u64], least: u64) -> Vec<NodeId> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut roots = Vec::new();
    for node in (0..counts.len() as u32).filter(|&node| counts[node as usize] >= least) {
        if NodeId(node).is_root() {
            continue;
        }
        let parent = stacks.parent(NodeId(node));
        if parent.is_root() {
            roots.push(node);
        } else {
            children.entry(parent.0).or_default().push(node);
        }
    }
    let mut found = Vec::new();
    let mut waiting = roots;
    while let Some(top) = waiting.pop() {
        let whole = counts[top as usize] as f64;
        let mut at = top;
        loop {
            let below = children.get(&at).map_or(&[][..], |nodes| nodes);
            match below.iter().find(|&&node| counts[node as usize] as f64 >= SAME * whole) {
                Some(&node) => at = node,
                None => break waiting.extend(below),
            }
        }
        found.push(NodeId(at));
    }
    found
}

/// The wanted stacks below each of the nodes.
fn members_of(
    stacks: &Stacks,
    all: &[StackStatistics],
    nodes: &[NodeId],
    wanted: impl Fn(usize) -> bool,
) -> Vec<(NodeId, Vec<u32>)> {
    let mut chosen = vec![NONE; stacks.len()];
    for (index, node) in nodes.iter().enumerate() {
        chosen[node.0 as usize] = index as u32;
    }
    // By node: the nearest of them that it lies below, or is. Parents have smaller numbers.
    let mut nearest = chosen;
    for node in (0..nearest.len()).filter(|&node| !NodeId(node as u32).is_root()) {
        if nearest[node] == NONE {
            nearest[node] = nearest[stacks.parent(NodeId(node as u32)).0 as usize];
        }
    }
    let outer = |index: u32| nearest[stacks.parent(nodes[index as usize]).0 as usize];
    let mut members: Vec<(NodeId, Vec<u32>)> =
        nodes.iter().map(|&node| (node, Vec::new())).collect();
    let mut within = Vec::new();
    for (stack, found) in all.iter().enumerate().filter(|&(index, _)| wanted(index)) {
        within.clear();
        let mut at = nearest[found.node as usize];
        while at != NONE {
            within.push(at);
            at = outer(at);
        }
        // The outermost ones come first.
        for &index in within.iter().rev().take(MOST_NESTED) {
            members[index as usize].1.push(stack as u32);
        }
    }
    members.retain(|(_, stacks)| !stacks.is_empty());
    members
}
