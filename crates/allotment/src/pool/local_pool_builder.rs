//! The options of a pool.

use super::LocalPool;
use super::settings::BlockSettings;
use crate::error::AllocError;
use crate::options::{build_call, common_options};

/// Builds a [`LocalPool`] with options. [`LocalPool::builder`] returns one.
///
/// It has no `source`: all pools share one range of addresses.
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
    settings: BlockSettings,
}

/// # Options
impl LocalPool {
    /// Starts building a pool with options.
    pub const fn builder() -> LocalPoolBuilder {
        LocalPoolBuilder::new()
    }
}

impl LocalPoolBuilder {
    const fn new() -> Self {
        Self { settings: BlockSettings::DEFAULT }
    }

    common_options! {
        name,
        ///
        /// The pool applies this when the thread leaves its outermost pool; with `Decay` and
        /// `Adaptive` also inside it, at every 32nd allocation that finds neither a free block nor
        /// space in the newest chunk:
        ///
        /// | policy | empty memory kept |
        /// |---|---|
        /// | [`Release::AtOnce`](crate::Release::AtOnce) | none |
        /// | [`Release::Keep`](crate::Release::Keep) | up to its number of bytes |
        /// | [`Release::Decay`](crate::Release::Decay) | up to 1 MiB; more only for its duration |
        /// | [`Release::Adaptive`](crate::Release::Adaptive) | up to 1 MiB; more only for a second |
        ///
        /// Until then, freed large blocks wait for later ones: up to 4 MiB, with `Keep` up to its
        /// number of bytes, with `AtOnce` none. By default a pool learns to keep up to 64 MiB if
        /// blocks of up to 32 MiB are freed and allocated again and again. While blocks are live,
        /// the pool looks for empty chunks only if it holds more than four times the bytes of the
        /// live blocks, and one of these is true since the last search: the pool holds more than
        /// twice what that search left, half of the bytes that were live then have been freed, or
        /// enough time has passed. An ended pool leaves at most 256 KiB of empty memory to the next
        /// pool.
        release,
        ///
        /// A pool's budget counts what the pool takes, while it exists. Memory that an ended pool
        /// left is counted in pieces, as the pool uses it. Blocks that outlive the pool count
        /// towards no budget.
        budget,
        ///
        /// With [`PoolGlobalAlloc`](crate::PoolGlobalAlloc), a pool with a maximum of 0 sends all
        /// allocations on to the global heap, and
        /// [`refused_bytes`](crate::LocalPool::refused_bytes) counts them.
        maximum,
        on_refusal,
        ///
        /// Hardened mode finds double frees, stale frees (while the freed block is in quarantine),
        /// foreign pointers, wrong sizes, overruns and writes after free. A block takes 16 to 31
        /// bytes more before it is rounded up to its size class, and a freed block stays in
        /// quarantine until 1024 more blocks have been freed.
        hardened,
        ///
        /// A pool with this option does not take over the live objects of an
        /// ended pool. The memory of live objects stays until they are freed in either case.
        report_live,
        initial,
        /// Chunks are multiples of 64 KiB.
        increment,
        /// See [`LocalPool::with_reserved`].
        reserved,
    }

    /// Whether the pool records the place of each allocation: the innermost calls that led to it.
    /// The default is no. For debugging: it finds out where the objects come from that outlive the
    /// pool.
    ///
    /// [`LocalPool::live_by_place`] reports what is live while the pool exists,
    /// [`pool::escaped_by_place`](crate::pool::escaped_by_place) what is still live of ended pools.
    /// With [`report_live`](Self::report_live), the pool prints the places when it ends. An object
    /// that grows or shrinks comes from the place that resized it last.
    ///
    /// Each allocation takes a lock, a slow path and a walk of the stack, which costs microseconds.
    /// A block takes 16 to 31 bytes more before it is rounded up to its size class. As with
    /// [`hardened`](Self::hardened), which can be set too, the pool neither takes over what an
    /// ended pool left nor is taken over while objects of it are live: each pool that something
    /// escapes keeps its memory. The process records at most
    /// [`MAX_PLACES`](crate::pool::MAX_PLACES) places, which take up to 8 MiB and are never freed.
    /// With `ALLOTMENT_PASSTHROUGH=1` nothing is recorded.
    #[cfg(feature = "places")]
    #[cfg_attr(docsrs, doc(cfg(feature = "places")))]
    pub fn record_places(mut self, record: bool) -> Self {
        self.settings.record_places = record;
        self
    }

    build_call!("pool", LocalPool);

    /// Builds the pool.
    ///
    /// # Errors
    /// When the name is too long, or a statistics record, a pool structure or the reserved memory
    /// is not available.
    pub fn try_build(mut self) -> Result<LocalPool, AllocError> {
        LocalPool::make(&mut self.settings)
    }
}
