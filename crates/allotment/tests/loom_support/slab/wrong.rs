//! The steps of a slab that can be had wrong.

use allotment::for_loom::block::Freed;
use allotment::for_loom::hints::LISTS;
use allotment::for_loom::page::{Fullness, WORD};
use loom::sync::atomic::{Ordering, fence};

use super::{Held, Place, Yard};

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
    /// A hint is cleared, and its page's note left, that it has one.
    ClearsWithoutTheNote,
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
    /// An empty page is kept without a second look whether the slab was closed.
    KeepsBlindly,
    /// Slots are taken by a load and a store, as if a claim kept all others off.
    TakesAsIfAlone,
}

impl Yard {
    /// Opens a claimed page as `put_back` in block.rs does, or wrongly.
    pub(super) fn opened<'y>(&'y self, page: usize, claim: Held<'y>) -> Freed<'y, Place> {
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
    pub(super) fn list(&self, page: usize, fullness: Fullness) -> Freed<'_, Place> {
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

    /// What `find` in block.rs begins with: its steps swapped, without their order, or one left out.
    pub(super) fn find_wrongly(&self, list: usize) -> Option<(usize, Held<'_>, bool)> {
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
