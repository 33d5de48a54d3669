//! The sweep for empty slabs.
//!
//! A list knows how many objects are live, but not where they are: to know it, the fast paths would
//! have to count for each slab. So the list sweeps when enough objects may have been freed. A sweep
//! follows the chains of free objects once, and marks each object in a bitmap of its slab. A slab
//! whose objects are all free is released. The free objects of the other slabs are linked anew,
//! those of the fullest slabs first, in the order of their addresses.
//!
//! A sweep takes a step for each free object. It starts when both of these hold:
//!
//! - Live objects have fallen to half of what they were when a chain or a slab was last begun.
//! - As many objects were freed after that as were free then.
//!
//! So it takes at most two steps for each object freed. When the last object is freed, no chain has
//! to be followed: every slab is empty, and all but one are released.
//!
//! The cost of a step is to wait for memory if a large list was freed in random order. So the free
//! objects lie in several chains, which are followed side by side. When live objects have fallen by
//! a sixteenth after the last chain was begun, and a sweep is still to come, the objects freed next
//! begin another chain.
//!
//! A list that takes slabs from the source again after it released some skips sweeps: all of those
//! on the next descent of the number of live objects, and up to 63 descents in a row. For a list
//! that is filled and emptied over and over, sweeps would be in vain. Slabs that are empty when the
//! last object is freed are then set aside as *spare*, and are used before any is taken from the
//! source.
//!
//! The invariants are those of `raw.rs`.

use core::cmp::Reverse;
use core::ptr::{self, NonNull};

use super::chains::MOST_CHAINS;
use super::chunks::{Chunk, KIND};
use super::raw::{Link, RawFreeList};
use crate::checked::{Misuse, stop};
use crate::memory::metadata::Metadata;
use crate::memory::release::Release;

/// The most descents in a row whose sweeps are skipped.
const MOST_SKIPPED: u32 = 63;
/// A skipped sweep lowers the level for the next one to this part of the live objects.
const SKIPPED_PART: usize = 8;
/// A chain has at least this many objects when another one begins.
const LEAST_CHAIN: usize = 256;

/// A slab in a sweep.
struct Swept {
    slab: Chunk,
    /// The number of its objects that are not fresh.
    handed_out: usize,
    /// The index of the first word of its bitmap.
    bits: usize,
    free: usize,
    goes: bool,
}

impl RawFreeList {
    /// Sweeps, or skips a sweep. The number of live objects has fallen below `look_below`, and the
    /// object that was just freed is on the first chain.
    pub(super) fn look(&self) {
        // `live()` must be correct until the watermark is set anew.
        let live = self.watermark.get() - 1;
        self.watermark.set(live);
        self.count.set(0);
        // All sweeps of a descent are skipped, or none.
        let first = self.risen.replace(false);
        if first {
            self.skips_now.set(self.skips.get() > 0);
            self.skips.set(self.skips.get().saturating_sub(1));
        }
        if self.skips_now.get() {
            if live == 0 {
                return self.all_are_free(usize::MAX);
            }
            // The next one comes when most of the objects live at this point are freed.
            return self.look_below((live / SKIPPED_PART).max(1));
        }
        if first && self.gave.get() {
            // The slabs released last time were not needed again: reset the back-off.
            self.patience.set(0);
        }
        let keep = self.kept_bytes();
        let before = self.record.held_bytes.get();
        if live == 0 {
            self.all_are_free(keep);
        } else {
            self.sweep(keep);
        }
        self.gave.set(self.gave.get() || self.record.held_bytes.get() < before);
    }

    /// Notes that a slab was taken from the source. If slabs were released shortly before, keeping
    /// them would have been better. Then sweeps are skipped on the next descents. Each time this
    /// happens again, the number of these descents doubles and grows by one.
    pub(super) fn taken_again(&self) {
        let adapts = matches!(self.settings.release, Release::Adaptive | Release::Decay(_));
        if self.gave.replace(false) && adapts {
            let patience = (2 * self.patience.get() + 1).min(MOST_SKIPPED);
            self.patience.set(patience);
            self.skips.set(patience);
        }
    }

    /// The bytes of empty slabs that the policy keeps.
    fn kept_bytes(&self) -> usize {
        match self.settings.release {
            Release::Keep(bytes) => bytes,
            Release::AtOnce | Release::Decay(_) | Release::Adaptive => 0,
        }
    }

    /// Sets the level for the next sweep, after a sweep that left `linked` objects on chains.
    fn plan_look(&self, linked: usize) {
        let live = self.live();
        let least = usize::from(live > 0);
        let level = (live / 2).min(live.saturating_sub(linked)).max(least);
        self.look_below(if self.slab_count.get() < 2 { 0 } else { level });
    }

