//! `SealedMemory`: owns sealed chunks, and gives them back.
//!
//! # Invariant
//!
//! `chunks` were begun by this `SealedMemory`, and only it ends them.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::chunks::SealedChunks;
use super::sealer::Sealer;
use crate::error::AllocError;
use crate::options::CommonSettings;

/// Memory in which a value is built, and which is then sealed. Dropping it gives the memory back,
/// and drops no value in it.
pub(super) struct SealedMemory {
    chunks: NonNull<SealedChunks>,
}

// SAFETY: it owns the chunks (the invariant). While they are being built in, their calls work only
// on the building thread.
unsafe impl Send for SealedMemory {}
// SAFETY: as above; once the chunks are sealed, they are only read.
unsafe impl Sync for SealedMemory {}

impl SealedMemory {
    pub(super) fn begin(settings: CommonSettings) -> Result<Self, AllocError> {
        SealedChunks::begin(settings).map(|chunks| Self { chunks })
    }

    pub(super) fn chunks(&self) -> &SealedChunks {
        // SAFETY: the invariant.
        unsafe { self.chunks.as_ref() }
    }

    pub(super) fn sealer(&self) -> Sealer<'_> {
        // SAFETY: the chunks live as long as `self`, which the sealer borrows.
        unsafe { Sealer::new(self.chunks) }
    }

    /// Ends building and makes the memory read-only. After an error, the memory may only be
    /// dropped.
    ///
    /// # Safety
    /// It was begun on this thread and not sealed, and nothing writes to the memory any more.
    pub(super) unsafe fn seal(&self) -> Result<(), AllocError> {
        // SAFETY: guaranteed by the caller.
        unsafe { SealedChunks::seal(self.chunks) }
    }

    /// Keeps the memory until the process ends.
    ///
    /// # Safety
    /// It was sealed.
    pub(super) unsafe fn leak(self) {
        let leaked = ManuallyDrop::new(self);
        // SAFETY: sealed, as the caller guarantees, and never ended, because it is not dropped.
        unsafe { leaked.chunks().seal_permanently() };
    }
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        // SAFETY: begun by this value and ended only here (the invariant). No borrow of it is left.
        unsafe { SealedChunks::end(self.chunks) };
    }
}
