//! Workloads on binary search trees, as the seed of the free list has them: built and modified; very many small
//! ones.

mod keys;
pub mod many;
pub mod modify;
mod tree;
