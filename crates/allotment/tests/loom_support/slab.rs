//! A slab's pages for the models: the descriptors, hints, waiters and steps that ship, over memory
//! that loom watches.
//!
//! [`PagesModel`] implements the same trait as the slab, so the order of all steps is the code of
//! `src/slab/page_steps.rs`.

use allotment::for_loom::index_stack::{IndexStack, Links, NIL};
use allotment::for_loom::mutant;
use allotment::for_loom::page::{Fullness, PageClaim, PageDescriptor, SLOTS_PER_WORD};
use allotment::for_loom::page_group::{
    CacheUse, OwnPages, PageChange, PageGroup, PageOrigin, PageUse,
};
use allotment::for_loom::page_hints::{PageHints, words_for};
use allotment::for_loom::page_steps::{PageBackend, PageSteps, SlotGrant};
use allotment::for_loom::waiters::{PageMark, Waiters};
use allotment::{AllocError, ErrorKind};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Gate;

mod memory;
mod quiet;
mod waiting;

pub use memory::Slots;
pub use waiting::NoSlot;

use memory::{FREE, GONE, Memory};

/// What a descriptor stores beside the protocol. All pages serve one lifetime.
#[derive(Debug)]
pub struct ModelPageInfo {
    span: AtomicU32,
    next: AtomicU32,
    /// Not loom's: it is only a guess, so an old value would add orders to explore and no behaviour.
    last_cache: std::sync::atomic::AtomicU32,
}

impl PageUse for ModelPageInfo {
    fn lifetime(&self) -> usize {
        0
    }

    fn set_lifetime(&self, lifetime: usize) {
        assert_eq!(lifetime, 0);
    }

    /// All uses are at the same time.
    fn last_use(&self) -> CacheUse {
        CacheUse { cache: self.last_cache.load(Ordering::Relaxed), at: 0 }
    }

    fn set_last_use(&self, used: CacheUse) {
        self.last_cache.store(used.cache, Ordering::Relaxed);
    }
}

/// The descriptor of a page.
pub type ModelPage = PageDescriptor<ModelPageInfo>;
/// The claim of a page.
pub type ModelClaim<'m> = PageClaim<'m, ModelPageInfo>;

/// The mark of one page. Without a word, the mark is always as it should be: where no thread waits,
/// marks would only add orders to explore.
struct ModelMark<'m>(Option<&'m AtomicU32>);

impl PageMark for ModelMark<'_> {
    fn is(&self, marked: bool) -> bool {
        self.0.is_none_or(|mark| mark.load(Ordering::Relaxed) == u32::from(marked))
    }

    fn store(&self, marked: bool) {
        self.0.expect("as it should be").store(u32::from(marked), Ordering::SeqCst);
    }

    fn set(&self) {
        if let Some(mark) = self.0 {
            mark.fetch_or(1, Ordering::SeqCst);
        }
    }
}

