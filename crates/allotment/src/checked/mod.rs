//! What all watched allocators share: the reasons to watch one, and the fill patterns of free bytes
//! and red zones. A *watched* allocator takes the slow path for every call, so that misuse can be
//! detected.

pub(crate) mod misuse;

use core::ptr::NonNull;

use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::source::SharedSource;
use crate::memory::tools;

/// The smallest red zone behind an object, in bytes, and the alignment of objects. AddressSanitizer
/// tracks memory in units of eight bytes.
pub(crate) const GUARD: usize = 16;
/// Fill byte of free memory in hardened mode.
pub(crate) const FREE: u8 = 0xF5;
/// Fill byte of red zones in hardened mode.
pub(crate) const ZONE: u8 = 0xC7;
/// The number of freed objects of one allocator in quarantine at one time, for allocators that
/// reuse objects one by one.
pub(crate) const RESTING: usize = 1024;

/// Why an allocator is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// AddressSanitizer or Valgrind is present. The allocator reports to it which bytes are free.
    Tool,
    /// The builder's `hardened` option.
    Hardened,
    /// `ALLOTMENT_PASSTHROUGH=1`: each object is a block of malloc.
    Passthrough,
}

impl Mode {
    /// The reason to watch an allocator, or `None` if there is no reason.
    #[inline]
    pub(crate) fn wanted(hardened: bool) -> Option<Self> {
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

/// Whether all of `len` bytes equal `value`. Does not change what the memory tools know of them.
///
/// # Safety
/// The bytes belong to the caller, and each was written before. (A stray write that races with this
/// read is the misuse that the check looks for; it ends the process.)
pub(crate) unsafe fn holds(start: NonNull<u8>, len: usize, value: u8) -> bool {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
    bytes.iter().all(|byte| *byte == value)
}
