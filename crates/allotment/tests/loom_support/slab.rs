//! A slab for the models: the descriptors, hints and steps that ship, over memory that loom watches.
//!
//! What core.rs does around the steps (asking the source, giving memory back, listing what is kept empty) is
//! written here once more, in its order. Each step can be had wrong in one way, so that a model is known to see
//! the error that it is there for.

use allotment::for_loom::block::{Block, Freed, Lists};
use allotment::for_loom::hints::{EMPTY_LIST, Hints, words_for};
use allotment::for_loom::lifo::{Lifo, Links, NIL};
use allotment::for_loom::page::{After, BINS, Claim, Fullness, Page, WORD};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::Gate;

mod memory;
mod quiet;
mod wrong;

pub use memory::Slots;
pub use wrong::Wrong;

use memory::{FREE, GONE, Memory};

/// All lists in the order in which a thread that needs slots looks.
pub const FULLEST_FIRST: [usize; BINS + 1] = [7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST];
/// What a descriptor knows of its page.
#[derive(Debug)]
pub struct Place {
    span: AtomicU32,
    next: AtomicU32,
}

impl Lists for Place {
    fn first_list(&self) -> usize {
        0
    }
}

/// Whom core.rs tells after a step, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Nobody,
    Waiters,
}

/// The claim of a page.
pub type Held<'y> = Claim<'y, Place>;

/// What a page's bin is when a slot of it is about to be freed, as `sample` in core.rs finds out.
fn sample(page: &Page<Place>) -> Option<usize> {
    if page.is_claimed() {
        return None;
    }
    Some(match page.fullness() {
        Fullness::Full => BINS - 1,
        Fullness::Bin(bin) => bin,
        Fullness::Empty => 0,
    })
}

/// A slab: a few descriptors, and as many or fewer spans of memory, each for a page of so many slots.
pub struct Yard {
    wrong: Wrong,
    /// Whether empty pages are kept, until the slab is closed.
    keeps: bool,
    closed: AtomicU32,
    slots: usize,
    gate: Gate,
    pages: Vec<Page<Place>>,
    bits: Vec<&'static [AtomicU64]>,
    hints: Vec<AtomicU64>,
    vacant: Lifo,
    memory: Vec<Memory>,
    /// A bit for each span that is nobody's.
    spans: AtomicU32,
    /// Touched by who has a page's claim.
    claims: Vec<UnsafeCell<bool>>,
    released: AtomicU32,
}

impl Links for Yard {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.pages[index as usize].beside.next
    }
}

impl Yard {
    /// So many descriptors and spans, for pages of so many slots. Empty pages go at once.
    pub fn new(descriptors: usize, spans: usize, slots: usize) -> Self {
        let words = slots.div_ceil(WORD);
        // Loom's atomics live as long as one execution and are small: they may stay.
        let bits: Vec<&'static [AtomicU64]> = (0..descriptors)
            .map(|_| &*Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
            .collect();
        let place = || Place { span: AtomicU32::new(0), next: AtomicU32::new(NIL) };
        let yard = Self {
            wrong: Wrong::Nothing,
            keeps: false,
            closed: AtomicU32::new(0),
            slots,
            gate: Gate::new(),
            pages: bits.iter().map(|bits| Page::new(bits, place())).collect(),
            bits,
            hints: (0..words_for(descriptors)).map(|_| AtomicU64::new(0)).collect(),
            vacant: Lifo::new(),
            memory: (0..spans).map(|_| Memory::new(slots)).collect(),
            spans: AtomicU32::new((1 << spans) - 1),
            claims: (0..descriptors).map(|_| UnsafeCell::new(false)).collect(),
            released: AtomicU32::new(0),
        };
        for page in (0..descriptors as u32).rev() {
            yard.vacant.push(&yard, page);
        }
        yard
    }

    /// The same, wrong in one way.
    pub fn wrong(mut self, wrong: Wrong) -> Self {
        self.wrong = wrong;
        self
    }

    /// The same, but empty pages are kept.
    pub fn keeping(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// The words of each page's bitmap.
    pub fn words(&self) -> usize {
        self.slots.div_ceil(WORD)
    }

    fn hints(&self) -> Hints<'_> {
        Hints { words: &self.hints }
    }

    fn block(&self) -> Block<'_, Place> {
        Block { pages: &self.pages, hints: self.hints() }
    }

    fn number(&self, claim: &Held<'_>) -> usize {
        let same = |page: &Page<Place>| core::ptr::eq(page, claim.page());
        self.pages.iter().position(same).expect("a page of this yard")
    }

    fn memory_of(&self, page: usize) -> &Memory {
        &self.memory[self.pages[page].beside.span.load(Ordering::Relaxed) as usize]
    }

    /// Notes that the caller has a page's claim, or has it no more.
    fn note_claim(&self, page: usize, held: bool) {
        // SAFETY: who has the claim has the cell; loom fails the model if another thread touches it.
        let before =
            self.claims[page].with_mut(|claim| unsafe { core::mem::replace(&mut *claim, held) });
        assert_ne!(before, held, "a page has one claim");
    }

