//! What a recording is compiled to: for each thread a list of steps, eight bytes each, in a file that every round's child reads
//! piece by piece.
//!
//! A step names a *slot*, where the block's address is kept while it is live, and a *shape*, what the block is like. Slots are
//! used again, so that there are no more of them than blocks that are live at once. A block that its own thread frees has
//! a slot of that thread; one that *crosses* to another thread has a slot that all threads share, and whoever frees it waits
//! there for its allocation.
//!
//! Where threads ran at the same time, the recording is cut into *epochs* of equally many events. A thread that comes to an
//! epoch waits for those that haven't come to the one before: so no two threads are further apart than two epochs,
//! memory is held by all of them as it was, and a shared slot that is used again two epochs later is used by nobody else.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most slots of one thread, and of all threads together for what crosses: blocks live at once.
pub const MOST_SLOTS: usize = 1 << 28;
/// Blocks are written to up to here, so that memory that a program set aside and never used does not become real.
pub const MOST_TOUCHED: usize = 64 << 20;
/// Bytes of a step in the file and in memory.
pub const STEP_BYTES: usize = 8;

/// No group that a plan is for.
pub const NO_GROUP: u32 = u32::MAX;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Allocates a block of a shape, and keeps it in a slot.
    Allocate,
    /// Frees the block in a slot, which has this shape.
    Free,
    /// The block in a slot, of this shape, is to be resized: always with the next step.
    ResizeFrom,
    /// What it becomes, and where it is kept from now on.
    ResizeTo,
    /// Of a group that its shape field names nothing is live on this thread.
    Reset,
    /// The thread comes to the epoch in the shape field.
    Epoch,
}

/// One step. Three bits say what, one whether the slot is shared, 28 the slot, and 32 the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step(pub u64);

impl Step {
    #[inline]
    pub const fn new(what: What, slot: u32, shared: bool, shape: u32) -> Self {
        Self(what as u64 | (shared as u64) << 3 | (slot as u64) << 4 | (shape as u64) << 32)
    }

    /// A step of a [`Window`].
    #[inline(always)]
    pub const fn of(bytes: [u8; STEP_BYTES]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    #[inline(always)]
    pub const fn what(self) -> What {
        match self.0 & 7 {
            0 => What::Allocate,
            1 => What::Free,
            2 => What::ResizeFrom,
            3 => What::ResizeTo,
            4 => What::Reset,
            _ => What::Epoch,
        }
    }

    #[inline(always)]
    pub const fn slot(self) -> usize {
        ((self.0 >> 4) & (MOST_SLOTS as u64 - 1)) as usize
    }

    #[inline(always)]
    pub const fn is_shared(self) -> bool {
        self.0 & 8 != 0
    }

    #[inline(always)]
    pub const fn shape(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// What a block is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Bytes that were asked for, at least 1: malloc gives a block for nothing too.
    pub size: u64,
    /// The group of its site, where a plan may have a place for it; else [`NO_GROUP`].
    pub group: u32,
    /// Its alignment, as a power of two.
    pub align_log2: u8,
    /// `calloc` made it.
    pub zeroed: bool,
    /// Another thread frees it.
    pub crosses: bool,
}

impl Shape {
    /// As it is in the file.
    pub fn to_words(self) -> [u64; 2] {
        let flags =
            u64::from(self.align_log2) | u64::from(self.zeroed) << 6 | u64::from(self.crosses) << 7;
        [self.size << 8 | flags, u64::from(self.group)]
    }

    pub fn from_words([first, group]: [u64; 2]) -> Self {
        Self {
            size: first >> 8,
            group: group as u32,
            align_log2: (first & 63) as u8,
            zeroed: first & 64 != 0,
            crosses: first & 128 != 0,
        }
    }
}

/// A part of the file: where it begins, and how many steps or shapes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub offset: u64,
    pub count: u32,
}

/// One thread's part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Threads of one lane run after each other.
    pub lane: u32,
    /// How many slots it needs of its own.
    pub slots: u32,
    /// At its end, something of its own is live.
    pub leaves: bool,
    /// Its steps.
    pub steps: Vec<Piece>,
}