    /// Raises the level for the next sweep with the number of live objects, which have become more.
    /// `objects` more are about to be counted.
    pub(super) fn raise_look(&self, objects: usize) {
        if self.slab_count.get() < 2 {
            return;
        }
        let live = self.live();
        let linked = self.capacity.get() - live - self.fresh_bytes() / self.geometry.stride;
        let after = live + objects;
        let level = (after / 2).min(after.saturating_sub(linked)).max(1);
        self.look_below.set(level.max(self.look_below.get()));
        self.place_watermark(after);
    }

    /// Sets the level: the list sweeps when fewer objects than this are live.
    fn look_below(&self, level: usize) {
        self.look_below.set(level);
        self.place_watermark(self.live());
    }

    /// Puts the watermark where the next chain begins. If the next sweep follows no chain, or there
    /// is no room for another one, puts it where the list sweeps. `after` objects are live, or will
    /// be.
    pub(super) fn place_watermark(&self, after: usize) {
        let live = self.live();
        let look = self.look_below.get();
        let watermark = if look < 2 || self.chains.is_full() {
            look
        } else {
            after.saturating_sub((after / MOST_CHAINS).max(LEAST_CHAIN)).max(look)
        };
        self.watermark.set(watermark);
        self.count.set(live as isize - watermark as isize);
    }

    /// Sets the first chain aside, so that the objects freed next begin another one.
    pub(super) fn begin_chain(&self) {
        if let Some(first) = NonNull::new(self.head.get()).filter(|_| !self.chains.is_full()) {
            self.chains.push(first);
            self.head.set(ptr::null_mut());
        }
    }

    /// Handles the free of the last object. One slab stays, with all of its objects fresh. At most
    /// `keep` bytes of the others become spare; the rest is released.
    fn all_are_free(&self, keep: usize) {
        self.forget_free();
        // The list may stay small from here on: the smallest slab is enough to begin with.
        let smallest = self.each_slab().min_by_key(|slab| slab.size).map(|slab| slab.header);
        let mut next = self.slabs.replace(ptr::null_mut());
        while let Some(header) = NonNull::new(next) {
            let slab = self.slab_at(header);
            // SAFETY: a slab of our list, which was taken off the list above.
            next = unsafe { header.as_ref() }.next.get();
            self.unlist_slab(slab);
            if smallest == Some(header) {
                self.list_slab(slab);
                self.make_fresh(slab);
            } else {
                self.spare_slab(slab);
            }
        }
        self.give_spare_back(keep);
        // If slabs are spare because sweeps are skipped, plan a sweep that releases them, however
        // little the list holds from here on.
        let spare =
            !self.spare.get().is_null() && !matches!(self.settings.release, Release::Keep(_));
        self.look_below(usize::from(spare));
        self.note_live();
    }

    /// Releases empty slabs, except for at most `keep` bytes of them. Returns the bytes released.
    pub(super) fn sweep(&self, mut keep: usize) -> usize {
        if self.live() == 0 {
            let given = if keep == 0 { self.give_all_back() } else { 0 };
            self.plan_look(0);
            self.note_live();
            return given;
        }
        let Some((mut slabs, mut bits)) = self.prepare() else {
            // No memory for the sweep: try again when half of the live objects are freed.
            self.plan_look(0);
            return self.give_spare_back(keep);
        };
        let spare = self.give_spare_back(keep);
        keep -= self.spare_bytes();
        let mut linked = self.mark(&mut slabs, &mut bits);
        for swept in slabs.iter_mut().filter(|swept| swept.free == swept.handed_out) {
            if swept.slab.size <= keep {
                keep -= swept.slab.size;
            } else {
                swept.goes = true;
                linked -= swept.free;
            }
        }
        // The fullest slabs come last, and so are used first; among equals, those at lower
        // addresses.
        slabs.sort_unstable_by_key(|swept| {
            let eighths = swept.free * 8 / swept.handed_out.max(1);
            Reverse((eighths, swept.slab.first.addr()))
        });
        self.relink(&slabs, &bits, linked);
        let gone = slabs.iter().filter(|swept| swept.goes).map(|swept| swept.slab);
        gone.clone().for_each(|slab| self.unlist_slab(slab));
        // SAFETY: all of their objects were free, and none is linked anew or fresh.
        let given = unsafe { self.give_back(gone) };
        self.plan_look(linked);
        self.note_live();
        given + spare
    }

