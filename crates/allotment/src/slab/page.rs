//! A page's descriptor: which of its slots are free, and which thread may take them.
//!
//! Descriptors lie beside the pages. They are never unmapped while their slab lives, and one
//! descriptor serves one page after another. So a late thread may read the descriptor of a page
//! that no longer exists. Each step therefore reads the descriptor again before it decides.
//!
//! # Invariants
//!
//! 1. `state` has one of four values, and moves only along these arrows:
//!
//!    ```text
//!                 assign              put back                keep
//!      RELEASED ───────────▶ CLAIMED ◀────────▶ OPEN   CLAIMED ────▶ EMPTY
//!          ▲                    │      claim              ▲            │
//!          └────────────────────┘                         └────────────┘
//!                 release                                     claim
//!    ```
//!
//!    Only the thread that moved it to `CLAIMED` moves it from there. So `CLAIMED` belongs to one
//!    thread.
//! 2. A bit is 1 while its slot is free and no thread holds the slot. A thread that holds a slot
//!    may set its bit, once, in any state. A thread that clears a bit holds its slot. A claim only
//!    makes other threads avoid the page: a thread that would otherwise have to wait also takes
//!    slots of a claimed page.
//! 3. A thread moves a page to `RELEASED` or `EMPTY` only if it has the page's claim *and* all of
//!    its slots. In these two states all bits are 0, so no thread can take a slot of the page.
//! 4. An `OPEN` page with a free slot is listed in the hints, or a thread is about to list or claim
//!    it. A thread that puts a page back reads the bits after it has opened the page. A thread that
//!    sets the first bit of a word reads the state after it has set the bit. So one of the two sees
//!    the other's write (store, then load, on both sides).
//!
//! Each decision depends only on the page's present state, under a claim. Its state when the thread
//! began does not matter. So there is no count to keep consistent, and no ABA problem: no value
//! whose unnoticed return could mislead a thread.

use crate::sync::{AtomicU32, AtomicU64, Ordering, mutant, store_before_load};

const RELEASED: u32 = 0;
const CLAIMED: u32 = 1;
const OPEN: u32 = 2;
const EMPTY: u32 = 3;

pub use super::geometry::SLOTS_PER_WORD;

/// The number of bins that say how full a page is, in eighths. A full page is in no bin.
pub const BINS: usize = 8;
/// A page below this bin is *sparse*: its slots should not be used again before the page is empty.
pub const SPARSE_BELOW_BIN: usize = 6;

/// What a thread that has set bits must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOutcome {
    /// Nothing.
    Done,
    /// The word had no free slot before, or all of its slots are free now: examine the page, which
    /// may have to be listed or released.
    Examine,
    /// A bit was already set: its slot was freed twice.
    DoubleFree,
}

/// How full a page is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// No slot is free.
    Full,
    /// Some slots are free. The bin is 0 (nearly empty) to 7 (nearly full).
    Bin(usize),
    /// All slots are free.
    Empty,
}

/// A page's descriptor, with other data on the page (`info`) in the same cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PageDescriptor<X> {
    state: AtomicU32,
    /// The number of slots of the page that it describes.
    slots: AtomicU32,
    /// 1 while an open page has a hint, and while a thread is about to set one, or has cleared one
    /// and is about to claim the page.
    listed: AtomicU32,
    bits: &'static [AtomicU64],
    /// Not part of the protocol.
    pub info: X,
}

/// The right to take slots of a page, and to put the page back, keep it empty or release it.
#[derive(Debug)]
#[must_use = "a claim that is lost keeps its page from all threads"]
pub struct PageClaim<'p, X>(&'p PageDescriptor<X>);

impl<X> PageDescriptor<X> {
    /// Makes a descriptor without a page. `bits` are the words of its bitmap, which are zero.
    pub fn new(bits: &'static [AtomicU64], info: X) -> Self {
        Self {
            state: AtomicU32::new(RELEASED),
            slots: AtomicU32::new(0),
            listed: AtomicU32::new(0),
            bits,
            info,
        }
    }

