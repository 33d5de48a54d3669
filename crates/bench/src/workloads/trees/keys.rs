//! Keys of trees. They are drawn before the measured part, and are the same for every allocator.

use crate::workloads::random::Random;

/// All keys from one [`Random`] are different: it produces all 64-bit numbers before it repeats
/// one.
fn draw(count: usize, random: &mut Random, keys: &mut Vec<u64>) {
    keys.extend((0..count).map(|_| random.draw()));
}

/// Keys to build trees with, and then to modify them.
pub struct Modified {
    keys: Vec<u64>,
    built: usize,
    a_tree: usize,
}

impl Modified {
    /// Keys for `trees` trees of `built` nodes, and for `replaced` insertions into each tree. Each
    /// insertion is followed by the removal of a key drawn among those in the tree.
    pub fn draw(trees: usize, built: usize, replaced: usize, random: &mut Random) -> Self {
        let a_tree = built + 2 * replaced;
        let mut keys = Vec::with_capacity(trees * a_tree);
        let mut live = Vec::with_capacity(built + 1);
        for _ in 0..trees {
            live.clear();
            draw(built, random, &mut live);
            keys.extend_from_slice(&live);
            for _ in 0..replaced {
                draw(1, random, &mut live);
                let new = live[built];
                let old = live.swap_remove(random.below(built as u32 + 1) as usize);
                keys.extend([new, old]);
            }
        }
        Self { keys, built, a_tree }
    }

    /// For each tree, the keys that it is built with, and pairs of a key to insert and a key to
    /// remove.
    pub fn trees(&self) -> impl Iterator<Item = (&[u64], &[[u64; 2]])> {
        self.keys.chunks_exact(self.a_tree).map(|keys| {
            let (built, pairs) = keys.split_at(self.built);
            (built, pairs.as_chunks().0)
        })
    }
}

/// Keys to build trees with, then to prune them, then to build them up again.
pub struct Pruned {
    keys: Vec<u64>,
    built: usize,
    pruned: usize,
}

/// The keys of one tree.
#[derive(Clone, Copy)]
pub struct Prunings<'k> {
    /// The keys that it is built with.
    pub built: &'k [u64],
    /// The keys of these that are removed, in random order.
    pub pruned: &'k [u64],
    /// The same number of other keys.
    pub rebuilt: &'k [u64],
}

impl Pruned {
    /// Keys for `trees` trees of `built` nodes. `pruned` nodes of each tree are removed.
    pub fn draw(trees: usize, built: usize, pruned: usize, random: &mut Random) -> Self {
        let mut keys = Vec::with_capacity(trees * (built + 2 * pruned));
        let mut live = Vec::with_capacity(built);
        for _ in 0..trees {
            live.clear();
            draw(built, random, &mut live);
            keys.extend_from_slice(&live);
            for _ in 0..pruned {
                keys.push(live.swap_remove(random.below(live.len() as u32) as usize));
            }
            draw(pruned, random, &mut keys);
        }
        Self { keys, built, pruned }
    }

    /// The keys of each tree.
    pub fn trees(&self) -> impl Iterator<Item = Prunings<'_>> {
        self.keys.chunks_exact(self.built + 2 * self.pruned).map(|keys| {
            let (built, rest) = keys.split_at(self.built);
            let (pruned, rebuilt) = rest.split_at(self.pruned);
            Prunings { built, pruned, rebuilt }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn only_keys_that_are_there_are_removed_and_none_comes_twice() {
        let keys = Modified::draw(3, 100, 250, &mut Random::stream(1));
        let mut seen = HashSet::new();
        for (built, pairs) in keys.trees() {
            assert_eq!((built.len(), pairs.len()), (100, 250));
            let mut live: HashSet<u64> = built.iter().copied().collect();
            assert!(built.iter().all(|key| seen.insert(*key)));
            for [new, old] in pairs {
                assert!(seen.insert(*new) && live.insert(*new) && live.remove(old));
            }
            assert_eq!(live.len(), 100);
            // Most of the first keys have been replaced.
            assert!(built.iter().filter(|key| live.contains(key)).count() < 30);
        }
        assert_eq!(keys.trees().count(), 3);
    }

    #[test]
    fn what_is_pruned_was_built_and_what_is_built_again_is_new() {
        let keys = Pruned::draw(5, 64, 48, &mut Random::stream(1));
        let mut seen = HashSet::new();
        for tree in keys.trees() {
            assert!(tree.built.iter().chain(tree.rebuilt).all(|key| seen.insert(*key)));
            let pruned: HashSet<_> = tree.pruned.iter().collect();
            assert_eq!((tree.built.len(), pruned.len(), tree.rebuilt.len()), (64, 48, 48));
            assert!(tree.pruned.iter().all(|key| tree.built.contains(key)));
        }
        assert_eq!(keys.trees().count(), 5);
    }

    #[test]
    fn the_same_stream_draws_the_same_keys() {
        let draw = |stream| Modified::draw(2, 10, 10, &mut Random::stream(stream)).keys;
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
