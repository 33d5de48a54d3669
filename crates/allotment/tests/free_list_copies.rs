//! Copies of linked structures in free lists, in visiting order.

#[path = "support/mod.rs"]
mod support;

use core::cell::{Cell, RefCell};

use allotment::free_list::Copier;
use allotment::{Budget, FreeList, ListBox};
#[cfg(not(system_memory))]
use support::absent_options::*;
use support::list::{self, live};
use support::program::{caught, throw};

/// A tree whose nodes borrow the list that they lie in, and some text.
struct Node<'l, 't> {
    key: u32,
    text: &'t str,
    children: Vec<ListBox<'l, Node<'l, 't>>>,
    drops: &'t Cell<usize>,
}

impl Drop for Node<'_, '_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
    }
}

/// A tree with three children at each of `levels` levels, and keys in visiting order.
fn tree<'l, 't>(
    list: &'l FreeList<Node<'l, 't>>,
    levels: u32,
    next: &Cell<u32>,
    text: &'t str,
    drops: &'t Cell<usize>,
) -> ListBox<'l, Node<'l, 't>> {
    let key = next.replace(next.get() + 1);
    let below = if levels > 1 { 0..3 } else { 0..0 };
    let children = below.map(|_| tree(list, levels - 1, next, text, drops)).collect();
    list.alloc(Node { key, text: &text[..1 + key as usize % text.len()], children, drops })
}

/// Copies one node. A function and not a closure: on Rust 1.85 a closure keeps the source borrowed
/// while the copy lives.
fn copy_node<'l, 't, 's>(
    node: &'s Node<'l, 't>,
    copier: &mut Copier<'_, 'l, &'s Node<'l, 't>, Node<'l, 't>>,
) -> Node<'l, 't> {
    Node {
        key: node.key,
        text: node.text,
        children: node.children.iter().map(|child| copier.copy(child)).collect(),
        drops: node.drops,
    }
}

/// Keys, texts and addresses in visiting order.
fn visit(node: &Node<'_, '_>, found: &mut Vec<(u32, String, usize)>) {
    found.push((node.key, node.text.to_owned(), core::ptr::from_ref(node).addr()));
    node.children.iter().for_each(|child| visit(child, found));
}

/// Three to the sixth, and so on down.
const NODES: usize = 364;

#[test]
fn a_tree_whose_nodes_borrow_their_list_is_dropped_with_its_root() {
    let drops = Cell::new(0);
    let text = String::from("some text that the nodes borrow");
    let list = FreeList::new();
    let root = tree(&list, 6, &Cell::new(0), &text, &drops);
    assert_eq!(live(&list), NODES);
    drop(root);
    assert_eq!((drops.get(), live(&list)), (NODES, 0));
    list::assert_empties(list.raw());
}

#[test]
fn a_copy_in_order_lies_in_visiting_order_past_all_holes() {
    let drops = Cell::new(0);
    let text = String::from("text");
    let list = FreeList::builder().objects_per_chunk(2000).build();
    let mut root = tree(&list, 6, &Cell::new(0), &text, &drops);
    // All slots taken until here lie before the copy.
    let mut original = Vec::new();
    visit(&root, &mut original);
    // Holes.
    root.children.remove(1);
    let mut pruned = Vec::new();
    visit(&root, &mut pruned);
    assert!(pruned.len() < NODES && live(&list) == pruned.len());
    let copy = list.copy_in_order(&*root, copy_node);
    let mut copied = Vec::new();
    visit(&copy, &mut copied);
    let what = |found: &[(u32, String, usize)]| {
        found.iter().map(|(key, text, _)| (*key, text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(what(&copied), what(&pruned));
    for pair in copied.windows(2) {
        assert_eq!(pair[1].2 - pair[0].2, list.raw().stride(), "{pair:?}");
    }
    let last = original.iter().map(|(.., address)| *address).max().expect("some are");
    assert!(copied[0].2 > last, "past the holes");
    // The copy does not need the original.
    drop(root);
    assert_eq!(live(&list), copied.len());
    let mut again = Vec::new();
    visit(&copy, &mut again);
    assert_eq!(again, copied);
}

#[test]
fn a_copy_that_panics_half_way_drops_its_values_and_frees_their_slots() {
    let drops = Cell::new(0);
    let text = String::from("text");
    let scattered = FreeList::new();
    let root = tree(&scattered, 6, &Cell::new(0), &text, &drops);
    for hardened in [false, true] {
        for at in [0, 1, 100, NODES as u32 - 1] {
            for children_first in [false, true] {
                let compact = FreeList::builder().hardened(hardened).build();
                let copying = RefCell::new(0);
                drops.set(0);
                let copied = caught(|| {
                    compact.copy_in_order(
                        &*root,
                        |node: &Node<'_, '_>, copier: &mut Copier<'_, '_, _, Node<'_, '_>>| {
                            if node.key == at && !children_first {
                                throw();
                            }
                            let children =
                                node.children.iter().map(|child| copier.copy(child)).collect();
                            if node.key == at {
                                throw();
                            }
                            *copying.borrow_mut() += 1;
                            Node { key: node.key, text: node.text, children, drops: &drops }
                        },
                    )
                });
                assert!(copied.is_none());
                assert_eq!(drops.get(), copying.into_inner(), "what was made was dropped");
                assert_eq!(live(&compact), 0);
                list::assert_empties(compact.raw());
            }
        }
    }
    assert_eq!(live(&scattered), NODES, "the source is as it was");
}

#[test]
fn a_copy_can_leave_out_objects_that_get_no_slot() {
    let drops = Cell::new(0);
    let text = String::from("text");
    let scattered = FreeList::new();
    let root = tree(&scattered, 6, &Cell::new(0), &text, &drops);
    let budget = Budget::new(8192);
    let compact = FreeList::builder().budget(&budget).build();
    let missing = Cell::new(0);
    let copy = compact
        .try_copy_in_order(&*root, |node, copier| Node {
            key: node.key,
            text: node.text,
            children: node
                .children
                .iter()
                .filter_map(|child| {
                    let copied = copier.try_copy(child);
                    missing.set(missing.get() + usize::from(copied.is_err()));
                    copied.ok()
                })
                .collect(),
            drops: &drops,
        })
        .expect("the root has a place");
    let mut found = Vec::new();
    visit(&copy, &mut found);
    assert!(missing.get() > 0 && found.len() > 10 && found.len() < NODES);
    list::assert_exact(compact.raw(), found.len(), Some(&budget));
    drop(copy);
    assert_eq!(live(&compact), 0);
}
