//! The steps by which slots and pages go back, and by which a thread gets a page, steals slots or
//! waits for them.
//!
//! [`PageSteps`] holds the order of each step. What a step does with memory, with the segment map
//! and with counters is left to [`PageBackend`]. The slab implements it (`page_backend.rs`), and
//! the loom models do so over memory that loom watches.
//!
//! # Invariants
//!
//! Those of `page.rs`, `page_hints.rs` and `waiters.rs`, and:
//!
//! 1. A page is released in this order: no thread can find it by an address, its state is
//!    `RELEASED`, its memory is given back, its addresses can be reused, its descriptor can be
//!    reused. In another order, the release could discard the memory of another thread's new page.
//! 2. A thread that keeps an empty page lists it and then reads the closed flag. A thread that
//!    closes the slab sets the flag and then looks for listed pages. So a closed slab keeps no
//!    page.
//! 3. A thread that has made a slot or the source turn available wakes the waiting threads
//!    afterwards.

use super::page::{
    BINS, FreeOutcome, Fullness, PageClaim, PageDescriptor, SLOTS_PER_WORD, SPARSE_BELOW_BIN,
    set_free,
};
use super::page_group::{CacheUse, OwnPages, PageChange, PageGroup, PageOrigin, PageUse};
use super::page_hints::EMPTY_LIST;
use super::waiters::{PageMark, Waiters};
use crate::error::AllocError;
use crate::sync::{AtomicU32, AtomicU64, mutant};

/// The most slots taken at once from a page that another thread has claimed.
const MAX_STOLEN: usize = 8;

/// For each lifetime, the lists in the order in which a thread that needs slots searches them: the
/// fullest pages first, and those that are kept empty last.
const LISTS: [[usize; BINS + 1]; 2] =
    [[7, 6, 5, 4, 3, 2, 1, 0, EMPTY_LIST], [15, 14, 13, 12, 11, 10, 9, 8, EMPTY_LIST]];

/// A page of a backend.
pub type Page<B> = PageDescriptor<<B as PageBackend>::Info>;
/// A page's claim, of a backend.
pub type Claim<'p, B> = PageClaim<'p, <B as PageBackend>::Info>;

