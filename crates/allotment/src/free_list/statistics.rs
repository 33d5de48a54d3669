//! What a list tells about itself.

use core::alloc::Layout;
use core::fmt;

use super::raw::RawFreeList;
use crate::statistics::Statistics;

/// # Layout, name and statistics
impl RawFreeList {
    /// The layout of an object, as the caller requested it.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.sizes.layout
    }

    /// The bytes from one object of a run to the next: the size with its padding, at least a
    /// pointer's.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.sizes.stride
    }

    /// The list's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.settings.common.name()
    }

    /// The number of live objects.
    #[must_use]
    pub fn live(&self) -> usize {
        match self.checks() {
            Some(checks) => checks.live(),
            None => self.watermark.get().wrapping_add_signed(self.count.get()),
        }
    }

    /// What the list holds. The values are exact.
    ///
    /// [`report`](crate::report()) may show older values for another thread's list: those of the
    /// last call that took or released a chunk, or called this function.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.update_record();
        self.record.statistics()
    }
}

impl fmt::Debug for RawFreeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawFreeList")
            .field("name", &self.name())
            .field("layout", &self.layout())
            .field("statistics", &self.statistics())
            .finish()
    }
}
