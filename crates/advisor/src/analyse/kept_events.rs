//! Keeps what the second pass needs of each event, if there are not too many: reading the recording
//! again takes longer than the rest of the second pass.

use super::memory_hints::advise_huge_pages;
use super::resolver::{BlockAction, ResolvedEvent};

/// The most events that are kept: 256 MiB. Of a longer recording none is kept, and it is read
/// twice.
pub const MOST_KEPT: usize = 1 << 24;
/// Events in one piece.
const PIECE: usize = 1 << 19;

/// What an event does to the live blocks, in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptEvent {
    /// The size in the upper bits, the kind in the lowest [`KIND_BITS`].
    word: u64,
    pub cell: u32,
    /// For a freed block: the number of its allocation in the program, wrapping.
    pub birth: u32,
}

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptEventKind {
    /// Allocates a block.
    Allocated,
    /// Frees a block.
    Freed,
    /// Another block was allocated at the address of a live one: its free was not recorded.
    Lost,
    /// Neither allocates nor frees a known block.
    Other,
}

const KIND_BITS: u32 = 2;
/// Larger sizes are stored as this one; no block is so large.
const MOST_SIZE: u64 = u64::MAX >> KIND_BITS;

impl KeptEvent {
    #[inline]
    pub fn new(kind: KeptEventKind, cell: u32, size: u64, birth: u32) -> Self {
        Self { word: size.min(MOST_SIZE) << KIND_BITS | kind as u64, cell, birth }
    }

    /// The part of an event that is kept.
    #[inline]
    pub fn of(event: &ResolvedEvent) -> Self {
        match event.action {
            BlockAction::Allocated { cell, size, .. } => {
                Self::new(KeptEventKind::Allocated, cell, size, 0)
            }
            BlockAction::Freed(block) => {
                Self::new(KeptEventKind::Freed, block.cell, block.size, block.birth)
            }
            BlockAction::Lost(block) => {
                Self::new(KeptEventKind::Lost, block.cell, block.size, block.birth)
            }
            BlockAction::UnknownFree | BlockAction::Waited { .. } | BlockAction::Other => {
                Self::new(KeptEventKind::Other, u32::MAX, 0, 0)
            }
        }
    }

    #[inline]
    pub fn kind(self) -> KeptEventKind {
        match self.word & ((1 << KIND_BITS) - 1) {
            0 => KeptEventKind::Allocated,
            1 => KeptEventKind::Freed,
            2 => KeptEventKind::Lost,
            _ => KeptEventKind::Other,
        }
    }

    #[inline]
    pub fn size(self) -> u64 {
        self.word >> KIND_BITS
    }
}

/// The events of a recording, in pieces, so that growing copies nothing.
#[derive(Debug)]
pub struct KeptEvents {
    pieces: Vec<Vec<KeptEvent>>,
    most: usize,
    length: usize,
}

impl KeptEvents {
    /// An empty list of at most `most` events; with 0 none is kept.
    pub fn new(most: usize) -> Self {
        Self { pieces: Vec::new(), most, length: 0 }
    }

    #[inline]
    pub fn push(&mut self, of: KeptEvent) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push(of),
            _ if self.most == 0 => {}
            _ => self.push_to_new_piece(of),
        }
    }

    #[cold]
    fn push_to_new_piece(&mut self, of: KeptEvent) {
        // All but the last piece are full.
        self.length += self.pieces.last().map_or(0, Vec::len);
        if self.length >= self.most {
            // There are too many events, so none is kept.
            self.most = 0;
            self.pieces = Vec::new();
            return;
        }
        let mut piece = Vec::with_capacity(PIECE.min(self.most - self.length));
        advise_huge_pages(&mut piece);
        piece.push(of);
        self.pieces.push(piece);
    }

    /// The events in pieces; `None` if there were too many.
    pub fn whole(self) -> Option<Vec<Vec<KeptEvent>>> {
        (self.most > 0).then_some(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_event_has_what_it_was_made_of() {
        for kind in [
            KeptEventKind::Allocated,
            KeptEventKind::Freed,
            KeptEventKind::Lost,
            KeptEventKind::Other,
        ] {
            for size in [0, 1, 4096, u64::from(u32::MAX) + 7, 1 << 48] {
                let found = KeptEvent::new(kind, 7, size, u32::MAX);
                assert_eq!((found.kind(), found.size()), (kind, size));
                assert_eq!((found.cell, found.birth), (7, u32::MAX));
            }
        }
        assert_eq!(KeptEvent::new(KeptEventKind::Freed, 0, u64::MAX, 0).size(), MOST_SIZE);
        assert_eq!(size_of::<KeptEvent>(), 16);
    }

    #[test]
    fn events_are_kept_in_their_order_or_not_at_all() {
        let keep = |count: u32, most: usize| {
            let mut moves = KeptEvents::new(most);
            (0..count)
                .for_each(|cell| moves.push(KeptEvent::new(KeptEventKind::Allocated, cell, 1, 0)));
            moves
        };
        let most = PIECE + 1000;
        let all = keep(most as u32, most).whole().unwrap();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [PIECE, 1000]);
        assert!(all.iter().flatten().map(|kept| kept.cell).eq(0..most as u32));
        let more = keep(most as u32 + 1, most);
        assert_eq!(more.pieces.capacity(), 0);
        assert!(more.whole().is_none());
        // Later events do not start a new list.
        assert!(keep(3 * most as u32, most).whole().is_none());
        assert!(keep(0, 0).whole().is_none());
    }
}
