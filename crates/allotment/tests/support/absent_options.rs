//! The options that a build without the system's mappings lacks, for programs that set them in every
//! build. They do nothing.
#![allow(dead_code, reason = "no one of its users needs all of it")]

use allotment::Release;
use allotment::arena::ArenaBuilder;
use allotment::free_list::FreeListBuilder;

pub trait Hardened: Sized {
    fn hardened(self, _: bool) -> Self {
        self
    }
}

impl<const MIN_ALIGN: usize> Hardened for ArenaBuilder<MIN_ALIGN> {}
impl<L> Hardened for FreeListBuilder<L> {}

pub trait ReleasePolicy: Sized {
    fn release(self, _: Release) -> Self {
        self
    }
}

impl<const MIN_ALIGN: usize> ReleasePolicy for ArenaBuilder<MIN_ALIGN> {}

/// Without standard error, no list reports its live objects.
#[cfg(not(feature = "std"))]
pub trait ReportLive: Sized {
    fn report_live(self, _: bool) -> Self {
        self
    }
}

#[cfg(not(feature = "std"))]
impl<L> ReportLive for FreeListBuilder<L> {}
