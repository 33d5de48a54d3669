//! The raw file of one process image.
//!
//! A header page, then chunks of [`CHUNK_SIZE`] bytes. A chunk belongs to one *stream*: what one thread records, and
//! after that thread's end another one, which says so with [`RawEvent::Thread`]. The recorder takes the next chunk with
//! one atomic addition to the header's count. The streams' numbers of nodes and kinds go on from chunk to chunk, which
//! says in its beginning how many there are; times and addresses start again in each.
//!
//! An event begins with a byte that is never zero and is stored last, and what follows the last event of a chunk is zero:
//! so a reader sees whole events only, also where the program was killed in the middle of one.
//!
//! | first byte | event | what follows |
//! |---|---|---|
//! | `11ttaakk` | an allocation | time, address, kind |
//! | `10ttaa00` | a free | time, address |
//! | `10ttaa01` | the free that a reallocation begins with | time, address |
//! | `10ttaa10` | a question for the usable size | time, address |
//! | `0.......` | one of [`code`] | as its variant of [`RawEvent`] says |
//!
//! `tt`, `aa` and `kk` say in how many bytes: 1, 2, 4 or 8; no kind takes 8, and there it's the one announced last. A time is the ticks since the stream's event before, an address
//! is what its value, turned right by four bits, differs from that of the event before (zigzag). Everything is little-endian.

mod decode;
mod encode;
mod file;

pub use decode::{Damage, Decoder, MAX_MODULE_SIZE, RawEvent, RawModule};
pub use encode::{Encoder, Lock, LockWait};
pub use file::{ChunkHeader, Clock, Field, FileHeader, MeasuredCall, RawCosts, state};

/// What a raw file begins with.
pub const MAGIC: [u8; 8] = *b"ALLOTRAW";
/// The version of the raw format.
pub const VERSION: u32 = 2;
/// Bytes of the header page; the first chunk begins behind it.
pub const HEADER_SIZE: usize = 4096;
/// Bytes of a chunk with its header.
pub const CHUNK_SIZE: usize = 256 * 1024;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_SIZE: usize = 64;
/// Bytes of events that fit in a chunk.
pub const CHUNK_CAPACITY: usize = CHUNK_SIZE - CHUNK_HEADER_SIZE;
/// Bytes that have to be free before an allocation, a free, a node, a kind or a wait is written.
pub const MAX_EVENT_SIZE: usize = 64;
/// Frames of a stack that are kept at least, and at most twice as many.
pub const MAX_STACK_FRAMES: usize = 256;
/// Bytes of a module's path that are kept.
pub const MAX_PATH_LENGTH: usize = 4096;
/// Bytes of a module's build id that are kept.
pub const MAX_BUILD_ID_LENGTH: usize = 64;
/// Ticks are the processor's time stamps without this many of the lowest bits.
pub const TICK_SHIFT: u32 = 4;

/// The node that is no frame: the parent of the outermost one.
pub const ROOT: u32 = 0;
/// The node that stands for frames that were not kept or not found: the parent of the outermost one that was.
pub const CUT_OFF: u32 = 1;
/// The number of the first node that a stream announces.
pub const FIRST_NODE: u32 = 2;

/// The first bytes of the rarer events.
pub mod code {
    /// A node of the tree of stacks: parent, return address. A node is told by how far it lies behind the newest, which is
    /// [`FIRST_NODE`](super::FIRST_NODE), and the others above that; an address by what it differs from the one before (zigzag).
    pub const NODE: u8 = 1;
    /// A kind of allocation: node as for [`NODE`], size, flags.
    pub const KIND: u8 = 2;
    /// From here on the stream is this thread's: time, number, the system's number.
    pub const THREAD: u8 = 3;
    /// The thread has ended: time.
    pub const THREAD_END: u8 = 4;
    /// A thread waited for a lock: time, duration, node, address, what for.
    pub const WAIT: u8 = 5;
    /// A module was found: time, bias, start, end, build id, path.
    pub const MODULE: u8 = 6;
    /// A module has gone: time, start.
    pub const MODULE_GONE: u8 = 7;
    /// The stream's nodes and kinds are forgotten and numbered anew.
    pub const FORGET: u8 = 8;
    /// A chunk goes on with a stream that has so many: nodes, kinds.
    pub const NUMBERS: u8 = 9;
}

/// How a block came to be, and the alignment that was asked for.
///
/// The lowest three bits say which function was called, the others are the binary logarithm of the alignment, 0 where
/// none was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flags(pub u8);

/// The function that made a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `malloc`.
    Malloc,
    /// `calloc`.
    Calloc,
    /// `realloc` and `reallocarray`; where they freed a block, that free is the event before.
    Realloc,
    /// `memalign`, `aligned_alloc` and `posix_memalign`.
    Aligned,
    /// `valloc` and `pvalloc`.
    Pages,
}

impl Flags {
    /// Flags of a block from `origin`, without an alignment.
    pub const fn new(origin: Origin) -> Self {
        Self(match origin {
            Origin::Malloc => 0,
            Origin::Calloc => 1,
            Origin::Realloc => 2,
            Origin::Aligned => 3,
            Origin::Pages => 4,
        })
    }

    /// The same with an alignment, rounded down to a power of two of at most 2^31.
    pub const fn aligned(self, alignment: usize) -> Self {
        let log = if alignment < 2 { 0 } else { alignment.ilog2() };
        Self(self.0 & 7 | ((if log > 31 { 31 } else { log }) as u8) << 3)
    }

    /// The function that made the block.
    pub const fn origin(self) -> Origin {
        match self.0 & 7 {
            0 => Origin::Malloc,
            1 => Origin::Calloc,
            2 => Origin::Realloc,
            3 => Origin::Aligned,
            _ => Origin::Pages,
        }
    }

    /// The alignment that was asked for; 1 where none was.
    pub const fn alignment(self) -> u64 {
        1 << (self.0 >> 3)
    }
}

/// An address with the bits that vary least at its end.
pub(crate) fn turned(address: u64) -> u64 {
    address.rotate_right(4)
}

/// The address of a turned one.
pub(crate) fn unturned(turned: u64) -> u64 {
    turned.rotate_left(4)
}

pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}
