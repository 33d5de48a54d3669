//! A slab for the models: the descriptors, hints and steps that ship, over memory that loom watches.
//!
//! What core.rs does around the steps (asking the source, giving memory back, listing what is kept empty) is
//! written here once more, in its order. Each step can be had wrong in one way, so that a model is known to see
//! the error that it is there for.

use allotment::for_loom::block::{Block, Freed, Lists};
use allotment::for_loom::hints::{EMPTY_LIST, Hints, LISTS, words_for};
use allotment::for_loom::lifo::{Lifo, Links, NIL};
use allotment::for_loom::page::{After, BINS, Claim, Fullness, Page, WORD};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Gate;

/// All lists in the order in which a thread that needs slots looks.
pub const FULLEST_FIRST: [usize; BINS + 1] = [7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST];
/// Cells of memory a word; the slots of a word from this one on share one, and are taken and freed together.
const CELLS: usize = 4;

/// What a step does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing: the step ships.
    Nothing,
    /// A page that is put back is looked at before it is opened.
    OpensAfterTheLook,
    /// A page that is put back is listed before it is opened.
    OpensAfterTheHint,
    /// Who frees looks at the state before he sets the bit.
    FreesAfterTheLook,
    /// Who frees sets the bit and looks at the state in an order that others may see the other way round.
    FreesUnordered,
    /// A hint is cleared after the look at its page.
    ClearsAfterTheLook,
    /// A hint is cleared before the look at its page, in an order that others may see the other way round.
    ClearsUnordered,
    /// A hint is taken for the truth.
    TrustsHints,
    /// All bits are set, so the page is given back: without taking its slots.
    EmptiesWithoutTaking,
    /// Who can't take all slots of a page doesn't give back those that he took.
    LeavesHalfTaken,
    /// Addresses serve again before their memory has gone.
    FreesAddressesFirst,
    /// A descriptor serves again before it is released.
    FreesDescriptorFirst,
    /// What the empty list names is given back whether it was kept or is used.
    TrimsWhatIsUsed,
    /// Slots are taken by a load and a store, as if a claim kept all others off.
    TakesAsIfAlone,
}

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

/// The claim of a page.
pub type Held<'y> = Claim<'y, Place>;

/// Slots of one word that a thread has.
#[derive(Debug)]
#[must_use = "slots that are lost keep their page"]
pub struct Slots {
    pub page: usize,
    word: usize,
    mask: u64,
    mark: u32,
}

/// What an address holds.
const GONE: u32 = 0;
const FREE: u32 = 1;

/// The memory of one page.
#[derive(Debug)]
struct Memory(Vec<UnsafeCell<u32>>);

impl Memory {
    fn change(&self, cell: usize, from: u32, to: u32) {
        // SAFETY: the caller has the slots or the page; loom fails the model if another thread touches it.
        let before = self.0[cell].with_mut(|value| unsafe { core::mem::replace(&mut *value, to) });
        assert_eq!(before, from, "memory holds what its owner left there");
    }

    fn change_slots(&self, slots: &Slots, from: u32, to: u32) {
        let width = self.0.len().min(CELLS);
        let mut rest = slots.mask;
        for cell in 0..width {
            let bits = if cell + 1 == CELLS { !0 << cell } else { 1 << cell };
            if rest & bits != 0 {
                rest &= !bits;
                self.change(slots.word * CELLS + cell, from, to);
            }
        }
        assert_eq!(rest, 0, "the slots are the page's");
    }

