//! The look for empty slabs.
//!
//! A list knows how many objects are live, and not where: the fast paths would have to count for each slab. So it looks,
//! when enough may have gone: it follows the list of free objects once and notes each in a bitmap of its slab. A slab all
//! of whose objects are free goes; the others' free objects are linked anew, those of the fullest slabs first, in the
//! order of their addresses.
//!
//! A look costs a step for each free object. It comes when live objects have fallen to half of what they were when the
//! list last had no hole, so at most as many steps are taken as objects were freed since; the next one comes when as many
//! more were freed as were free after this one. When the last object is freed nothing has to be followed: every slab is
//! empty, and all but one go. A list that takes slabs again after it gave some back leaves looks out, up to 63 in a
//! row: for one that is filled and emptied over and over they would be in vain. Slabs that hold nothing at such a moment
//! are put aside as *spare*, and serve before any is taken from the source.
//!
//! The invariants are those of `raw.rs`.

use core::cmp::Reverse;
use core::ptr::{self, NonNull};

use super::raw::RawFreeList;
use super::slabs::{KIND, Slab};
use crate::memory::release::Release;
use crate::memory::structures::Structures;
use crate::misuse::{Misuse, stop};

/// So many looks are left out in a row at the most.
const MOST_SKIPPED: u32 = 63;
/// A look that is left out lowers the level to this part of what is live.
const SKIPPED_PART: usize = 8;

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
    /// Live objects fell below the watermark, and the one that did it is on the list.
    pub(super) fn look(&self) {
        // Until it is set anew, so that live objects can be asked.
        let live = self.watermark.get() - 1;
        self.watermark.set(live);
        self.count.set(0);
        if self.skips.get() > 0 {
            self.skips.set(self.skips.get() - 1);
            return if live == 0 { self.all_are_free(usize::MAX) } else { self.lower_watermark() };
        }
        if self.gave.get() {
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

    /// A slab was taken from the source. Where others went not long ago they would have been better kept, and the next
    /// looks are left out: one, and twice as many and one each time that it happens again.
    pub(super) fn taken_again(&self) {
        let adapts = matches!(self.settings.release, Release::Adaptive | Release::Decay(_));
        if self.gave.replace(false) && adapts {
            let patience = (2 * self.patience.get() + 1).min(MOST_SKIPPED);
            self.patience.set(patience);
            self.skips.set(patience);
        }
    }

    /// Without a look, the next comes when most of what is live has gone.
    fn lower_watermark(&self) {
        let live = self.live();
        let watermark = (live / SKIPPED_PART).max(1);
        self.watermark.set(watermark);
        self.count.set((live - watermark) as isize);
    }

    /// The bytes of empty slabs that the policy keeps.
    fn kept_bytes(&self) -> usize {
        match self.settings.release {
            Release::Keep(bytes) => bytes,
            Release::AtOnce | Release::Decay(_) | Release::Adaptive => 0,
        }
    }

    /// Sets the level of live objects below which the list looks next. So many objects are on it.
    pub(super) fn set_watermark(&self, linked: usize) {
        let live = self.live();
        let watermark = if self.slab_count.get() < 2 {
            0
        } else {
            (live / 2).min(live.saturating_sub(linked)).max(usize::from(live > 0))
        };
        self.watermark.set(watermark);
        self.count.set((live - watermark) as isize);
    }

    /// A slab was taken for so many objects, which the caller counts: the level goes up with what is live.
    pub(super) fn raise_watermark(&self, objects: usize) {
        if self.slab_count.get() < 2 {
            return;
        }
        let live = self.live();
        let linked = self.capacity.get() - live - self.fresh_bytes() / self.geometry.stride;
        let after = live + objects;
        let level = (after / 2).min(after.saturating_sub(linked)).max(1);
        if level > self.watermark.get() {
            self.watermark.set(level);
            self.count.set(live as isize - level as isize);
        }
    }

    /// Nothing is live: one slab stays, with all of its objects fresh, and so many bytes of others are spare.
    fn all_are_free(&self, keep: usize) {
        self.head.set(ptr::null_mut());
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
        self.watermark.set(0);
        self.count.set(0);
        self.note_live();
    }

    /// Gives empty slabs back, but for so many bytes of them; the bytes given back.
    pub(super) fn sweep(&self, mut keep: usize) -> usize {
        if self.live() == 0 {
            let given = if keep == 0 { self.give_all_back() } else { 0 };
            self.set_watermark(0);
            self.note_live();
            return given;
        }
        let Some((mut slabs, mut bits)) = self.prepare() else {
            // No memory to look with: it is tried again when half of what is live has gone.
            self.set_watermark(0);
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
        // The fullest come last, and so are first on the list; of equals those at lower addresses.
        slabs.sort_unstable_by_key(|swept| {
            let eighths = swept.free * 8 / swept.handed_out.max(1);
            Reverse((eighths, swept.slab.first.addr()))
        });
        self.relink(&slabs, &bits);
        let gone = slabs.iter().filter(|swept| swept.goes).map(|swept| swept.slab);
        gone.clone().for_each(|slab| self.unlist_slab(slab));
        // SAFETY: all of their objects were free, and none is linked anew or fresh.
        let given = unsafe { self.give_back(gone) };
        self.set_watermark(linked);
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
        let stride = self.geometry.stride;
        let mut linked = 0;
        let mut current = 0;
        let mut next = self.head.get();
        while let Some(link) = NonNull::new(next) {
            let address = link.addr().get();
            let holds = |swept: &Swept| {
                address.wrapping_sub(swept.slab.first.addr().get()) < swept.slab.objects * stride
            };
            if !holds(&slabs[current]) {
                let behind =
                    slabs.partition_point(|swept| swept.slab.first.addr().get() <= address);
                current = match behind.checked_sub(1) {
                    Some(index) if holds(&slabs[index]) => index,
                    // What the next one's address was read from has been written by somebody else.
                    _ => stop(Misuse::WriteAfterFree, KIND, self.name(), address, stride),
                };
            }
            let swept = &mut slabs[current];
            let index = (address - swept.slab.first.addr().get()) / stride;
            let (word, bit) = (&mut bits[swept.bits + index / 64], 1 << (index % 64));
            if *word & bit != 0 {
                // Without this a list that leads back to itself would be followed for ever.
                stop(Misuse::DoubleFree, KIND, self.name(), address, stride);
            }
            *word |= bit;
            swept.free += 1;
            linked += 1;
            // SAFETY: a free object holds a link (invariant 2).
            next = unsafe { link.as_ref() }.0.get();
        }
        linked
    }

    /// Makes the lists anew: that of the slabs that stay, and that of their free objects, the last slab's first.
    fn relink(&self, slabs: &[Swept], bits: &[u64]) {
        let stride = self.geometry.stride;
        self.head.set(ptr::null_mut());
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
