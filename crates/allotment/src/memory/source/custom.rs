//! Sources that the program implements, and how chunks are taken from any source that is not the
//! default one.
//!
//! The invariants are those of `source.rs`.

use alloc::sync::Arc;
use core::alloc::Layout;
use core::ops::Deref;

use super::Source;
use crate::error::{AllocError, ErrorKind};
use crate::memory::acquired_chunk::{AcquiredChunk, NO_MAPPING};
use crate::memory::fallible::{Counted, Shared};

/// A source that the program implements.
#[derive(Clone)]
pub(super) enum CustomSource {
    Arc(Arc<dyn Source>),
    Own(Shared<dyn Source>),
}

impl Deref for CustomSource {
    type Target = dyn Source;

    fn deref(&self) -> &(dyn Source + 'static) {
        match self {
            Self::Arc(source) => &**source,
            Self::Own(source) => &**source,
        }
    }
}

impl CustomSource {
    /// Shares a source.
    pub(super) fn try_new(source: impl Source + 'static) -> Result<Self, AllocError> {
        let source = Shared::try_new(source)?;
        // SAFETY: the same pointer, whose type is changed by the compiler.
        let source = unsafe { source.unsize(|source| source as *mut Counted<dyn Source>) };
        Ok(Self::Own(source))
    }
}

/// Takes a chunk from a source that is not [`Mmap`](super::Mmap).
pub(super) fn acquire(
    source: &dyn Source,
    size: usize,
    align: usize,
) -> Result<AcquiredChunk, AllocError> {
    let layout = Layout::from_size_align(size, align)
        .map_err(|_| AllocError::new(ErrorKind::SizeOverflow, size))?;
    let start = source.acquire(layout)?;
    let [recycled, zeroed, untouched] = [false, source.zeroed(), false];
    Ok(AcquiredChunk { start, size, align, mapping: NO_MAPPING, recycled, zeroed, untouched })
}
