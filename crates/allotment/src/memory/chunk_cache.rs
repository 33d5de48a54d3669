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

use core::ptr::NonNull;
use core::time::Duration;

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

/// The most bytes that one call unmaps for the decay, because the caller waits for it.
const TRIM_STEP: usize = 32 << 20;

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

/// A chunk that its holder owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmChunk {
    pub start: NonNull<u8>,
    pub mapping: u32,
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

/// A policy in one word, so that no thread sees half of a change: its kind in the two highest bits,
/// and its bytes or milliseconds in the others. The largest number stands for all larger ones.
const fn pack_policy(policy: Release) -> u64 {
    let (kind, number) = match policy {
        Release::AtOnce => (AT_ONCE, 0),
        Release::Keep(bytes) => (KEEP, bytes as u128),
        Release::Decay(time) => (DECAY, time.as_millis()),
        Release::Adaptive => (ADAPTIVE, 0),
    };
    let number = if number > MAX_NUMBER as u128 { MAX_NUMBER } else { number as u64 };
    (kind << KIND_SHIFT) | number
}

fn unpack_policy(word: u64) -> Release {
    let number = word & MAX_NUMBER;
    match word >> KIND_SHIFT {
        AT_ONCE => Release::AtOnce,
        KEEP if number == MAX_NUMBER => Release::Keep(usize::MAX),
        KEEP => Release::Keep(number as usize),
        DECAY => Release::Decay(Duration::from_millis(number)),
        _ => Release::Adaptive,
    }
}

