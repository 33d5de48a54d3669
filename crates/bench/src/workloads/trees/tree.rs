//! A binary search tree whose nodes are objects of an allocator, as in a C program: unbalanced,
//! linked by addresses, with nodes of 32 bytes.
//!
//! # Invariants
//!
//! 1. Each link of a tree is empty, or holds a live object of the tree's own allocator that has the
//!    layout of a [`Node`] and is one: all its fields were written when it was linked. No two links
//!    hold the same object.
//! 2. The allocator does not move objects. Stores of values do, but they serve only their own
//!    layout, so they can't be made for nodes.
//! 3. The depth of a tree depends on the order of its keys. They are drawn at random, so recursion
//!    is some sixty calls deep with a million nodes.

use crate::peers::FixedSizeLocal;
use std::alloc::Layout;

/// A node. Its key is the word that it is allocated with.
#[repr(C)]
struct Node<O> {
    key: u64,
    value: u64,
    /// The links to smaller and to larger keys.
    children: [Option<O>; 2],
}

const SMALLER: usize = 0;
const LARGER: usize = 1;

/// The layout of a node, for which the allocator must be made.
pub const fn node<O>() -> Layout {
    Layout::new::<Node<O>>()
}

/// A tree. Dropping it frees its nodes one by one, children first.
pub struct Tree<'l, L: FixedSizeLocal> {
    local: &'l L,
    root: Option<L::Object>,
}

impl<'l, L: FixedSizeLocal> Tree<'l, L> {
    /// An empty tree. Its allocator must have been made for the layout [`node`].
    pub fn new(local: &'l L) -> Self {
        Self { local, root: None }
    }

    /// Inserts a key that is not in the tree.
    #[inline]
    pub fn insert(&mut self, key: u64) {
        let mut link = &raw mut self.root;
        // SAFETY: the link is the root's or that of a node of this tree. Nodes are live (invariant
        // 1) and don't move (invariant 2). The new node has the layout of a node, and is in no
        // other link.
        unsafe {
            while let Some(object) = *link {
                let node = place(self.local, object);
                link = &raw mut (*node).children[usize::from(key > (*node).key)];
            }
            *link = Some(put(self.local, key, value_of(key)));
        }
    }

    /// Removes a key. The nodes below it stay; if it has two children, the next larger key replaces
    /// it. Returns whether the key was in the tree.
    #[inline]
    pub fn remove(&mut self, key: u64) -> bool {
        let mut link = &raw mut self.root;
        // SAFETY: as in `insert`. The freed node is in no link.
        unsafe {
            let (object, node) = loop {
                let Some(object) = *link else { return false };
                let node = place(self.local, object);
                if (*node).key == key {
                    break (object, node);
                }
                link = &raw mut (*node).children[usize::from(key > (*node).key)];
            };
            *link = match (*node).children {
                [None, other] | [other, None] => other,
                [Some(_), Some(larger)] => {
                    let mut next = (&raw mut (*node).children[LARGER], larger);
                    while let Some(smaller) = (*place(self.local, next.1)).children[SMALLER] {
                        next = (&raw mut (*place(self.local, next.1)).children[SMALLER], smaller);
                    }
                    let (above, successor) = next;
                    let moved = place(self.local, successor);
                    // First unlinked from its own link, which may be the removed node's.
                    *above = (*moved).children[LARGER];
                    (*moved).children = (*node).children;
                    Some(successor)
                }
            };
            self.local.free(object);
        }
        true
    }

    /// Visits every node before the nodes below it, smaller keys first, and returns the sum of the
    /// values.
    #[inline(never)]
    pub fn walk(&self) -> u64 {
        // SAFETY: the tree's own root.
        unsafe { walk(self.local, self.root) }
    }

    /// A tree of the same shape whose nodes were allocated in the order of [`walk`](Self::walk).
    #[inline(never)]
    pub fn copy<'m, M: FixedSizeLocal>(&self, to: &'m M) -> Tree<'m, M> {
        // SAFETY: the tree's own root.
        Tree { local: to, root: unsafe { copy(self.local, self.root, to) } }
    }

    /// The keys in ascending order, each with its node's depth.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<(u64, usize)> {
        fn below<L: FixedSizeLocal>(
            local: &L,
            link: Option<L::Object>,
            depth: usize,
            keys: &mut Vec<(u64, usize)>,
        ) {
            if let Some(object) = link {
                // SAFETY: invariant 1.
                let Node { key, value, children } = unsafe { place(local, object).read() };
                assert_eq!(value, value_of(key));
                below(local, children[SMALLER], depth + 1, keys);
                keys.push((key, depth));
                below(local, children[LARGER], depth + 1, keys);
            }
        }
        let mut keys = Vec::new();
        below(self.local, self.root, 0, &mut keys);
        keys
    }
}

impl<L: FixedSizeLocal> Drop for Tree<'_, L> {
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the tree's own root, which is not used afterwards.
        unsafe { free(self.local, self.root) };
    }
}

/// The value of a key.
pub fn value_of(key: u64) -> u64 {
    key.rotate_left(17)
}

/// The address of a node.
///
/// # Safety
/// The object is live and belongs to this allocator, which was made for nodes.
#[inline(always)]
unsafe fn place<L: FixedSizeLocal>(local: &L, object: L::Object) -> *mut Node<L::Object> {
    // SAFETY: the caller's promise.
    unsafe { local.bytes(object) }.cast().as_ptr()
}

