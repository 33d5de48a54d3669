//! Why an allocator is checked.

use core::alloc::Layout;

use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::source::SharedSource;
use crate::memory::tools;

/// The smallest red zone behind an object, in bytes, and the smallest alignment of an object.
/// AddressSanitizer tracks memory in units of eight bytes.
pub(crate) const GUARD: usize = 16;

/// Why an allocator is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckMode {
    /// AddressSanitizer or Valgrind is present. The allocator reports to it which bytes are free.
    Tool,
    /// The builder's `hardened` option.
    Hardened,
    /// A pool's `record_places` option, and no other reason: the ledger only records the objects.
    Recorded,
    /// `ALLOTMENT_PASSTHROUGH=1`: each object is a block of malloc.
    Passthrough,
}

impl CheckMode {
    /// The reason to check an allocator with this option in this process, or `None` if there is
    /// none.
    #[inline]
    pub(crate) fn of_process(hardened: bool) -> Option<Self> {
        if tools::passthrough() {
            Some(Self::Passthrough)
        } else if hardened {
            Some(Self::Hardened)
        } else if tools::tool() != tools::Tool::None {
            Some(Self::Tool)
        } else {
            None
        }
    }

    /// The unit of chunks that are registered as segments, or 1 if chunks aren't registered.
    pub(crate) fn segment_unit(self, source: &SharedSource) -> usize {
        if self == Self::Hardened && source.maps_anonymous() { SEGMENT_GRANULE } else { 1 }
    }
}

/// The layout of a block with room for an object and the smallest red zone. `None` if it overflows.
pub(crate) fn guarded(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(GUARD)?;
    Layout::from_size_align(size, layout.align().max(GUARD)).ok()
}