const AT_ONCE: u64 = 0;
const KEEP: u64 = 1;
const DECAY: u64 = 2;
const ADAPTIVE: u64 = 3;
const KIND_SHIFT: u32 = 62;
const MAX_NUMBER: u64 = (1 << KIND_SHIFT) - 1;

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

    /// Sets the policy, and gives back what it does not allow to keep. Returns the number of chunks
    /// unmapped.
    pub fn set_policy(&self, policy: Release) -> usize {
        self.adaptive.store(ADAPTIVE_FLOOR, Ordering::Relaxed);
        self.policy.store(pack_policy(policy), Ordering::Relaxed);
        self.trim(self.over(Self::allowed))
    }

    /// Limits the bytes kept, with every policy, and gives back what exceeds the limit. Returns the
    /// number of chunks unmapped.
    pub fn set_limit(&self, bytes: usize) -> usize {
        self.limit.store(bytes, Ordering::Relaxed);
        self.trim(self.over(Self::allowed))
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

    /// Starts a batch of chunks to give back, `total` bytes together.
    pub fn recycle(&self, total: usize) -> RecycleBatch<'_, M> {
        RecycleBatch {
            cache: self,
            backing: Backing::Pages,
            reserved: self.reserve(total),
            class: 0,
            first: NIL,
            last: NIL,
            pushed: 0,
            unmapped: 0,
            overflowed: false,
        }
    }

    /// Reserves up to `bytes` of the allowance. Returns the bytes reserved.
    fn reserve(&self, bytes: usize) -> usize {
        let mut cached = self.cached.load(Ordering::Relaxed);
        loop {
            let reserved = self.allowed().saturating_sub(cached).min(bytes);
            if reserved == 0 {
                return 0;
            }
            // Relaxed: this is only a number. The stacks publish the chunks.
            match self.cached.compare_exchange_weak(
                cached,
                cached + reserved,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return reserved,
                Err(now) => cached = now,
            }
        }
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

    /// Gives cached chunks back to the system until at most `target` bytes are kept: large chunks
    /// first, and of each size those unused for longest. Returns the number of chunks unmapped.
    pub fn trim_to(&self, target: usize) -> usize {
        self.trim(self.cached().saturating_sub(target))
    }

    /// Gives `excess` bytes back, and what exceeds an allowance that another thread has lowered in
    /// the meantime: that thread does not find the chunks that this one has taken off their stack.
    fn trim(&self, excess: usize) -> usize {
        let mut unmapped = 0;
        let mut excess = excess;
        while excess > 0 {
            let (chunks, put_back) = self.trim_once(excess);
            unmapped += chunks;
            excess = if put_back { self.over(Self::most_allowed) } else { 0 };
        }
        unmapped
    }

    /// Returns the number of chunks unmapped, and whether others were put back.
    fn trim_once(&self, mut excess: usize) -> (usize, bool) {
        let (mut unmapped, mut put_back) = (0, false);
        for stacks in &self.stacks {
            // Large chunks first: fewer calls for the same bytes.
            for class in (0..CLASSES).rev() {
                if excess == 0 {
                    return (unmapped, put_back);
                }
                if !stacks[class].is_empty() {
                    let (chunks, kept) = self.trim_class(&stacks[class], class, excess);
                    excess = excess.saturating_sub(chunks * class_size(class));
                    unmapped += chunks;
                    put_back |= kept > 0;
                }
            }
        }
        (unmapped, put_back)
    }

    /// Unmaps those chunks of one class that were unused for longest, until they amount to `excess`
    /// bytes or the class is empty, and puts the others back. Returns the numbers of both.
    ///
    /// The stack is empty for a moment. A thread that takes a chunk then maps a new one.
    fn trim_class(&self, stack: &IndexStack, class: usize, excess: usize) -> (usize, usize) {
        let size = class_size(class);
        let first = stack.take_all();
        let mut length = 0;
        let mut mapping = first;
        while mapping != NIL {
            length += 1;
            // This thread owns the whole chain (invariant 1), so the links can't change.
            mapping = self.mappings.next(mapping).load(Ordering::Relaxed);
        }
        let unmapped = excess.div_ceil(size).min(length);
        let kept = length - unmapped;
        let mut last = NIL;
        let mut cold = first;
        for _ in 0..kept {
            last = cold;
            cold = self.mappings.next(cold).load(Ordering::Relaxed);
        }
        if last != NIL {
            stack.push_chain(&self.mappings, first, last);
        }
        while cold != NIL {
            let next = self.mappings.next(cold).load(Ordering::Relaxed);
            let chunk = WarmChunk { start: self.mappings.start(cold), mapping: cold };
            // SAFETY: taken off the stack above, so this thread owns it (invariant 1). Cached
            // chunks hold nothing.
            unsafe { self.unmap(chunk, size) };
            cold = next;
        }
        if unmapped > 0 {
            let bytes = unmapped * size;
            let left = self.cached.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            self.idle.fetch_min(left, Ordering::Relaxed);
        }
        (unmapped, kept)
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

    /// Once an interval, gives back what was unused during the whole interval, as the policy says.
    fn tick(&self) -> usize {
        let policy = self.policy();
        let interval = match policy {
            Release::AtOnce | Release::Keep(_) => return 0,
            Release::Decay(time) => (time.as_millis() as u64).max(1),
            Release::Adaptive => ADAPTIVE_INTERVAL,
        };
        let now = self.mappings.now();
        let last = self.last_tick.load(Ordering::Relaxed);
        if now.saturating_sub(last) < interval
            || self
                .last_tick
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return 0;
        }
        let cached = self.cached();
        let idle = self.idle.swap(cached, Ordering::Relaxed).min(cached);
        let excess = if policy == Release::Adaptive {
            let lower =
                |kept: usize| Some(kept.saturating_sub(idle.div_ceil(2)).max(ADAPTIVE_FLOOR));
            let _ = self.adaptive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
            cached.saturating_sub(self.adaptive.load(Ordering::Relaxed)).min(idle)
        } else {
            idle
        };
        if excess > TRIM_STEP {
            // The rest is as unused as this. Let the next call continue with it.
            self.last_tick.store(last, Ordering::Relaxed);
            self.idle.store(idle - TRIM_STEP, Ordering::Relaxed);
        }
        self.trim(excess.min(TRIM_STEP))
    }
}

