//! The options of an arena, as the builder has collected them.

use super::retain::Retain;
use crate::error::OnRefusal;
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;

/// The options of an arena, except for its hint.
#[derive(Clone, Debug)]
pub(super) struct ArenaSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub retain: Retain,
    pub release: Release,
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
    pub hardened: bool,
}

impl ArenaSettings {
    pub(super) const DEFAULT: Self = Self {
        name: None,
        source: SharedSource::DEFAULT,
        retain: Retain::Newest,
        release: Release::Adaptive,
        budget: None,
        on_refusal: OnRefusal::Panic,
        hardened: false,
    };
}
