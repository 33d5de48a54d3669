//! The sweep for empty chunks.
//!
//! A list knows how many objects are live, but not where they are: to know it, the fast paths would
//! have to count for each chunk. So the list sweeps when enough objects may have been freed. A
//! sweep follows the chains of free objects once, and marks each object in a bitmap of its chunk. A
//! chunk whose objects are all free is released. The free objects of the other chunks are linked
//! anew, those of the fullest chunks first, in the order of their addresses.
//!
//! `sweep_schedule.rs` says when a sweep is due, `sweep_back_off.rs` when it is skipped. If the
//! sweeps of a descent are skipped, the chunks that are empty when the last object is freed are set
//! aside as *spare*, and are used before any is taken from the source. (For a run of objects, only
//! the first of them are looked at.)
//!
//! When the last object is freed, no chain has to be followed: every chunk is empty, and all but
//! one are released.
//!
//! The invariants are those of `raw.rs`.

use core::cmp::Reverse;
use core::ptr::{self, NonNull};

use super::chains::{ListLink, MAX_WAITING_CHAINS};
use super::chunk_header::{KIND, ListChunk};
use super::raw::RawFreeList;
use super::sweep_schedule::MIN_CHAIN_LENGTH;
use crate::checked::{Misuse, abort_on_misuse};
use crate::memory::release::Release;
use crate::memory::system_array::SystemArray;

/// A chunk in a sweep.
struct SweptListChunk {
    chunk: ListChunk,
    /// The number of its objects that are not fresh.
    handed_out: usize,
    /// The index of the first word of its bitmap.
    first_word: usize,
    /// The number of its free objects.
    free: usize,
    is_released: bool,
}

/// # Release memory
impl RawFreeList {
    /// Sweeps for empty chunks and releases them all, including those that the release policy would
    /// keep. Returns the number of bytes released.
    ///
    /// The sweep takes one step for each free object. The objects that stay free are then handed
    /// out from the fullest chunks first, in the order of their addresses.
    pub fn trim(&self) -> usize {
        if self.forget_orphaned_chunks() {
            return 0;
        }
        match self.checks() {
            Some(checks) => checks.trim(self),
            None => self.sweep(0),
        }
    }
}

impl RawFreeList {
    /// Sweeps, or skips the sweep. The number of live objects has fallen below `sweep_below`, and
    /// the object that was just freed is on the first chain.
    pub(super) fn sweep_or_skip(&self) {
        // `live()` must be correct until the watermark is set anew.
        let live = self.live();
        self.watermark.set(live);
        self.count.set(0);
        // A list that was watched is not about to grow again.
        let lingered = self.watched_since.take().is_some() && live > 0;
        if self.back_off.skips_sweep() && !lingered {
            return if live == 0 { self.keep_one_chunk(usize::MAX) } else { self.plan_sweep(0) };
        }
        let keep = self.bytes_to_keep();
        let before = self.record.held_bytes.get();
        if live == 0 {
            self.keep_one_chunk(keep);
        } else {
            self.sweep(keep);
        }
        if self.record.held_bytes.get() < before {
            self.back_off.note_release();
        }
    }

    /// The bytes of empty chunks that the release policy keeps.
    fn bytes_to_keep(&self) -> usize {
        match self.settings.common.release {
            Release::Keep(bytes) => bytes,
            Release::AtOnce | Release::Decay(_) | Release::Adaptive => 0,
        }
    }

