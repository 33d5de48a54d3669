//! The options that a slab is made with; `builder.rs` sets them.

use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// The options that a slab is made with.
#[derive(Clone, Debug)]
pub(super) struct SlabSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub max_page_bytes: usize,
    pub max_cached_bytes: Option<usize>,
    pub packing: bool,
    pub hardened: bool,
    pub report_live: Option<bool>,
}
