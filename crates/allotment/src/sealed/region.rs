//! `Region`: owns sealed memory, and gives it back.
//!
//! # Invariant
//!
//! `ground` was begun by this region, which alone ends it.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::ground::Ground;
use super::sealer::Sealer;
use crate::error::AllocError;
use crate::memory::budget::Budget;

/// Memory that is built in and then sealed. Dropping it gives the memory back; nothing in it is dropped.
pub(super) struct Region {
    ground: NonNull<Ground>,
}

// SAFETY: the ground is the region's (the invariant), and works on the builder's thread alone while it builds.
unsafe impl Send for Region {}
// SAFETY: as above; once it is sealed it is only read.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn begin(name: Option<&str>, budget: Option<Budget>) -> Result<Self, AllocError> {
        Ground::begin(name, budget).map(|ground| Self { ground })
    }

    pub(super) fn ground(&self) -> &Ground {
        // SAFETY: the invariant.
        unsafe { self.ground.as_ref() }
    }

    pub(super) fn sealer(&self) -> Sealer<'_> {
        // SAFETY: the ground lasts as long as the region.
        unsafe { Sealer::new(self.ground) }
    }

    /// Ends building and makes the memory read-only. On an error the region may only be dropped.
    ///
    /// # Safety
    /// The region was begun on this thread and not sealed, and nobody writes to its memory any more.
    pub(super) unsafe fn seal(&self) -> Result<(), AllocError> {
        // SAFETY: passed on to the caller.
        unsafe { Ground::seal(self.ground) }
    }

    /// Lets the memory stay for ever. It was sealed before.
    ///
    /// # Safety
    /// As it says.
    pub(super) unsafe fn leak(self) {
        let region = ManuallyDrop::new(self);
        // SAFETY: sealed (the caller's word), and never ended from now on.
        unsafe { region.ground().keep_for_ever() };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: begun here, ended here alone; who borrowed from it is gone.
        unsafe { Ground::end(self.ground) };
    }
}
