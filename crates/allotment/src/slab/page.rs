//! A page's descriptor: which of its slots are free, and who may take them.
//!
//! Descriptors lie beside the pages, are never unmapped while their slab lives, and serve one page after another.
//! So a thread that is late may read the descriptor of a page that is gone; what it does then is decided anew.
//!
//! # Invariants
//!
//! 1. `state` is one of four, and moves only along these arrows:
//!
//!    ```text
//!                 take up             put back                keep
//!      RELEASED ───────────▶ CLAIMED ◀────────▶ OPEN   CLAIMED ────▶ EMPTY
//!          ▲                    │      claim              ▲            │
//!          └────────────────────┘                         └────────────┘
//!                 release                                     claim
//!    ```
//!
//!    Only the one thread that moved it to `CLAIMED` moves it from there. `CLAIMED` is thus a thread's own.
//! 2. A bit is 1 while its slot is free and in nobody's hands. Whoever has a slot may set its bit, once, whatever
//!    the state; whoever clears a bit has its slot. The claim keeps threads off each other's pages, no more: one
//!    that would otherwise have to wait takes slots of a claimed page too.
//! 3. A page becomes `RELEASED` or `EMPTY` by a thread that has its claim *and* all of its slots. While it is one
//!    of the two its bits are 0: nobody can take a slot of it.
//! 4. An `OPEN` page with a free slot is listed in the hints, or a thread is on its way to list or claim it:
//!    who puts a page back looks at the bits after it has opened it, and who sets the first bit of a word looks
//!    at the state after it has set it, so one of the two sees the other (store, then load, on both sides).
//!
//! Because every decision is taken on what the page is now, under a claim, it doesn't matter what it was when a
//! thread began: there is no count to keep in step, and nothing that could come round again unnoticed (ABA).

use crate::sync::{AtomicU32, AtomicU64, Ordering, store_before_load};

const RELEASED: u32 = 0;
const CLAIMED: u32 = 1;
const OPEN: u32 = 2;
const EMPTY: u32 = 3;

pub use super::geometry::WORD;

/// How full a page is, in eighths; a full page is in none of them.
pub const BINS: usize = 8;
/// A page below this bin is *sparse*: its slots should not be used again before it is empty.
pub const SPARSE_BELOW: usize = 6;

/// What a thread that has set bits should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Nothing,
    /// The word was full before or is empty now: the page may have to be listed or released.
    Look,
    /// A bit was set already: its slot was freed twice.
    DoubleFree,
}

/// How full a page is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// No slot is free.
    Full,
    /// Some are; the bin, 0 (nearly empty) to 7 (nearly full).
    Bin(usize),
    /// All are.
    Empty,
}

/// A descriptor, with whatever else is known of its page in the same cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Page<X> {
    state: AtomicU32,
    /// The slots of the page that it describes.
    slots: AtomicU32,
    /// 1 while an open page has a hint, or a thread is about to set one, or has cleared it and is about to claim.
    listed: AtomicU32,
    bits: &'static [AtomicU64],
    /// No part of the protocol.
    pub beside: X,
}

/// The right to take slots of a page, to put it back, keep it or release it.
#[derive(Debug)]
#[must_use = "a claim that is lost keeps its page from everyone"]
pub struct Claim<'p, X>(&'p Page<X>);

impl<X> Page<X> {
    /// A descriptor without a page, over the words of its bitmap, which are zero.
    pub fn new(bits: &'static [AtomicU64], beside: X) -> Self {
        Self {
            state: AtomicU32::new(RELEASED),
            slots: AtomicU32::new(0),
            listed: AtomicU32::new(0),
            bits,
            beside,
        }
    }

