//! Workloads on binary search trees, as the seed of the free list has them: built and modified; walked, their nodes
//! lying in different orders; very many small ones.

pub mod copy;
mod keys;
pub mod many;
pub mod modify;
mod tree;
