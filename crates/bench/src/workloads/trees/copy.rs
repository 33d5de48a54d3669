//! `tree-copy-8` to `tree-copy-20`: the same trees, with their nodes in different orders in memory,
//! walked repeatedly.
//!
//! Trees of 2^N nodes, with 2^20 nodes in all, are built of random keys. Each tree is built with
//! twice the nodes that it keeps, and is pruned in random order before the next one is built. If
//! the placement says so, all trees are then copied with another allocator or the same one, in the
//! order of a walk, and the originals are freed. Then all trees are walked; this part is timed. An
//! operation is one visited node. Resident memory is read when the trees are built, when they are
//! laid out for the walks, and after the allocators were asked to release what they keep.

use super::tree::{Tree, node};
use crate::peers::{FixedSize, FixedSizeLocal, Placement};
use crate::workloads::fixed_size::prepared::{Indices, ObjectSlots, empty, fill};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group::{self, Worker};
use std::hint::black_box;
use std::time::Duration;

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The number of trees.
    pub trees: usize,
    /// The number of nodes that each tree keeps.
    pub nodes: usize,
    /// The number of walks of all trees.
    pub walks: usize,
}

/// The number of nodes of all trees.
const NODES: usize = 1 << 20;
/// The same in a quick run, unless one tree has more nodes.
const QUICK_NODES: usize = 1 << 18;

/// Each tree is built with this many times the nodes that it keeps.
const BUILT: usize = 2;

/// The steps after which resident memory is read. The last one exists only if the allocator has a
/// call to release memory.
pub const STEPS: [&str; 3] = ["built", "laid_out", "trimmed"];

impl Amount {
    /// The amount for trees of 2^`exponent` nodes.
    pub fn of(exponent: u32, effort: Effort) -> Self {
        let nodes = 1 << exponent;
        // Building and pruning take most of the time.
        let all: usize = if effort.is_quick() { QUICK_NODES } else { NODES };
        let trees = (all / nodes).max(1);
        let visits = if effort.is_quick() { 4 * NODES } else { 16 * NODES };
        Self { trees, nodes, walks: visits / (trees * nodes) }
    }

    fn all_nodes(self) -> usize {
        self.trees * self.nodes
    }
}

/// Runs it on one thread.
pub fn run<P: Placement>(amount: Amount, observer: &dyn Observer) -> Measurement {
    let nodes = amount.all_nodes();
    let layout = node::<<P::Source as FixedSize>::Object>();
    let walls = thread_group::run(
        1,
        observer,
        |_| {
            let scrambled = if P::SCRAMBLED { nodes } else { 0 };
            let order = Indices::shuffled(scrambled, &mut Random::stream(1));
            (ObjectSlots::touched(scrambled), order, Vec::with_capacity(BUILT * amount.nodes))
        },
        |worker, (mut places, order, mut keys)| {
            let [after_built, ..] = STEPS;
            let source = P::Source::new(layout);
            let from = source.local();
            let mut random = Random::stream(0);
            let originals: Vec<_> = (0..amount.trees)
                .map(|_| pruned(&from, amount.nodes, &mut keys, &mut random))
                .collect();
            worker.step(after_built);
            if !P::COPIED {
                return laid_out(worker, &originals, amount.walks, &[&|| from.trim()]);
            }
            let target = P::target(layout, nodes);
            let to = target.local();
            if P::SCRAMBLED {
                let stays = to.alloc(0);
                fill(&to, places.all());
                // SAFETY: all places are full, and the indices were made for them.
                unsafe { empty(&to, &mut places, &order) };
                let copies = copied(originals, &to);
                // SAFETY: allocated above, freed once.
                unsafe { to.free(stays) };
                return laid_out(worker, &copies, amount.walks, &[&|| from.trim(), &|| to.trim()]);
            }
            let copies = copied(originals, &to);
            laid_out(worker, &copies, amount.walks, &[&|| from.trim(), &|| to.trim()])
        },
    );
    Measurement::timed((nodes * amount.walks) as u64, walls[0])
        .with(&LIVE_BYTES, (nodes * layout.size()) as f64)
}

/// A tree that had more nodes and was pruned to `nodes`. `keys` is its working memory.
fn pruned<'l, L: FixedSizeLocal>(
    local: &'l L,
    nodes: usize,
    keys: &mut Vec<u64>,
    random: &mut Random,
) -> Tree<'l, L> {
    keys.clear();
    let mut tree = Tree::new(local);
    for _ in 0..BUILT * nodes {
        let key = random.draw();
        keys.push(key);
        tree.insert(key);
    }
    while keys.len() > nodes {
        tree.remove(keys.swap_remove(random.below(keys.len() as u32) as usize));
    }
    tree
}

/// The copies of all trees. The originals are freed after all are copied.
fn copied<'m, L: FixedSizeLocal, M: FixedSizeLocal>(
    trees: Vec<Tree<'_, L>>,
    to: &'m M,
) -> Vec<Tree<'m, M>> {
    trees.iter().map(|tree| tree.copy(to)).collect()
}

