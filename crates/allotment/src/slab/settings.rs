//! The options of a slab, as the builder has collected them.

use super::geometry::DEFAULT_PAGE;
use crate::options::CommonSettings;

/// The options that a slab is made with.
#[derive(Clone, Debug)]
pub(super) struct SlabSettings {
    pub common: CommonSettings,
    pub max_page_bytes: usize,
    pub max_cached_bytes: Option<usize>,
    pub packing: bool,
}

impl SlabSettings {
    pub(super) const DEFAULT: Self = Self {
        common: CommonSettings::DEFAULT,
        max_page_bytes: DEFAULT_PAGE,
        max_cached_bytes: None,
        packing: false,
    };
}
