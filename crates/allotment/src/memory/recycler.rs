//! The public face of the process-wide recycler: the global cache, and the calling thread's chunks.

use core::fmt;

use super::first_touch::{FreshMemory, fresh_memory};
use super::process_cache::{ProcessCache, cache};
use super::release::Release;
use super::thread_chunks;

/// The process-wide recycler of warm chunks; [`recycler`] returns it.
///
/// A chunk that an allocator gives back stays mapped here with its pages. The next allocator that
/// needs a chunk of that size, on any thread, takes it without a system call or a page fault. The
/// recycler
///
/// - returns the chunk given back last first;
/// - limits the bytes that it keeps ([`set_limit`](Self::set_limit); initially 1 GiB);
/// - gives unused chunks back to the system ([`set_policy`](Self::set_policy); initially
///   [`Release::Adaptive`]);
/// - is safe across fork;
/// - tracks at most 65,536 chunks of more than 64 KiB, in use or kept; further ones go back to the
///   system.
///
/// In addition, each thread keeps two chunks for itself, of at most 16 and 64 KiB, unless policy or
/// limit allow less. They appear in no figure of the recycler. They go to the recycler when the
/// thread ends or calls [`trim`](Self::trim), [`set_policy`](Self::set_policy) or
/// [`set_limit`](Self::set_limit).
///
/// Unused chunks go back during calls that give memory back. A process that suddenly becomes idle
/// keeps what it has until [`trim`](Self::trim).
///
/// Any thread can call all functions here. No call waits for another thread.
///
/// ```
/// let recycler = allotment::recycler();
/// drop(allotment::Arena::with_capacity(100_000));
/// recycler.trim();
/// assert!(recycler.cached_bytes() <= recycler.limit());
/// ```
#[derive(Clone, Copy)]
pub struct Recycler {
    cache: &'static ProcessCache,
}

/// Returns the process-wide [`Recycler`].
#[must_use]
pub fn recycler() -> Recycler {
    Recycler { cache: cache() }
}

impl Recycler {
    /// The bytes that the recycler holds.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cache.cached()
    }

    /// The current policy.
    #[must_use]
    pub fn policy(&self) -> Release {
        self.cache.policy()
    }

    /// Sets the policy, and immediately gives back what the policy does not allow to keep.
    /// [`Release::AtOnce`] switches the recycler off.
    pub fn set_policy(&self, policy: Release) {
        thread_chunks::flush();
        self.cache.set_policy(policy);
    }

    /// The limit on the bytes kept.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.cache.limit()
    }

    /// Limits the bytes kept, with every policy, and immediately gives back what exceeds the limit.
    /// The calling thread's own chunks go to the recycler first.
    ///
    /// The chunks that other threads keep for themselves stay, at most 80 KiB a thread. If such a
    /// chunk is larger than the limit, it goes back to the system when its thread ends, or when an
    /// allocator of that thread takes it and gives it back. With the limit 0, a thread keeps no
    /// further chunk.
    pub fn set_limit(&self, bytes: usize) {
        thread_chunks::flush();
        self.cache.set_limit(bytes);
    }

    /// How much memory came fresh from the system instead of from a cache, and what its first touch
    /// costs.
    #[must_use]
    pub fn fresh_memory(&self) -> FreshMemory {
        fresh_memory()
    }

    /// Gives all kept chunks back to the system, including the calling thread's own chunks.
    /// Returns the number of bytes released.
    pub fn trim(&self) -> usize {
        thread_chunks::flush();
        self.cache.trim_to(0)
    }
}

impl fmt::Debug for Recycler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recycler")
            .field("cached_bytes", &self.cached_bytes())
            .field("limit", &self.limit())
            .field("policy", &self.policy())
            .field("fresh_memory", &self.fresh_memory())
            .finish()
    }
}
