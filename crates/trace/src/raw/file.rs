//! The header page of a raw file, and the headers of its chunks.

use super::event::Damage;
use super::{CHUNK_CAPACITY, CHUNK_HEADER_SIZE, HEADER_SIZE, MAGIC, VERSION};

/// The offsets of the header's fields. Each is a `u32` or `u64`, naturally aligned.
#[derive(Debug)]
pub enum HeaderField {}

impl HeaderField {
    /// `u32`.
    pub const VERSION: usize = 8;
    /// `u32`.
    pub const PID: usize = 12;
    /// `u32`.
    pub const PARENT: usize = 16;
    /// `u32`: the number of chunks taken; changed atomically.
    pub const CHUNKS: usize = 20;
    /// `u32`: the number of threads seen; changed atomically.
    pub const THREADS: usize = 24;
    /// `u32`: the bits of [`state`]; changed atomically.
    pub const STATE: usize = 28;
    /// Two `u64`: ticks, and nanoseconds of the monotonic clock, when the file was created.
    pub const START: usize = 32;
    /// Two `u64`: the same when the last chunk was taken.
    pub const LAST: usize = 48;
    /// `u64`: ticks when the recording ended early, because the disk was full or for another error.
    pub const FULL_AT: usize = 64;
    /// `u32`: bytes of the executable's path.
    pub const EXECUTABLE_LENGTH: usize = 72;
    /// `u32`: bytes of the command line.
    pub const COMMAND_LENGTH: usize = 76;
    /// `u32`: the error that ended the recording.
    pub const ERROR: usize = 80;
    /// `u32`: bytes of the path of the library that has both the next `malloc` and the program's
    /// `operator new`.
    pub const LIBRARY_LENGTH: usize = 84;
    /// `u64`: results of the stack cache that were compared with the unwinder's, if that was
    /// requested.
    pub const CHECKED: usize = 88;
    /// `u64`: those that differed.
    pub const WRONG: usize = 96;
    /// `u64`: calls that were not recorded because there was no memory for a thread.
    pub const MISSED: usize = 104;
    /// [`RawAllocatorCosts`], `u64` each; changed atomically.
    pub const COSTS: usize = 128;
    /// The executable's path, then that library's, then the command line with a zero after each
    /// argument, cut off at the end of the page.
    pub const STRINGS: usize = 256;

    /// In a chunk's header, `u32`: 0 before it is used, 1 while it is written to, 2 when it is
    /// complete.
    pub const CHUNK_STATE: usize = 0;
    /// In a chunk's header, `u32`: the number of its stream.
    pub const CHUNK_STREAM: usize = 4;
    /// In a chunk's header, `u32`: its number in the stream, from 0.
    pub const CHUNK_SEQUENCE: usize = 8;
    /// In a chunk's header, `u32`: bytes of events, once it is complete.
    pub const CHUNK_LENGTH: usize = 12;
    /// In a chunk's header, `u64`: ticks when it was taken.
    pub const CHUNK_TICK: usize = 16;
}

/// The bits of the state of a recording.
pub mod state {
    /// The process began as the child of a fork, with its parent's blocks.
    pub const FORKED: u32 = 1;
    /// The recording ended early, because no chunk could be taken. Later events are missing.
    pub const FULL: u32 = 2;
    /// The process ran its exit handlers.
    pub const EXITED: u32 = 4;
    /// The program uses an `operator new` that does not call `malloc`. Its allocations are missing.
    pub const NEW_BYPASSES_HOOKS: u32 = 8;
    /// The executable has a `malloc` of its own, which takes precedence over the hook. Nothing is
    /// recorded.
    pub const OWN_MALLOC: u32 = 16;
    /// The process was to be a trial, but there was no memory for it, or its file could not be read.
    /// It ran as it does without the recorder.
    pub const NO_TRIAL: u32 = 32;
}

/// Two clocks at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockPair {
    /// The processor's time stamp, shifted.
    pub ticks: u64,
    /// The monotonic clock, in nanoseconds.
    pub ns: u64,
}

/// The measured times of calls and of their recording, in time stamps that are not shifted. Each
/// includes the time of one more stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawAllocatorCosts {
    /// For each [`MeasuredCall`]: the number of calls, and their time in the next function.
    pub calls: [(u64, u64); MeasuredCall::COUNT],
    /// The time of those calls in the recorder.
    pub recorder: u64,
    /// The time between two stamps with nothing between them, summed over those calls.
    pub stamps: u64,
    /// Calls that are not included because they took too long.
    pub too_long: u64,
}

/// A kind of call that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MeasuredCall {
    /// A new block.
    Allocation,
    /// A free.
    Free,
    /// A reallocation of an existing block.
    Reallocation,
}

impl MeasuredCall {
    /// The number of kinds.
    pub const COUNT: usize = 3;

    /// The offset in the header of the number of calls. Their time follows.
    pub const fn field(self) -> usize {
        HeaderField::COSTS + 16 * self as usize
    }
}