/// What a thread that needs slots gets.
#[derive(Debug)]
pub enum SlotGrant<'p, X> {
    /// The claim of a page with free slots.
    Page(PageClaim<'p, X>),
    /// Slots of a page that another thread has claimed: the page, the word and the slots' bits.
    Slots(&'p PageDescriptor<X>, usize, u64),
}

/// What the steps leave to the slab.
pub trait PageBackend: Sized {
    /// What a descriptor stores beside the protocol.
    type Info: PageUse;
    /// The memory of a page that no thread can find any more.
    type Memory;
    /// Why a thread gets no slot.
    type Error: From<AllocError>;

    /// The threads that wait, and the reasons for which no free may be cached.
    fn waiters(&self) -> &Waiters;
    /// The group that holds a descriptor, and the descriptor's position in the group.
    fn group_of(&self, page: &Page<Self>) -> (PageGroup<'_, Self::Info>, usize);
    /// All descriptors.
    fn descriptors(&self) -> impl Iterator<Item = &Page<Self>>;
    /// Claims a page that one of the lists names, as [`PageGroup::find`] does. The search starts at
    /// the descriptor `start`.
    fn claim_listed(
        &self,
        lists: &[usize],
        start: u32,
        own: Option<&OwnPages>,
        listed: impl Fn(),
    ) -> Option<(Claim<'_, Self>, PageOrigin)>;
    /// The mark of a page that exists.
    fn mark_of(&self, page: &Page<Self>) -> impl PageMark;
    /// The bytes of a page that exists.
    fn bytes(&self, page: &Page<Self>) -> usize;
    /// Returns an error if this is a child made by fork that does not have the slab's memory.
    fn check_not_orphaned(&self) -> Result<(), AllocError>;

    // ---- empty pages ----

    /// Counts an empty page as kept, if the policy keeps it. Returns whether it does. `allocates`
    /// says whether the thread that emptied the page also allocates.
    fn try_keep(&self, bytes: usize, allocates: bool) -> bool;
    /// Counts a kept page as used again.
    fn reuse_kept(&self, bytes: usize);
    /// Counts a kept page as about to be released.
    fn remove_kept(&self, bytes: usize);
    /// The bytes of kept pages to release now. `page` is the bytes of the page just emptied.
    fn excess(&self, page: usize, allocates: bool) -> usize;
    /// Lowers to 0 the bytes of empty pages that may be kept.
    fn clear_limits(&self);

    // ---- memory ----

    /// Takes a new page from the source, by [`enter_page`](PageSteps::enter_page). If the budget or
    /// the source refuses it, calls `instead`. Only if that finds none either, takes one of the
    /// smallest pages.
    fn new_page<'b>(
        &'b self,
        lifetime: usize,
        instead: impl FnOnce() -> Option<Claim<'b, Self>>,
    ) -> Result<Claim<'b, Self>, AllocError>;
    /// Keeps other threads from finding the page by an address. The caller has all of its slots.
    fn remove_page(&self, page: &Page<Self>) -> Self::Memory;
    /// Gives back the memory of a released page, and then its addresses.
    fn give_back(&self, memory: Self::Memory);
    /// Makes a released descriptor vacant.
    fn return_vacant(&self, page: &Page<Self>);
    /// Counts a page of `bytes` as released, and drops its reference to the slab.
    fn count_released(&self, bytes: usize);

    // ---- waiting ----

    /// Whether only one thread at a time takes a page from the source, because each page is a call
    /// to the source.
    fn one_by_one(&self) -> bool;
    /// Returns what the calling thread caches for the other lifetime to the pages.
    fn flush_other(&self, lifetime: usize);
    /// The id of this process.
    fn process(&self) -> u32;
    /// Sleeps while the word has the given value.
    ///
    /// # Errors
    /// In the models, where a thread ends instead of sleeping.
    fn sleep(&self, event: &AtomicU32, value: u32) -> Result<(), Self::Error>;
    /// Wakes every thread that sleeps on the word.
    fn wake_all(event: &AtomicU32);
    /// Makes each thread give back its cached slots at its next free.
    fn recall(&self);

    // ---- single steps, before which a model lets other threads run ----

    /// Takes at most `max` free slots of a word.
    #[inline]
    fn take(&self, page: &Page<Self>, word: usize, max: usize) -> u64 {
        page.take(word, max)
    }

    /// Takes a few free slots of a word of a page that another thread has claimed.
    #[inline]
    fn take_stolen(&self, page: &Page<Self>, word: usize) -> u64 {
        page.take(word, MAX_STOLEN)
    }

    /// Examines a page after some of its bits were set.
    fn examine_page(
        &self,
        page: &Page<Self>,
        sampled: Option<usize>,
    ) -> PageChange<'_, Self::Info> {
        let (group, position) = self.group_of(page);
        group.examine(position, sampled)
    }

    /// Opens a claimed page, and lists it if it has free slots.
    fn open_page<'b>(&'b self, claim: Claim<'b, Self>) -> PageChange<'b, Self::Info> {
        let (group, position) = self.group_of(claim.page());
        group.put_back(position, claim)
    }

    /// Claims a page if it is open or kept empty, as [`PageDescriptor::claim`] does.
    fn claim_page<'b>(&'b self, page: &'b Page<Self>) -> Option<(Claim<'b, Self>, bool)> {
        page.claim()
    }

    /// Marks a page as kept empty, and lists it. The caller has all of its slots.
    fn list_empty(&self, claim: Claim<'_, Self>) {
        let (group, position) = self.group_of(claim.page());
        group.keep_empty(position, claim);
    }

    /// Wakes the threads that wait for a slot, if there are any. The caller has made something
    /// available to them.
    #[inline(always)]
    fn wake_waiters(&self) {
        self.waiters().wake(Self::wake_all);
    }

    /// Same as [`wake_waiters`](Self::wake_waiters), for a caller that has written by weaker
    /// stores.
    fn wake_after_stores(&self) {
        self.waiters().wake_after_stores(Self::wake_all);
    }

    /// Ends the source turn.
    fn end_turn(&self) {
        self.waiters().end_turn(Self::wake_all);
    }
}

