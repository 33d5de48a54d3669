//! How cached chunks go back to the system.
//!
//! The invariants are those of `chunk_cache.rs`.

use super::{ADAPTIVE_FLOOR, ADAPTIVE_INTERVAL, ChunkCache, Mappings, WarmChunk};
use crate::memory::index_stack::{IndexStack, NIL};
use crate::memory::layout::{CLASSES, class_size};
use crate::memory::release::Release;
use crate::sync::{Ordering, mutant};

/// The most bytes that one call unmaps for the decay, because the caller waits for it.
pub(super) const TRIM_STEP: usize = 32 << 20;

/// What a call gave back to the system.
#[derive(Clone, Copy, Default)]
pub(super) struct Unmapped {
    pub chunks: usize,
    pub bytes: usize,
}

impl<M: Mappings> ChunkCache<M> {
    /// Gives cached chunks back to the system until at most `target` bytes are kept: large chunks
    /// first, and of each size those unused for longest. Returns the number of bytes released.
    pub fn trim_to(&self, target: usize) -> usize {
        self.trim(self.cached().saturating_sub(target)).bytes
    }

    /// Gives `excess` bytes back, and what exceeds an allowance that another thread has lowered in
    /// the meantime: that thread does not find the chunks that this one has taken off their stack.
    pub(super) fn trim(&self, excess: usize) -> Unmapped {
        let mut unmapped = Unmapped::default();
        let mut excess = excess;
        while excess > 0 {
            let put_back = self.trim_once(excess, &mut unmapped);
            let compares = put_back && !mutant("trim: no second comparison");
            excess = if compares { self.over(Self::most_allowed) } else { 0 };
        }
        unmapped
    }

    /// Counts what it unmaps, and returns whether other chunks were put back.
    fn trim_once(&self, mut excess: usize, unmapped: &mut Unmapped) -> bool {
        let mut put_back = false;
        for stacks in &self.stacks {
            // Large chunks first: fewer calls for the same bytes.
            for class in (0..CLASSES).rev() {
                if excess == 0 {
                    return put_back;
                }
                if !stacks[class].is_empty() {
                    let (chunks, kept) = self.trim_class(&stacks[class], class, excess);
                    let bytes = chunks * class_size(class);
                    excess = excess.saturating_sub(bytes);
                    unmapped.chunks += chunks;
                    unmapped.bytes += bytes;
                    put_back |= kept > 0;
                }
            }
        }
        put_back
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

    /// Once an interval, gives back what was unused during the whole interval, as the policy says.
    pub(super) fn tick(&self) -> usize {
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
        self.trim(excess.min(TRIM_STEP)).chunks
    }
}
