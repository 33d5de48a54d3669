//! The header page of a raw file, and the headers of its chunks.

use super::{CHUNK_CAPACITY, CHUNK_HEADER_SIZE, Damage, HEADER_SIZE, MAGIC, VERSION};

/// Where the header's fields lie, each with its size in its name's type: `u32` or `u64`, all naturally aligned.
#[derive(Debug)]
pub enum Field {}

impl Field {
    /// `u32`.
    pub const VERSION: usize = 8;
    /// `u32`.
    pub const PID: usize = 12;
    /// `u32`.
    pub const PARENT: usize = 16;
    /// `u32`: chunks that were taken, added to atomically.
    pub const CHUNKS: usize = 20;
    /// `u32`: threads that were seen, added to atomically.
    pub const THREADS: usize = 24;
    /// `u32`: the bits of [`state`], set atomically.
    pub const STATE: usize = 28;
    /// Two `u64`: ticks, and nanoseconds of the monotonic clock, when the file began.
    pub const START: usize = 32;
    /// Two `u64`: the same when the last chunk was taken.
    pub const LAST: usize = 48;
    /// `u64`: ticks when the disk was full.
    pub const FULL_AT: usize = 64;
    /// `u32`: bytes of the executable's path.
    pub const EXECUTABLE_LENGTH: usize = 72;
    /// `u32`: bytes of the command line.
    pub const COMMAND_LENGTH: usize = 76;
    /// `u32`: the error that ended the recording.
    pub const ERROR: usize = 80;
    /// `u32`: bytes of the path of the library that has both the next `malloc` and the program's `operator new`.
    pub const LIBRARY_LENGTH: usize = 84;
    /// `u64`: stacks from the cache that were compared with the unwinder's, where that was asked for.
    pub const CHECKED: usize = 88;
    /// `u64`: those that were different.
    pub const WRONG: usize = 96;
    /// `u64`: calls that were not recorded because a thread had no memory to do so.
    pub const MISSED: usize = 104;
    /// [`RawCosts`], `u64` each, added to atomically.
    pub const COSTS: usize = 128;
    /// The executable's path, then that library's, then the command line with a zero behind each argument, cut off where the page ends.
    pub const STRINGS: usize = 256;

    /// In a chunk's header, `u32`: 0 while nobody has it, 1 while it's written to, 2 when it is full.
    pub const CHUNK_STATE: usize = 0;
    /// In a chunk's header, `u32`: which stream.
    pub const CHUNK_STREAM: usize = 4;
    /// In a chunk's header, `u32`: which of the stream's chunks, from 0.
    pub const CHUNK_SEQUENCE: usize = 8;
    /// In a chunk's header, `u32`: bytes of events once it is full.
    pub const CHUNK_LENGTH: usize = 12;
    /// In a chunk's header, `u64`: ticks when it was begun.
    pub const CHUNK_TICK: usize = 16;
}

/// What can be said of a recording, as bits.
pub mod state {
    /// The process began as the child of a fork, with its parent's blocks.
    pub const FORKED: u32 = 1;
    /// There was no more room for events, or no way to it; what came later is not there.
    pub const FULL: u32 = 2;
    /// The process ran its exit handlers.
    pub const EXITED: u32 = 4;
    /// Somebody needs an `operator new` that doesn't go by way of `malloc`: what it gives is not there.
    pub const NEW_BYPASSES_HOOKS: u32 = 8;
}

/// A pair of clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// The processor's time stamps, shifted.
    pub ticks: u64,
    /// The monotonic clock.
    pub ns: u64,
}

/// What was measured of calls and their recording, in time stamps that are not shifted, each with what one more stamp takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawCosts {
    /// For each of [`MeasuredCall`]: how many calls, and what they took in the next function.
    pub calls: [(u64, u64); MeasuredCall::COUNT],
    /// What those calls took in the recorder.
    pub recorder: u64,
    /// What as many pairs of stamps took, one right behind the other.
    pub stamps: u64,
    /// Calls that took too long to be counted.
    pub too_long: u64,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MeasuredCall {
    /// A new block.
    Allocation,
    /// A free.
    Free,
    /// A reallocation of a block that was there.
    Reallocation,
}

impl MeasuredCall {
    /// How many kinds there are.
    pub const COUNT: usize = 3;

    /// Where the header has how many calls there were; what they took follows.
    pub const fn field(self) -> usize {
        Field::COSTS + 16 * self as usize
    }
}

impl RawCosts {
    /// Where the header has them.
    pub const RECORDER: usize = Field::COSTS + 16 * MeasuredCall::COUNT;
    /// Where the header has them.
    pub const STAMPS: usize = Self::RECORDER + 8;
    /// Where the header has them.
    pub const TOO_LONG: usize = Self::STAMPS + 8;

