//! The options of a free list, as the builder has collected them.

use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// The options that a list is made with.
#[derive(Clone, Debug)]
pub(super) struct FreeListSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub objects_per_chunk: Option<usize>,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

impl FreeListSettings {
    pub(super) const DEFAULT: Self = Self {
        name: None,
        source: SharedSource::DEFAULT,
        release: Release::Adaptive,
        budget: None,
        objects_per_chunk: None,
        hardened: false,
        report_live: None,
    };
}