/// A slab's pages: a few descriptors, and as many or fewer spans of memory. All pages have the same
/// number of slots.
pub struct PagesModel {
    /// Whether empty pages are kept, until the slab is closed.
    keeps: bool,
    /// Whether a thief takes slots by an exchange that fails if they are gone.
    steals_by_exchange: bool,
    /// Whether one thread at a time takes a new page, and the others wait.
    takes_turns: bool,
    slots: usize,
    gate: Gate,
    wake_gate: Gate,
    waiters: Waiters,
    marks: Vec<AtomicU32>,
    pages: Vec<ModelPage>,
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
        let page = |_| {
            let bits = Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect());
            let info = ModelPageInfo {
                span: AtomicU32::new(0),
                next: AtomicU32::new(NIL),
                last_cache: std::sync::atomic::AtomicU32::new(0),
            };
            PageDescriptor::new(bits, info)
        };
        let pages = Self {
            keeps: false,
            steals_by_exchange: false,
            takes_turns: false,
            slots,
            gate: Gate::new(),
            wake_gate: Gate::new(),
            waiters: Waiters::none(),
            marks: (0..descriptors).map(|_| AtomicU32::new(0)).collect(),
            pages: (0..descriptors).map(page).collect(),
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

    /// The same, but empty pages are kept.
    pub fn keeping(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// The same, for models where the page's bits are stored while slots are stolen, all of them by
    /// the thread that has its slots. Loom lets such a store be lost beside an exchange that
    /// changes nothing, as `PageDescriptor::take` makes when the slot that it wants is gone. So
    /// here a thief takes by an exchange that fails instead.
    pub fn stealing_by_exchange(mut self) -> Self {
        self.steals_by_exchange = true;
        self
    }

    fn hints(&self) -> PageHints<'_> {
        PageHints { words: &self.hints }
    }

    fn group(&self) -> PageGroup<'_, ModelPageInfo> {
        PageGroup { pages: &self.pages, hints: self.hints() }
    }

    /// The number of a page.
    pub fn number(&self, page: &ModelPage) -> usize {
        let same = |other: &ModelPage| core::ptr::eq(page, other);
        self.pages.iter().position(same).expect("a page of this model")
    }

    /// A page by its number.
    pub fn page(&self, page: usize) -> &ModelPage {
        &self.pages[page]
    }

    fn memory_of(&self, page: usize) -> &Memory {
        &self.memory[self.pages[page].info.span.load(Ordering::Relaxed) as usize]
    }

    /// Records that the caller has a page's claim, or is about to give it up.
    fn note_claim(&self, page: &ModelPage, held: bool) {
        // SAFETY: the thread with the claim owns the cell; loom fails the model if another thread
        // touches it.
        let before = self.claims[self.number(page)]
            .with_mut(|claim| unsafe { core::mem::replace(&mut *claim, held) });
        assert_ne!(before, held, "a page has one claim");
    }

    /// Records the claim that a step has led to.
    fn noted<'m>(&'m self, change: PageChange<'m, ModelPageInfo>) -> PageChange<'m, ModelPageInfo> {
        if let PageChange::Emptied(claim) = &change {
            self.note_claim(claim.page(), true);
        }
        change
    }

    // ---- pages ----

    /// Takes a new page; `None` if there are no addresses or no descriptor.
    pub fn add_page(&self) -> Option<ModelClaim<'_>> {
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
        let page = self.page(index as usize);
        page.info.span.store(span, Ordering::Relaxed);
        self.marks[index as usize].store(0, Ordering::Relaxed);
        let claim = self.enter_page(page, self.slots);
        self.note_claim(page, true);
        Some(claim)
    }

    pub fn has_page(&self, page: usize) -> bool {
        self.page(page).has_page()
    }

    /// Whether a page is marked.
    pub fn is_marked(&self, page: usize) -> bool {
        self.mark_of(self.page(page)).is(true)
    }

    /// Leaves a claim to be [resumed](Self::resume_claim) by its page's number.
    pub fn leave_claim(&self, claim: ModelClaim<'_>) -> usize {
        self.number(claim.into_page())
    }

    pub fn resume_claim(&self, page: usize) -> ModelClaim<'_> {
        PageClaim::from_page(self.page(page))
    }

    /// Claims a page with free slots.
    pub fn claim_any(&self) -> Option<ModelClaim<'_>> {
        self.claim(0, 0, None)
    }

    /// Sets a page's hint in a list, which may not be the list for how full the page is.
    pub fn list_in(&self, list: usize, page: usize) {
        self.page(page).set_listed();
        self.hints().set(list, page);
    }

    /// Lists a page late, as a thread does that saw it open before it was claimed.
    pub fn list_late(&self, page: usize) {
        if let Fullness::Bin(bin) = self.page(page).fullness() {
            self.list_in(bin, page);
        }
    }

    /// Releases a page that is kept empty, if the hints name one.
    pub fn trim_one(&self) -> bool {
        self.gate.pass();
        self.release_kept().is_some()
    }

    /// Closes the slab.
    pub fn close(&self) {
        self.gate.pass();
        self.close_pages();
    }

    // ---- slots ----

    /// Takes slots of one word, and writes a mark there.
    pub fn take_slots(&self, page: usize, word: usize, max: usize, mark: u32) -> Option<Slots> {
        let mask = self.take(self.page(page), word, max);
        (mask != 0).then(|| self.taken(Slots { page, word, mask, mark }))
    }

    /// Takes a slot of any page, whichever thread has its claim.
    pub fn steal_any(&self, mark: u32) -> Option<Slots> {
        let Some(SlotGrant::Slots(page, word, mask)) = self.steal() else { return None };
        Some(self.taken(Slots { page: self.number(page), word, mask, mark }))
    }

    /// Takes a slot of a word, whichever thread has its page's claim.
    pub fn steal_of(&self, page: usize, word: usize, mark: u32) -> Option<Slots> {
        let mask = self.take_stolen(self.page(page), word);
        (mask != 0).then(|| self.taken(Slots { page, word, mask, mark }))
    }

    /// Writes the mark into slots that were just taken.
    pub fn taken(&self, slots: Slots) -> Slots {
        self.memory_of(slots.page).change_slots(&slots, FREE, slots.mark);
        slots
    }

    /// Frees slots, on any thread.
    pub fn free(&self, slots: Slots) {
        self.free_sampled(slots, false);
    }

    /// Frees slots; a sampled free reads how full the page is, as some frees of each page do.
    pub fn free_sampled(&self, slots: Slots, sampled: bool) {
        self.free_by(slots, |page, bits, mask| self.free_slots(page, bits, mask, sampled, true));
    }

    fn free_by(&self, slots: Slots, free: impl FnOnce(&ModelPage, &AtomicU64, u64) -> bool) {
        self.gate.pass();
        let Slots { page, word, mask, mark } = slots;
        self.memory_of(page).change_slots(&slots, mark, FREE);
        let page = self.page(page);
        assert!(free(page, &page.bits()[word], mask), "a slot was freed twice");
    }
}

