//! The process-wide cache of warm chunks.
//!
//! A chunk that an arena gives back still has its pages. The next arena that takes it, on any
//! thread, makes no system call and takes no page fault. There is one stack of chunks for each size
//! class. All threads share the stacks, last in, first out. (With a cache for each thread, every
//! thread would fault in its own working set. With many more threads than cores, that costs far
//! more than sharing.)
//!
//! # Invariants
//!
//! 1. A chunk with a mapping number is either on a stack or has one owner. Giving it back passes
//!    ownership to the stack, taking it passes ownership to the taker, by the protocol of
//!    `index_stack.rs`.
//! 2. At every instant, `cached` is at least the bytes on the stacks, and at most what policy and
//!    limit allow: bytes are reserved before a chunk is pushed, and released after it was taken.
//!    The call that lowers the allowance unmaps what exceeds it. Another thread's trim may have
//!    taken chunks off their stack at that moment. That trim puts them back and then unmaps what
//!    exceeds the allowance, except that bytes above what the adaptive policy keeps go back in
//!    steps.
//! 3. A mapping number names one mapping from [`ChunkCache::add_mapping`] until that mapping is
//!    unmapped. Then it returns to the free numbers. The table of mappings never shrinks. The
//!    number of a small chunk says where it is (see `small_chunks.rs`).
//! 4. No thread waits for another: every step is a compare-and-exchange that fails only if another
//!    one succeeded. So a fork leaves no lock behind. The child loses only the chunks that another
//!    thread was moving at the moment of the fork, with their numbers. Their bytes are in `cached`
//!    until the child counts again.
//!
//! | file | what it holds |
//! |---|---|
//! | `packed_policy` | the release policy in one word |
//! | `trim` | how cached chunks go back to the system |
//! | `recycle_batch` | how chunks are given back to the cache |

mod packed_policy;
mod recycle_batch;
mod trim;

use core::ptr::NonNull;

use self::packed_policy::{pack_policy, unpack_policy};
pub use self::recycle_batch::RecycleBatch;
pub use super::acquired_chunk::WarmChunk;
use super::index_stack::{IndexStack, Links, NIL};
use super::layout::{CLASSES, class_size, exact_class};
use super::release::Release;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// What backs a chunk. Chunks with different backing never replace each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Ordinary pages.
    #[default]
    Pages,
    /// Ordinary pages at a multiple of the segment granule, so that the chunk can be registered.
    Granules,
    /// Memory with huge-page advice, at a multiple of the huge page.
    HugePages,
}

/// The largest number of chunks, without the small ones, that have a mapping number at one time.
/// Further chunks are unmapped when they are given back.
pub const MAX_MAPPINGS: u32 = 1 << 16;

/// What the adaptive policy always allows, in bytes.
pub const ADAPTIVE_FLOOR: usize = 2 << 20;

/// The initial limit; see [`ChunkCache::set_limit`].
pub const DEFAULT_LIMIT: usize = 1 << 30;

const ADAPTIVE_INTERVAL: u64 = 1000;

/// The table of mappings, by number, and the clock. The process has one implementation, tests have
/// others.
pub trait Mappings: Links {
    /// The start of the mapping with this number.
    fn start(&self, mapping: u32) -> NonNull<u8>;

    /// Gives this number, which is below [`capacity`](Self::capacity), to a mapping.
    fn set_start(&self, mapping: u32, start: NonNull<u8>);

    /// The number of entries of the table. Small chunks have higher numbers, without an entry.
    fn capacity(&self) -> u32;

    /// Gives a chunk back to the system.
    ///
    /// # Safety
    /// The caller owns the chunk, and nothing refers to it.
    unsafe fn unmap(&self, chunk: WarmChunk, size: usize);

    /// The milliseconds of a monotonic clock.
    fn now(&self) -> u64;
}