    /// Assigns the descriptor to a page with this many slots, all of them free. The caller has
    /// exclusive access to the descriptor: it is `RELEASED`, and in no list.
    pub fn assign(&self, slots: usize) -> PageClaim<'_, X> {
        debug_assert!(slots >= 1 && slots <= self.bits.len() * SLOTS_PER_WORD);
        debug_assert_eq!(self.state.load(Ordering::Relaxed), RELEASED);
        self.slots.store(slots as u32, Ordering::Relaxed);
        // Release pairs with the Acquire of `claim` and `has_page`: a thread that sees the new
        // state sees the store to `slots`.
        self.state.store(CLAIMED, Ordering::Release);
        let claim = PageClaim(self);
        claim.free_all();
        claim
    }

    /// The number of slots of the page; 0 if the descriptor never had one.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed) as usize
    }

    /// The number of words of the page's bitmap.
    pub fn words(&self) -> usize {
        self.slots().div_ceil(SLOTS_PER_WORD)
    }

    /// The words of the bitmap.
    pub fn bits(&self) -> &'static [AtomicU64] {
        self.bits
    }

    /// Whether there is a page that is neither claimed nor kept empty.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    /// Whether there is a page.
    pub fn has_page(&self) -> bool {
        self.state.load(Ordering::Acquire) != RELEASED
    }

    /// Whether there is a page, and it is kept empty.
    pub fn is_kept_empty(&self) -> bool {
        self.state.load(Ordering::Relaxed) == EMPTY
    }

    /// Whether a thread has claimed it.
    pub fn is_claimed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CLAIMED
    }

    /// Claims the page if it is open or kept empty. Returns `true` with the claim if it was kept
    /// empty; the caller then has all of its slots.
    pub fn claim(&self) -> Option<(PageClaim<'_, X>, bool)> {
        if mutant("claim: hint trusted") {
            return self.has_page().then_some((PageClaim(self), false));
        }
        // SeqCst: this load comes after the hint was cleared. A thread that puts the page back
        // opens it before it reads the hint, so one of the two sees the other's write (invariant
        // 4).
        let mut state = self.state.load(Ordering::SeqCst);
        while state == OPEN || state == EMPTY {
            // Acquire pairs with the Release of `assign` and `put_back`.
            match self.state.compare_exchange_weak(
                state,
                CLAIMED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some((PageClaim(self), state == EMPTY)),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Takes at most `max` free slots of a word, with or without the page's claim. Returns their
    /// bits.
    #[inline]
    pub fn take(&self, word: usize, max: usize) -> u64 {
        let bits = &self.bits[word];
        let mut wanted = bits.load(Ordering::Relaxed);
        if wanted == 0 {
            return 0;
        }
        if max >= SLOTS_PER_WORD {
            // Takes all slots that are free at this moment. Acquire: as below.
            return bits.swap(0, Ordering::Acquire);
        }
        let mut excess = (wanted.count_ones() as usize).saturating_sub(max);
        while excess > 0 {
            // Leave the highest bits: slots are handed out from the lowest up.
            wanted &= !(1 << (63 - wanted.leading_zeros()));
            excess -= 1;
        }
        if mutant("take: as if alone") {
            bits.store(bits.load(Ordering::Relaxed) & !wanted, Ordering::Release);
            return wanted;
        }
        // Acquire pairs with the Release of `set_free`: the slot's last use happens before its
        // next.
        bits.fetch_and(!wanted, Ordering::Acquire) & wanted
    }

    /// Claims the page if it is open.
    pub fn claim_open(&self) -> Option<PageClaim<'_, X>> {
        // As in `claim`.
        let claimed =
            self.state.compare_exchange(OPEN, CLAIMED, Ordering::SeqCst, Ordering::Relaxed);
        claimed.ok().map(|_| PageClaim(self))
    }

    /// Whether an open page needs no new listing: it has a hint.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::SeqCst) != 0
    }

    /// Records that the page is about to get a hint.
    ///
    /// This store must come before the hint is set. In the other order, another thread could follow
    /// the hint and put the page back without one, and the store would then mark a page without a
    /// hint as listed.
    pub fn set_listed(&self) {
        self.listed.store(1, Ordering::SeqCst);
        store_before_load();
    }

    /// Records that a hint of the page was cleared. SeqCst: the caller reads the state after this
    /// store, and a thread that sets a bit reads `listed` after it has read the state.
    pub fn clear_listed(&self) {
        self.listed.store(0, Ordering::SeqCst);
        if !mutant("find: unordered") {
            store_before_load();
        }
    }

    /// Whether all slots are free; a snapshot. SeqCst for two threads that set the last bits of two
    /// words at the same time: one of them sees both.
    pub fn is_all_free(&self) -> bool {
        let slots = self.slots();
        let free = |(word, bits): (usize, &AtomicU64)| {
            bits.load(Ordering::SeqCst) == full_mask(slots, word)
        };
        slots > 0 && self.bits.iter().enumerate().take(slots.div_ceil(SLOTS_PER_WORD)).all(free)
    }

    /// How full the page is; a snapshot. SeqCst for two threads that set the last bits of two words
    /// at the same time: one of them sees both.
    pub fn fullness(&self) -> Fullness {
        let slots = self.slots();
        let words = self.bits.iter().take(self.words());
        // The common case first: most pages that are put back have no free slot.
        if words.fold(0, |any, bits| any | bits.load(Ordering::SeqCst)) == 0 {
            return Fullness::Full;
        }
        let free = self.free_slots();
        if free == 0 {
            Fullness::Full
        } else if free >= slots {
            Fullness::Empty
        } else {
            Fullness::Bin((slots - free) * BINS / slots)
        }
    }

    /// The number of free slots; a snapshot.
    pub fn free_slots(&self) -> usize {
        let words = self.bits.iter().take(self.words());
        words.map(|bits| bits.load(Ordering::SeqCst).count_ones() as usize).sum()
    }
}

