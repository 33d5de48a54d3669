//! The tree of all call stacks of a process.

use crate::modules::ModuleId;
use crate::raw::{CUT_OFF, FIRST_NODE, MAX_STACK_FRAMES, ROOT};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A node of the tree of stacks: a frame with all its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// No frame: the parent of the outermost frame.
    pub const ROOT: Self = Self(ROOT);
    /// Frames that were not recorded or not found: the parent of the outermost recorded frame.
    pub const CUT_OFF: Self = Self(CUT_OFF);

    /// Whether the node is no frame.
    pub fn is_root(self) -> bool {
        self.0 < FIRST_NODE
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StackNode {
    parent: NodeId,
    module: Option<ModuleId>,
    return_address: u64,
    /// The number of frames from the outermost to this one.
    depth: u16,
}

/// The limit on the frames of a stack. A recorder writes at most half as many.
pub(crate) const MAX_DEPTH: usize = 4 * MAX_STACK_FRAMES;
/// The limit on the nodes of a process. Frames beyond it are cut off.
pub(crate) const MAX_NODES: usize = 1 << 24;

impl StackNode {
    /// The hash for the index. Two multiplications are enough: a recording that makes nodes collide
    /// is slow to read, but does no other harm.
    #[inline]
    fn hash(&self) -> u32 {
        let module = self.module.map_or(u32::MAX, |module| module.0);
        let hash = (self.return_address ^ u64::from(module).rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash =
            (hash ^ hash >> 32 ^ u64::from(self.parent.0)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash ^ hash >> 32) as u32
    }
}

/// A node in the index: its number, and its hash, so that growing the index does not read all
/// nodes.
#[derive(Debug, Clone, Copy)]
struct NodeIndexEntry {
    number: u32,
    hash: u32,
}

impl NodeIndexEntry {
    /// The hash for the table, which uses its lowest and its highest bits.
    #[inline]
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// All call stacks of a process so far. Common outer frames are stored once.
///
/// Parents have smaller numbers than their children, and numbers do not change: a table by
/// [`NodeId`] can grow with [`len`](Self::len).
#[derive(Debug, Clone)]
pub struct Stacks {
    nodes: Vec<StackNode>,
    /// The numbers of the nodes, by their contents.
    index: HashTable<NodeIndexEntry>,
    /// The node of each addition, up to [`MAX_REMEMBERED`].
    added: Vec<u32>,
    /// The number of additions since the last [`rewind`](Self::rewind) that were the same as in
    /// `added`.
    repeated: usize,
    /// The limit on the number of nodes.
    max_nodes: usize,
}

/// The number of additions that are remembered for a second reading.
const MAX_REMEMBERED: usize = 1 << 22;

impl Stacks {
    pub(crate) fn new() -> Self {
        let none = StackNode { parent: NodeId::ROOT, module: None, return_address: 0, depth: 0 };
        Self {
            nodes: vec![none; FIRST_NODE as usize],
            index: HashTable::new(),
            added: Vec::new(),
            repeated: 0,
            max_nodes: MAX_NODES,
        }
    }

    /// Adds a frame, and returns its node. `None` if the stack is deeper than [`MAX_DEPTH`].
    pub(crate) fn add(
        &mut self,
        parent: NodeId,
        return_address: u64,
        module: Option<ModuleId>,
    ) -> Option<NodeId> {
        let depth = self.nodes[parent.0 as usize].depth + 1;
        if usize::from(depth) > MAX_DEPTH {
            return None;
        }
        let node = StackNode { parent, module, return_address, depth };
        if let Some(&number) = self.added.get(self.repeated)
            && self.nodes[number as usize] == node
        {
            self.repeated += 1;
            return Some(NodeId(number));
        }
        let found = self.find_or_insert(node);
        // An addition that differs from the first reading is not remembered, nor are those after
        // it.
        if self.repeated == self.added.len() && self.repeated < MAX_REMEMBERED {
            self.added.push(found.0);
            self.repeated += 1;
        }
        Some(found)
    }

    /// Begins a second reading: the same nodes will be added in the same order, and need no lookup.
    pub(crate) fn rewind(&mut self) {
        self.repeated = 0;
    }

    fn find_or_insert(&mut self, node: StackNode) -> NodeId {
        let nodes = &mut self.nodes;
        let hash = node.hash();
        let same = |indexed: &NodeIndexEntry| {
            indexed.hash == hash && nodes[indexed.number as usize] == node
        };
        let rehash = |indexed: &NodeIndexEntry| NodeIndexEntry::spread(indexed.hash);
        match self.index.entry(NodeIndexEntry::spread(hash), same, rehash) {
            Entry::Occupied(entry) => NodeId(entry.get().number),
            Entry::Vacant(_) if nodes.len() >= self.max_nodes => NodeId::CUT_OFF,
            Entry::Vacant(entry) => {
                let number = nodes.len() as u32;
                entry.insert(NodeIndexEntry { number, hash });
                nodes.push(node);
                NodeId(number)
            }
        }
    }

    /// The number of nodes, including the two that are no frames.
    #[allow(clippy::len_without_is_empty, reason = "the two are always there")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The caller's frame, [`NodeId::ROOT`] or [`NodeId::CUT_OFF`].
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node.0 as usize].parent
    }

    /// The address that the frame's call returns to. The call is before it.
    pub fn return_address(&self, node: NodeId) -> u64 {
        self.nodes[node.0 as usize].return_address
    }

    /// The module that contained the address when the frame was first added.
    pub fn module(&self, node: NodeId) -> Option<ModuleId> {
        self.nodes[node.0 as usize].module
    }

    /// The frames of a stack, the innermost first.
    pub fn frames(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let next = move |&node: &NodeId| Some(self.parent(node));
        std::iter::successors(Some(node), next).take_while(|node| !node.is_root())
    }

    /// Whether the outermost frames of a stack were not recorded or not found.
    pub fn is_cut_off(&self, node: NodeId) -> bool {
        let outermost = self.frames(node).last();
        outermost.map_or(node, |node| self.parent(node)) == NodeId::CUT_OFF
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_frame_of_the_same_callers_is_one_node_and_numbers_stay() {
        let mut stacks = Stacks::new();
        let mut map: HashMap<(NodeId, u64, Option<ModuleId>), NodeId> = HashMap::new();
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let parent = NodeId((random >> 33) as u32 % (stacks.len() as u32).min(500));
            let address = 0x40_0000 + (random >> 20) % 50 * 16;
            let module = (random >> 60 > 3).then_some(ModuleId((random >> 50) as u32 % 2));
            let Some(node) = stacks.add(parent, address, module) else {
                assert_eq!(stacks.frames(parent).count(), MAX_DEPTH);
                continue;
            };
            let known = *map.entry((parent, address, module)).or_insert(node);
            assert_eq!(node, known);
            assert_eq!((stacks.parent(node), stacks.return_address(node)), (parent, address));
            assert_eq!(stacks.module(node), module);
            assert!(parent < node);
        }
        assert_eq!(stacks.len(), map.len() + FIRST_NODE as usize);
    }

    #[test]
    fn nodes_that_are_added_again_have_their_numbers_whether_or_not_the_order_is_the_same() {
        let mut stacks = Stacks::new();
        let addresses: Vec<u64> = (0..100).map(|i| 0x1000 + i % 40 * 16).collect();
        let add =
            |stacks: &mut Stacks, &address: &u64| stacks.add(NodeId::ROOT, address, None).unwrap();
        let first: Vec<NodeId> = addresses.iter().map(|at| add(&mut stacks, at)).collect();
        stacks.rewind();
        let again: Vec<NodeId> = addresses.iter().map(|at| add(&mut stacks, at)).collect();
        assert_eq!(first, again);
        stacks.rewind();
        let mut reversed: Vec<NodeId> =
            addresses.iter().rev().map(|at| add(&mut stacks, at)).collect();
        reversed.reverse();
        assert_eq!(first, reversed);
        let before = stacks.len();
        assert_eq!(add(&mut stacks, &0x9000).0 as usize, before);
    }

    #[test]
    fn a_stack_that_is_deeper_than_the_limit_is_refused() {
        let mut stacks = Stacks::new();
        let mut node = NodeId::ROOT;
        for _ in 0..MAX_DEPTH {
            node = stacks.add(node, 0x1000, None).unwrap();
        }
        assert_eq!(stacks.frames(node).count(), MAX_DEPTH);
        assert_eq!(stacks.add(node, 0x1000, None), None);
        assert!(stacks.add(NodeId::CUT_OFF, 0x1000, None).is_some());
    }

    #[test]
    fn frames_beyond_the_limit_are_cut_off_and_those_before_stay() {
        let mut stacks = Stacks { max_nodes: 102, ..Stacks::new() };
        let nodes: Vec<NodeId> =
            (0..100).map(|i| stacks.add(NodeId::ROOT, i, None).unwrap()).collect();
        let beyond = stacks.add(nodes[3], 5, None).unwrap();
        assert_eq!(beyond, NodeId::CUT_OFF);
        assert_eq!(stacks.add(beyond, 6, None), Some(NodeId::CUT_OFF));
        assert_eq!(stacks.len(), 102);
        stacks.rewind();
        let again: Vec<NodeId> =
            (0..100).map(|i| stacks.add(NodeId::ROOT, i, None).unwrap()).collect();
        assert_eq!((nodes, NodeId::CUT_OFF), (again, stacks.add(NodeId(5), 5, None).unwrap()));
    }
}
