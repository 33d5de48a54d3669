//! The tree of all call stacks of a process.

use crate::ModuleId;
use crate::raw::{CUT_OFF, FIRST_NODE, ROOT};
use std::collections::HashMap;

/// A frame with all that called it: a node of the tree of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// No frame: the parent of the outermost one.
    pub const ROOT: Self = Self(ROOT);
    /// Frames that were not kept or not found: the parent of the outermost one that was.
    pub const CUT_OFF: Self = Self(CUT_OFF);

    /// Whether it stands for no frame of its own.
    pub fn is_root(self) -> bool {
        self.0 < FIRST_NODE
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    parent: NodeId,
    module: Option<ModuleId>,
    return_address: u64,
}

/// All call stacks of a process that were met so far, with common outer frames kept once.
///
/// Parents have smaller numbers than their children, and numbers stay: a table by [`NodeId`] can grow with
/// [`len`](Self::len).
#[derive(Debug, Clone)]
pub struct Stacks {
    nodes: Vec<Node>,
    index: HashMap<Node, NodeId>,
}

impl Stacks {
    pub(crate) fn new() -> Self {
        let none = Node { parent: NodeId::ROOT, module: None, return_address: 0 };
        Self { nodes: vec![none; FIRST_NODE as usize], index: HashMap::new() }
    }

    pub(crate) fn add(
        &mut self,
        parent: NodeId,
        return_address: u64,
        module: Option<ModuleId>,
    ) -> NodeId {
        let node = Node { parent, module, return_address };
        *self.index.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            NodeId(self.nodes.len() as u32 - 1)
        })
    }

    /// How many nodes there are, with the two that are no frames.
    #[allow(clippy::len_without_is_empty, reason = "the two are always there")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The frame that called this one, [`NodeId::ROOT`] or [`NodeId::CUT_OFF`].
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node.0 as usize].parent
    }

    /// The address behind the frame's call; the call itself lies before it.
    pub fn return_address(&self, node: NodeId) -> u64 {
        self.nodes[node.0 as usize].return_address
    }

    /// The module that the address was in when the frame was first met.
    pub fn module(&self, node: NodeId) -> Option<ModuleId> {
        self.nodes[node.0 as usize].module
    }

    /// The frames of a stack, the innermost first.
    pub fn frames(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let next = move |&node: &NodeId| Some(self.parent(node));
        std::iter::successors(Some(node), next).take_while(|node| !node.is_root())
    }

    /// Whether the outermost frames of a stack were not kept or not found.
    pub fn is_cut_off(&self, node: NodeId) -> bool {
        let outermost = self.frames(node).last();
        outermost.map_or(node, |node| self.parent(node)) == NodeId::CUT_OFF
    }
}
