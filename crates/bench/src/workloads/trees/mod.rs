//! Workloads on binary search trees, as in the ancestor of the free list: trees that are built and
//! modified, trees that are walked with their nodes in different orders in memory, and very many
//! small trees.

pub mod copy;
mod keys;
pub mod many;
pub mod modify;
mod tree;