    fn change_all(&self, from: u32, to: u32) {
        (0..self.0.len()).for_each(|cell| self.change(cell, from, to));
    }
}

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
    /// Whether empty pages are kept.
    keeps: bool,
    slots: usize,
    gate: Gate,
    pages: Vec<Page<Place>>,
    bits: Vec<&'static [AtomicU64]>,
    hints: Vec<AtomicU64>,
    set_hints: AtomicU32,
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
        let cells = |word: usize| (slots - word * WORD).min(CELLS);
        let cells = (0..words).map(cells).sum();
        // Loom's atomics live as long as one execution and are small: they may stay.
        let bits: Vec<&'static [AtomicU64]> = (0..descriptors)
            .map(|_| &*Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
            .collect();
        let place = || Place { span: AtomicU32::new(0), next: AtomicU32::new(NIL) };
        let yard = Self {
            wrong: Wrong::Nothing,
            keeps: false,
            slots,
            gate: Gate::new(),
            pages: bits.iter().map(|bits| Page::new(bits, place())).collect(),
            bits,
            hints: (0..words_for(descriptors)).map(|_| AtomicU64::new(0)).collect(),
            set_hints: AtomicU32::new(0),
            vacant: Lifo::new(),
            memory: (0..spans)
                .map(|_| Memory((0..cells).map(|_| UnsafeCell::new(GONE)).collect()))
                .collect(),
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
        Hints { words: &self.hints, set_hints: &self.set_hints }
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
        self.gate.pass();
        let (claim, kept) = FULLEST_FIRST.into_iter().find_map(|list| self.find_in(list))?;
        if kept {
            claim.free_all();
        }
        Some(claim)
    }

    /// Claims a page of one list; `true` with it if it was kept empty.
    fn find_in(&self, list: usize) -> Option<(Held<'_>, bool)> {
        let (page, claim, kept) = match self.wrong {
            Wrong::ClearsAfterTheLook | Wrong::ClearsUnordered => self.find_wrongly(list)?,
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

    /// What `find` in block.rs does, with its first two steps swapped, or without their order.
    fn find_wrongly(&self, list: usize) -> Option<(usize, Held<'_>, bool)> {
        let word = &self.hints[list * (self.hints.len() / LISTS)];
        let page = self.named_by(list).first().copied()?;
        let before =
            if self.wrong == Wrong::ClearsAfterTheLook { self.pages[page].claim() } else { None };
        if word.fetch_and(!(1 << page), Ordering::AcqRel) & (1 << page) != 0 {
            self.set_hints.fetch_sub(1, Ordering::Relaxed);
        }
        let found =
            if self.wrong == Wrong::ClearsAfterTheLook { before } else { self.pages[page].claim() };
        found.map(|(claim, kept)| (page, claim, kept))
    }

    /// Lists a page late, as a thread does that saw it open before it was claimed.
    pub fn list_late(&self, page: usize) {
        if let Fullness::Bin(bin) = self.pages[page].fullness() {
            self.pages[page].set_listed();
            self.hints().set(bin, page);
        }
    }

    /// Opens a claimed page to all, as `put_back` in core.rs does.
    pub fn put_back(&self, claim: Held<'_>) {
        self.gate.pass();
        let page = self.number(&claim);
        self.note_claim(page, false);
        let freed = self.opened(page, claim);
        self.settle(freed);
    }

    fn opened<'y>(&'y self, page: usize, claim: Held<'y>) -> Freed<'y, Place> {
        match self.wrong {
            Wrong::OpensAfterTheLook => {
                let fullness = claim.page().fullness();
                let _ = claim.put_back();
                self.list(page, fullness)
            }
            Wrong::OpensAfterTheHint => {
                let before = claim.page().fullness();
                if let Fullness::Bin(bin) = before {
                    self.pages[page].set_listed();
                    self.hints().set(bin, page);
                }
                match (before, claim.put_back()) {
                    (Fullness::Bin(_), Fullness::Bin(_)) => Freed::Listed,
                    (_, fullness) => self.list(page, fullness),
                }
            }
            Wrong::EmptiesWithoutTaking | Wrong::LeavesHalfTaken => {
                let fullness = claim.put_back();
                self.list(page, fullness)
            }
            _ => self.block().put_back(page, claim),
        }
    }

    /// What `list` in block.rs does, for the steps that are wrong.
    fn list(&self, page: usize, fullness: Fullness) -> Freed<'_, Place> {
        match fullness {
            Fullness::Full => Freed::Quiet,
            Fullness::Bin(bin) => {
                self.pages[page].set_listed();
                self.hints().set(bin, page);
                Freed::Listed
            }
            Fullness::Empty => match self.pages[page].claim_open() {
                None => Freed::Quiet,
                Some(claim) if self.empties(&claim) => Freed::Emptied(claim),
                Some(claim) => self.opened(page, claim),
            },
        }
    }

    fn empties(&self, claim: &Held<'_>) -> bool {
        let page = claim.page();
        match self.wrong {
            Wrong::EmptiesWithoutTaking => true,
            Wrong::LeavesHalfTaken => {
                let taken = |word| page.take(word, WORD).count_ones() as usize;
                (0..page.words()).map(taken).sum::<usize>() == page.slots()
            }
            _ => claim.take_all(),
        }
    }

    fn settle(&self, freed: Freed<'_, Place>) {
        let Freed::Emptied(claim) = freed else { return };
        let page = self.number(&claim);
        self.note_claim(page, true);
        if !self.keeps {
            return self.release(claim);
        }
        self.note_claim(page, false);
        claim.keep_empty();
        self.hints().set(EMPTY_LIST, page);
    }

    /// Gives a page back that is kept empty, as `release_kept` in core.rs does.
    pub fn trim(&self) {
        self.gate.pass();
        let Some((claim, kept)) = self.find_in(EMPTY_LIST) else { return };
        if kept || self.wrong == Wrong::TrimsWhatIsUsed {
            self.release(claim);
        } else {
            self.put_back(claim);
        }
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
        let there = |page: &usize| self.pages[*page].has_page();
        let words = |page: usize| (0..self.pages[page].words()).map(move |word| (page, word));
        (0..self.pages.len()).filter(there).flat_map(words)
    }

    /// Writes the mark into slots that were just taken.
    fn taken(&self, slots: Slots) -> Slots {
        self.memory_of(slots.page).change_slots(&slots, FREE, slots.mark);
        slots
    }

    /// Frees slots, on any thread.
    pub fn free(&self, slots: Slots) {
        self.free_sampled(slots, false);
    }

    /// Frees slots; a sampled free looks how full the page is, as some frees of each page do (`free` in core.rs).
    pub fn free_sampled(&self, slots: Slots, sampled: bool) {
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
            After::Nothing if sampled.is_none() => {}
            After::Nothing | After::Look => {
                let freed = match self.wrong {
                    Wrong::FreesAfterTheLook if !open => Freed::Quiet,
                    Wrong::EmptiesWithoutTaking if descriptor.is_open() => {
                        self.list(page, descriptor.fullness())
                    }
                    _ => self.block().look(page, sampled),
                };
                self.settle(freed);
            }
        }
    }

    // ---- when all is quiet ----

    /// The pages that a list names.
    fn named_by(&self, list: usize) -> Vec<usize> {
        let words = self.hints.len() / LISTS;
        let hints = self.hints[list * words].load(Ordering::SeqCst);
        (0..self.pages.len()).filter(|page| hints & (1 << page) != 0).collect()
    }

    /// Pages given back so far.
    pub fn released(&self) -> u32 {
        self.released.load(Ordering::Relaxed)
    }

    /// Checks, with no thread inside: every page with a free slot can be found, none is empty without having been
    /// noticed, and the hints are counted.
    pub fn is_quiet(&self) {
        let named: Vec<Vec<usize>> = (0..LISTS).map(|list| self.named_by(list)).collect();
        for (number, page) in self.pages.iter().enumerate() {
            let listed = named.iter().any(|pages| pages.contains(&number));
            assert!(!page.is_claimed(), "a claim was lost");
            if page.is_open() {
                let free = page.free_slots();
                assert!(free == 0 || listed, "an open page with free slots is in no list");
                assert!(free < page.slots(), "nobody noticed that a page is empty");
            }
            assert!(!page.is_kept_empty() || listed, "a page that is kept empty is in no list");
        }
        let hints: usize = named.iter().map(Vec::len).sum();
        assert!(self.set_hints.load(Ordering::Relaxed) as usize == hints, "the hints are counted");
    }

    /// Checks, with no thread inside and these slots the last ones in use, that nothing is lost: freed, trimmed,
    /// every page goes.
    pub fn nothing_is_lost(&self, slots: impl IntoIterator<Item = Slots>) {
        self.is_quiet();
        for slots in slots {
            self.free(slots);
            self.is_quiet();
        }
        for _ in 0..self.named_by(EMPTY_LIST).len() {
            self.trim();
        }
        assert!(self.pages.iter().all(|page| !page.has_page()), "a page was lost");
        let spans = self.spans.load(Ordering::Relaxed);
        assert_eq!(spans, (1 << self.memory.len()) - 1, "a page was lost");
    }
}
