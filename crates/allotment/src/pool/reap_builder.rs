//! The options of a reap.

use super::Reap;
use super::settings::BlockSettings;
use crate::error::AllocError;
use crate::options::{build_call, common_options};

/// Builds a [`Reap`] with options. [`Reap::builder`] returns one.
///
/// It has no `report_live`: a reap's blocks end with it.
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
    settings: BlockSettings,
}

/// # Options
impl Reap {
    /// Starts building a reap with options.
    pub const fn builder() -> ReapBuilder {
        ReapBuilder::new()
    }
}

impl ReapBuilder {
    const fn new() -> Self {
        Self { settings: BlockSettings::DEFAULT }
    }

    common_options! {
        name,
        source,
        huge_pages,
        ///
        /// The policy also says which chunks a [`reset`](Reap::reset) keeps. With
        /// [`Release::AtOnce`](crate::Release::AtOnce) chunks go to the system, and the reap takes
        /// none from the recycler. With the other policies they go to the recycler.
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

    build_call!("reap", Reap);

    /// Builds the reap.
    ///
    /// # Errors
    /// When the name is too long, or a statistics record or the reserved memory is not available.
    pub fn try_build(self) -> Result<Reap, AllocError> {
        Reap::make(self.settings)
    }
}
