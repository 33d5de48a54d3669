//! The wrong versions of a slab's steps.

use allotment::for_loom::page::{Fullness, SLOTS_PER_WORD, set_free};
use allotment::for_loom::page_group::{PageChange, PageOrigin};
use allotment::for_loom::page_hints::LISTS;
use allotment::for_loom::page_steps::{PageBackend, PageSteps};
use allotment::for_loom::waiters::PageMark;
use loom::sync::atomic::{Ordering, fence};

use super::{ModelClaim, ModelPage, ModelPageInfo, PagesModel};

/// Which step is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// None: the steps are those that ship.
    Nothing,
    /// The bits of a page that is put back are read before the page is opened.
    OpensAfterTheLook,
    /// A page that is put back is listed before it is opened.
    OpensAfterTheHint,
    /// A free reads the state before it sets the bit.
    FreesAfterTheLook,
    /// A free sets the bit and reads the state without an order between them.
    FreesUnordered,
    /// A hint is cleared after its page was examined.
    ClearsAfterTheLook,
    /// A hint is cleared before its page is examined, without an order between them.
    ClearsUnordered,
    /// A hint is cleared, but its page is still recorded as listed.
    ClearsWithoutTheNote,
    /// A hint is trusted: its page is taken without a claim.
    TrustsHints,
    /// A page is released because all bits are set, without taking its slots.
    EmptiesWithoutTaking,
    /// A thread that can't take all slots of a page doesn't give back those that it took.
    LeavesHalfTaken,
    /// Addresses are reused before their memory was given back.
    FreesAddressesFirst,
    /// A descriptor is reused before it is released.
    FreesDescriptorFirst,
    /// A page that the empty list names is released even if it is in use.
    TrimsWhatIsUsed,
    /// An empty page is kept without a second look at the closed flag.
    KeepsBlindly,
    /// Slots are taken by a load and a store, as if a claim kept all other threads away.
    TakesAsIfAlone,
    /// A search that has moved a page to another list wakes no thread.
    SearchesSilently,
    /// A waiting thread looks for slots before it is counted.
    CountsAfterTheLook,
    /// A waiting thread reads the event after it has looked.
    NotesTheEventLate,
    /// A thread that frees reads the count of waiting threads before others see its free.
    WakesUnordered,
    /// A slot that was freed to a claimed page wakes no thread.
    FreesToClaimedSilently,
    /// A page that was kept empty is used again, and its slots wake no thread.
    UsesKeptSilently,
    /// The source turn's end and the read of the count are not ordered.
    EndsTurnUnordered,
    /// A mark is cleared without a second look for waiting threads.
    ClearsMarkBlindly,
    /// A new page is not marked for threads that already wait.
    LeavesNewUnmarked,
}

impl PagesModel {
    /// Opens a claimed page as `put_back` in `page_group.rs` does, or wrongly.
    pub(super) fn opened<'m>(
        &'m self,
        page: usize,
        claim: ModelClaim<'m>,
    ) -> PageChange<'m, ModelPageInfo> {
        match self.wrong {
            Wrong::OpensAfterTheLook => {
                let fullness = claim.page().fullness();
                let _ = claim.put_back();
                self.list_wrongly(page, fullness)
            }
            Wrong::OpensAfterTheHint => {
                let before = claim.page().fullness();
                if let Fullness::Bin(bin) = before {
                    self.list_in(bin, page);
                }
                match (before, claim.put_back()) {
                    (Fullness::Bin(_), Fullness::Bin(_)) => PageChange::Listed,
                    (_, fullness) => self.list_wrongly(page, fullness),
                }
            }
            Wrong::EmptiesWithoutTaking | Wrong::LeavesHalfTaken => {
                let fullness = claim.put_back();
                self.list_wrongly(page, fullness)
            }
            _ => self.group().put_back(page, claim),
        }
    }

    /// What `list` in `page_group.rs` does, for the steps that are wrong.
    pub(super) fn list_wrongly(
        &self,
        page: usize,
        fullness: Fullness,
    ) -> PageChange<'_, ModelPageInfo> {
        match fullness {
            Fullness::Full => PageChange::Unlisted,
            Fullness::Bin(bin) => {
                self.list_in(bin, page);
                PageChange::Listed
            }
            Fullness::Empty => match self.page(page).claim_open() {
                None => PageChange::Unlisted,
                Some(claim) if self.empties(&claim) => PageChange::Emptied(claim),
                Some(claim) => self.opened(page, claim),
            },
        }
    }

    fn empties(&self, claim: &ModelClaim<'_>) -> bool {
        let page = claim.page();
        match self.wrong {
            Wrong::EmptiesWithoutTaking => true,
            Wrong::LeavesHalfTaken => {
                let taken = |word| page.take(word, SLOTS_PER_WORD).count_ones() as usize;
                (0..page.words()).map(taken).sum::<usize>() == page.slots()
            }
            _ => claim.take_all(),
        }
    }

    /// The first steps of `find` in `page_group.rs`: swapped, without their order, or one left out.
    pub(super) fn claim_wrongly(&self, list: usize) -> Option<(ModelClaim<'_>, PageOrigin)> {
        if self.wrong == Wrong::TrustsHints {
            let page = self.hints().clear_one(list, 0)?;
            return self.has_page(page).then(|| (self.resume_claim(page), PageOrigin::Open));
        }
        let page = self.named_by(list).first().copied()?;
        let claim = || {
            let (claim, was_empty) = self.page(page).claim()?;
            Some((claim, if was_empty { PageOrigin::KeptEmpty } else { PageOrigin::Open }))
        };
        let clear = |order| {
            let word = &self.hints[list * (self.hints.len() / LISTS)];
            word.fetch_and(!(1 << page), order);
        };
        match self.wrong {
            Wrong::ClearsAfterTheLook => {
                let found = claim();
                clear(Ordering::SeqCst);
                found
            }
            Wrong::ClearsUnordered => {
                clear(Ordering::AcqRel);
                claim()
            }
            _ => {
                clear(Ordering::SeqCst);
                fence(Ordering::SeqCst);
                claim()
            }
        }
    }

    /// Frees slots in the wrong order, or without waking a thread. Returns `false`, without any
    /// effect, for all other wrong steps.
    pub(super) fn free_wrongly(&self, page: &ModelPage, word: usize, mask: u64) -> bool {
        match self.wrong {
            Wrong::FreesAfterTheLook => {
                let open = page.is_open();
                set_free(&page.bits()[word], mask);
                if open {
                    self.examine(page, None, true);
                }
                true
            }
            Wrong::FreesToClaimedSilently => {
                set_free(&page.bits()[word], mask);
                let change = self.examine_page(page, None);
                if !matches!(change, PageChange::Unlisted) {
                    self.complete(change, true);
                }
                true
            }
            _ => false,
        }
    }

    pub(super) fn take_as_if_alone(&self, page: &ModelPage, word: usize, max: usize) -> u64 {
        let bits = &page.bits()[word];
        let free = bits.load(Ordering::Acquire);
        let wanted = if max == 1 { free & free.wrapping_neg() } else { free };
        bits.store(free & !wanted, Ordering::Release);
        wanted
    }

    pub(super) fn clear_mark_blindly(&self, page: &ModelPage) {
        let mark = self.mark_of(page);
        if !mark.is(false) {
            mark.store(false);
        }
    }
}
