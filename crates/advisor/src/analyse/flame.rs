//! Allocations by function, from the outermost callers on.

use super::findings::FlameNode;
use super::stack_pass::StackStatistics;
use super::symbols::{Symbols, short};
use hashbrown::HashMap;
use trace_format::{NodeId, Stacks};

/// A function with a smaller share of both the allocations and the bytes is left out; its figures
/// are part of its callers'.
const LEAST_SHARE: f64 = 0.0005;
/// The most nodes of the tree. With more, the smallest are left out too.
const MOST: usize = 20_000;

/// The tree of a program.
pub fn flame(
    stacks: &Stacks,
    all: &[StackStatistics],
    symbols: &mut Symbols<'_>,
    name: &str,
) -> FlameNode {
    let mut own: Vec<(u64, u64)> = vec![(0, 0); stacks.len()];
    let mut total = (0_u64, 0_u64);
    for stack in all {
        let counts = &mut own[stack.node as usize];
        counts.0 += stack.statistics.count;
        counts.1 = counts.1.saturating_add(stack.statistics.bytes);
        total.0 += stack.statistics.count;
        total.1 = total.1.saturating_add(stack.statistics.bytes);
    }
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    // Parents have smaller numbers.
    for node in (0..own.len()).rev() {
        let id = NodeId(node as u32);
        let (count, bytes) = own[node];
        if id.is_root() || count == 0 {
            continue;
        }
        let parent = stacks.parent(id).0;
        own[parent as usize].0 += count;
        let above = &mut own[parent as usize].1;
        *above = above.saturating_add(bytes);
        let enough = |part: u64, whole: u64| part as f64 >= whole as f64 * LEAST_SHARE;
        if enough(count, total.0) || enough(bytes, total.1) {
            children.entry(parent).or_default().push(node as u32);
        }
    }
    let mut root =
        FlameNode { name: name.to_owned(), count: total.0, bytes: total.1, ..FlameNode::default() };
    let mut builder = FlameBuilder { stacks, symbols, own: &own, children: &children };
    for from in [NodeId::ROOT, NodeId::CUT_OFF] {
        builder.add(from.0, &mut root);
    }
    sort(&mut root);
    root.least_share = Some(drop_smallest(&mut root, MOST).max(LEAST_SHARE));
    root
}

/// Leaves out the smallest nodes until at most `most` are left. Returns the share of the smallest
/// one left, or 0 if none was left out. A node has at least the share of each of its children, so
/// no node loses its parent.
fn drop_smallest(root: &mut FlameNode, most: usize) -> f64 {
    let whole = (root.count, root.bytes);
    let mut shares = Vec::new();
    let mut left: Vec<&FlameNode> = root.children.iter().collect();
    while let Some(flame) = left.pop() {
        shares.push(share(flame, whole));
        left.extend(&flame.children);
    }
    if shares.len() <= most {
        return 0.0;
    }
    shares.sort_unstable_by(|a, b| b.total_cmp(a));
    // Nodes of equal share are left out together.
    let too_small = shares[most];
    let least = shares[..most].iter().rev().copied().find(|share| *share > too_small);
    retain_larger(root, whole, too_small);
    least.unwrap_or(1.0)
}

fn retain_larger(flame: &mut FlameNode, whole: (u64, u64), too_small: f64) {
    flame.children.retain(|child| share(child, whole) > too_small);
    flame.children.iter_mut().for_each(|child| retain_larger(child, whole, too_small));
}

/// The larger of its two shares: of the allocations, and of the bytes.
fn share(flame: &FlameNode, (count, bytes): (u64, u64)) -> f64 {
    let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    part(flame.count, count).max(part(flame.bytes, bytes))
}

struct FlameBuilder<'a, 'm> {
    stacks: &'a Stacks,
    symbols: &'a mut Symbols<'m>,
    own: &'a [(u64, u64)],
    children: &'a HashMap<u32, Vec<u32>>,
}

impl FlameBuilder<'_, '_> {
    /// Adds the callees of a node. The recursion is as deep as the longest stack that the recorder
    /// keeps.
    fn add(&mut self, node: u32, into: &mut FlameNode) {
        for &child in self.children.get(&node).map_or(&[][..], |nodes| nodes) {
            let (count, bytes) = self.own[child as usize];
            let frames = self.symbols.at(self.stacks, NodeId(child));
            let mut at = &mut *into;
            // The outermost first.
            for frame in frames.iter().rev() {
                let name = short(&frame.function);
                let index = at.children.iter().position(|child| child.name == name);
                let index = index.unwrap_or_else(|| {
                    at.children.push(FlameNode { name, ..FlameNode::default() });
                    at.children.len() - 1
                });
                at = &mut at.children[index];
                at.count += count;
                at.bytes = at.bytes.saturating_add(bytes);
            }
            self.add(child, at);
        }
    }
}

fn sort(flame: &mut FlameNode) {
    flame.children.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    flame.children.iter_mut().for_each(sort);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, count: u64, children: Vec<FlameNode>) -> FlameNode {
        FlameNode { name: name.to_owned(), count, bytes: 16 * count, children, least_share: None }
    }

    fn size(flame: &FlameNode) -> usize {
        flame.children.iter().map(|child| 1 + size(child)).sum()
    }

    #[test]
    fn a_large_tree_loses_its_smallest_functions_and_says_so() {
        let leaves = |from: u64| {
            (from..from + 100).map(|i| node(&format!("f{i}"), i, vec![])).collect::<Vec<_>>()
        };
        let children = vec![node("a", 14_950, leaves(100)), node("b", 24_950, leaves(200))];
        let mut root = node("main", 39_900, children);
        let least = drop_smallest(&mut root, 150);
        assert_eq!(size(&root), 150);
        assert_eq!(root.children.len(), 2);
        // 200 to 299 and 152 to 199 are the largest 148 leaves.
        assert!((least - 152.0 / 39_900.0).abs() < 1e-9, "{least}");
        assert_eq!((root.count, root.children[0].count), (39_900, 14_950));
        let before = root.clone();
        assert_eq!(drop_smallest(&mut root, 150), 0.0);
        assert_eq!(root, before);
    }

    #[test]
    fn functions_that_are_all_alike_go_together() {
        let mut root =
            node("main", 1000, (0..100).map(|i| node(&i.to_string(), 10, vec![])).collect());
        assert_eq!(drop_smallest(&mut root, 30), 1.0);
        assert_eq!(size(&root), 0);
    }
}