/// The cache. `crate::recycler()` returns the process-wide one.
#[derive(Debug)]
pub struct ChunkCache<M> {
    mappings: M,
    stacks: [[IndexStack; CLASSES]; 3],
    free_numbers: IndexStack,
    issued: AtomicU32,
    cached: AtomicUsize,
    /// The minimum of `cached` during the current interval: bytes that were not needed in it.
    idle: AtomicUsize,
    /// What the adaptive policy currently keeps. It adapts and decays under every policy, so that a
    /// thread that updates it late does not change what another policy keeps.
    adaptive: AtomicUsize,
    limit: AtomicUsize,
    /// The policy, as `pack_policy` packs it.
    policy: AtomicU64,
    last_tick: AtomicU64,
    /// The time plus one when memory last went back to the system because the allowance was used
    /// up; 0 for never.
    last_overflow: AtomicU64,
}

impl<M: Mappings> ChunkCache<M> {
    /// An empty cache with the default policy and limit.
    #[cfg(not(loom))]
    pub const fn new(mappings: M) -> Self {
        Self {
            mappings,
            stacks: [const { [const { IndexStack::new() }; CLASSES] }; 3],
            free_numbers: IndexStack::new(),
            issued: AtomicU32::new(0),
            cached: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            adaptive: AtomicUsize::new(ADAPTIVE_FLOOR),
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            policy: AtomicU64::new(pack_policy(Release::Adaptive)),
            last_tick: AtomicU64::new(0),
            last_overflow: AtomicU64::new(0),
        }
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    pub fn new(mappings: M) -> Self {
        Self {
            mappings,
            stacks: core::array::from_fn(|_| core::array::from_fn(|_| IndexStack::new())),
            free_numbers: IndexStack::new(),
            issued: AtomicU32::new(0),
            cached: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            adaptive: AtomicUsize::new(ADAPTIVE_FLOOR),
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            policy: AtomicU64::new(pack_policy(Release::Adaptive)),
            last_tick: AtomicU64::new(0),
            last_overflow: AtomicU64::new(0),
        }
    }

    /// The current policy.
    #[inline]
    pub fn policy(&self) -> Release {
        unpack_policy(self.policy.load(Ordering::Relaxed))
    }

    /// Sets the policy, and gives back what it does not allow to keep.
    pub fn set_policy(&self, policy: Release) {
        self.adaptive.store(ADAPTIVE_FLOOR, Ordering::Relaxed);
        self.policy.store(pack_policy(policy), Ordering::Relaxed);
        let _ = self.trim(self.over(Self::allowed));
    }

    /// Limits the bytes kept, with every policy, and gives back what exceeds the limit.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
        let _ = self.trim(self.over(Self::allowed));
    }

    /// The bytes that policy and limit allow together.
    pub fn allowed(&self) -> usize {
        let kept = match self.policy() {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes,
            Release::Decay(_) => usize::MAX,
            Release::Adaptive => self.adaptive.load(Ordering::Relaxed),
        };
        kept.min(self.limit.load(Ordering::Relaxed))
    }

    /// The same without what the adaptive policy currently keeps: bytes above that go back in
    /// steps.
    fn most_allowed(&self) -> usize {
        let kept = match self.policy() {
            Release::AtOnce => 0,
            Release::Keep(bytes) => bytes,
            Release::Decay(_) | Release::Adaptive => usize::MAX,
        };
        kept.min(self.limit.load(Ordering::Relaxed))
    }

    /// The bytes kept above an allowance. Called after the allowance changed, and after chunks were
    /// pushed or put back. If one thread lowers the allowance while another pushes, at least one of
    /// them sees the other's change: the sequentially consistent fences of the two calls pair with
    /// each other.
    fn over(&self, allowed: impl FnOnce(&Self) -> usize) -> usize {
        fence(Ordering::SeqCst);
        self.cached().saturating_sub(allowed(self))
    }

    /// The limit on the bytes kept.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// The bytes kept.
    pub fn cached(&self) -> usize {
        self.cached.load(Ordering::Relaxed)
    }

