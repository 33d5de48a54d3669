//! The options of a reap.

use super::Reap;
use crate::error::{AllocError, OnRefusal, or_fail};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::memory::source::SharedSource;
use crate::options::common_options;

/// Default size of a reap's first chunk.
const DEFAULT_INITIAL_BYTES: usize = 64 << 10;

/// The options that a reap was built with.
#[derive(Clone, Debug)]
pub(super) struct ReapSettings {
    pub name: Option<Box<str>>,
    pub source: SharedSource,
    pub release: Release,
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    pub hardened: bool,
}

/// Builds a [`Reap`] with options. [`Reap::builder`] returns one.
///
/// ```
/// use allotment::{Budget, Reap};
///
/// let reap = Reap::builder().name("requests").initial(64 << 10).maximum(8 << 20).build();
/// # drop(reap);
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the reap"]
pub struct ReapBuilder {
    settings: ReapSettings,
}

impl ReapBuilder {
    pub(super) const fn new() -> Self {
        let settings = ReapSettings {
            name: None,
            source: SharedSource::DEFAULT,
            release: Release::Adaptive,
            budget: None,
            on_refusal: OnRefusal::Panic,
            initial: DEFAULT_INITIAL_BYTES,
            increment: None,
            reserved: 0,
            hardened: false,
        };
        Self { settings }
    }

    common_options! {
        name,
        source,
        huge_pages,
        ///
        /// The policy also says which chunks a [`reset`](Reap::reset) keeps. With
        /// [`Release::AtOnce`] chunks go to the system, and the reap takes none from the recycler.
        /// With the other policies they go to the recycler.
        release,
        budget,
        maximum,
        on_refusal,
        ///
        /// Hardened mode finds double frees, stale frees (while the freed block is in quarantine),
        /// foreign pointers, wrong sizes, overruns and writes after free. A block takes 16 to 31
        /// bytes more before it is rounded up to its size class, and a freed block stays in
        /// quarantine until 1024 more blocks have been freed.
        hardened,
        initial,
        /// Beyond that they use huge pages where the source has them.
        increment,
        /// See [`Reap::with_reserved`].
        reserved,
    }

    /// Builds the reap.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_build`](Self::try_build) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Reap {
        or_fail(self.try_build())
    }

    /// Builds the reap.
    ///
    /// # Errors
    /// When the name is too long, or a statistics record or the reserved memory is not available.
    pub fn try_build(self) -> Result<Reap, AllocError> {
        Reap::make(self.settings)
    }
}
