//! The options of a free list, as the builder has collected them.

use crate::options::CommonSettings;

/// The options that a list is made with.
#[derive(Clone, Debug)]
pub(super) struct FreeListSettings {
    pub common: CommonSettings,
    pub objects_per_chunk: Option<usize>,
}

impl FreeListSettings {
    pub(super) const DEFAULT: Self =
        Self { common: CommonSettings::DEFAULT, objects_per_chunk: None };
}