/// Walks trees that are laid out.
fn laid_out<L: FixedSizeLocal>(
    worker: Worker<'_, '_>,
    trees: &[Tree<'_, L>],
    walks: usize,
    trims: &[&dyn Fn() -> bool],
) -> Duration {
    let [_, after_laid_out, after_trim] = STEPS;
    worker.step(after_laid_out);
    // The first walk reads pages that were not read before.
    walk(trees);
    let wall = worker.measured(|| (0..walks).for_each(|_| walk(trees)));
    // Every allocator is asked, not only the first one.
    if trims.iter().filter(|trim| trim()).count() == trims.len() {
        worker.step(after_trim);
    }
    wall
}

#[inline(never)]
fn walk<L: FixedSizeLocal>(trees: &[Tree<'_, L>]) {
    black_box(trees.iter().fold(0, |sum: u64, tree| sum.wrapping_add(tree.walk())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{Audited, LiveSteps, audited};

    const SMALL: Amount = Amount { trees: 5, nodes: 50, walks: 3 };

    struct Built;
    struct Copied;
    struct Scrambled;

    macro_rules! placement {
        ($name:ty, $copied:literal, $scrambled:literal) => {
            impl Placement for $name {
                type Source = Audited;
                type Target = Audited;
                const COPIED: bool = $copied;
                const SCRAMBLED: bool = $scrambled;
            }
        };
    }

    placement!(Built, false, false);
    placement!(Copied, true, false);
    placement!(Scrambled, true, true);

    /// Records the number of live objects at each step, and when the walks begin.
    #[derive(Default)]
    struct StepsAndWalks(LiveSteps);

    impl Observer for StepsAndWalks {
        fn step(&self, name: &'static str) {
            self.0.step(name);
        }
        fn begin(&self) {
            self.step("walks");
        }
    }

    fn audit<P: Placement>() -> (Measurement, crate::workloads::testing::Audit) {
        let live = StepsAndWalks::default();
        let (figures, audit) = audited(|| run::<P>(SMALL, &live));
        // The originals are freed when the copies are walked.
        let expected = [("built", 250), ("laid_out", 250), ("walks", 250), ("trimmed", 250)];
        assert_eq!(live.0.steps(), expected);
        assert_eq!((figures.ops(), figures.live_bytes()), (5 * 50 * 3, 5 * 50 * 32));
        (figures, audit)
    }

    #[test]
    fn trees_are_built_of_twice_their_nodes_and_pruned_before_the_next_one() {
        let (_, audit) = audit::<Built>();
        assert_eq!((audit.allocated, audit.freed, audit.trims), (500, 500, 1));
        assert_eq!(audit.most_live, 4 * 50 + 100);
        // The first 50 frees are of the first tree, which is pruned before the second one is built.
        let pruned = &audit.words_freed[..50];
        assert!(pruned.iter().all(|key| audit.words_allocated[..100].contains(key)));
    }

    #[test]
    fn a_copy_is_made_of_the_same_keys_and_the_originals_are_freed() {
        let (_, built) = audit::<Built>();
        let (_, copied) = audit::<Copied>();
        assert_eq!((copied.allocated, copied.freed, copied.trims), (750, 750, 2));
        assert_eq!(copied.words_allocated[..500], built.words_allocated);
        let sorted = |words: &[u64]| {
            let mut words = words.to_vec();
            words.sort_unstable();
            words
        };
        assert_eq!(sorted(&copied.words_allocated[500..]), sorted(&built.words_freed[250..]));
    }

    #[test]
    fn a_scrambled_allocator_had_all_its_objects_out_and_back_in_random_order() {
        let (_, copied) = audit::<Copied>();
        let (_, scrambled) = audit::<Scrambled>();
        // 250 objects, and the one that stays.
        assert_eq!((scrambled.allocated, scrambled.freed), (750 + 251, 750 + 251));
        let out = &scrambled.words_freed[250..500];
        assert!(!out.is_sorted());
        let mut sorted = out.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..250).collect::<Vec<u64>>());
        assert_eq!(scrambled.words_allocated[751..], copied.words_allocated[500..]);
    }

    #[test]
    fn a_million_nodes_are_walked_at_every_size_and_a_quarter_of_them_where_it_is_to_be_quick() {
        let visits = |amount: Amount| amount.walks * amount.all_nodes();
        for exponent in [8, 10, 12, 14, 16, 18, 20] {
            let [quick, full] = [Effort::Quick, Effort::Full].map(|e| Amount::of(exponent, e));
            assert_eq!(full.all_nodes(), 1 << 20);
            assert_eq!(quick.all_nodes(), 1 << exponent.max(18));
            assert_eq!((visits(quick), visits(full)), (4 << 20, 16 << 20));
        }
    }
}
