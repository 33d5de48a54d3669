//! What the second pass needs of the steps, kept while there are few enough: to read them again takes longer than
//! everything else that is done with them.

use super::ahead::huge;
use super::resolve::{Done, Step};

/// Steps that are kept, 256 MiB of them. Of a longer recording none are kept: it is read twice.
pub const MOST_KEPT: usize = 1 << 24;
/// Steps that are kept in one piece.
const PIECE: usize = 1 << 19;

/// What a step does to the blocks that are live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The size in the upper bits, and what is done.
    word: u64,
    pub cell: u32,
    /// Of a block that goes: which allocation of the program it was, wrapping.
    pub birth: u32,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A block is made.
    Made,
    /// A block is freed.
    Gone,
    /// A block has gone without an event of its own.
    Lost,
    /// Nothing.
    Other,
}

const KINDS: u32 = 2;
/// No block is as large as that.
const MOST_SIZE: u64 = u64::MAX >> KINDS;

impl Move {
    #[inline]
    pub fn new(kind: Kind, cell: u32, size: u64, birth: u32) -> Self {
        Self { word: size.min(MOST_SIZE) << KINDS | kind as u64, cell, birth }
    }

    /// What a step does.
    #[inline]
    pub fn of(step: &Step) -> Self {
        match step.what {
            Done::Made { cell, size, .. } => Self::new(Kind::Made, cell, size, 0),
            Done::Gone(block) => Self::new(Kind::Gone, block.cell, block.size, block.birth),
            Done::Lost(block) => Self::new(Kind::Lost, block.cell, block.size, block.birth),
            Done::Unknown | Done::Waited { .. } | Done::Other => {
                Self::new(Kind::Other, u32::MAX, 0, 0)
            }
        }
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self.word & ((1 << KINDS) - 1) {
            0 => Kind::Made,
            1 => Kind::Gone,
            2 => Kind::Lost,
            _ => Kind::Other,
        }
    }

    #[inline]
    pub fn size(self) -> u64 {
        self.word >> KINDS
    }
}

/// The moves of a whole recording, in pieces that need not be copied when there are more.
#[derive(Debug)]
pub struct Moves {
    pieces: Vec<Vec<Move>>,
    most: usize,
    length: usize,
}

impl Moves {
    /// None yet, of `most` at most; with 0 none are kept.
    pub fn new(most: usize) -> Self {
        Self { pieces: Vec::new(), most, length: 0 }
    }

    #[inline]
    pub fn push(&mut self, of: Move) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push(of),
            _ if self.most == 0 => {}
            _ => self.push_to_another(of),
        }
    }

    #[cold]
    fn push_to_another(&mut self, of: Move) {
        // All but the last piece are full.
        self.length += self.pieces.last().map_or(0, Vec::len);
        if self.length >= self.most {
            // It can't be whole any more.
            self.most = 0;
            self.pieces = Vec::new();
            return;
        }
        let mut piece = Vec::with_capacity(PIECE.min(self.most - self.length));
        huge(&mut piece);
        piece.push(of);
        self.pieces.push(piece);
    }

    /// The moves in pieces, if all of them were kept.
    pub fn whole(self) -> Option<Vec<Vec<Move>>> {
        (self.most > 0).then_some(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_what_it_was_made_of() {
        for kind in [Kind::Made, Kind::Gone, Kind::Lost, Kind::Other] {
            for size in [0, 1, 4096, u64::from(u32::MAX) + 7, 1 << 48] {
                let found = Move::new(kind, 7, size, u32::MAX);
                assert_eq!((found.kind(), found.size()), (kind, size));
                assert_eq!((found.cell, found.birth), (7, u32::MAX));
            }
        }
        assert_eq!(Move::new(Kind::Gone, 0, u64::MAX, 0).size(), MOST_SIZE);
        assert_eq!(size_of::<Move>(), 16);
    }

    #[test]
    fn moves_are_kept_in_their_order_or_not_at_all() {
        let keep = |count: u32, most: usize| {
            let mut moves = Moves::new(most);
            (0..count).for_each(|cell| moves.push(Move::new(Kind::Made, cell, 1, 0)));
            moves
        };
        let most = PIECE + 1000;
        let all = keep(most as u32, most).whole().unwrap();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [PIECE, 1000]);
        assert!(all.iter().flatten().map(|kept| kept.cell).eq(0..most as u32));
        let more = keep(most as u32 + 1, most);
        assert_eq!(more.pieces.capacity(), 0);
        assert!(more.whole().is_none());
        // What comes then is not the beginning of something new.
        assert!(keep(3 * most as u32, most).whole().is_none());
        assert!(keep(0, 0).whole().is_none());
    }
}