/// The steps.
pub trait PageSteps: PageBackend {
    // ---- marks ----

    /// Sets or clears the mark of a page. The caller holds a slot of the page, or its claim.
    fn update_mark(&self, page: &Page<Self>, sparse: bool) {
        let long_lived = page.info.lifetime() != 0;
        self.waiters().update_mark(sparse || long_lived, &self.mark_of(page));
    }

    /// All descriptors that have a page.
    fn pages(&self) -> impl Iterator<Item = &Page<Self>> {
        self.descriptors().filter(|page| page.has_page())
    }

    /// Marks all pages, so that no free is cached until the pages are claimed or freed to again.
    /// The caller has first stored the reason.
    fn mark_all_pages(&self) {
        // If a page is released in between, its granules may already belong to another slab. That
        // slab's fast path is then slow until it sets the mark anew.
        self.pages().for_each(|page| self.mark_of(page).set());
    }

    // ---- slots ----

    /// Frees slots of one word, whose bits are `mask`, to their page. The caller holds these slots.
    /// A sampled free also reads how full the page is. `allocates` says whether the thread also
    /// allocates. Returns `false` if a slot was free already.
    #[inline(always)]
    #[must_use]
    fn free_slots(
        &self,
        page: &Page<Self>,
        bits: &AtomicU64,
        mask: u64,
        sampled: bool,
        allocates: bool,
    ) -> bool {
        let bin = if sampled { self.sample(page) } else { None };
        let claimed_before = mutant("free: state read before") && !page.is_open();
        match set_free(bits, mask) {
            FreeOutcome::Done if bin.is_none() => {}
            FreeOutcome::Examine if claimed_before => {}
            FreeOutcome::Done | FreeOutcome::Examine => self.examine(page, bin, allocates),
            FreeOutcome::DoubleFree => return false,
        }
        true
    }

    /// Frees slots of one word without a thread cache, and wakes the threads that wait for one. The
    /// rest is as for [`free_slots`](Self::free_slots).
    #[must_use]
    fn free_uncached(&self, page: &Page<Self>, bits: &AtomicU64, mask: u64, sampled: bool) -> bool {
        let freed = self.free_slots(page, bits, mask, sampled, true);
        if !mutant("free: claimed page silent") {
            self.wake_waiters();
        }
        freed
    }

    /// Examines a page after some of its bits were set.
    #[cold]
    #[inline(never)]
    fn examine(&self, page: &Page<Self>, sampled: Option<usize>, allocates: bool) {
        self.complete(self.examine_page(page, sampled), allocates);
    }

    /// Updates the page's mark by how full the page is, and returns its bin; `None` if it is
    /// claimed. The caller holds a slot of the page, so the mark is still this page's.
    #[cold]
    #[inline(never)]
    fn sample(&self, page: &Page<Self>) -> Option<usize> {
        if page.is_claimed() {
            return None;
        }
        let bin = match page.fullness() {
            // The slots about to be freed are the first free ones.
            Fullness::Full => BINS - 1,
            Fullness::Bin(bin) => bin,
            Fullness::Empty => 0,
        };
        self.update_mark(page, bin < SPARSE_BELOW_BIN);
        Some(bin)
    }

    // ---- pages that go back ----

