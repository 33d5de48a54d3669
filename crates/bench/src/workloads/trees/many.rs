//! `many-trees-each` and `many-trees-all`: very many small trees, pruned and built up again.
//!
//! Every tree is built, and then most of its nodes are removed. Either each tree is pruned before
//! the next one is built, so that the next one can reuse the freed nodes; or all trees are built
//! before the first one is pruned. Then all trees are built up to their first size again. Resident
//! memory is read after each of these steps, outside the measured time. An operation is an
//! insertion or a removal.

use super::keys::{Pruned, Prunings};
use super::tree::{Tree, node};
use crate::peers::{FixedSize, FixedSizeLocal};
use crate::workloads::measurement::{LIVE_BYTES, Measurement, WALK_NS_PER_NODE};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::thread_group;
use std::cell::{Cell, OnceCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// When a tree is pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneOrder {
    /// Each tree before the next one is built.
    Each,
    /// After all trees are built.
    All,
}

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The number of trees.
    pub trees: usize,
    /// The number of nodes of each tree.
    pub built: usize,
    /// The number of nodes that are removed from each tree.
    pub pruned: usize,
    /// The number of walks of all trees at the end.
    pub walks: u32,
}

/// A million nodes. A quarter of them stays.
pub const FULL: Amount = Amount { trees: 4096, built: 256, pruned: 192, walks: 4 };

/// The steps after which resident memory is read. If each tree is pruned before the next one is
/// built, the first step is when the last tree is built.
pub const STEPS: [&str; 4] = ["built", "pruned", "rebuilt", "all_freed"];

/// Runs it on one thread, with one allocator for all trees or one for each tree.
pub fn run<A: FixedSize>(
    order: PruneOrder,
    amount: Amount,
    one_for_each: bool,
    observer: &dyn Observer,
) -> Measurement {
    let Amount { trees: count, built, pruned, walks } = amount;
    let layout = node::<A::Object>();
    let stores_wanted = if one_for_each { count } else { 1 };
    let found = thread_group::run(
        1,
        observer,
        |_| Pruned::draw(count, built, pruned, &mut Random::stream(0)),
        |worker, keys| {
            let [after_built, after_pruned, after_rebuilt, after_all] = STEPS;
            // Making the allocators is part of the work, so it is in the measured part.
            let (stores, locals) = (OnceCell::new(), OnceCell::new());
            let mut trees = Vec::with_capacity(count);
            let observing = Cell::new(Duration::ZERO);
            let step = |name| {
                let began = Instant::now();
                worker.step(name);
                observing.set(observing.get() + began.elapsed());
            };
            let wall = worker.measured(|| {
                let new = |_| A::new(layout);
                let stores: &Vec<A> = stores.get_or_init(|| (0..stores_wanted).map(new).collect());
                let locals: &Vec<A::Local<'_>> =
                    locals.get_or_init(|| stores.iter().map(A::local).collect());
                trees.extend(locals.iter().cycle().take(count).map(Tree::new));
                match order {
                    PruneOrder::Each => {
                        for (index, (tree, keys)) in trees.iter_mut().zip(keys.trees()).enumerate()
                        {
                            insert(tree, keys.built);
                            if index + 1 == count {
                                step(after_built);
                            }
                            remove(tree, keys.pruned);
                        }
                    }
                    PruneOrder::All => {
                        each(&mut trees, &keys, |tree, keys| insert(tree, keys.built));
                        step(after_built);
                        each(&mut trees, &keys, |tree, keys| remove(tree, keys.pruned));
                    }
                }
                step(after_pruned);
                each(&mut trees, &keys, |tree, keys| insert(tree, keys.rebuilt));
            });
            worker.step(after_rebuilt);
            let began = Instant::now();
            for _ in 0..walks {
                black_box(trees.iter().fold(0, |sum: u64, tree| sum.wrapping_add(tree.walk())));
            }
            let walking = began.elapsed();
            // The nodes are freed, and the allocators still exist.
            trees.clear();
            worker.step(after_all);
            (wall.saturating_sub(observing.get()), walking)
        },
    );
    let (wall, walking) = found[0];
    let nodes = count * built;
    Measurement::timed((nodes + 2 * count * pruned) as u64, wall)
        .with(&LIVE_BYTES, (nodes * layout.size()) as f64)
        .with(
            &WALK_NS_PER_NODE,
            walking.as_nanos() as f64 / (u64::from(walks) * nodes as u64) as f64,
        )
}

/// Calls `work` with each tree and its keys.
fn each<'l, 'k, L: FixedSizeLocal>(
    trees: &mut [Tree<'l, L>],
    keys: &'k Pruned,
    work: impl Fn(&mut Tree<'l, L>, Prunings<'k>),
) {
    trees.iter_mut().zip(keys.trees()).for_each(|(tree, keys)| work(tree, keys));
}

#[inline(never)]
fn insert<L: FixedSizeLocal>(tree: &mut Tree<'_, L>, keys: &[u64]) {
    keys.iter().for_each(|key| tree.insert(*key));
}

#[inline(never)]
fn remove<L: FixedSizeLocal>(tree: &mut Tree<'_, L>, keys: &[u64]) {
    keys.iter().for_each(|key| _ = tree.remove(*key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, LiveSteps, audited};

    const SMALL: Amount = Amount { trees: 10, built: 100, pruned: 75, walks: 2 };

    #[test]
    fn the_orders_differ_in_what_lives_when_all_is_built() {
        for one_for_each in [false, true] {
            for (order, built) in [(PruneOrder::Each, 9 * 25 + 100), (PruneOrder::All, 1000)] {
                let live = LiveSteps::default();
                let (figures, audit) =
                    audited(|| run::<Audited>(order, SMALL, one_for_each, &live));
                let expected =
                    [("built", built), ("pruned", 250), ("rebuilt", 1000), ("all_freed", 0)];
                assert_eq!(live.steps(), expected, "{order:?}");
                assert_eq!(figures.live_bytes(), 1000 * 32);
                assert_eq!(audit.most_live, 1000);
                assert!(figures.get(&WALK_NS_PER_NODE).is_some_and(|ns| ns > 0.0));
                // Nodes that are freed at the end don't count.
                assert_eq!((audit.allocated, audit.freed), (1750, 1750));
                assert_eq!(figures.ops(), 1750 + 750);
            }
        }
    }

    #[test]
    fn the_same_keys_are_used_in_either_order() {
        let words = |order| {
            let (_, audit) = audited(|| run::<Audited>(order, SMALL, false, &Unobserved));
            audit.words_allocated
        };
        let keys = Pruned::draw(10, 100, 75, &mut Random::stream(0));
        let built: Vec<u64> = keys.trees().flat_map(|tree| tree.built).copied().collect();
        let rebuilt: Vec<u64> = keys.trees().flat_map(|tree| tree.rebuilt).copied().collect();
        assert_eq!(words(PruneOrder::All), [built, rebuilt].concat());
        assert_eq!(words(PruneOrder::Each), words(PruneOrder::All));
    }

    #[test]
    fn a_quarter_of_a_million_nodes_stays() {
        assert_eq!(FULL.trees * FULL.built, 1 << 20);
        assert_eq!(FULL.built - FULL.pruned, FULL.built / 4);
    }
}