    /// Takes a descriptor up for a page with this many free slots. The caller has the descriptor to itself: it
    /// is in state `RELEASED` and in no list.
    pub fn take_up(&self, slots: usize) -> Claim<'_, X> {
        debug_assert!(slots >= 1 && slots <= self.bits.len() * WORD);
        debug_assert_eq!(self.state.load(Ordering::Relaxed), RELEASED);
        self.slots.store(slots as u32, Ordering::Relaxed);
        // Release pairs with the Acquire of `claim` and `has_page`: who sees the new state sees the above.
        self.state.store(CLAIMED, Ordering::Release);
        let claim = Claim(self);
        claim.free_all();
        claim
    }

    /// The slots of the page, 0 if there never was one.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed) as usize
    }

    /// The words of the page's bitmap.
    pub fn words(&self) -> usize {
        self.slots().div_ceil(WORD)
    }

    /// As the function [`publish`], for the models.
    #[cfg(loom)]
    pub fn publish(&self, word: usize, mask: u64) -> After {
        publish(&self.bits[word], mask)
    }

    /// The words of its bitmap.
    pub fn bits(&self) -> &'static [AtomicU64] {
        self.bits
    }

    /// Whether it is nobody's claim, has a page, and that is not kept empty.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    /// Whether there is a page.
    pub fn has_page(&self) -> bool {
        self.state.load(Ordering::Acquire) != RELEASED
    }

    /// Whether it is kept without an object.
    pub fn is_kept_empty(&self) -> bool {
        self.state.load(Ordering::Relaxed) == EMPTY
    }

    /// Whether a thread has claimed it.
    pub fn is_claimed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CLAIMED
    }

    /// Claims the page if it is open, or kept empty; `true` with the claim if it was kept empty, and then all of
    /// its slots are the caller's.
    pub fn claim(&self) -> Option<(Claim<'_, X>, bool)> {
        // SeqCst: after the hint was cleared, which who set it looks at before (invariant 4).
        let mut state = self.state.load(Ordering::SeqCst);
        while state == OPEN || state == EMPTY {
            // Acquire pairs with the Release of `take_up` and `put_back`.
            match self.state.compare_exchange_weak(
                state,
                CLAIMED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some((Claim(self), state == EMPTY)),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Takes at most `most` free slots of a word, with or without the page's claim.
    #[inline]
    pub fn take(&self, word: usize, most: usize) -> u64 {
        let bits = &self.bits[word];
        let mut wanted = bits.load(Ordering::Relaxed);
        if wanted == 0 {
            return 0;
        }
        if most >= WORD {
            // All that are there by now. Acquire: as below.
            return bits.swap(0, Ordering::Acquire);
        }
        let mut over = (wanted.count_ones() as usize).saturating_sub(most);
        while over > 0 {
            // The highest stay: slots are handed out from the lowest on.
            wanted &= !(1 << (63 - wanted.leading_zeros()));
            over -= 1;
        }
        // Acquire pairs with the Release of `publish`: the slot's last use comes before its next.
        bits.fetch_and(!wanted, Ordering::Acquire) & wanted
    }

    /// Claims the page if it is open.
    pub fn claim_open(&self) -> Option<Claim<'_, X>> {
        // As in `claim`.
        let claimed =
            self.state.compare_exchange(OPEN, CLAIMED, Ordering::SeqCst, Ordering::Relaxed);
        claimed.ok().map(|_| Claim(self))
    }

    /// Whether a look at an open page may leave it as it is: it has a hint.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::SeqCst) != 0
    }

    /// Notes that the page is about to have a hint. Before it has: noted after, it could be noted when the hint was
    /// followed and the page put back without one.
    pub fn set_listed(&self) {
        self.listed.store(1, Ordering::SeqCst);
        store_before_load();
    }

    /// Notes that a hint of the page was cleared. SeqCst: the caller looks at the state after that, and who sets a bit
    /// at this after he has seen the state.
    pub fn clear_listed(&self) {
        self.listed.store(0, Ordering::SeqCst);
        store_before_load();
    }

    /// Whether no slot is taken; a snapshot. SeqCst for two threads that set the last bits of two words: one of
    /// them sees both.
    pub fn is_all_free(&self) -> bool {
        let slots = self.slots();
        let free =
            |(word, bits): (usize, &AtomicU64)| bits.load(Ordering::SeqCst) == mask_of(slots, word);
        slots > 0 && self.bits.iter().enumerate().take(slots.div_ceil(WORD)).all(free)
    }

    /// How full it is; a snapshot. SeqCst for two threads that set the last bits of two words: one of them sees
    /// both.
    pub fn fullness(&self) -> Fullness {
        let slots = self.slots();
        let words = self.bits.iter().take(self.words());
        // The usual answer where it is asked most: a page that is put back has been used up.
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

/// Frees slots of one word: sets their bits. The caller has these slots, and has them no more.
///
/// Afterwards the page may be gone. What [`After::Look`] asks for is decided on what is there then. The word is found
/// without the page's descriptor, which is often not in the cache.
#[inline(always)]
pub fn publish(bits: &AtomicU64, mask: u64) -> After {
    // Release pairs with the Acquire of `take` and `take_all`: the next owner of the slot, or whoever gives the page
    // back, comes after the last use of the slot. SeqCst for invariant 4. An addition, for bits that are 0: it gives
    // the word before in one instruction. Where one was 1 the word is spoilt for a moment, and the process ends.
    let before = bits.fetch_add(mask, Ordering::SeqCst);
    store_before_load();
    if before & mask != 0 {
        // What was carried to the neighbours is taken back before anything is said.
        bits.fetch_sub(mask, Ordering::SeqCst);
        return After::DoubleFree;
    }
    let after = before | mask;
    // A word whose slots are all free has ones up to some place, and no zero below; the last word of a page may
    // have fewer than 64. A look too many does no harm.
    if before == 0 || after & after.wrapping_add(1) == 0 { After::Look } else { After::Nothing }
}

/// The bits of the slots of one word, of a page with so many slots. Needs `word < slots.div_ceil(64)`, or gives
/// a mask that no caller uses.
#[inline(always)]
fn mask_of(slots: usize, word: usize) -> u64 {
    let rest = slots.wrapping_sub(word * WORD);
    if rest >= WORD { !0 } else { (1 << rest) - 1 }
}

impl<'p, X> Claim<'p, X> {
    /// The page.
    pub fn page(&self) -> &'p Page<X> {
        self.0
    }

    /// Leaves the claim to the caller's own bookkeeping, to be [resumed](Claim::resume) later.
    pub fn keep(self) -> &'p Page<X> {
        self.0
    }

    /// A claim that was kept. The caller holds the page's claim, and no other `Claim` value stands for it.
    pub fn resume(page: &'p Page<X>) -> Self {
        debug_assert!(page.is_claimed());
        Self(page)
    }

    fn words(&self) -> usize {
        self.0.words()
    }

    /// Opens the page to all. Gives how full it is then, for the caller to list it or to see whether it can go.
    pub fn put_back(self) -> Fullness {
        // Before it is opened: who finds it open finds out about its hint, too.
        self.0.listed.store(0, Ordering::SeqCst);
        // Release pairs with the Acquire of `claim`. SeqCst for invariant 4.
        self.0.state.store(OPEN, Ordering::SeqCst);
        store_before_load();
        self.0.fullness()
    }

    /// Takes all slots of the page, or none if somebody has one.
    #[must_use]
    pub fn take_all(&self) -> bool {
        let slots = self.0.slots();
        for word in 0..self.words() {
            let all = mask_of(slots, word);
            // As in `Page::take`. The word's slots are ours if they were all there.
            if self.0.bits[word]
                .compare_exchange(all, 0, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                for before in 0..word {
                    self.0.bits[before].store(mask_of(slots, before), Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    /// Frees all slots of the page, which are the caller's.
    pub fn free_all(&self) {
        let slots = self.0.slots();
        for word in 0..self.words() {
            // Release pairs with the Acquire of `Page::take`.
            self.0.bits[word].store(mask_of(slots, word), Ordering::Release);
        }
    }

    /// Keeps the page as an empty one. All of its slots are the caller's; the caller lists it.
    pub fn keep_empty(self) {
        // Release pairs with the Acquire of `claim`.
        self.0.state.store(EMPTY, Ordering::SeqCst);
    }

    /// Ends the page, all of whose slots are the caller's: the descriptor is his, and so is the page's memory.
    pub fn release(self) {
        self.0.state.store(RELEASED, Ordering::SeqCst);
    }
}