/// Frees slots of one word by setting their bits. The caller holds these slots, and gives them up.
///
/// The page may no longer exist when this function returns. The examination that
/// [`FreeOutcome::Examine`] asks for decides by the state at that time. The word is found without
/// the page's descriptor, which is often not in the CPU's cache.
#[inline(always)]
pub fn set_free(bits: &AtomicU64, mask: u64) -> FreeOutcome {
    // Release pairs with the Acquire of `take` and `take_all`: the slot's last use happens before
    // its next owner takes it, and before its page is released. SeqCst for invariant 4. The
    // operation is an addition, because it returns the previous word in one instruction. It is
    // correct if the bits were 0. If one was 1, the word is wrong for a moment, and the process
    // ends.
    let unordered = mutant("free: unordered") || mutant("wake: unordered");
    let order = if unordered { Ordering::AcqRel } else { Ordering::SeqCst };
    let before = bits.fetch_add(mask, order);
    if !unordered {
        store_before_load();
    }
    if before & mask != 0 {
        // Undo the carry into neighbouring bits before the misuse is reported.
        bits.fetch_sub(mask, Ordering::SeqCst);
        return FreeOutcome::DoubleFree;
    }
    let after = before | mask;
    // A word whose slots are all free is a run of ones from bit 0 up; the last word of a page may
    // have fewer than 64. An unnecessary examination does no harm.
    if before == 0 || after & after.wrapping_add(1) == 0 {
        FreeOutcome::Examine
    } else {
        FreeOutcome::Done
    }
}

/// The bits of the slots of one word, in a page with this many slots. Needs `word <
/// slots.div_ceil(64)`; for other words it returns a mask that no caller uses.
#[inline(always)]
fn full_mask(slots: usize, word: usize) -> u64 {
    let rest = slots.wrapping_sub(word * SLOTS_PER_WORD);
    if rest >= SLOTS_PER_WORD { !0 } else { (1 << rest) - 1 }
}

impl<'p, X> PageClaim<'p, X> {
    /// The page.
    pub fn page(&self) -> &'p PageDescriptor<X> {
        self.0
    }

    /// Turns the claim into a reference, which the caller stores until it
    /// [restores](PageClaim::from_page) the claim.
    pub fn into_page(self) -> &'p PageDescriptor<X> {
        self.0
    }

    /// Restores a claim from [`into_page`](PageClaim::into_page). The caller holds the page's
    /// claim, and no other `PageClaim` value stands for it.
    pub fn from_page(page: &'p PageDescriptor<X>) -> Self {
        debug_assert!(page.is_claimed());
        Self(page)
    }

    fn words(&self) -> usize {
        self.0.words()
    }

    /// Opens the page to all threads. Returns how full it is after that, so that the caller can
    /// list it or see whether it can be released.
    pub fn put_back(self) -> Fullness {
        let early = mutant("put back: looks before it opens").then(|| self.0.fullness());
        // Before the page is opened: a thread that finds it open must not find a stale `listed`.
        self.0.listed.store(0, Ordering::SeqCst);
        // Release pairs with the Acquire of `claim`. SeqCst for invariant 4.
        self.0.state.store(OPEN, Ordering::SeqCst);
        store_before_load();
        early.unwrap_or_else(|| self.0.fullness())
    }

    /// Takes all slots of the page, or none if another thread holds one of them.
    #[must_use]
    pub fn take_all(&self) -> bool {
        if mutant("take all: nothing taken") {
            return true;
        }
        let slots = self.0.slots();
        for word in 0..self.words() {
            let all = full_mask(slots, word);
            // Acquire: as in `PageDescriptor::take`. The exchange succeeds, and the word's slots
            // are ours, only if all of them were free.
            if self.0.bits[word]
                .compare_exchange(all, 0, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                let taken = if mutant("take all: half left") { 0 } else { word };
                for before in 0..taken {
                    self.0.bits[before].store(full_mask(slots, before), Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    /// Frees all slots of the page. The caller holds all of them.
    pub fn free_all(&self) {
        let slots = self.0.slots();
        for word in 0..self.words() {
            // Release pairs with the Acquire of `PageDescriptor::take`.
            self.0.bits[word].store(full_mask(slots, word), Ordering::Release);
        }
    }

    /// Marks the page as kept empty. The caller holds all of its slots, and then lists the page.
    pub fn keep_empty(self) {
        // Release pairs with the Acquire of `claim`.
        self.0.state.store(EMPTY, Ordering::SeqCst);
    }

    /// Marks the page as released. The caller holds all of its slots. Afterwards the caller has
    /// exclusive access to the descriptor and to the page's memory.
    pub fn release(self) {
        self.0.state.store(RELEASED, Ordering::SeqCst);
    }
}
