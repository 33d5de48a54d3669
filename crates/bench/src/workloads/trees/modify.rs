//! `tree-8` to `tree-20`: trees that are built, modified and freed.
//!
//! A tree of at most 2^N nodes is built of half as many random keys. Then a random key is inserted
//! and a random key of the tree is removed, in turn, until each node was replaced twice on average.
//! Then the tree is freed. Several trees run one after another, so that a run takes long enough. An
//! operation is a node that is allocated and linked, or unlinked and freed.

use super::keys::Modified;
use super::tree::{Tree, node};
use crate::peers::FixedSize;
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use std::hint::black_box;

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The number of trees, one after another.
    pub trees: usize,
    /// The number of nodes that each tree is built with.
    pub built: usize,
    /// The number of insertions into each tree, and of removals.
    pub replaced: usize,
}

impl Amount {
    /// The amount for trees of 2^`exponent` nodes.
    pub fn of(exponent: u32, effort: Effort) -> Self {
        let nodes = 1 << exponent;
        // Trees with a million nodes in all, or four million.
        let trees = (1 << 20) / nodes;
        let trees = if effort.is_quick() { trees } else { 4 * trees };
        // A single large tree takes long enough.
        let trees = if exponent >= 20 { 1 } else { trees };
        Self { trees, built: nodes / 2, replaced: nodes }
    }

    /// Each node is allocated once and freed once.
    fn operations(self) -> u64 {
        2 * (self.trees * (self.built + self.replaced)) as u64
    }
}

/// Runs it on one thread.
pub fn run<A: FixedSize>(amount: Amount, observer: &dyn Observer) -> Measurement {
    let Amount { trees, built, replaced } = amount;
    let layout = node::<A::Object>();
    let walls = thread_group::run(
        1,
        observer,
        |_| Modified::draw(trees, built, replaced, &mut Random::stream(0)),
        |worker, keys| {
            let store = A::new(layout);
            let local = store.local();
            worker.measured(|| {
                for (built, pairs) in keys.trees() {
                    let mut tree = Tree::new(&local);
                    modify(&mut tree, built, pairs);
                    black_box(&tree);
                }
            })
        },
    );
    // The new node is inserted before the old one is removed.
    Measurement::timed(amount.operations(), walls[0])
        .with(&LIVE_BYTES, ((built + 1) * layout.size()) as f64)
}

#[inline(never)]
fn modify<L: crate::peers::FixedSizeLocal>(
    tree: &mut Tree<'_, L>,
    built: &[u64],
    pairs: &[[u64; 2]],
) {
    for key in built {
        tree.insert(*key);
    }
    for [new, old] in pairs {
        tree.insert(*new);
        tree.remove(*old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    const SMALL: Amount = Amount { trees: 3, built: 100, replaced: 200 };

    #[test]
    fn each_operation_allocates_or_frees_a_node_and_nothing_is_left() {
        let (figures, audit) = audited(|| run::<Audited>(SMALL, &Unobserved));
        assert_eq!(figures.ops(), audit.allocated + audit.freed);
        assert_eq!((audit.allocated, audit.freed), (900, 900));
        assert_eq!(audit.most_live_bytes, figures.live_bytes());
        assert_eq!(audit.most_live, 101, "one tree at a time, of about its first size");
    }

    #[test]
    fn the_keys_that_are_drawn_are_inserted_and_removed_in_their_order() {
        let (_, audit) = audited(|| run::<Audited>(SMALL, &Unobserved));
        let keys = Modified::draw(3, 100, 200, &mut Random::stream(0));
        let inserted = |(built, pairs): (&[u64], &[[u64; 2]])| {
            [built.to_vec(), pairs.iter().map(|[new, _]| *new).collect()].concat()
        };
        assert_eq!(audit.words_allocated, keys.trees().flat_map(inserted).collect::<Vec<_>>());
        let removed = audit.words_freed.chunks_exact(300);
        for (removed, (_, pairs)) in removed.zip(keys.trees()) {
            assert_eq!(removed[..200], pairs.iter().map(|[_, old]| *old).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_size_has_its_nodes_and_a_quick_run_is_no_longer() {
        for exponent in [8, 10, 12, 14, 16, 18, 20] {
            let [quick, full] = [Effort::Quick, Effort::Full].map(|e| Amount::of(exponent, e));
            assert_eq!((full.built, full.replaced), (1 << (exponent - 1), 1 << exponent));
            assert_eq!((quick.built, quick.replaced), (full.built, full.replaced));
            assert!((1..=full.trees).contains(&quick.trees));
        }
    }
}
