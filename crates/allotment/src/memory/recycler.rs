//! The process-wide cache of warm chunks.
//!
//! A chunk that an arena gives back still has its pages: the next arena that takes it, on whatever thread,
//! makes no system call and takes no page fault. Chunks lie on one stack for each size class, shared by
//! all threads and taken last in, first out. (A cache for each thread would make every thread fault its own
//! working set in, which with many more threads than cores costs far more than sharing does.)
//!
//! # Invariants
//!
//! 1. A chunk with a link is on a stack, or in the hands of one owner; never both. Giving passes ownership
//!    in, taking passes it out, by the protocol of `lifo.rs`.
//! 2. `cached` is at least the bytes on the stacks, and at most what policy and limit allow, at every instant:
//!    bytes are reserved before a chunk is pushed and returned after it was taken. When the allowance is
//!    lowered, `cached` is at most the new one as soon as the call that lowered it and the gives that began
//!    before it have ended.
//! 3. A link names one mapping from [`Cache::link`] until that mapping is unmapped, and then returns to
//!    the spare links. The backing's table never shrinks.
//! 4. No thread waits for another: every step is a compare-and-exchange that fails only when another one
//!    succeeded. A fork can thus not leave a lock behind. A chunk that another thread was moving at the
//!    moment of a fork is lost to the child (its copy of it, and its bytes in `cached`), nothing else.

use core::ptr::NonNull;
use core::time::Duration;

use super::layout::{CLASSES, class_size, exact_class};
use super::lifo::{Lifo, Links, NIL};
use super::release::Release;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// What backs a chunk: chunks of different backing are never exchanged for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Ordinary pages.
    #[default]
    Pages,
    /// Ordinary pages at a multiple of the segment granule, which thus can be registered.
    Granules,
    /// Memory with huge-page advice, at a multiple of the huge page.
    HugePages,
}

/// The most chunks that can have a link at a time; one more is unmapped when it is given back.
pub const MAX_LINKS: u32 = 1 << 16;

/// What the adaptive policy always keeps, in bytes.
pub const ADAPTIVE_FLOOR: usize = 2 << 20;

/// The default of [`Recycler::set_limit`].
pub const DEFAULT_LIMIT: usize = 1 << 30;

const ADAPTIVE_INTERVAL: u64 = 1000;

/// The most bytes that one call unmaps for the decay's sake: somebody's request waits for it.
const TRIM_STEP: usize = 32 << 20;

/// The mappings behind the links, and the clock: the process's own, or a test's.
pub trait Mappings: Links {
    /// The start of the mapping that this link names.
    fn start(&self, link: u32) -> NonNull<u8>;

    /// Names a mapping by a link.
    fn set_start(&self, link: u32, start: NonNull<u8>);

    /// The number of links in the table.
    fn capacity(&self) -> u32;

    /// Unmaps a chunk that the caller owns.
    ///
    /// # Safety
    /// The chunk is owned by the caller and nothing refers to it.
    unsafe fn unmap(&self, start: NonNull<u8>, size: usize);

    /// Milliseconds of a clock that only moves forward.
    fn now(&self) -> u64;
}

/// A chunk in its owner's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warm {
    pub start: NonNull<u8>,
    pub link: u32,
}

/// The state of the cache. `crate::recycler()` gives the process's own.
#[derive(Debug)]
pub struct Cache<M> {
    mappings: M,
    stacks: [[Lifo; CLASSES]; 3],
    spare: Lifo,
    issued: AtomicU32,
    cached: AtomicUsize,
    /// The least that `cached` was since the last tick: bytes that nobody needed.
    idle: AtomicUsize,
    /// What the adaptive policy keeps at present. It learns and decays whatever policy is in force, so that
    /// no thread that is late with its lesson changes what another policy keeps.
    adaptive: AtomicUsize,
    /// What the other policies keep.
    fixed: AtomicUsize,
    limit: AtomicUsize,
    /// 0 at once, 1 keep, 2 decay, 3 adaptive.
    policy: AtomicU32,
    /// Milliseconds between ticks; 0 for a policy without decay.
    interval: AtomicU64,
    last_tick: AtomicU64,
    /// When memory last went back for want of room, plus one; 0 is never.
    last_overflow: AtomicU64,
}