    /// Opens a claimed page to all threads.
    fn put_back(&self, claim: Claim<'_, Self>) {
        let page = claim.page();
        if let Fullness::Bin(bin) = page.fullness() {
            self.update_mark(page, bin < SPARSE_BELOW_BIN);
        }
        self.complete(self.open_page(claim), true);
    }

    /// Completes what examining a page or putting it back has led to.
    #[cold]
    fn complete(&self, change: PageChange<'_, Self::Info>, allocates: bool) {
        match change {
            PageChange::Unlisted if mutant("free: claimed page silent") => {}
            // An unlisted page matters, too: waiting threads also take slots of a claimed page.
            PageChange::Unlisted | PageChange::Listed => self.wake_waiters(),
            PageChange::Emptied(claim) => self.keep_or_release(claim, allocates),
        }
    }

    /// Keeps or releases a page. The caller has its claim and all of its slots.
    fn keep_or_release(&self, claim: Claim<'_, Self>, allocates: bool) {
        let bytes = self.bytes(claim.page());
        if !self.waiters().is_closed() && self.try_keep(bytes, allocates) {
            self.list_empty(claim);
            self.wake_waiters();
            // Invariant 2.
            if self.waiters().is_closed() && !mutant("keep: no second look") {
                self.release_all_kept();
            }
        } else {
            self.release(claim);
        }
        let mut excess = self.excess(bytes, allocates);
        while excess > 0 {
            let Some(released) = self.release_kept() else { break };
            excess = excess.saturating_sub(released);
        }
    }

    /// Releases one of the pages that are kept empty; returns its bytes, or 0 for a page that was
    /// used again.
    fn release_kept(&self) -> Option<usize> {
        let (claim, origin) = self.claim_listed(&[EMPTY_LIST], 0, None, || self.wake_waiters())?;
        let bytes = self.bytes(claim.page());
        if origin == PageOrigin::Open && !mutant("trim: hint trusted") {
            // The hint was stale: the page was used again in the meantime.
            self.put_back(claim);
            return Some(0);
        }
        if origin == PageOrigin::KeptEmpty {
            self.remove_kept(bytes);
        }
        self.release(claim);
        Some(bytes)
    }

    /// Releases all pages that are kept empty.
    fn release_all_kept(&self) {
        self.clear_limits();
        while self.release_kept().is_some() {}
    }

    /// Closes the dropped slab: from here on frees bypass the caches, and empty pages are released.
    fn close_pages(&self) {
        self.waiters().close();
        self.mark_all_pages();
        self.release_all_kept();
    }

    /// Releases a page. The caller has all of its slots.
    fn release(&self, claim: Claim<'_, Self>) {
        let page = claim.page();
        let bytes = self.bytes(page);
        // The order is invariant 1.
        let memory = self.remove_page(page);
        if mutant("release: descriptor vacant first") {
            self.return_vacant(page);
        }
        claim.release();
        self.give_back(memory);
        if !mutant("release: descriptor vacant first") {
            self.return_vacant(page);
        }
        self.count_released(bytes);
        self.wake_waiters();
    }

    // ---- pages that are taken ----

    /// Assigns a vacant descriptor, which a caller has prepared, to a page with this many slots.
    fn enter_page<'b>(&'b self, page: &'b Page<Self>, slots: usize) -> Claim<'b, Self> {
        let claim = page.assign(slots);
        if !mutant("enter page: not marked") {
            self.waiters().mark_new(&self.mark_of(page));
        }
        // For threads that have searched for slots before. `mark_new` has made the page visible before
        // `attention` is read here.
        self.wake_waiters();
        claim
    }

