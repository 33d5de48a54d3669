//! How chunks are given back to the cache.
//!
//! The invariants are those of `chunk_cache.rs`.

use super::trim::TRIM_STEP;
use super::{Backing, ChunkCache, Mappings, WarmChunk};
use crate::memory::index_stack::NIL;
use crate::memory::layout::exact_class;
use crate::sync::{Ordering, mutant};

impl<M: Mappings> ChunkCache<M> {
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
            if reserved == 0 || mutant("recycle: reserved after the push") {
                return reserved;
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
        if mutant("recycle: reserved after the push") {
            cache.cached.fetch_add(self.pushed + self.reserved, Ordering::Relaxed);
        }
        if self.reserved > 0 {
            cache.cached.fetch_sub(self.reserved, Ordering::Relaxed);
        }
        if self.overflowed {
            cache.last_overflow.store(cache.mappings.now() + 1, Ordering::Relaxed);
        }
        // If the allowance was lowered meanwhile, give back what this call pushed. A larger excess,
        // left by a decay, goes back in steps.
        let over = cache.over(ChunkCache::allowed).min(self.pushed.max(TRIM_STEP));
        self.unmapped + cache.trim(over).chunks + cache.tick()
    }
}