    /// Takes the chunk of exactly `size` bytes that was given back last, if there is one.
    pub fn take(&self, backing: Backing, size: usize) -> Option<WarmChunk> {
        let warm = self.take_if_cached(backing, size);
        if warm.is_none() && exact_class(size).is_some() {
            self.note_miss(size);
        }
        warm
    }

    /// As [`take`](Self::take), for a caller that takes another size if there is no such chunk. The
    /// adaptive policy does not count that as a miss.
    #[inline]
    pub fn take_if_cached(&self, backing: Backing, size: usize) -> Option<WarmChunk> {
        let class = exact_class(size)?;
        let mapping = self.stacks[backing as usize][class].pop(&self.mappings)?;
        // After the pop: `cached` must not be less than the bytes on the stacks (invariant 2).
        let left = self.cached.fetch_sub(size, Ordering::Relaxed) - size;
        if left < self.idle.load(Ordering::Relaxed) {
            self.idle.fetch_min(left, Ordering::Relaxed);
        }
        Some(WarmChunk { start: self.mappings.start(mapping), mapping })
    }

    /// Raises what the adaptive policy keeps, if memory went back a moment ago: this size is now
    /// taken from the system.
    #[cold]
    fn note_miss(&self, size: usize) {
        if self.policy() != Release::Adaptive {
            return;
        }
        let overflow = self.last_overflow.load(Ordering::Relaxed);
        if overflow != 0 && self.mappings.now().saturating_sub(overflow - 1) <= ADAPTIVE_INTERVAL {
            let limit = self.limit.load(Ordering::Relaxed);
            // Raise by half at least. Each chunk that goes back and is taken again costs two system
            // calls, and a server should reach its working set after a few of them.
            let raise = |kept: usize| {
                let raised = kept.saturating_add(size.max(kept / 2));
                Some(raised.min(limit.max(kept)))
            };
            let _ = self.adaptive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
        }
    }

    /// A number for a chunk just mapped. [`NIL`] if all numbers are in use, or if its size has no
    /// class.
    pub fn add_mapping(&self, start: NonNull<u8>, size: usize) -> u32 {
        if exact_class(size).is_none() {
            return NIL;
        }
        let mapping = match self.free_numbers.pop(&self.mappings) {
            Some(mapping) => mapping,
            None => {
                let next = self.issued.load(Ordering::Relaxed);
                if next >= self.mappings.capacity() {
                    return NIL;
                }
                let next = self.issued.fetch_add(1, Ordering::Relaxed);
                if next >= self.mappings.capacity() {
                    self.issued.fetch_sub(1, Ordering::Relaxed);
                    return NIL;
                }
                next
            }
        };
        self.mappings.set_start(mapping, start);
        mapping
    }

    /// Unmaps a chunk and frees its mapping number.
    ///
    /// # Safety
    /// The caller owns the chunk, it is `size` bytes long, and nothing refers to it.
    unsafe fn unmap(&self, chunk: WarmChunk, size: usize) {
        // SAFETY: guaranteed by the caller. The number is freed afterwards, so that it names one
        // mapping at a time (invariant 3).
        unsafe { self.mappings.unmap(chunk, size) };
        if chunk.mapping < self.mappings.capacity() {
            self.free_numbers.push(&self.mappings, chunk.mapping);
        }
    }

    /// In a child made by fork, before its only thread does anything else: counts the kept bytes
    /// again. Another thread of the parent may have been between a stack and the counter at the
    /// fork, and would have corrected the counter in the parent only.
    pub fn recount(&self) {
        let kept = self.stacks.iter().flat_map(|stacks| stacks.iter().enumerate());
        let kept = kept.map(|(class, stack)| stack.count(&self.mappings) * class_size(class)).sum();
        self.cached.store(kept, Ordering::Relaxed);
        self.idle.fetch_min(kept, Ordering::Relaxed);
    }
}