const AT_ONCE: u32 = 0;
const KEEP: u32 = 1;
const DECAY: u32 = 2;
const ADAPTIVE: u32 = 3;

impl<M: Mappings> Cache<M> {
    /// An empty cache with the default policy and limit.
    #[cfg(not(loom))]
    pub const fn new(mappings: M) -> Self {
        Self {
            mappings,
            stacks: [const { [const { Lifo::new() }; CLASSES] }; 3],
            spare: Lifo::new(),
            issued: AtomicU32::new(0),
            cached: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            adaptive: AtomicUsize::new(ADAPTIVE_FLOOR),
            fixed: AtomicUsize::new(0),
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            policy: AtomicU32::new(ADAPTIVE),
            interval: AtomicU64::new(ADAPTIVE_INTERVAL),
            last_tick: AtomicU64::new(0),
            last_overflow: AtomicU64::new(0),
        }
    }

    /// As above, for loom, whose atomics can't be made in a constant.
    #[cfg(loom)]
    pub fn new(mappings: M) -> Self {
        Self {
            mappings,
            stacks: core::array::from_fn(|_| core::array::from_fn(|_| Lifo::new())),
            spare: Lifo::new(),
            issued: AtomicU32::new(0),
            cached: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            adaptive: AtomicUsize::new(ADAPTIVE_FLOOR),
            fixed: AtomicUsize::new(0),
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            policy: AtomicU32::new(ADAPTIVE),
            interval: AtomicU64::new(ADAPTIVE_INTERVAL),
            last_tick: AtomicU64::new(0),
            last_overflow: AtomicU64::new(0),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Release {
        match self.policy.load(Ordering::Relaxed) {
            AT_ONCE => Release::AtOnce,
            KEEP => Release::Keep(self.fixed.load(Ordering::Relaxed)),
            DECAY => Release::Decay(Duration::from_millis(self.interval.load(Ordering::Relaxed))),
            _ => Release::Adaptive,
        }
    }

    /// Sets the policy and gives back what it does not allow, also what another thread is giving right now.
    /// Returns the number of chunks unmapped.
    pub fn set_policy(&self, policy: Release) -> usize {
        let (word, fixed, interval) = match policy {
            Release::AtOnce => (AT_ONCE, 0, 0),
            Release::Keep(bytes) => (KEEP, bytes, 0),
            Release::Decay(time) => {
                (DECAY, usize::MAX, u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
            }
            Release::Adaptive => (ADAPTIVE, 0, ADAPTIVE_INTERVAL),
        };
        self.interval.store(interval, Ordering::Relaxed);
        self.fixed.store(fixed, Ordering::Relaxed);
        self.adaptive.store(ADAPTIVE_FLOOR, Ordering::Relaxed);
        self.policy.store(word, Ordering::Relaxed);
        self.trim(self.over_allowed())
    }

    /// Bounds the bytes kept, whatever the policy, and gives back what is over, also what another thread is
    /// giving right now. Returns the number of chunks unmapped.
    pub fn set_limit(&self, bytes: usize) -> usize {
        self.limit.store(bytes, Ordering::Relaxed);
        self.trim(self.over_allowed())
    }

    /// The bytes that policy and limit allow.
    pub fn allowed(&self) -> usize {
        let kept = match self.policy.load(Ordering::Relaxed) {
            ADAPTIVE => self.adaptive.load(Ordering::Relaxed),
            _ => self.fixed.load(Ordering::Relaxed),
        };
        kept.min(self.limit.load(Ordering::Relaxed))
    }

    /// The bytes kept over the allowance. Asked after the allowance changed, and after chunks were pushed:
    /// of a thread that lowers it and one that pushes at the same time, one sees the other's doing. (The
    /// sequentially consistent fences of the two pair with each other.)
    fn over_allowed(&self) -> usize {
        fence(Ordering::SeqCst);
        self.cached().saturating_sub(self.allowed())
    }

    /// The bound on the bytes kept.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// The bytes kept now.
    pub fn cached(&self) -> usize {
        self.cached.load(Ordering::Relaxed)
    }

    /// Takes the warmest chunk of exactly `size` bytes, if there is one.
    pub fn take(&self, backing: Backing, size: usize) -> Option<Warm> {
        let class = exact_class(size)?;
        let Some(link) = self.stacks[backing as usize][class].pop(&self.mappings) else {
            self.missed(size);
            return None;
        };
        // After the pop: `cached` must not be below what lies on the stacks (invariant 2).
        let left = self.cached.fetch_sub(size, Ordering::Relaxed) - size;
        if left < self.idle.load(Ordering::Relaxed) {
            self.idle.fetch_min(left, Ordering::Relaxed);
        }
        Some(Warm { start: self.mappings.start(link), link })
    }

    /// The adaptive policy's lesson: this size goes to the system now, and something came back from here
    /// a moment ago.
    #[cold]
    fn missed(&self, size: usize) {
        if self.policy.load(Ordering::Relaxed) != ADAPTIVE {
            return;
        }
        let overflow = self.last_overflow.load(Ordering::Relaxed);
        if overflow != 0 && self.mappings.now().saturating_sub(overflow - 1) <= ADAPTIVE_INTERVAL {
            let limit = self.limit.load(Ordering::Relaxed);
            // By half at least: each chunk that goes and comes back is paid for twice, and a server at its
            // working set should be there after a few, not after all of them.
            let raise = |kept: usize| {
                let raised = kept.saturating_add(size.max(kept / 2));
                Some(raised.min(limit.max(kept)))
            };
            let _ = self.adaptive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
        }
    }

    /// A link for a chunk just mapped, or [`NIL`] when all are in use or its size has no class.
    pub fn link(&self, start: NonNull<u8>, size: usize) -> u32 {
        if exact_class(size).is_none() {
            return NIL;
        }
        let link = match self.spare.pop(&self.mappings) {
            Some(link) => link,
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
        self.mappings.set_start(link, start);
        link
    }

    /// Begins to give chunks back, `total` bytes in all.
    pub fn give(&self, total: usize) -> Giving<'_, M> {
        Giving {
            cache: self,
            backing: Backing::Pages,
            room: self.reserve(total),
            class: 0,
            first: NIL,
            last: NIL,
            given: 0,
            unmapped: 0,
            overflowed: false,
        }
    }

    /// Reserves room for up to `bytes`; returns how much there was.
    fn reserve(&self, bytes: usize) -> usize {
        let mut cached = self.cached.load(Ordering::Relaxed);
        loop {
            let room = self.allowed().saturating_sub(cached).min(bytes);
            if room == 0 {
                return 0;
            }
            // Relaxed: a number. The chunks themselves are handed over by the stacks.
            match self.cached.compare_exchange_weak(
                cached,
                cached + room,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return room,
                Err(now) => cached = now,
            }
        }
    }

    /// Unmaps a chunk in the caller's hands and frees its link.
    ///
    /// # Safety
    /// The chunk is the caller's, `size` bytes long, and nothing refers to it.
    unsafe fn unmap(&self, chunk: Warm, size: usize) {
        // SAFETY: passed on to the caller. The link is freed after, so that it names one mapping at a
        // time (invariant 3).
        unsafe { self.mappings.unmap(chunk.start, size) };
        if chunk.link != NIL {
            self.spare.push(&self.mappings, chunk.link);
        }
    }

    /// Gives cached chunks back to the system, the large ones first and of each size the coldest, until at most
    /// `target` bytes are kept.
    /// Returns the number of chunks unmapped.
    pub fn trim_to(&self, target: usize) -> usize {
        self.trim(self.cached().saturating_sub(target))
    }

    fn trim(&self, mut excess: usize) -> usize {
        let mut unmapped = 0;
        for stacks in &self.stacks {
            // Large ones first: fewer calls for the same bytes.
            for class in (0..CLASSES).rev() {
                if excess == 0 {
                    return unmapped;
                }
                if !stacks[class].is_empty() {
                    let (bytes, chunks) = self.trim_class(&stacks[class], class, excess);
                    excess = excess.saturating_sub(bytes);
                    unmapped += chunks;
                }
            }
        }
        unmapped
    }

    /// Unmaps the coldest chunks of one class, at least `excess` bytes if there are as many.
    ///
    /// The stack is empty for a moment; who comes then maps a fresh chunk.
    fn trim_class(&self, stack: &Lifo, class: usize, excess: usize) -> (usize, usize) {
        let size = class_size(class);
        let first = stack.take_all();
        let mut length = 0;
        let mut link = first;
        while link != NIL {
            length += 1;
            // The whole chain is ours (invariant 1): the links can't change.
            link = self.mappings.next(link).load(Ordering::Relaxed);
        }
        let going = excess.div_ceil(size).min(length);
        let staying = length - going;
        let mut last = NIL;
        let mut cold = first;
        for _ in 0..staying {
            last = cold;
            cold = self.mappings.next(cold).load(Ordering::Relaxed);
        }
        if last != NIL {
            stack.push_chain(&self.mappings, first, last);
        }
        while cold != NIL {
            let next = self.mappings.next(cold).load(Ordering::Relaxed);
            let chunk = Warm { start: self.mappings.start(cold), link: cold };
            // SAFETY: taken off the stack above, so ours alone (invariant 1); cached chunks hold nothing.
            unsafe { self.unmap(chunk, size) };
            cold = next;
        }
        if going > 0 {
            let bytes = going * size;
            let left = self.cached.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            self.idle.fetch_min(left, Ordering::Relaxed);
        }
        (going * size, going)
    }

    /// Once an interval: what lay idle through all of it goes back, as the policy says.
    fn tick(&self) -> usize {
        let interval = self.interval.load(Ordering::Relaxed);
        if interval == 0 {
            return 0;
        }
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
        let excess = if self.policy.load(Ordering::Relaxed) == ADAPTIVE {
            let lower =
                |kept: usize| Some(kept.saturating_sub(idle.div_ceil(2)).max(ADAPTIVE_FLOOR));
            let _ = self.adaptive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
            cached.saturating_sub(self.adaptive.load(Ordering::Relaxed)).min(idle)
        } else {
            idle
        };
        if excess > TRIM_STEP {
            // The rest is as idle as this: let the next call go on with it.
            self.last_tick.store(last, Ordering::Relaxed);
            self.idle.store(idle - TRIM_STEP, Ordering::Relaxed);
        }
        self.trim(excess.min(TRIM_STEP))
    }
}

/// Chunks on their way back: one stack operation for a run of one class.
#[must_use = "`finish` hands the chunks over"]
pub struct Giving<'c, M: Mappings> {
    cache: &'c Cache<M>,
    /// What the run on its way is of: this backing, and this class.
    backing: Backing,
    /// Bytes reserved and not yet used.
    room: usize,
    class: usize,
    first: u32,
    last: u32,
    /// Bytes that went to the stacks.
    given: usize,
    unmapped: usize,
    /// One of them could have been kept, had there been room.
    overflowed: bool,
}

impl<M: Mappings> Giving<'_, M> {
    /// Gives one chunk back: warm to the cache where there is room, else to the system.
    ///
    /// # Safety
    /// The chunk is the caller's, `size` bytes long, of this backing, and nothing refers to it.
    pub unsafe fn add(&mut self, backing: Backing, chunk: Warm, size: usize) {
        let links = &self.cache.mappings;
        match exact_class(size) {
            Some(class) if chunk.link != NIL && size <= self.room => {
                self.room -= size;
                self.given += size;
                if self.first != NIL && self.class == class && self.backing == backing {
                    links.next(self.last).store(chunk.link, Ordering::Relaxed);
                } else {
                    self.push();
                    self.backing = backing;
                    self.class = class;
                    self.first = chunk.link;
                }
                self.last = chunk.link;
            }
            _ => {
                self.unmapped += 1;
                self.overflowed |= chunk.link != NIL;
                // SAFETY: passed on to the caller.
                unsafe { self.cache.unmap(chunk, size) };
            }
        }
    }

    fn push(&mut self) {
        if self.first != NIL {
            let stack = &self.cache.stacks[self.backing as usize][self.class];
            stack.push_chain(&self.cache.mappings, self.first, self.last);
            self.first = NIL;
        }
    }

    /// Hands the last run over. Returns the number of chunks that went to the system, decay included.
    pub fn finish(mut self) -> usize {
        self.push();
        let cache = self.cache;
        if self.room > 0 {
            cache.cached.fetch_sub(self.room, Ordering::Relaxed);
        }
        if self.overflowed {
            cache.last_overflow.store(cache.mappings.now() + 1, Ordering::Relaxed);
        }
        // What this call pushed goes if the allowance was lowered meanwhile; more than that, which a decay
        // left over, goes in steps.
        let over = cache.over_allowed().min(self.given.max(TRIM_STEP));
        self.unmapped + cache.trim(over) + cache.tick()
    }
}
