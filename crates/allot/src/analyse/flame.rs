//! Allocations by function, from the outermost callers on.

use super::findings::Flame;
use super::first::Stack;
use super::symbols::{Symbols, short};
use allot_trace::{NodeId, Stacks};
use std::collections::HashMap;

/// What has a smaller share of the allocations and of the bytes is only in its callers' figures.
const LEAST_SHARE: f64 = 0.0005;

/// The tree of a program.
pub fn flame(stacks: &Stacks, all: &[Stack], symbols: &mut Symbols<'_>, name: &str) -> Flame {
    let mut own: Vec<(u64, u64)> = vec![(0, 0); stacks.len()];
    let mut total = (0, 0);
    for stack in all {
        let place = &mut own[stack.node as usize];
        place.0 += stack.tally.count;
        place.1 += stack.tally.bytes;
        total.0 += stack.tally.count;
        total.1 += stack.tally.bytes;
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
        own[parent as usize].1 += bytes;
        let enough = |part: u64, whole: u64| part as f64 >= whole as f64 * LEAST_SHARE;
        if enough(count, total.0) || enough(bytes, total.1) {
            children.entry(parent).or_default().push(node as u32);
        }
    }
    let mut root =
        Flame { name: name.to_owned(), count: total.0, bytes: total.1, children: vec![] };
    let mut builder = Builder { stacks, symbols, own: &own, children: &children };
    for from in [NodeId::ROOT, NodeId::CUT_OFF] {
        builder.add(from.0, &mut root);
    }
    sort(&mut root);
    root
}

struct Builder<'a, 'm> {
    stacks: &'a Stacks,
    symbols: &'a mut Symbols<'m>,
    own: &'a [(u64, u64)],
    children: &'a HashMap<u32, Vec<u32>>,
}

impl Builder<'_, '_> {
    /// Adds what is called at a node. A stack has at most so many frames as the recorder keeps, so this goes no deeper.
    fn add(&mut self, node: u32, into: &mut Flame) {
        for &child in self.children.get(&node).map_or(&[][..], |nodes| nodes) {
            let (count, bytes) = self.own[child as usize];
            let frames = self.symbols.at(self.stacks, NodeId(child));
            let mut at = &mut *into;
            // The outermost first.
            for frame in frames.iter().rev() {
                let name = short(&frame.function);
                let index = at.children.iter().position(|child| child.name == name);
                let index = index.unwrap_or_else(|| {
                    at.children.push(Flame { name, ..Flame::default() });
                    at.children.len() - 1
                });
                at = &mut at.children[index];
                at.count += count;
                at.bytes += bytes;
            }
            self.add(child, at);
        }
    }
}

fn sort(flame: &mut Flame) {
    flame.children.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    flame.children.iter_mut().for_each(sort);
}