    // ---- pages ----

    /// A new page, as `fresh` in core.rs takes it; none if no addresses or no descriptor are to be had.
    pub fn fresh(&self) -> Option<Held<'_>> {
        self.gate.pass();
        let mut spans = self.spans.load(Ordering::Relaxed);
        let span = loop {
            if spans == 0 {
                return None;
            }
            let first = spans & spans.wrapping_neg();
            match self.spans.compare_exchange(
                spans,
                spans ^ first,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break first.trailing_zeros(),
                Err(now) => spans = now,
            }
        };
        let Some(index) = self.vacant.pop(self) else {
            self.spans.fetch_or(1 << span, Ordering::AcqRel);
            return None;
        };
        self.memory[span as usize].change_all(GONE, FREE);
        let page = &self.pages[index as usize];
        page.beside.span.store(span, Ordering::Relaxed);
        let claim = page.take_up(self.slots);
        self.note_claim(index as usize, true);
        Some(claim)
    }

    /// Gives a page back, all of whose slots are the caller's, as `release` in core.rs does.
    fn release(&self, claim: Held<'_>) {
        let page = self.number(&claim);
        self.note_claim(page, false);
        let span = self.pages[page].beside.span.load(Ordering::Relaxed);
        let memory = &self.memory[span as usize];
        if self.wrong == Wrong::FreesDescriptorFirst {
            memory.change_all(FREE, GONE);
            self.spans.fetch_or(1 << span, Ordering::AcqRel);
            self.vacant.push(self, page as u32);
            return claim.release();
        }
        claim.release();
        if self.wrong == Wrong::FreesAddressesFirst {
            self.spans.fetch_or(1 << span, Ordering::AcqRel);
            memory.change_all(FREE, GONE);
        } else {
            memory.change_all(FREE, GONE);
            self.spans.fetch_or(1 << span, Ordering::AcqRel);
        }
        self.vacant.push(self, page as u32);
        self.released.fetch_add(1, Ordering::Relaxed);
    }

    pub fn has_page(&self, page: usize) -> bool {
        self.pages[page].has_page()
    }

    /// Leaves a claim to be [resumed](Self::resume) by its page's number.
    pub fn keep(&self, claim: Held<'_>) -> usize {
        let page = self.number(&claim);
        claim.keep();
        page
    }

    pub fn resume(&self, page: usize) -> Held<'_> {
        Claim::resume(&self.pages[page])
    }

    /// Claims a page with free slots, as `claim` in core.rs does.
    pub fn find(&self) -> Option<Held<'_>> {
        self.find_or_kept().map(|(claim, _)| claim)
    }

    /// The same; `true` if the page was kept empty, so that its slots could not be taken before.
    pub fn find_or_kept(&self) -> Option<(Held<'_>, bool)> {
        self.gate.pass();
        let (claim, kept) = self.find_in(&FULLEST_FIRST)?;
        if kept {
            claim.free_all();
        }
        Some((claim, kept))
    }

    /// Claims a page that the thread had before, past its hint, as `claim_again` in core.rs does.
    pub fn find_again(&self, page: usize) -> Option<Held<'_>> {
        self.gate.pass();
        let descriptor = &self.pages[page];
        if !descriptor.is_kept_empty() && !descriptor.is_listed() {
            return None;
        }
        let (claim, kept) = descriptor.claim()?;
        self.note_claim(page, true);
        if kept {
            claim.free_all();
        }
        Some(claim)
    }

    /// Claims a page of one of the lists, as `claim` in yard.rs does; `true` with it if it was kept empty.
    fn find_in(&self, lists: &[usize]) -> Option<(Held<'_>, bool)> {
        lists.iter().find_map(|list| self.find_in_list(*list))
    }

    fn find_in_list(&self, list: usize) -> Option<(Held<'_>, bool)> {
        let (page, claim, kept) = match self.wrong {
            Wrong::ClearsAfterTheLook | Wrong::ClearsUnordered | Wrong::ClearsWithoutTheNote => {
                self.find_wrongly(list)?
            }
            Wrong::TrustsHints => {
                let page = self.hints().clear_one(list, 0)?;
                let page = self.pages[page].has_page().then_some(page)?;
                (page, self.resume(page), false)
            }
            _ => self.block().find(list, 0)?,
        };
        self.note_claim(page, true);
        Some((claim, kept))
    }

    /// Lists a page late, as a thread does that saw it open before it was claimed.
    pub fn list_late(&self, page: usize) {
        if let Fullness::Bin(bin) = self.pages[page].fullness() {
            self.pages[page].set_listed();
            self.hints().set(bin, page);
        }
    }

    /// Opens a claimed page to all, as `put_back` in core.rs does.
    pub fn put_back(&self, claim: Held<'_>) -> Told {
        self.gate.pass();
        let page = self.number(&claim);
        self.note_claim(page, false);
        let freed = self.opened(page, claim);
        self.settle(freed)
    }

    fn settle(&self, freed: Freed<'_, Place>) -> Told {
        let claim = match freed {
            Freed::Quiet => return Told::Nobody,
            Freed::Listed => return Told::Waiters,
            Freed::Emptied(claim) => claim,
        };
        let page = self.number(&claim);
        self.note_claim(page, true);
        if !self.keeps || self.closed.load(Ordering::Relaxed) != 0 {
            self.release(claim);
            return Told::Waiters;
        }
        self.note_claim(page, false);
        claim.keep_empty();
        self.hints().set(EMPTY_LIST, page);
        // Whoever closes the slab looks for kept pages after he has said so.
        fence(Ordering::SeqCst);
        if self.wrong != Wrong::KeepsBlindly && self.closed.load(Ordering::SeqCst) != 0 {
            while self.trim() {}
        }
        Told::Waiters
    }

    /// Gives a page back that is kept empty, as `release_kept` in core.rs does, if the hints name one.
    pub fn trim(&self) -> bool {
        self.gate.pass();
        let Some((claim, kept)) = self.find_in(&[EMPTY_LIST]) else { return false };
        if kept || self.wrong == Wrong::TrimsWhatIsUsed {
            self.release(claim);
        } else {
            self.put_back(claim);
        }
        true
    }

    /// Keeps no more empty pages, as `close` in core.rs does.
    pub fn close(&self) {
        self.gate.pass();
        self.closed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.trim() {}
    }

    // ---- slots ----

    /// Takes slots of one word, and writes a mark there.
    pub fn take(&self, page: usize, word: usize, most: usize, mark: u32) -> Option<Slots> {
        self.gate.pass();
        let mask = if self.wrong == Wrong::TakesAsIfAlone {
            let bits = &self.bits[page][word];
            let free = bits.load(Ordering::Acquire);
            let wanted = if most == 1 { free & free.wrapping_neg() } else { free };
            bits.store(free & !wanted, Ordering::Release);
            wanted
        } else {
            self.pages[page].take(word, most)
        };
        (mask != 0).then(|| self.taken(Slots { page, word, mask, mark }))
    }

    /// Takes slots of any page that there is, as `steal` in core.rs does.
    pub fn steal(&self, most: usize, mark: u32) -> Option<Slots> {
        self.words_there().find_map(|(page, word)| self.take(page, word, most, mark))
    }

    /// The same for one slot, in models where the page's bits are stored meanwhile, all of them by the thread that
    /// has its slots. Loom lets such a store be lost beside an exchange that changes nothing, as `Page::take` makes
    /// when the slot that it wants is gone; so this one takes by an exchange that fails instead.
    pub fn steal_one(&self, mark: u32) -> Option<Slots> {
        self.words_there().find_map(|(page, word)| self.steal_one_of(page, word, mark))
    }

    /// The same, of a word.
    pub fn steal_one_of(&self, page: usize, word: usize, mark: u32) -> Option<Slots> {
        self.gate.pass();
        let bits = &self.bits[page][word];
        let mut free = bits.load(Ordering::Relaxed);
        while free != 0 {
            let mask = free & free.wrapping_neg();
            match bits.compare_exchange(free, free ^ mask, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(self.taken(Slots { page, word, mask, mark })),
                Err(now) => free = now,
            }
        }
        None
    }

    fn words_there(&self) -> impl Iterator<Item = (usize, usize)> {
        let there = |page: &usize| self.has_page(*page);
        let words = |page: usize| (0..self.pages[page].words()).map(move |word| (page, word));
        (0..self.pages.len()).filter(there).flat_map(words)
    }

    /// Writes the mark into slots that were just taken.
    fn taken(&self, slots: Slots) -> Slots {
        self.memory_of(slots.page).change_slots(&slots, FREE, slots.mark);
        slots
    }

    /// Frees slots, on any thread.
    pub fn free(&self, slots: Slots) -> Told {
        self.free_sampled(slots, false)
    }

    /// Frees slots; a sampled free looks how full the page is, as some frees of each page do (`free` in core.rs).
    pub fn free_sampled(&self, slots: Slots, sampled: bool) -> Told {
        self.gate.pass();
        let Slots { page, word, mask, mark } = slots;
        self.memory_of(page).change_slots(&slots, mark, FREE);
        let descriptor = &self.pages[page];
        let open = descriptor.is_open();
        let sampled = if sampled { sample(descriptor) } else { None };
        let after = if self.wrong == Wrong::FreesUnordered {
            self.bits[page][word].fetch_or(mask, Ordering::AcqRel);
            After::Look
        } else {
            descriptor.publish(word, mask)
        };
        match after {
            After::DoubleFree => panic!("a slot was freed twice"),
            After::Nothing if sampled.is_none() => Told::Nobody,
            After::Nothing | After::Look => {
                let freed = match self.wrong {
                    Wrong::FreesAfterTheLook if !open => Freed::Quiet,
                    Wrong::EmptiesWithoutTaking if descriptor.is_open() => {
                        self.list(page, descriptor.fullness())
                    }
                    _ => self.block().look(page, sampled),
                };
                self.settle(freed)
            }
        }
    }
}
