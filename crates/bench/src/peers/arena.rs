//! Allocators that free a task's objects together.

pub(crate) mod allotment_arena;
pub(crate) mod bump_scope;
pub(crate) mod bumpalo;
pub(crate) mod typed_arena;

#[cfg(feature = "fast-peers")]
pub(crate) mod mimalloc_heap;
#[cfg(feature = "fast-peers")]
pub(crate) mod pmr;
