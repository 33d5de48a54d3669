//! A slab's pages for the models: the descriptors, hints and steps that ship, over memory that loom watches.
//!
//! What page_release.rs and page_supply.rs do around the steps (asking the source, giving memory back, listing pages
//! that are kept empty) is written here once more, in their order. Each step has one wrong version, so that a model
//! is known to find the error that it is there for.

use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use allotment::for_loom::page::{
    BINS, FreeOutcome, Fullness, PageClaim, PageDescriptor, SLOTS_PER_WORD,
};
use allotment::for_loom::page_group::{FirstList, PageChange, PageGroup, PageOrigin};
use allotment::for_loom::page_hints::{EMPTY_LIST, PageHints, words_for};
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

/// What a descriptor stores beside the protocol.
#[derive(Debug)]
pub struct ModelPageInfo {
    span: AtomicU32,
    next: AtomicU32,
}

impl FirstList for ModelPageInfo {
    fn first_list(&self) -> usize {
        0
    }
}

/// Whether a step listed, kept or released a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Unlisted,
    Changed,
}

/// The claim of a page.
pub type ModelClaim<'m> = PageClaim<'m, ModelPageInfo>;

/// The bin of a page when a slot of it is about to be freed, as `sample` in page_release.rs does.
fn sample(page: &PageDescriptor<ModelPageInfo>) -> Option<usize> {
    if page.is_claimed() {
        return None;
    }
    Some(match page.fullness() {
        Fullness::Full => BINS - 1,
        Fullness::Bin(bin) => bin,
        Fullness::Empty => 0,
    })
}

/// A slab's pages: a few descriptors, and as many or fewer spans of memory. All pages have the same number of slots.
pub struct PagesModel {
    wrong: Wrong,
    /// Whether empty pages are kept, until the slab is closed.
    keeps: bool,
    closed: AtomicU32,
    slots: usize,
    gate: Gate,
    pages: Vec<PageDescriptor<ModelPageInfo>>,
    bits: Vec<&'static [AtomicU64]>,
    hints: Vec<AtomicU64>,
    vacant: IndexStack,
    memory: Vec<Memory>,
    /// A bit for each unused span.
    spans: AtomicU32,
    /// Written by the thread that has a page's claim.
    claims: Vec<UnsafeCell<bool>>,
    released: AtomicU32,
}

impl Links for PagesModel {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.pages[index as usize].info.next
    }
}

impl PagesModel {
    /// Makes descriptors and spans for pages of this many slots. Empty pages are released at once.
    pub fn new(descriptors: usize, spans: usize, slots: usize) -> Self {
        let words = slots.div_ceil(SLOTS_PER_WORD);
        // Loom's atomics live as long as one execution and are small: they may stay.
        let bits: Vec<&'static [AtomicU64]> = (0..descriptors)
            .map(|_| &*Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
            .collect();
        let place = || ModelPageInfo { span: AtomicU32::new(0), next: AtomicU32::new(NIL) };
        let pages = Self {
            wrong: Wrong::Nothing,
            keeps: false,
            closed: AtomicU32::new(0),
            slots,
            gate: Gate::new(),
            pages: bits.iter().map(|bits| PageDescriptor::new(bits, place())).collect(),
            bits,
            hints: (0..words_for(descriptors)).map(|_| AtomicU64::new(0)).collect(),
            vacant: IndexStack::new(),
            memory: (0..spans).map(|_| Memory::new(slots)).collect(),
            spans: AtomicU32::new((1 << spans) - 1),
            claims: (0..descriptors).map(|_| UnsafeCell::new(false)).collect(),
            released: AtomicU32::new(0),
        };
        for page in (0..descriptors as u32).rev() {
            pages.vacant.push(&pages, page);
        }
        pages
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
        self.slots.div_ceil(SLOTS_PER_WORD)
    }

    fn hints(&self) -> PageHints<'_> {
        PageHints { words: &self.hints }
    }