/// Allocates a node without children.
///
/// # Safety
/// The allocator was made for nodes.
#[inline(always)]
unsafe fn put<L: FixedSizeLocal>(local: &L, key: u64, value: u64) -> L::Object {
    let object = local.alloc(key);
    // SAFETY: the object is new and has the layout of a node; its key is the word.
    unsafe {
        let node = place(local, object);
        (*node).value = value;
        (*node).children = [None, None];
    }
    object
}

/// # Safety
/// The link is part of a tree of this allocator's nodes.
unsafe fn walk<L: FixedSizeLocal>(local: &L, link: Option<L::Object>) -> u64 {
    let Some(object) = link else { return 0 };
    // SAFETY: the object is a node (invariant 1), and so are those below it.
    unsafe {
        let node = place(local, object);
        let value = (*node).value;
        let smaller = walk(local, (*node).children[SMALLER]);
        value.wrapping_add(smaller).wrapping_add(walk(local, (*node).children[LARGER]))
    }
}

/// # Safety
/// The link is part of a tree of `local`'s nodes; `to` was made for nodes.
unsafe fn copy<L: FixedSizeLocal, M: FixedSizeLocal>(
    local: &L,
    link: Option<L::Object>,
    to: &M,
) -> Option<M::Object> {
    let object = link?;
    // SAFETY: the object is a node (invariant 1), and so are those below it; `put` made the copy.
    unsafe {
        let node = place(local, object);
        let copied = put(to, (*node).key, (*node).value);
        for side in [SMALLER, LARGER] {
            let below = copy(local, (*node).children[side], to);
            (*place(to, copied)).children[side] = below;
        }
        Some(copied)
    }
}

/// # Safety
/// The link is part of a tree of this allocator's nodes, and is not used afterwards.
unsafe fn free<L: FixedSizeLocal>(local: &L, link: Option<L::Object>) {
    let Some(object) = link else { return };
    // SAFETY: the object is a node (invariant 1), and so are those below it; they are not used
    // afterwards.
    unsafe {
        let children = (*place(local, object)).children;
        free(local, children[SMALLER]);
        free(local, children[LARGER]);
        local.free(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::FixedSize;
    use crate::workloads::random::Random;
    use crate::workloads::testing::{Audited, audited};
    use std::collections::BTreeSet;

    fn store() -> Audited {
        Audited::new(node::<<Audited as FixedSize>::Object>())
    }

    fn keys_of<L: FixedSizeLocal>(tree: &Tree<'_, L>) -> Vec<u64> {
        tree.keys().iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn a_node_is_32_bytes() {
        assert_eq!(node::<<Audited as FixedSize>::Object>().size(), 32);
        assert_eq!(node::<std::ptr::NonNull<u8>>(), Layout::new::<[u64; 4]>());
    }

    #[test]
    fn it_has_what_was_inserted_and_not_removed_in_order() {
        audited(|| {
            let store = store();
            let local = store.local();
            let mut tree = Tree::new(&local);
            let mut model = BTreeSet::new();
            let mut random = Random::stream(1);
            for _ in 0..4000 {
                let key = u64::from(random.below(200));
                if model.insert(key) {
                    tree.insert(key);
                } else {
                    model.remove(&key);
                    assert!(tree.remove(key));
                    assert!(!tree.remove(key), "it is gone");
                }
                assert_eq!(crate::workloads::testing::live() as usize, model.len());
            }
            assert_eq!(keys_of(&tree), model.iter().copied().collect::<Vec<_>>());
        });
    }

    #[test]
    fn the_node_of_the_removed_key_is_freed_and_no_other() {
        let (_, audit) = audited(|| {
            let store = store();
            let local = store.local();
            let mut tree = Tree::new(&local);
            // 50 has two children, and its successor has one.
            for key in [50, 20, 80, 60, 70, 10, 30] {
                tree.insert(key);
            }
            for key in [50, 10, 70, 80] {
                assert!(tree.remove(key));
            }
            assert_eq!(tree.keys(), [(20, 1), (30, 2), (60, 0)]);
        });
        assert_eq!(audit.words_freed, [50, 10, 70, 80, 30, 20, 60]);
    }

    #[test]
    fn a_copy_has_the_shape_of_its_original_and_nodes_in_the_order_of_a_walk() {
        let (keys, audit) = audited(|| {
            let (store, other) = (store(), store());
            let (local, to) = (store.local(), other.local());
            let mut tree = Tree::new(&local);
            let mut random = Random::stream(2);
            for _ in 0..500 {
                tree.insert(random.draw());
            }
            let copy = tree.copy(&to);
            let keys = tree.keys();
            assert_eq!(copy.keys(), keys);
            let sum = keys.iter().fold(0, |sum: u64, (key, _)| sum.wrapping_add(value_of(*key)));
            assert_eq!((tree.walk(), copy.walk()), (sum, sum));
            drop(tree);
            assert_eq!(copy.walk(), sum, "it shares nothing with it");
            keys
        });
        assert_eq!((audit.allocated, audit.freed), (1000, 1000));
        assert_eq!(audit.words_allocated[500..], from_the_root(&keys));
    }

    /// The keys in the order of a walk.
    fn from_the_root(keys: &[(u64, usize)]) -> Vec<u64> {
        let Some(root) = (0..keys.len()).min_by_key(|at| keys[*at].1) else { return Vec::new() };
        let (smaller, larger) = (from_the_root(&keys[..root]), from_the_root(&keys[root + 1..]));
        [vec![keys[root].0], smaller, larger].concat()
    }

    #[test]
    fn an_empty_tree_is_no_trouble() {
        audited(|| {
            let store = store();
            let local = store.local();
            let mut tree = Tree::new(&local);
            assert!(!tree.remove(1));
            assert_eq!((tree.walk(), tree.copy(&local).walk()), (0, 0));
        });
    }
}