/// Chunks that are being given back. A run of chunks of one class takes one stack operation.
#[must_use = "`finish` hands the chunks over"]
pub struct RecycleBatch<'c, M: Mappings> {
    cache: &'c ChunkCache<M>,
    /// Backing and class of the current run.
    backing: Backing,
    /// Bytes reserved and not yet used.
    reserved: usize,
    class: usize,
    first: u32,
    last: u32,
    /// Bytes that went to the stacks.
    pushed: usize,
    unmapped: usize,
    /// Whether a chunk that could have been kept was unmapped because the allowance was used up.
    overflowed: bool,
}

impl<M: Mappings> RecycleBatch<'_, M> {
    /// Gives one chunk back: to the cache if there is room, otherwise to the system.
    ///
    /// # Safety
    /// The caller owns the chunk, it is `size` bytes long and of this backing, and nothing refers
    /// to it.
    pub unsafe fn add(&mut self, backing: Backing, chunk: WarmChunk, size: usize) {
        let mappings = &self.cache.mappings;
        match exact_class(size) {
            Some(class) if chunk.mapping != NIL && size <= self.reserved => {
                self.reserved -= size;
                self.pushed += size;
                if self.first != NIL && self.class == class && self.backing == backing {
                    mappings.next(self.last).store(chunk.mapping, Ordering::Relaxed);
                } else {
                    self.push();
                    self.backing = backing;
                    self.class = class;
                    self.first = chunk.mapping;
                }
                self.last = chunk.mapping;
            }
            _ => {
                self.unmapped += 1;
                self.overflowed |= chunk.mapping != NIL;
                // SAFETY: guaranteed by the caller.
                unsafe { self.cache.unmap(chunk, size) };
            }
        }
    }

    /// Gives one chunk to the system, past the cache.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    pub unsafe fn bypass(&mut self, chunk: WarmChunk, size: usize) {
        self.unmapped += 1;
        // SAFETY: guaranteed by the caller.
        unsafe { self.cache.unmap(chunk, size) };
    }

    fn push(&mut self) {
        if self.first != NIL {
            let stack = &self.cache.stacks[self.backing as usize][self.class];
            stack.push_chain(&self.cache.mappings, self.first, self.last);
            self.first = NIL;
        }
    }

    /// Pushes the last run. Returns the number of chunks that went to the system, including decay.
    pub fn finish(mut self) -> usize {
        self.push();
        let cache = self.cache;
        if self.reserved > 0 {
            cache.cached.fetch_sub(self.reserved, Ordering::Relaxed);
        }
        if self.overflowed {
            cache.last_overflow.store(cache.mappings.now() + 1, Ordering::Relaxed);
        }
        // If the allowance was lowered meanwhile, give back what this call pushed. A larger excess,
        // left by a decay, goes back in steps.
        let over = cache.over(ChunkCache::allowed).min(self.pushed.max(TRIM_STEP));
        self.unmapped + cache.trim(over) + cache.tick()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_its_packing() {
        for policy in [
            Release::AtOnce,
            Release::Keep(0),
            Release::Keep(123_456),
            Release::Keep(usize::MAX),
            Release::Decay(Duration::ZERO),
            Release::Decay(Duration::from_millis(1500)),
            Release::Adaptive,
        ] {
            assert_eq!(unpack_policy(pack_policy(policy)), policy);
        }
        // A fraction of a millisecond is lost, and a decay beyond all time is shortened.
        let decay = |time| unpack_policy(pack_policy(Release::Decay(time)));
        assert_eq!(decay(Duration::from_micros(2500)), Release::Decay(Duration::from_millis(2)));
        let longest = Duration::from_millis(MAX_NUMBER);
        assert_eq!(decay(Duration::MAX), Release::Decay(longest));
    }
}
