//! The options of a pool.

use super::LocalPool;
use crate::error::{AllocError, OnRefusal, or_fail};
use crate::memory::budget::Budget;
use crate::memory::release::Release;
use crate::options::common_options;

/// Default size of a pool's first chunk.
const DEFAULT_INITIAL_BYTES: usize = 64 << 10;

/// The options that a pool was built with.
#[derive(Clone, Debug)]
pub(super) struct LocalPoolSettings {
    pub name: Option<Box<str>>,
    pub release: Release,
    pub budget: Option<Budget>,
    pub on_refusal: OnRefusal,
    pub initial: usize,
    pub increment: Option<usize>,
    pub reserved: usize,
    pub hardened: bool,
    pub report_live: Option<bool>,
}

/// Builds a [`LocalPool`] with options. [`LocalPool::builder`] returns one.
///
/// ```
/// use allotment::{Budget, LocalPool};
///
/// let pool = LocalPool::builder().name("requests").initial(64 << 10).maximum(8 << 20).build();
/// # drop(pool);
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the pool"]
pub struct LocalPoolBuilder {
    settings: LocalPoolSettings,
}

impl LocalPoolBuilder {
    pub(super) const fn new() -> Self {
        let settings = LocalPoolSettings {
            name: None,
            release: Release::Adaptive,
            budget: None,
            on_refusal: OnRefusal::Panic,
            initial: DEFAULT_INITIAL_BYTES,
            increment: None,
            reserved: 0,
            hardened: false,
            report_live: None,
        };
        Self { settings }
    }

    common_options! {
        name,
        ///
        /// The pool applies this when the thread leaves its outermost pool:
        ///
        /// | policy | empty memory kept |
        /// |---|---|
        /// | [`Release::AtOnce`] | none |
        /// | [`Release::Keep`] | up to its number of bytes |
        /// | [`Release::Decay`] | up to 1 MiB; more only for its duration |
        /// | [`Release::Adaptive`] | up to 1 MiB; more only for a second |
        ///
        /// Until then, freed large blocks wait for later ones: up to 4 MiB, with `Keep` up to its
        /// number of bytes, with `AtOnce` none. While blocks are live, the pool looks for empty
        /// chunks only if it holds more than four times the bytes of the live blocks, and more than
        /// twice what the last search left. An ended pool leaves at most 256 KiB of empty memory to
        /// the next pool.
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
        ///
        /// The default is no. A pool with this option does not take over the live objects of an
        /// ended pool. The memory of live objects stays until they are freed in either case.
        report_live,
        initial,
        /// Chunks are multiples of 64 KiB.
        increment,
        /// See [`LocalPool::with_reserved`].
        reserved,
    }

    /// Builds the pool.
    ///
    /// # Panics
    /// Panics or ends the process if [`try_build`](Self::try_build) returns an error: see
    /// [`AllocError`](crate::AllocError).
    #[must_use]
    #[track_caller]
    pub fn build(self) -> LocalPool {
        or_fail(self.try_build())
    }

    /// Builds the pool.
    ///
    /// # Errors
    /// When the name is too long, or a statistics record, a pool structure or the reserved memory
    /// is not available.
    pub fn try_build(self) -> Result<LocalPool, AllocError> {
        LocalPool::make(self.settings)
    }
}
