//! The process's own recycler: the table of mappings behind [`Cache`], and its public face.

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::lifo::Links;
use super::recycler::{Cache, MAX_LINKS, Mappings};
use super::release::Release;
use super::{hot, os, tools};

struct Entry {
    next: AtomicU32,
    start: AtomicPtr<u8>,
}

/// A static table: a mebibyte of addresses, of which only the part in use has memory.
pub(crate) struct Table;

static ENTRIES: [Entry; MAX_LINKS as usize] =
    [const { Entry { next: AtomicU32::new(0), start: AtomicPtr::new(ptr::null_mut()) } };
        MAX_LINKS as usize];

impl Links for Table {
    fn next(&self, index: u32) -> &AtomicU32 {
        &ENTRIES[index as usize].next
    }
}

impl Mappings for Table {
    fn start(&self, link: u32) -> NonNull<u8> {
        // Relaxed: written before the link was first pushed, read after it was taken (see lifo.rs).
        NonNull::new(ENTRIES[link as usize].start.load(Ordering::Relaxed))
            .expect("a link in use names a mapping")
    }

    fn set_start(&self, link: u32, start: NonNull<u8>) {
        ENTRIES[link as usize].start.store(start.as_ptr(), Ordering::Relaxed);
    }

    fn capacity(&self) -> u32 {
        MAX_LINKS
    }

    unsafe fn unmap(&self, start: NonNull<u8>, size: usize) {
        // SAFETY: passed on to the caller.
        unsafe { unmap_or_discard(start, size) };
    }

    fn now(&self) -> u64 {
        os::coarse_millis()
    }
}

/// Unmaps; where the kernel has no mapping left to split, gives the memory back and loses the addresses.
///
/// # Safety
/// As for [`os::unmap`].
pub(crate) unsafe fn unmap_or_discard(start: NonNull<u8>, size: usize) {
    // A tool would go on holding whatever is mapped there next to be free.
    tools::allow_defined(start, size);
    tools::search_no_more(start, size);
    // SAFETY: passed on to the caller.
    unsafe {
        if os::unmap(start, size).is_err() {
            let _ = os::discard(start, size);
        }
    }
}

static CACHE: Cache<Table> = Cache::new(Table);

pub(crate) type ProcessCache = Cache<Table>;

/// The cache, for the sources of this floor.
pub(crate) fn cache() -> &'static ProcessCache {
    &CACHE
}

/// The process-wide recycler of warm chunks; [`recycler`] gives it.
///
/// Chunks that an allocator gives back stay mapped here, with their pages, and serve the next allocator
/// that wants one of their size, on any thread, without a system call or a page fault. Warmest first,
/// bounded in bytes ([`set_limit`](Self::set_limit), 1 GiB at first), decaying
/// ([`set_policy`](Self::set_policy), [`Release::Adaptive`] at first), and safe across fork. At most 65,536
/// chunks have a place; more go back to the system.
///
/// Besides, each thread keeps one chunk of at most 64 KiB at hand (none where policy or limit allow less), which
/// counts for nobody until the thread ends or calls [`trim`](Self::trim).
///
/// Decay happens at calls that give memory back: a process that goes idle all at once keeps what it has
/// until [`trim`](Self::trim).
///
/// Any thread may call anything here; no call waits for another thread.
///
/// ```
/// let recycler = allotment::recycler();
/// drop(allotment::Arena::with_hint(100_000));
/// recycler.trim();
/// assert!(recycler.cached_bytes() <= recycler.limit());
/// ```
#[derive(Clone, Copy)]
pub struct Recycler {
    cache: &'static ProcessCache,
}

/// The process-wide [`Recycler`].
#[must_use]
pub fn recycler() -> Recycler {
    Recycler { cache: cache() }
}

impl Recycler {
    /// The bytes kept warm now.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cache.cached()
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Release {
        self.cache.policy()
    }

    /// Sets the policy, and gives back at once what it does not allow. [`Release::AtOnce`] switches the
    /// recycler off.
    pub fn set_policy(&self, policy: Release) {
        hot::flush();
        self.cache.set_policy(policy);
    }

    /// The bound on the bytes kept.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.cache.limit()
    }

    /// Bounds the bytes kept, whatever the policy, and gives back at once what is over.
    pub fn set_limit(&self, bytes: usize) {
        self.cache.set_limit(bytes);
    }

    /// Gives everything kept back to the system, the calling thread's chunk at hand included. Returns the
    /// number of chunks.
    pub fn trim(&self) -> usize {
        hot::flush();
        self.cache.trim_to(0)
    }
}

impl fmt::Debug for Recycler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recycler")
            .field("cached_bytes", &self.cached_bytes())
            .field("limit", &self.limit())
            .field("policy", &self.policy())
            .finish()
    }
}