impl RawAllocatorCosts {
    /// Its offset in the header.
    pub const RECORDER: usize = HeaderField::COSTS + 16 * MeasuredCall::COUNT;
    /// Its offset in the header.
    pub const STAMPS: usize = Self::RECORDER + 8;
    /// Its offset in the header.
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
pub struct RawFileHeader<'a> {
    /// The process.
    pub pid: u32,
    /// Its parent when the file was created.
    pub parent: u32,
    /// The number of chunks taken.
    pub chunks: u32,
    /// The number of threads seen.
    pub threads: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// When the file was created.
    pub start: ClockPair,
    /// When the last chunk was taken.
    pub last: ClockPair,
    /// Ticks when the recording ended early; 0 if it did not.
    pub full_at: u64,
    /// The number of the error that ended it.
    pub error: u32,
    /// Results of the stack cache that were compared with the unwinder's.
    pub checked: u64,
    /// Those that differed.
    pub wrong: u64,
    /// Calls that were not recorded because there was no memory for a thread.
    pub missed: u64,
    /// The measured times of calls.
    pub costs: RawAllocatorCosts,
    /// The executable's path.
    pub executable: &'a [u8],
    /// The path of the library that has both the next `malloc` and the program's `operator new`;
    /// empty if there is none.
    pub library: &'a [u8],
    /// The command line, with a zero after each argument.
    pub command: &'a [u8],
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}

impl<'a> RawFileHeader<'a> {
    /// Reads a header page.
    pub fn read(page: &'a [u8]) -> Result<Self, Damage> {
        let damaged = |at, what| Err(Damage { at, what });
        if page.len() < HEADER_SIZE {
            return damaged(page.len(), "a header page that is cut off");
        }
        if page[..MAGIC.len()] != MAGIC {
            return damaged(0, "no raw recording");
        }
        if u32_at(page, HeaderField::VERSION) != VERSION {
            return damaged(HeaderField::VERSION, "a raw recording of another version");
        }
        let clock =
            |offset| ClockPair { ticks: u64_at(page, offset), ns: u64_at(page, offset + 8) };
        let executable = u32_at(page, HeaderField::EXECUTABLE_LENGTH) as usize;
        let library = u32_at(page, HeaderField::LIBRARY_LENGTH) as usize;
        let command = u32_at(page, HeaderField::COMMAND_LENGTH) as usize;
        let strings = &page[HeaderField::STRINGS..HEADER_SIZE];
        let cut = |from: usize, length: usize| strings.get(from..from.checked_add(length)?);
        let (Some(executable), Some(library), Some(command)) = (
            cut(0, executable),
            cut(executable, library),
            executable.checked_add(library).and_then(|from| cut(from, command)),
        ) else {
            return damaged(
                HeaderField::EXECUTABLE_LENGTH,
                "a header's strings that don't fit in it",
            );
        };
        Ok(Self {
            pid: u32_at(page, HeaderField::PID),
            parent: u32_at(page, HeaderField::PARENT),
            chunks: u32_at(page, HeaderField::CHUNKS),
            threads: u32_at(page, HeaderField::THREADS),
            state: u32_at(page, HeaderField::STATE),
            start: clock(HeaderField::START),
            last: clock(HeaderField::LAST),
            full_at: u64_at(page, HeaderField::FULL_AT),
            error: u32_at(page, HeaderField::ERROR),
            checked: u64_at(page, HeaderField::CHECKED),
            wrong: u64_at(page, HeaderField::WRONG),
            missed: u64_at(page, HeaderField::MISSED),
            costs: RawAllocatorCosts::read(page),
            executable,
            library,
            command,
        })
    }
}

/// The header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawChunkHeader {
    /// The number of its stream.
    pub stream: u32,
    /// Its number in the stream.
    pub sequence: u32,
    /// Bytes of events, if it is complete.
    ///
    /// `None` while it is written to.
    pub full: Option<u32>,
    /// Ticks when it was taken.
    pub tick: u64,
}

impl RawChunkHeader {
    /// Reads a chunk's header. `Ok(None)` if the chunk was taken, but nothing was written yet.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Damage> {
        let damaged = |at, what| Err(Damage { at, what });
        if bytes.len() < CHUNK_HEADER_SIZE {
            return damaged(bytes.len(), "a chunk that is cut off");
        }
        let full = match u32_at(bytes, HeaderField::CHUNK_STATE) {
            0 => return Ok(None),
            1 => None,
            2 => Some(u32_at(bytes, HeaderField::CHUNK_LENGTH)),
            _ => return damaged(HeaderField::CHUNK_STATE, "a chunk in an unknown state"),
        };
        if full.is_some_and(|length| length as usize > CHUNK_CAPACITY) {
            return damaged(HeaderField::CHUNK_LENGTH, "a chunk's length that is too large");
        }
        Ok(Some(Self {
            stream: u32_at(bytes, HeaderField::CHUNK_STREAM),
            sequence: u32_at(bytes, HeaderField::CHUNK_SEQUENCE),
            full,
            tick: u64_at(bytes, HeaderField::CHUNK_TICK),
        }))
    }
}