    /// Claims a page of this lifetime with free slots: the fullest one listed, or one kept empty.
    /// The search starts at the descriptor `start`. With `own`, a listed page has to be one of
    /// those.
    fn claim(
        &self,
        lifetime: usize,
        start: u32,
        own: Option<&OwnPages>,
    ) -> Option<Claim<'_, Self>> {
        if self.waiters().is_orphaned() {
            return None;
        }
        loop {
            let listed = || self.wake_waiters();
            let (claim, origin) = self.claim_listed(&LISTS[lifetime], start, own, listed)?;
            let fits = claim.page().info.lifetime() == lifetime;
            if fits || origin != PageOrigin::Open {
                return Some(self.prepare(claim, origin, lifetime));
            }
            // A stale hint: the page was kept empty in between, and serves the other lifetime now.
            self.put_back(claim);
        }
    }

    /// Claims a listed page, or one that is kept empty, for a thread cache.
    ///
    /// Two threads with objects on one page wait for each other's writes, to its bitmap and to the
    /// objects, and both come back to it. So the pages that other caches use are left to them, and
    /// the caller takes a new page.
    fn claim_for(&self, by: CacheUse, lifetime: usize, start: u32) -> Option<Claim<'_, Self>> {
        // A new page of a source that is called for each page takes long. Long-lived objects are few.
        let own = (lifetime == 0 && !self.one_by_one()).then(|| OwnPages::new(by));
        self.claim(lifetime, start, own.as_ref())
    }

    /// Claims a page that a thread cache had before, if no other cache has claimed it since, and it
    /// is kept empty or listed. Its hint stays, and leads to nothing, or to the page
    /// when it is open again.
    fn claim_again<'b>(
        &'b self,
        page: &'b Page<Self>,
        lifetime: usize,
        cache: u32,
    ) -> Option<Claim<'b, Self>> {
        if page.info.last_use().cache != cache || self.waiters().is_orphaned() {
            return None;
        }
        if !page.is_kept_empty() && !page.is_listed() {
            return None;
        }
        let (claim, was_empty) = self.claim_page(page)?;
        // The descriptor may serve another page by this time.
        if !was_empty && page.info.lifetime() != lifetime {
            self.put_back(claim);
            return None;
        }
        let origin = if was_empty { PageOrigin::KeptEmpty } else { PageOrigin::Open };
        Some(self.prepare(claim, origin, lifetime))
    }

    /// Prepares a page that was just claimed for the thread that takes its slots.
    fn prepare<'b>(
        &'b self,
        claim: Claim<'b, Self>,
        origin: PageOrigin,
        lifetime: usize,
    ) -> Claim<'b, Self> {
        let page = claim.page();
        if origin == PageOrigin::KeptEmpty {
            self.reuse_kept(self.bytes(page));
        }
        if origin != PageOrigin::Open {
            page.info.set_lifetime(lifetime);
            claim.free_all();
            // A thread that looked at the page before found no free slot.
            if !mutant("prepare: silent") {
                self.wake_after_stores();
            }
        }
        // The thread that claims the page may cache its own frees to it.
        self.update_mark(page, false);
        claim
    }

    /// Takes free slots of a page that another thread has claimed, instead of waiting for that
    /// thread.
    fn steal(&self) -> Option<SlotGrant<'_, Self::Info>> {
        for page in self.pages() {
            for word in 0..page.words() {
                let taken = self.take_stolen(page, word);
                if taken != 0 {
                    return Some(SlotGrant::Slots(page, word, taken));
                }
            }
        }
        None
    }

    /// Takes a page with free slots, or slots of a page that another thread has claimed, or returns
    /// the reason why there are none.
    ///
    /// The caller has found no listed page, or has left those of other threads alone.
    #[cold]
    fn grow(&self, lifetime: usize, start: u32) -> Result<SlotGrant<'_, Self::Info>, Self::Error> {
        self.check_not_orphaned()?;
        let taken = if self.one_by_one() {
            self.grow_by_turns(lifetime, start)?
        } else {
            // Pages of other threads rather than small ones, which would use up what is left.
            let instead = || self.claim(lifetime, start, None);
            self.new_page(lifetime, instead).map(SlotGrant::Page)
        };
        taken.or_else(|error| {
            let search = || {
                self.recall();
                self.mark_all_pages();
                let listed = self.claim(lifetime, start, None).map(SlotGrant::Page);
                listed.or_else(|| self.steal())
            };
            self.waiters().search(search).ok_or(error.into())
        })
    }

    /// For sources whose calls may take long: one thread at a time takes a page. The others wait
    /// for it, or for a slot that is freed, whichever comes first. The outer error is that of
    /// [`sleep`](PageBackend::sleep).
    fn grow_by_turns(
        &self,
        lifetime: usize,
        start: u32,
    ) -> Result<Result<SlotGrant<'_, Self::Info>, AllocError>, Self::Error> {
        let new_page =
            |_turn: SourceTurn<'_, Self>| self.new_page(lifetime, || None).map(SlotGrant::Page);
        if let Some(turn) = self.take_turn() {
            return Ok(new_page(turn));
        }
        // The thread must not wait beside slots that it caches itself.
        self.flush_other(lifetime);
        let mark_all = || self.mark_all_pages();
        let find = || {
            if let Some(claim) = self.claim(lifetime, start, None) {
                return Some(Found::Slots(SlotGrant::Page(claim)));
            }
            let stolen = self.steal().map(Found::Slots);
            stolen.or_else(|| self.take_turn().map(Found::Turn))
        };
        let found = self.waiters().wait(mark_all, find, |event, value| self.sleep(event, value))?;
        Ok(match found {
            Found::Slots(slots) => Ok(slots),
            // The thread no longer counts as waiting. So others' frees are cached meanwhile.
            Found::Turn(turn) => new_page(turn),
        })
    }

    /// Takes the source turn, if it is free.
    fn take_turn(&self) -> Option<SourceTurn<'_, Self>> {
        self.waiters().try_take_turn(self.process()).then(|| SourceTurn(self))
    }

    /// Takes one slot, without a thread cache. Returns its page and its number there.
    fn take_one(&self, lifetime: usize) -> Result<(&Page<Self>, usize), Self::Error> {
        loop {
            let supply = match self.claim(lifetime, 0, None) {
                Some(claim) => SlotGrant::Page(claim),
                None => self.grow(lifetime, 0)?,
            };
            if let Some(slot) = self.take_one_of(supply) {
                return Ok(slot);
            }
        }
    }

    /// Takes one slot of a supply and gives back the rest. Returns the slot's page and number;
    /// `None` if other threads have taken all slots of the page since it was claimed.
    fn take_one_of<'b>(
        &'b self,
        supply: SlotGrant<'b, Self::Info>,
    ) -> Option<(&'b Page<Self>, usize)> {
        let index = |word, bits: u64| word * SLOTS_PER_WORD + bits.trailing_zeros() as usize;
        match supply {
            SlotGrant::Page(claim) => {
                let page = claim.page();
                let taken = (0..page.words()).find_map(|word| {
                    let bit = self.take(page, word, 1);
                    (bit != 0).then(|| index(word, bit))
                });
                // The slot is taken before the page is opened: it keeps the page from being
                // released in between.
                self.put_back(claim);
                taken.map(|index| (page, index))
            }
            SlotGrant::Slots(page, word, taken) => {
                let rest = taken & (taken - 1);
                if rest != 0 {
                    let freed = self.free_slots(page, &page.bits()[word], rest, false, true);
                    debug_assert!(freed, "the slots were just taken");
                }
                Some((page, index(word, taken)))
            }
        }
    }
}

impl<B: PageBackend> PageSteps for B {}

/// What a waiting thread gets.
enum Found<'b, B: PageBackend> {
    Slots(SlotGrant<'b, B::Info>),
    Turn(SourceTurn<'b, B>),
}

/// The source turn of the one thread that takes a page from the source.
pub struct SourceTurn<'b, B: PageBackend>(&'b B);

impl<B: PageBackend> Drop for SourceTurn<'_, B> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}
