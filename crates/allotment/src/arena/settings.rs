//! The options of an arena, as the builder has collected them.

use super::retain::Retain;
use crate::options::CommonSettings;

/// The options of an arena, except for its hint.
#[derive(Clone, Debug)]
pub(super) struct ArenaSettings {
    pub common: CommonSettings,
    pub retain: Retain,
}

impl ArenaSettings {
    pub(super) const DEFAULT: Self =
        Self { common: CommonSettings::DEFAULT, retain: Retain::Newest };
}