    /// Handles the free of the last object. One chunk stays, with all of its objects fresh. At most
    /// `keep` bytes of the others become spare; the rest is released.
    fn keep_one_chunk(&self, keep: usize) {
        self.clear_chains();
        // The list may stay small from here on: the smallest chunk is enough to begin with.
        let smallest = self.each_chunk().min_by_key(|chunk| chunk.size).map(|chunk| chunk.header);
        let mut next = self.chunks.replace(ptr::null_mut());
        while let Some(header) = NonNull::new(next) {
            let chunk = self.chunk_at(header);
            // SAFETY: a chunk of this list, which was taken off the list above.
            next = unsafe { header.as_ref() }.next.get();
            self.uncount_chunk(chunk);
            if smallest == Some(header) {
                self.push_chunk(chunk);
                self.make_fresh(chunk);
            } else {
                self.push_spare_chunk(chunk);
            }
        }
        self.release_spare(keep);
        // If chunks are spare because sweeps are skipped, plan a sweep that releases them, however
        // little the list holds from here on.
        let spare = !self.spare_chunks.get().is_null();
        let keeps = matches!(self.settings.common.release, Release::Keep(_));
        self.set_sweep_level(usize::from(spare && !keeps));
        self.update_record();
    }

    /// Releases empty chunks, except for at most `keep` bytes of them. Returns the bytes released.
    pub(super) fn sweep(&self, mut keep: usize) -> usize {
        if self.live() == 0 {
            let released = if keep == 0 { self.release_all() } else { 0 };
            self.plan_sweep(0);
            self.update_record();
            return released;
        }
        let Some((mut chunks, mut bits)) = self.prepare_sweep() else {
            // No memory for the sweep: try again when half of the live objects are freed.
            self.plan_sweep(0);
            return self.release_spare(keep);
        };
        let released_spare = self.release_spare(keep);
        keep -= self.each_spare_chunk().map(|chunk| chunk.size).sum::<usize>();
        let mut linked = self.mark_free_objects(&mut chunks, &mut bits);
        for swept in chunks.iter_mut().filter(|swept| swept.free == swept.handed_out) {
            if swept.chunk.size <= keep {
                keep -= swept.chunk.size;
            } else {
                swept.is_released = true;
                linked -= swept.free;
            }
        }
        // The fullest chunks come last, and so are used first; among equals, those at lower
        // addresses.
        chunks.sort_unstable_by_key(|swept| {
            let eighths = swept.free * 8 / swept.handed_out.max(1);
            Reverse((eighths, swept.chunk.first.addr()))
        });
        self.relink(&chunks, &bits, linked);
        let empty = chunks.iter().filter(|swept| swept.is_released).map(|swept| swept.chunk);
        empty.clone().for_each(|chunk| self.uncount_chunk(chunk));
        // SAFETY: all of their objects were free, and none is linked anew or fresh.
        let released = unsafe { self.release_chunks(empty) };
        self.plan_sweep(linked);
        self.update_record();
        released + released_spare
    }

    /// The chunks in the order of their addresses, and a bitmap with one bit for each object;
    /// `None` if malloc refuses.
    fn prepare_sweep(&self) -> Option<(SystemArray<SweptListChunk>, SystemArray<u64>)> {
        let mut each = self.each_chunk();
        let mut words = 0;
        let (fresh, fresh_end) = (self.fresh.get().addr(), self.fresh_end.get().addr());
        let mut chunks = SystemArray::new(self.each_chunk().count(), |_| {
            let chunk = each.next().expect("as many as were counted");
            let first = chunk.first.addr().get();
            let end = first + chunk.objects * self.sizes.stride;
            let has_fresh = fresh < fresh_end && (first..end).contains(&fresh);
            let fresh_objects = if has_fresh { self.fresh_objects() } else { 0 };
            let first_word = words;
            words += chunk.objects.div_ceil(64);
            SweptListChunk {
                chunk,
                handed_out: chunk.objects - fresh_objects,
                first_word,
                free: 0,
                is_released: false,
            }
        })
        .ok()?;
        chunks.sort_unstable_by_key(|swept| swept.chunk.first.addr());
        Some((chunks, SystemArray::new(words, |_| 0).ok()?))
    }