/// What could not be compiled as it was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Frees of blocks from before the recording.
    pub unknown_frees: u64,
    /// Blocks that another one took the place of, although nobody was seen to free them: they are freed there.
    pub lost_frees: u64,
}

/// A compiled recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    pub threads: Vec<Thread>,
    /// The lanes: threads that ran after each other, in their order. The first thread is the first of lane 0.
    pub lanes: Vec<Vec<u32>>,
    pub shared_slots: u32,
    /// For each epoch, how many lanes come to it.
    pub arrivals: Vec<u32>,
    pub shapes: Vec<Piece>,
    /// In which order the threads did their steps: runs of `thread << 32 | steps`. Only where it was asked for.
    pub turns: Vec<Piece>,
    /// Steps of all threads.
    pub steps: u64,
    pub allocations: u64,
    /// The most bytes that were live at once of those that are written to.
    pub peak_touched: u64,
    pub skipped: Skipped,
}

/// Room for one piece of steps, resident from the beginning.
#[derive(Debug)]
pub struct Window(Vec<u8>);

impl Window {
    /// Room for the largest of these.
    pub fn of<'p>(pieces: impl Iterator<Item = &'p Piece>) -> Self {
        let most = pieces.map(|piece| piece.count as usize).max().unwrap_or_default();
        // Not zero, so that the pages are written to.
        Self(vec![1; most * STEP_BYTES])
    }

    /// Reads a piece: its steps as they are in the file, for [`Step::of`].
    pub fn read(&mut self, file: &File, piece: &Piece) -> io::Result<&[[u8; STEP_BYTES]]> {
        let part = &mut self.0[..piece.count as usize * STEP_BYTES];
        file.read_exact_at(part, piece.offset)?;
        Ok(part.as_chunks().0)
    }
}

/// Reads eight-byte words of a file.
pub fn read_words(file: &File, pieces: &[Piece]) -> io::Result<Vec<u64>> {
    let count: usize = pieces.iter().map(|piece| piece.count as usize).sum();
    let mut words = Vec::with_capacity(count);
    let mut buffer = vec![0; 64 << 10];
    for piece in pieces {
        let (mut at, mut left) = (piece.offset, piece.count as usize * STEP_BYTES);
        while left > 0 {
            let part = &mut buffer[..left.min(64 << 10)];
            file.read_exact_at(part, at)?;
            words.extend(
                part.chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())),
            );
            at += part.len() as u64;
            left -= part.len();
        }
    }
    Ok(words)
}

/// Reads shapes of a file.
pub fn read_shapes(file: &File, pieces: &[Piece]) -> io::Result<Vec<Shape>> {
    let halves = pieces.iter().map(|piece| Piece { count: piece.count * 2, ..*piece });
    let words = read_words(file, &halves.collect::<Vec<_>>())?;
    Ok(words.chunks_exact(2).map(|words| Shape::from_words([words[0], words[1]])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_all_that_it_is_given() {
        for what in
            [What::Allocate, What::Free, What::ResizeFrom, What::ResizeTo, What::Reset, What::Epoch]
        {
            for (slot, shared, shape) in [(0, false, u32::MAX), (MOST_SLOTS as u32 - 1, true, 0)] {
                let step = Step::new(what, slot, shared, shape);
                assert_eq!(step.what(), what);
                assert_eq!((step.slot(), step.is_shared()), (slot as usize, shared));
                assert_eq!(step.shape(), shape as usize);
            }
        }
    }

    #[test]
    fn a_shape_keeps_all_that_it_is_given() {
        for shape in [
            Shape { size: 1, group: NO_GROUP, align_log2: 0, zeroed: false, crosses: true },
            Shape { size: 1 << 47, group: 3, align_log2: 21, zeroed: true, crosses: false },
        ] {
            assert_eq!(Shape::from_words(shape.to_words()), shape);
        }
    }
}
