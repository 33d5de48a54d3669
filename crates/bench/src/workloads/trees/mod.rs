//! Workloads on binary search trees, as in the ancestor of the free list: trees that are built and
//! modified, trees that are walked with their nodes in different orders in memory, and very many
//! small trees.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `keys` | the keys of trees |
//! | `tree` | a binary search tree |
//! | `modify` | trees that are built, modified and freed |
//! | `copy` | trees that are walked with their nodes in different orders |
//! | `many` | very many small trees |

pub mod copy;
mod keys;
pub mod many;
pub mod modify;
mod tree;