    /// Marks each free object. Returns how many there are.
    fn mark_free_objects(&self, chunks: &mut [SweptListChunk], bits: &mut [u64]) -> usize {
        let mut linked = 0;
        // The next object of each chain, and the index of the chunk that held its previous object.
        let mut chains = [(NonNull::dangling(), 0); 1 + MAX_WAITING_CHAINS];
        let mut open = 0;
        for first in self.waiting_chains.firsts().chain(NonNull::new(self.head.get())) {
            chains[open].0 = first;
            open += 1;
        }
        while open > 0 {
            let mut at = 0;
            while at < open {
                let (link, chunk) = &mut chains[at];
                *chunk = self.mark_object(*link, *chunk, chunks, bits);
                linked += 1;
                // SAFETY: a free object holds a link (invariant 2). The objects of the other chains
                // are marked before the value read here is needed.
                match NonNull::new(unsafe { link.as_ref() }.0.get()) {
                    Some(next) => {
                        *link = next;
                        at += 1;
                    }
                    None => {
                        open -= 1;
                        chains[at] = chains[open];
                    }
                }
            }
        }
        linked
    }

    /// Marks one free object. `chunk` is the index of the chunk to try first. Returns the index of
    /// the chunk that holds the object.
    #[inline]
    fn mark_object(
        &self,
        link: NonNull<ListLink>,
        mut chunk: usize,
        chunks: &mut [SweptListChunk],
        bits: &mut [u64],
    ) -> usize {
        let stride = self.sizes.stride;
        let address = link.addr().get();
        // If no chunk holds the object, the program has overwritten the free object that its
        // address was read from.
        let overwritten =
            || abort_on_misuse(Misuse::WriteAfterFree, KIND, self.name(), address, stride);
        let offset = |swept: &SweptListChunk| address.wrapping_sub(swept.chunk.first.addr().get());
        let holds = |swept: &SweptListChunk| offset(swept) < swept.chunk.objects * stride;
        if !holds(&chunks[chunk]) {
            let after = chunks.partition_point(|swept| swept.chunk.first.addr().get() <= address);
            chunk = after
                .checked_sub(1)
                .filter(|chunk| holds(&chunks[*chunk]))
                .unwrap_or_else(overwritten);
        }
        let swept = &mut chunks[chunk];
        let index = offset(swept) / stride;
        if index * stride != offset(swept) {
            overwritten();
        }
        let (word, bit) = (&mut bits[swept.first_word + index / 64], 1 << (index % 64));
        if *word & bit != 0 {
            // Without this check, a chain that leads back to itself would be followed forever.
            abort_on_misuse(Misuse::DoubleFree, KIND, self.name(), address, stride);
        }
        *word |= bit;
        swept.free += 1;
        chunk
    }

    /// Rebuilds the list of the chunks that stay, and the chains of their free objects. The objects
    /// of the last chunk come first.
    fn relink(&self, chunks: &[SweptListChunk], bits: &[u64], linked: usize) {
        let stride = self.sizes.stride;
        let longest = (linked / MAX_WAITING_CHAINS).max(MIN_CHAIN_LENGTH);
        let mut length = 0;
        self.clear_chains();
        self.chunks.set(ptr::null_mut());
        for swept in chunks {
            let chunk = swept.chunk;
            if swept.is_released {
                if swept.handed_out < chunk.objects {
                    self.fresh.set(ptr::null_mut());
                    self.fresh_end.set(ptr::null_mut());
                }
                continue;
            }
            // SAFETY: a chunk of this list, which is rebuilt here.
            unsafe { chunk.header.as_ref() }.next.set(self.chunks.get());
            self.chunks.set(chunk.header.as_ptr());
            if length >= longest {
                self.start_chain();
                length = 0;
            }
            length += swept.free;
            let words = &bits[swept.first_word..][..chunk.objects.div_ceil(64)];
            for (word, bits) in words.iter().enumerate().rev() {
                let mut left = *bits;
                while left != 0 {
                    let bit = 63 - left.leading_zeros() as usize;
                    left ^= 1 << bit;
                    // SAFETY: a free object of the chunk, linked once: the chains were emptied
                    // above.
                    unsafe { self.push(chunk.first.add((word * 64 + bit) * stride)) };
                }
            }
        }
    }
}