    fn group(&self) -> PageGroup<'_, ModelPageInfo> {
        PageGroup { pages: &self.pages, hints: self.hints() }
    }

    fn number(&self, claim: &ModelClaim<'_>) -> usize {
        let same = |page: &PageDescriptor<ModelPageInfo>| core::ptr::eq(page, claim.page());
        self.pages.iter().position(same).expect("a page of this pages")
    }

    fn memory_of(&self, page: usize) -> &Memory {
        &self.memory[self.pages[page].info.span.load(Ordering::Relaxed) as usize]
    }

    /// Records that the caller has a page's claim, or has given it up.
    fn note_claim(&self, page: usize, held: bool) {
        // SAFETY: the thread with the claim owns the cell; loom fails the model if another thread touches it.
        let before =
            self.claims[page].with_mut(|claim| unsafe { core::mem::replace(&mut *claim, held) });
        assert_ne!(before, held, "a page has one claim");
    }

    // ---- pages ----

    /// Takes a new page, as `new_page` in page_supply.rs does; `None` if there are no addresses or no descriptor.
    pub fn new_page(&self) -> Option<ModelClaim<'_>> {
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
        page.info.span.store(span, Ordering::Relaxed);
        let claim = page.assign(self.slots);
        self.note_claim(index as usize, true);
        Some(claim)
    }

    /// Releases a page, as `release` in page_release.rs does. The caller has all of its slots.
    fn release(&self, claim: ModelClaim<'_>) {
        let page = self.number(&claim);
        self.note_claim(page, false);
        let span = self.pages[page].info.span.load(Ordering::Relaxed);
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

    /// Leaves a claim to be [resumed](Self::resume_claim) by its page's number.
    pub fn leave_claim(&self, claim: ModelClaim<'_>) -> usize {
        let page = self.number(&claim);
        let _ = claim.into_page();
        page
    }

    pub fn resume_claim(&self, page: usize) -> ModelClaim<'_> {
        PageClaim::from_page(&self.pages[page])
    }

    /// Claims a page with free slots, as `claim` in page_supply.rs does.
    pub fn claim(&self) -> Option<ModelClaim<'_>> {
        self.claim_or_kept().map(|(claim, _)| claim)
    }

    /// The same; `true` if the caller had all of its slots, so that no thread could take one before.
    pub fn claim_or_kept(&self) -> Option<(ModelClaim<'_>, bool)> {
        self.gate.pass();
        let (claim, kept) = self.claim_in(&FULLEST_FIRST)?;
        if kept {
            claim.free_all();
        }
        Some((claim, kept))
    }

    /// Claims a page that the thread had before, past its hint, as `claim_again` in page_supply.rs does.
    pub fn claim_again(&self, page: usize) -> Option<ModelClaim<'_>> {
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

    /// Claims a page of one of the lists, as `claim_listed` in page_table.rs does; `true` with it if the caller
    /// has all of its slots.
    fn claim_in(&self, lists: &[usize]) -> Option<(ModelClaim<'_>, bool)> {
        lists.iter().find_map(|list| self.claim_in_list(*list))
    }

    fn claim_in_list(&self, list: usize) -> Option<(ModelClaim<'_>, bool)> {
        let (page, claim, kept) = match self.wrong {
            Wrong::ClearsAfterTheLook | Wrong::ClearsUnordered | Wrong::ClearsWithoutTheNote => {
                self.claim_wrongly(list)?
            }
            Wrong::TrustsHints => {
                let page = self.hints().clear_one(list, 0)?;
                let page = self.pages[page].has_page().then_some(page)?;
                (page, self.resume_claim(page), false)
            }
            _ => {
                let (page, claim, origin) = self.group().find(list, 0, || ())?;
                (page, claim, origin != PageOrigin::Open)
            }
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

    /// Opens a claimed page to all threads, as `put_back` in page_release.rs does.
    pub fn put_back(&self, claim: ModelClaim<'_>) -> Listing {
        self.gate.pass();
        let page = self.number(&claim);
        self.note_claim(page, false);
        let freed = self.opened(page, claim);
        self.settle(freed)
    }

    fn settle(&self, freed: PageChange<'_, ModelPageInfo>) -> Listing {
        let claim = match freed {
            PageChange::Unlisted => return Listing::Unlisted,
            PageChange::Listed => return Listing::Changed,
            PageChange::Emptied(claim) => claim,
        };
        let page = self.number(&claim);
        self.note_claim(page, true);
        if !self.keeps || self.closed.load(Ordering::Relaxed) != 0 {
            self.release(claim);
            return Listing::Changed;
        }
        self.note_claim(page, false);
        claim.keep_empty();
        self.hints().set(EMPTY_LIST, page);
        // A thread that closes the slab looks for kept pages after it has set the flag.
        fence(Ordering::SeqCst);
        if self.wrong != Wrong::KeepsBlindly && self.closed.load(Ordering::SeqCst) != 0 {
            while self.trim() {}
        }
        Listing::Changed
    }

    /// Releases a page that is kept empty, if the hints name one, as `release_kept` in page_release.rs does.
    pub fn trim(&self) -> bool {
        self.gate.pass();
        let Some((claim, kept)) = self.claim_in(&[EMPTY_LIST]) else { return false };
        if kept || self.wrong == Wrong::TrimsWhatIsUsed {
            self.release(claim);
        } else {
            self.put_back(claim);
        }
        true
    }

    /// Stops keeping empty pages, as `close` in page_release.rs does.
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

    /// Takes slots of any page, as `steal` in page_supply.rs does.
    pub fn steal(&self, most: usize, mark: u32) -> Option<Slots> {
        self.words_there().find_map(|(page, word)| self.take(page, word, most, mark))
    }

    /// The same for one slot, in models where the page's bits are stored meanwhile, all of them by the thread that
    /// has its slots. Loom lets such a store be lost beside an exchange that changes nothing, as `PageDescriptor::take` makes
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
    pub fn free(&self, slots: Slots) -> Listing {
        self.free_sampled(slots, false)
    }

    /// Frees slots; a sampled free reads how full the page is, as some frees of each page do (`free` in page_release.rs).
    pub fn free_sampled(&self, slots: Slots, sampled: bool) -> Listing {
        self.gate.pass();
        let Slots { page, word, mask, mark } = slots;
        self.memory_of(page).change_slots(&slots, mark, FREE);
        let descriptor = &self.pages[page];
        let open = descriptor.is_open();
        let sampled = if sampled { sample(descriptor) } else { None };
        let after = if self.wrong == Wrong::FreesUnordered {
            self.bits[page][word].fetch_or(mask, Ordering::AcqRel);
            FreeOutcome::Examine
        } else {
            descriptor.set_free(word, mask)
        };
        match after {
            FreeOutcome::DoubleFree => panic!("a slot was freed twice"),
            FreeOutcome::Done if sampled.is_none() => Listing::Unlisted,
            FreeOutcome::Done | FreeOutcome::Examine => {
                let freed = match self.wrong {
                    Wrong::FreesAfterTheLook if !open => PageChange::Unlisted,
                    Wrong::EmptiesWithoutTaking if descriptor.is_open() => {
                        self.list(page, descriptor.fullness())
                    }
                    _ => self.group().examine(page, sampled),
                };
                self.settle(freed)
            }
        }
    }
}
