//! `Region`: owns sealed memory, and gives it back.
//!
//! # Invariant
//!
//! `ground` was begun by this region, and only this region ends it.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::chunks::SealedChunks;
use super::sealer::Sealer;
use crate::error::AllocError;
use crate::memory::budget::Budget;

/// Memory in which a value is built, and which is then sealed. Dropping the region gives the memory
/// back, and drops nothing in it.
pub(super) struct Region {
    ground: NonNull<SealedChunks>,
}

// SAFETY: the region owns the ground (the invariant). While the ground builds, its calls work only
// on the building thread.
unsafe impl Send for Region {}
// SAFETY: as above; once the ground is sealed, it is only read.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn begin(name: Option<&str>, budget: Option<Budget>) -> Result<Self, AllocError> {
        SealedChunks::begin(name, budget).map(|ground| Self { ground })
    }

    pub(super) fn ground(&self) -> &SealedChunks {
        // SAFETY: the invariant.
        unsafe { self.ground.as_ref() }
    }

    pub(super) fn sealer(&self) -> Sealer<'_> {
        // SAFETY: the ground lives as long as the region, which the sealer borrows.
        unsafe { Sealer::new(self.ground) }
    }

    /// Ends building and makes the memory read-only. After an error, the region may only be
    /// dropped.
    ///
    /// # Safety
    /// The region was begun on this thread and not sealed, and nothing writes to its memory any
    /// more.
    pub(super) unsafe fn seal(&self) -> Result<(), AllocError> {
        // SAFETY: guaranteed by the caller.
        unsafe { SealedChunks::seal(self.ground) }
    }

    /// Keeps the memory until the process ends.
    ///
    /// # Safety
    /// The region was sealed.
    pub(super) unsafe fn leak(self) {
        let region = ManuallyDrop::new(self);
        // SAFETY: sealed, as the caller guarantees, and never ended, because it is not dropped.
        unsafe { region.ground().keep_for_ever() };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: begun by this region and ended only here (the invariant). No borrow of the region
        // is left.
        unsafe { SealedChunks::end(self.ground) };
    }
}
