//! What an arena tells about itself.

use core::fmt;

use super::typed::Arena;
use crate::statistics::Statistics;

/// # Name and statistics
impl<const MIN_ALIGN: usize> Arena<MIN_ALIGN> {
    /// The arena's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.raw.settings().common.name()
    }

    /// The arena's current figures.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.raw.record().statistics()
    }
}

impl<const MIN_ALIGN: usize> fmt::Debug for Arena<MIN_ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish()
    }
}
