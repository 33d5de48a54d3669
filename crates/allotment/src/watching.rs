//! What watched allocators have in common: why one is watched, and what its free bytes and red zones hold.

use core::ptr::NonNull;

use crate::memory::layout::SEGMENT_GRANULE;
use crate::memory::source::SharedSource;
use crate::memory::tools;

/// Bytes of red zone behind each object, at least, and the alignment of objects: AddressSanitizer sees eight bytes at a
/// time.
pub(crate) const GUARD: usize = 16;
/// What free bytes hold in hardened mode.
pub(crate) const FREE: u8 = 0xF5;
/// What a red zone holds in hardened mode.
pub(crate) const ZONE: u8 = 0xC7;
/// Freed objects of one allocator that rest at the same time, where they are used again one by one.
pub(crate) const RESTING: usize = 1024;

/// Why an allocator is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// AddressSanitizer or Valgrind is there, and is told what is free.
    Tool,
    /// The builder's option.
    Hardened,
    /// `ALLOTMENT_PASSTHROUGH=1`: each object is a block of malloc's.
    Passthrough,
}

impl Mode {
    /// The reason to watch an allocator, if there is one.
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

    /// The unit of chunks that are registered as segments, or 1.
    pub(crate) fn segment_unit(self, source: &SharedSource) -> usize {
        if self == Self::Hardened && source.maps_anonymous() { SEGMENT_GRANULE } else { 1 }
    }
}

/// Whether `len` bytes hold nothing but `value`. The tools are not asked, and told nothing.
///
/// # Safety
/// They are the caller's, and every one was written before. (A racing stray write is the misuse that is looked for, and
/// ends the process.)
pub(crate) unsafe fn holds(start: NonNull<u8>, len: usize, value: u8) -> bool {
    // SAFETY: passed on to the caller.
    let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len) };
    bytes.iter().all(|byte| *byte == value)
}
