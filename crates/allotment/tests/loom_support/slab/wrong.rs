//! The wrong versions of a slab's steps.

use allotment::for_loom::page::{Fullness, SLOTS_PER_WORD};
use allotment::for_loom::page_group::PageChange;
use allotment::for_loom::page_hints::LISTS;
use loom::sync::atomic::{Ordering, fence};

use super::{ModelClaim, ModelPageInfo, PagesModel};

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
}

impl PagesModel {
    /// Opens a claimed page as `put_back` in page_group.rs does, or wrongly.
    pub(super) fn opened<'m>(
        &'m self,
        page: usize,
        claim: ModelClaim<'m>,
    ) -> PageChange<'m, ModelPageInfo> {
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
                    (Fullness::Bin(_), Fullness::Bin(_)) => PageChange::Listed,
                    (_, fullness) => self.list(page, fullness),
                }
            }
            Wrong::EmptiesWithoutTaking | Wrong::LeavesHalfTaken => {
                let fullness = claim.put_back();
                self.list(page, fullness)
            }
            _ => self.group().put_back(page, claim),
        }
    }

    /// What `list` in page_group.rs does, for the steps that are wrong.
    pub(super) fn list(&self, page: usize, fullness: Fullness) -> PageChange<'_, ModelPageInfo> {
        match fullness {
            Fullness::Full => PageChange::Unlisted,
            Fullness::Bin(bin) => {
                self.pages[page].set_listed();
                self.hints().set(bin, page);
                PageChange::Listed
            }
            Fullness::Empty => match self.pages[page].claim_open() {
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

    /// The first steps of `find` in page_group.rs: swapped, without their order, or one left out.
    pub(super) fn claim_wrongly(&self, list: usize) -> Option<(usize, ModelClaim<'_>, bool)> {
        let page = self.named_by(list).first().copied()?;
        let claim = || self.pages[page].claim().map(|(claim, kept)| (page, claim, kept));
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
}
