//! A compiled recording: for each thread a list of steps of eight bytes, in a file that the child
//! process of every round reads piece by piece.
//!
//! A step names a *slot*, which keeps the block's address while the block is live, and a *shape*,
//! the properties of the block. Slots are reused, so there are at most as many as blocks were live
//! at once. A block that its own thread frees has a slot of that thread. A block that *crosses* is
//! freed by another thread; it has a slot that all threads share, at which the free waits for the
//! allocation.
//!
//! A *chain* is a list of threads that ran one after another.
//!
//! If threads ran at the same time, the recording is divided into *epochs* of equally many events.
//! A thread that enters an epoch waits until all others have entered the previous one. So two
//! threads are never more than two epochs apart, memory use resembles the program's, and a shared
//! slot can be reused two epochs after it was emptied, because no other thread uses it then.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most slots of a thread, and the most shared slots.
pub const MOST_SLOTS: usize = 1 << 28;
/// The most bytes that are written of each block, so that large blocks that the program may never
/// have used do not become resident.
pub const MOST_TOUCHED: usize = 64 << 20;
/// Bytes of a step in the file and in memory.
pub const STEP_BYTES: usize = 8;

/// The group of blocks that no plan serves.
pub const NO_GROUP: u32 = u32::MAX;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Allocates a block of a shape, and stores it in a slot.
    Allocate,
    /// Frees the block in a slot; the block has this shape.
    Free,
    /// Begins to resize the block in a slot, which has this shape. The next step is a `ResizeTo`.
    ResizeFrom,
    /// Resizes the block to this shape, and stores it in this slot.
    ResizeTo,
    /// No block of the group in the shape field is live on this thread.
    Reset,
    /// Enters the epoch in the shape field.
    Epoch,
}

/// One step: its kind (3 bits), whether the slot is shared (1 bit), the slot (28 bits), the shape
/// (32 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step(pub u64);

impl Step {
    #[inline]
    pub const fn new(kind: StepKind, slot: u32, shared: bool, shape: u32) -> Self {
        Self(kind as u64 | (shared as u64) << 3 | (slot as u64) << 4 | (shape as u64) << 32)
    }

    /// A step of a [`StepBuffer`].
    #[inline(always)]
    pub const fn of(bytes: [u8; STEP_BYTES]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    #[inline(always)]
    pub const fn kind(self) -> StepKind {
        match self.0 & 7 {
            0 => StepKind::Allocate,
            1 => StepKind::Free,
            2 => StepKind::ResizeFrom,
            3 => StepKind::ResizeTo,
            4 => StepKind::Reset,
            _ => StepKind::Epoch,
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

/// The properties of a block that the recording has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordedShape {
    /// The requested bytes, at least 1.
    pub size: u64,
    /// The group of its site if a plan may serve it, otherwise [`NO_GROUP`].
    pub group: u32,
    /// Its alignment, as a power of two.
    pub align_log2: u8,
    /// It was allocated by `calloc`.
    pub zeroed: bool,
    /// Another thread frees it.
    pub crosses: bool,
}

impl RecordedShape {
    /// Its form in the file.
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
pub struct FilePart {
    pub offset: u64,
    pub count: u32,
}

/// The steps of one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSteps {
    /// The chain that the thread belongs to.
    pub chain: u32,
    /// The number of its own slots.
    pub slots: u32,
    /// Some of its own blocks are live when it ends.
    pub leaves: bool,
    /// Where its steps are in the file.
    pub steps: Vec<FilePart>,
}

/// Events that could not be compiled as they were recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEvents {
    /// Frees of blocks from before the recording.
    pub unknown_frees: u64,
    /// Blocks whose address was allocated again without a recorded free. The replay frees them
    /// there.
    pub lost_frees: u64,
}

/// The steps of a compiled recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSequence {
    pub threads: Vec<ThreadSteps>,
    /// The chains, each with its threads in order. The program's first thread is the first one of
    /// chain 0.
    pub chains: Vec<Vec<u32>>,
    pub shared_slots: u32,
    /// For each epoch: the number of chains that enter it.
    pub arrivals: Vec<u32>,
    pub shapes: Vec<FilePart>,
    /// The recorded order of the steps of all threads: `thread << 32 | steps`. Empty unless
    /// requested.
    pub turns: Vec<FilePart>,
    /// Steps of all threads.
    pub steps: u64,
    pub allocations: u64,
    /// The peak of live bytes, counting only those that the replay writes.
    pub peak_touched: u64,
    pub skipped: SkippedEvents,
}

/// A buffer for one piece of steps, resident from the beginning.
#[derive(Debug)]
pub struct StepBuffer(Vec<u8>);

impl StepBuffer {
    /// A buffer for the largest of these pieces.
    pub fn of<'p>(pieces: impl Iterator<Item = &'p FilePart>) -> Self {
        let most = pieces.map(|piece| piece.count as usize).max().unwrap_or_default();
        // Not zero, so that the pages are written to.
        Self(vec![1; most * STEP_BYTES])
    }

    /// Reads a piece. Its steps are in the form that [`Step::of`] takes.
    pub fn read(&mut self, file: &File, piece: &FilePart) -> io::Result<&[[u8; STEP_BYTES]]> {
        let part = &mut self.0[..piece.count as usize * STEP_BYTES];
        file.read_exact_at(part, piece.offset)?;
        Ok(part.as_chunks().0)
    }
}

/// Reads eight-byte words of a file.
pub fn read_words(file: &File, pieces: &[FilePart]) -> io::Result<Vec<u64>> {
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
pub fn read_shapes(file: &File, pieces: &[FilePart]) -> io::Result<Vec<RecordedShape>> {
    let halves = pieces.iter().map(|piece| FilePart { count: piece.count * 2, ..*piece });
    let words = read_words(file, &halves.collect::<Vec<_>>())?;
    Ok(words.chunks_exact(2).map(|words| RecordedShape::from_words([words[0], words[1]])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_fields_that_it_was_made_of() {
        for kind in [
            StepKind::Allocate,
            StepKind::Free,
            StepKind::ResizeFrom,
            StepKind::ResizeTo,
            StepKind::Reset,
            StepKind::Epoch,
        ] {
            for (slot, shared, shape) in [(0, false, u32::MAX), (MOST_SLOTS as u32 - 1, true, 0)] {
                let step = Step::new(kind, slot, shared, shape);
                assert_eq!(step.kind(), kind);
                assert_eq!((step.slot(), step.is_shared()), (slot as usize, shared));
                assert_eq!(step.shape(), shape as usize);
            }
        }
    }

    #[test]
    fn a_shape_is_read_as_it_was_written() {
        for shape in [
            RecordedShape { size: 1, group: NO_GROUP, align_log2: 0, zeroed: false, crosses: true },
            RecordedShape { size: 1 << 47, group: 3, align_log2: 21, zeroed: true, crosses: false },
        ] {
            assert_eq!(RecordedShape::from_words(shape.to_words()), shape);
        }
    }
}