    /// The slabs in the order of their addresses, and a bitmap with one bit for each object; `None`
    /// if malloc refuses.
    fn prepare(&self) -> Option<(Metadata<Swept>, Metadata<u64>)> {
        let mut each = self.each_slab();
        let mut words = 0;
        let (fresh, fresh_end) = (self.fresh.get().addr(), self.fresh_end.get().addr());
        let mut slabs = Metadata::new(self.slab_count.get(), |_| {
            let slab = each.next().expect("as many as were counted");
            let first = slab.first.addr().get();
            let end = first + slab.objects * self.geometry.stride;
            let has_fresh = fresh < fresh_end && (first..end).contains(&fresh);
            let fresh_objects =
                if has_fresh { self.fresh_bytes() / self.geometry.stride } else { 0 };
            let bits = words;
            words += slab.objects.div_ceil(64);
            Swept { slab, handed_out: slab.objects - fresh_objects, bits, free: 0, goes: false }
        })
        .ok()?;
        slabs.sort_unstable_by_key(|swept| swept.slab.first.addr());
        Some((slabs, Metadata::new(words, |_| 0).ok()?))
    }

    /// Marks each free object. Returns how many there are.
    fn mark(&self, slabs: &mut [Swept], bits: &mut [u64]) -> usize {
        let mut linked = 0;
        // The next object of each chain, and the slab that held the chain's previous object.
        let mut chains = [(NonNull::dangling(), 0); 1 + MOST_CHAINS];
        let mut open = 0;
        for first in self.chains.each().chain(NonNull::new(self.head.get())) {
            chains[open].0 = first;
            open += 1;
        }
        while open > 0 {
            let mut at = 0;
            while at < open {
                let (link, slab) = &mut chains[at];
                *slab = self.mark_one(*link, *slab, slabs, bits);
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

    /// Marks one free object. `slab` is the index of the slab to try first. Returns the index of
    /// the slab that holds the object.
    #[inline]
    fn mark_one(
        &self,
        link: NonNull<Link>,
        mut slab: usize,
        slabs: &mut [Swept],
        bits: &mut [u64],
    ) -> usize {
        let stride = self.geometry.stride;
        let address = link.addr().get();
        // If no slab holds the object, the program has overwritten the free object that its address
        // was read from.
        let written = || stop(Misuse::WriteAfterFree, KIND, self.name(), address, stride);
        let offset = |swept: &Swept| address.wrapping_sub(swept.slab.first.addr().get());
        let holds = |swept: &Swept| offset(swept) < swept.slab.objects * stride;
        if !holds(&slabs[slab]) {
            let behind = slabs.partition_point(|swept| swept.slab.first.addr().get() <= address);
            slab =
                behind.checked_sub(1).filter(|slab| holds(&slabs[*slab])).unwrap_or_else(written);
        }
        let swept = &mut slabs[slab];
        let index = offset(swept) / stride;
        if index * stride != offset(swept) {
            written();
        }
        let (word, bit) = (&mut bits[swept.bits + index / 64], 1 << (index % 64));
        if *word & bit != 0 {
            // Without this check, a chain that leads back to itself would be followed forever.
            stop(Misuse::DoubleFree, KIND, self.name(), address, stride);
        }
        *word |= bit;
        swept.free += 1;
        slab
    }

    /// Forgets all chains.
    pub(super) fn forget_free(&self) {
        self.head.set(ptr::null_mut());
        self.chains.clear();
    }

    /// Rebuilds the list of the slabs that stay, and the chains of their free objects. The objects
    /// of the last slab come first.
    fn relink(&self, slabs: &[Swept], bits: &[u64], linked: usize) {
        let stride = self.geometry.stride;
        let longest = (linked / MOST_CHAINS).max(LEAST_CHAIN);
        let mut length = 0;
        self.forget_free();
        self.slabs.set(ptr::null_mut());
        for swept in slabs {
            let slab = swept.slab;
            if swept.goes {
                if swept.handed_out < slab.objects {
                    self.fresh.set(ptr::null_mut());
                    self.fresh_end.set(ptr::null_mut());
                }
                continue;
            }
            // SAFETY: a slab of our list, which is rebuilt here.
            unsafe { slab.header.as_ref() }.next.set(self.slabs.get());
            self.slabs.set(slab.header.as_ptr());
            if length >= longest {
                self.begin_chain();
                length = 0;
            }
            length += swept.free;
            let words = &bits[swept.bits..][..slab.objects.div_ceil(64)];
            for (word, bits) in words.iter().enumerate().rev() {
                let mut left = *bits;
                while left != 0 {
                    let bit = 63 - left.leading_zeros() as usize;
                    left ^= 1 << bit;
                    // SAFETY: a free object of the slab, linked once: the chains were emptied
                    // above.
                    unsafe { self.push(slab.first.add((word * 64 + bit) * stride)) };
                }
            }
        }
    }
}