    fn read(page: &[u8]) -> Self {
        let call = |measured: MeasuredCall| {
            (u64_at(page, measured.field()), u64_at(page, measured.field() + 8))
        };
        Self {
            calls: [MeasuredCall::Allocation, MeasuredCall::Free, MeasuredCall::Reallocation]
                .map(call),
            recorder: u64_at(page, Self::RECORDER),
            stamps: u64_at(page, Self::STAMPS),
            too_long: u64_at(page, Self::TOO_LONG),
        }
    }
}

/// The header page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader<'a> {
    /// The process.
    pub pid: u32,
    /// Its parent when the file began.
    pub parent: u32,
    /// Chunks that were taken.
    pub chunks: u32,
    /// Threads that were seen.
    pub threads: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// When the file began.
    pub start: Clock,
    /// When the last chunk was taken.
    pub last: Clock,
    /// When the disk was full, if it was.
    pub full_at: u64,
    /// The number of the error that was it.
    pub error: u32,
    /// Stacks from the cache that were compared with the unwinder's.
    pub checked: u64,
    /// Those that were different.
    pub wrong: u64,
    /// Calls that were not recorded because a thread had no memory to do so.
    pub missed: u64,
    /// What was measured.
    pub costs: RawCosts,
    /// The executable's path.
    pub executable: &'a [u8],
    /// The path of the library that has both the next `malloc` and the program's `operator new`; empty where none has.
    pub library: &'a [u8],
    /// The command line, with a zero behind each argument.
    pub command: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl<'a> FileHeader<'a> {
    /// Reads a header page.
    pub fn read(page: &'a [u8]) -> Result<Self, Damage> {
        let damaged = |at, what| Err(Damage { at, what });
        if page.len() < HEADER_SIZE {
            return damaged(page.len(), "a header page that is cut off");
        }
        if page[..MAGIC.len()] != MAGIC {
            return damaged(0, "no raw recording");
        }
        if u32_at(page, Field::VERSION) != VERSION {
            return damaged(Field::VERSION, "a raw recording of another version");
        }
        let clock = |at| Clock { ticks: u64_at(page, at), ns: u64_at(page, at + 8) };
        let executable = u32_at(page, Field::EXECUTABLE_LENGTH) as usize;
        let library = u32_at(page, Field::LIBRARY_LENGTH) as usize;
        let command = u32_at(page, Field::COMMAND_LENGTH) as usize;
        let strings = &page[Field::STRINGS..HEADER_SIZE];
        let cut = |from: usize, length: usize| strings.get(from..from.checked_add(length)?);
        let (Some(executable), Some(library), Some(command)) = (
            cut(0, executable),
            cut(executable, library),
            executable.checked_add(library).and_then(|from| cut(from, command)),
        ) else {
            return damaged(Field::EXECUTABLE_LENGTH, "a header's strings that don't fit in it");
        };
        Ok(Self {
            pid: u32_at(page, Field::PID),
            parent: u32_at(page, Field::PARENT),
            chunks: u32_at(page, Field::CHUNKS),
            threads: u32_at(page, Field::THREADS),
            state: u32_at(page, Field::STATE),
            start: clock(Field::START),
            last: clock(Field::LAST),
            full_at: u64_at(page, Field::FULL_AT),
            error: u32_at(page, Field::ERROR),
            checked: u64_at(page, Field::CHECKED),
            wrong: u64_at(page, Field::WRONG),
            missed: u64_at(page, Field::MISSED),
            costs: RawCosts::read(page),
            executable,
            library,
            command,
        })
    }
}

/// The header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Which stream.
    pub stream: u32,
    /// Which of the stream's chunks.
    pub sequence: u32,
    /// Bytes of events, once nothing more is written to it.
    pub full: Option<u32>,
    /// When it was begun.
    pub tick: u64,
}

impl ChunkHeader {
    /// Reads a chunk's header. `Ok(None)`: it was taken, but nothing was written yet.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Damage> {
        let damaged = |at, what| Err(Damage { at, what });
        if bytes.len() < CHUNK_HEADER_SIZE {
            return damaged(bytes.len(), "a chunk that is cut off");
        }
        let full = match u32_at(bytes, Field::CHUNK_STATE) {
            0 => return Ok(None),
            1 => None,
            2 => Some(u32_at(bytes, Field::CHUNK_LENGTH)),
            _ => return damaged(Field::CHUNK_STATE, "a chunk in an unknown state"),
        };
        if full.is_some_and(|length| length as usize > CHUNK_CAPACITY) {
            return damaged(Field::CHUNK_LENGTH, "a chunk's length that is too large");
        }
        Ok(Some(Self {
            stream: u32_at(bytes, Field::CHUNK_STREAM),
            sequence: u32_at(bytes, Field::CHUNK_SEQUENCE),
            full,
            tick: u64_at(bytes, Field::CHUNK_TICK),
        }))
    }
}