impl PageBackend for PagesModel {
    type Info = ModelPageInfo;
    type Memory = u32;
    type Error = NoSlot;

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn group_of(&self, page: &ModelPage) -> (PageGroup<'_, ModelPageInfo>, usize) {
        (self.group(), self.number(page))
    }

    fn descriptors(&self) -> impl Iterator<Item = &ModelPage> {
        self.pages.iter()
    }

    fn claim_listed(
        &self,
        lists: &[usize],
        _: u32,
        own: Option<&OwnPages>,
        listed: impl Fn(),
    ) -> Option<(ModelClaim<'_>, PageOrigin)> {
        self.gate.pass();
        let find = |&list: &usize| self.group().find(list, 0, own, &listed);
        let (_, claim, origin) = lists.iter().find_map(find)?;
        self.note_claim(claim.page(), true);
        Some((claim, origin))
    }

    fn mark_of(&self, page: &ModelPage) -> impl PageMark {
        ModelMark(self.takes_turns.then(|| &self.marks[self.number(page)]))
    }

    fn bytes(&self, _: &ModelPage) -> usize {
        1
    }

    fn check_not_orphaned(&self) -> Result<(), AllocError> {
        Ok(())
    }

    // ---- empty pages ----

    fn try_keep(&self, _: usize, _: bool) -> bool {
        self.keeps
    }

    fn reuse_kept(&self, _: usize) {}

    fn remove_kept(&self, _: usize) {}

    fn excess(&self, _: usize, _: bool) -> usize {
        0
    }

    fn clear_limits(&self) {}

    // ---- memory ----

    fn new_page<'b>(
        &'b self,
        _: usize,
        instead: impl FnOnce() -> Option<ModelClaim<'b>>,
    ) -> Result<ModelClaim<'b>, AllocError> {
        self.add_page().or_else(instead).ok_or(AllocError::new(ErrorKind::SourceRefused, 1))
    }

    fn remove_page(&self, page: &ModelPage) -> u32 {
        self.note_claim(page, false);
        page.info.span.load(Ordering::Relaxed)
    }

    fn give_back(&self, span: u32) {
        let unused = || self.spans.fetch_or(1 << span, Ordering::AcqRel);
        if mutant("give back: addresses first") {
            unused();
            return self.memory[span as usize].change_all(FREE, GONE);
        }
        self.memory[span as usize].change_all(FREE, GONE);
        unused();
    }

    fn return_vacant(&self, page: &ModelPage) {
        self.vacant.push(self, self.number(page) as u32);
    }

    fn count_released(&self, _: usize) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }

    // ---- waiting ----

    fn one_by_one(&self) -> bool {
        self.takes_turns
    }

    fn flush_other(&self, _: usize) {}

    fn process(&self) -> u32 {
        waiting::PROCESS
    }

    fn sleep(&self, event: &AtomicU32, value: u32) -> Result<(), NoSlot> {
        self.end_asleep(event, value)
    }

    fn wake_all(_: &AtomicU32) {}

    fn recall(&self) {}

    // ---- single steps ----

    fn take(&self, page: &ModelPage, word: usize, max: usize) -> u64 {
        self.gate.pass();
        page.take(word, max)
    }

    /// One slot at a time.
    fn take_stolen(&self, page: &ModelPage, word: usize) -> u64 {
        if !self.steals_by_exchange {
            return self.take(page, word, 1);
        }
        self.gate.pass();
        let bits = &page.bits()[word];
        let mut free = bits.load(Ordering::Relaxed);
        while free != 0 {
            let mask = free & free.wrapping_neg();
            match bits.compare_exchange(free, free ^ mask, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return mask,
                Err(now) => free = now,
            }
        }
        0
    }

    fn examine_page(
        &self,
        page: &ModelPage,
        sampled: Option<usize>,
    ) -> PageChange<'_, ModelPageInfo> {
        self.noted(self.group().examine(self.number(page), sampled))
    }

    fn open_page<'m>(&'m self, claim: ModelClaim<'m>) -> PageChange<'m, ModelPageInfo> {
        self.gate.pass();
        self.note_claim(claim.page(), false);
        self.noted(self.group().put_back(self.number(claim.page()), claim))
    }

    fn claim_page<'m>(&'m self, page: &'m ModelPage) -> Option<(ModelClaim<'m>, bool)> {
        self.gate.pass();
        let (claim, was_empty) = page.claim()?;
        self.note_claim(page, true);
        Some((claim, was_empty))
    }

    fn list_empty(&self, claim: ModelClaim<'_>) {
        self.note_claim(claim.page(), false);
        self.group().keep_empty(self.number(claim.page()), claim);
    }

    fn wake_waiters(&self) {
        self.pass_wake_gate();
        self.waiters.wake(Self::wake_all);
    }

    fn wake_after_stores(&self) {
        self.pass_wake_gate();
        self.waiters.wake_after_stores(Self::wake_all);
    }

    fn end_turn(&self) {
        self.pass_wake_gate();
        self.waiters.end_turn(Self::wake_all);
    }
}
