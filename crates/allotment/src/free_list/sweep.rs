//! The look for empty slabs.
//!
//! A list knows how many objects are live, and not where: the fast paths would have to count for each slab. So it looks,
//! when enough may have gone: it follows the chains of free objects once and notes each in a bitmap of its slab. A slab
//! all of whose objects are free goes; the others' free objects are linked anew, those of the fullest slabs first, in the
//! order of their addresses.
//!
//! A look costs a step for each free object. It comes when live objects have fallen to half of what they were when a
//! chain or a slab was last begun, and as many were freed since as were free then: two steps at most for each object
//! freed. When the last object is freed nothing has to be followed: every slab is empty, and all but one go.
//!
//! The step is what it costs to wait for memory, where a large list was freed in random order. So the free objects lie in
//! several chains, which are followed side by side: when live objects have fallen by a sixteenth since, and a look is yet
//! to come, what is freed next begins another one.
//!
//! A list that takes slabs again after it gave some back leaves looks out: all of them on the next way down, and up to
//! 63 ways down in a row. For one that is filled and emptied over and over they would be in vain. Slabs that hold nothing
//! when the last object is freed are then put aside as *spare*, and serve before any is taken from the source.
//!
//! The invariants are those of `raw.rs`.

use core::cmp::Reverse;
use core::ptr::{self, NonNull};

use super::chains::MOST_CHAINS;
use super::raw::{Link, RawFreeList};
use super::slabs::{KIND, Slab};
use crate::memory::release::Release;
use crate::memory::structures::Structures;
use crate::misuse::{Misuse, stop};

/// So many looks are left out in a row at the most.
const MOST_SKIPPED: u32 = 63;
/// A look that is left out lowers the level to this part of what is live.
const SKIPPED_PART: usize = 8;
/// A chain is at least so long when another one begins.
const LEAST_CHAIN: usize = 256;

/// A slab in a sweep.
struct Swept {
    slab: Slab,
    /// Its objects that are not fresh.
    handed_out: usize,
    /// The first word of its bits.
    bits: usize,
    free: usize,
    goes: bool,
}

impl RawFreeList {
    /// Live objects fell below the level, and the one that did it is on the first chain.
    pub(super) fn look(&self) {
        // Until it is set anew, so that live objects can be asked.
        let live = self.watermark.get() - 1;
        self.watermark.set(live);
        self.count.set(0);
        // All looks on the way down are left out, or none.
        let first = self.risen.replace(false);
        if first {
            self.skips_now.set(self.skips.get() > 0);
            self.skips.set(self.skips.get().saturating_sub(1));
        }
        if self.skips_now.get() {
            if live == 0 {
                return self.all_are_free(usize::MAX);
            }
            // The next comes when most of what is live has gone.
            return self.look_below((live / SKIPPED_PART).max(1));
        }
        if first && self.gave.get() {
            // What went last time was not missed.
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

    /// A slab was taken from the source. Where others went not long ago they would have been better kept, and looks
    /// are left out on the next way down, on twice as many and one each time that it happens again.
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

    /// Says when to look next, after a look that left so many objects linked.
    fn plan_look(&self, linked: usize) {
        let live = self.live();
        let least = usize::from(live > 0);
        let level = (live / 2).min(live.saturating_sub(linked)).max(least);
        self.look_below(if self.slab_count.get() < 2 { 0 } else { level });
    }

    /// Live objects have become more, and so many more are about to be counted: the level goes up with them.
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

    /// The list looks when live objects are fewer than that.
    fn look_below(&self, level: usize) {
        self.look_below.set(level);
        self.place_watermark(self.live());
    }

    /// Puts the watermark where the next chain begins, now that `after` objects are live or will be; where a look would
    /// follow none, where the list looks.
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

    /// What is free now waits behind what is freed next.
    pub(super) fn begin_chain(&self) {
        if let Some(first) = NonNull::new(self.head.get()).filter(|_| !self.chains.is_full()) {
            self.chains.push(first);
            self.head.set(ptr::null_mut());
        }
    }

    /// Nothing is live: one slab stays, with all of its objects fresh, and so many bytes of others are spare.
    fn all_are_free(&self, keep: usize) {
        self.forget_free();
        // The list may come to little now: the smallest is enough to begin with.
        let smallest = self.each_slab().min_by_key(|slab| slab.size).map(|slab| slab.header);
        let mut next = self.slabs.replace(ptr::null_mut());
        while let Some(header) = NonNull::new(next) {
            let slab = self.slab_at(header);
            // SAFETY: a slab of our list, which was taken off it above.
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
        // What is spare for want of a look goes by one, however little the list holds from now on.
        let spare =
            !self.spare.get().is_null() && !matches!(self.settings.release, Release::Keep(_));
        self.look_below(usize::from(spare));
        self.note_live();
    }

    /// Gives empty slabs back, but for so many bytes of them; the bytes given back.
    pub(super) fn sweep(&self, mut keep: usize) -> usize {
        if self.live() == 0 {
            let given = if keep == 0 { self.give_all_back() } else { 0 };
            self.plan_look(0);
            self.note_live();
            return given;
        }
        let Some((mut slabs, mut bits)) = self.prepare() else {
            // No memory to look with: it is tried again when half of what is live has gone.
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
        // The fullest come last, and so are used first; of equals those at lower addresses.
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

    /// The slabs by address, and room for a bit for each object; nothing if malloc refuses.
    fn prepare(&self) -> Option<(Structures<Swept>, Structures<u64>)> {
        let mut each = self.each_slab();
        let mut words = 0;
        let (fresh, fresh_end) = (self.fresh.get().addr(), self.fresh_end.get().addr());
        let mut slabs = Structures::new(self.slab_count.get(), |_| {
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
        Some((slabs, Structures::new(words, |_| 0).ok()?))
    }

    /// Notes each free object; how many there are.
    fn mark(&self, slabs: &mut [Swept], bits: &mut [u64]) -> usize {
        let mut linked = 0;
        // An object of each chain, and the slab in which the chain's last one was.
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
                // SAFETY: a free object holds a link (invariant 2). The others are marked before it is needed.
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

    /// Notes one free object, which may be in that slab; the slab that it is in.
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
        // Where it is not, what its address was read from has been written by somebody else.
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
            // Without this a chain that leads back to itself would be followed for ever.
            stop(Misuse::DoubleFree, KIND, self.name(), address, stride);
        }
        *word |= bit;
        swept.free += 1;
        slab
    }

    /// No chain is left.
    pub(super) fn forget_free(&self) {
        self.head.set(ptr::null_mut());
        self.chains.clear();
    }

    /// Makes the lists anew: that of the slabs that stay, and that of their free objects, the last slab's first.
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
            // SAFETY: a slab of our list; the list is made anew.
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
                    // SAFETY: an object of the slab, free, and linked once: the list was emptied above.
                    unsafe { self.push(slab.first.add((word * 64 + bit) * stride)) };
                }
            }
        }
    }
}
