//! The raw file of one process image.
//!
//! A header page, then chunks of [`CHUNK_SIZE`] bytes. A chunk belongs to one *stream*: the events
//! of one thread, and, after that thread has ended, those of another thread, which is announced
//! with [`RawEvent::Thread`]. The recorder takes the next chunk with one atomic addition to the
//! header's count. A stream continues its numbers of nodes and kinds from chunk to chunk; each
//! chunk begins with their counts. Times and addresses start anew in each chunk.
//!
//! An event begins with a byte that is never zero and is stored last, and all bytes after the last
//! event of a chunk are zero. So a reader sees only complete events, even if the program was killed
//! in the middle of one.
//!
//! | first byte | event | followed by |
//! |---|---|---|
//! | `11ttaakk` | an allocation | time, address, kind |
//! | `10ttaa00` | a free | time, address |
//! | `10ttaa01` | the free at the start of a reallocation | time, address |
//! | `10ttaa10` | a query for the usable size | time, address |
//! | `0.......` | one of [`code`] | the fields of its variant of [`RawEvent`] |
//!
//! `tt`, `aa` and `kk` are the sizes of the fields, as binary logarithms: 1, 2, 4 or 8 bytes. No
//! kind takes 8 bytes: `kk` = 3 stands for the kind that was announced last, without a field. A
//! time is the number of ticks since the previous event of the stream. An address is rotated right
//! by four bits, and stored as the difference from the previous event's address (zigzag). All
//! numbers are little-endian.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `event` | the events |
//! | `encode` | writing events |
//! | `decode` | reading events |
//! | `file` | the header page and the headers of chunks |
//! | `trial` | the file with the call stacks of a trial |

mod decode;
mod encode;
mod event;
mod file;
mod trial;

pub use decode::Decoder;
pub use encode::Encoder;
pub use event::{
    AllocationFlags, AllocationFunction, Damage, LockKind, LockWait, MAX_MODULE_SIZE, RawEvent,
    RawModule, code,
};
pub use file::{
    ClockPair, HeaderField, MeasuredCall, RawAllocatorCosts, RawChunkHeader, RawFileHeader, state,
};

#[cfg(feature = "container")]
pub use trial::TrialSitesWriter;
pub use trial::{
    MAX_ROUTE, MAX_TRIAL_NODE, TRIAL_MAGIC, TrialNode, TrialPlace, TrialSites, module_identity,
};

/// The first bytes of a raw file.
pub const MAGIC: [u8; 8] = *b"ALLOTRAW";
/// The version of the raw format.
pub const VERSION: u32 = 2;
/// Bytes of the header page. The first chunk follows it.
pub const HEADER_SIZE: usize = 4096;
/// Bytes of a chunk, including its header.
pub const CHUNK_SIZE: usize = 256 * 1024;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_SIZE: usize = 64;
/// Bytes of events that fit into a chunk.
pub const CHUNK_CAPACITY: usize = CHUNK_SIZE - CHUNK_HEADER_SIZE;
/// Bytes that must be free in a chunk before any event but a module is written.
pub const MAX_EVENT_SIZE: usize = 64;
/// Frames of a stack that are recorded at least. At most twice as many are recorded.
pub const MAX_STACK_FRAMES: usize = 256;
/// Bytes of a module's path that are recorded.
pub const MAX_PATH_LENGTH: usize = 4096;
/// Bytes of a module's build id that are recorded.
pub const MAX_BUILD_ID_LENGTH: usize = 64;
/// A tick is a time stamp of the processor, shifted right by this many bits.
pub const TICK_SHIFT: u32 = 4;

/// The node that stands for no frame: the parent of the outermost frame.
pub const ROOT: u32 = 0;
/// The node that stands for frames that were not recorded or not found: the parent of the outermost
/// recorded frame.
pub const CUT_OFF: u32 = 1;
/// The number of the first node that a stream announces.
pub const FIRST_NODE: u32 = 2;

/// The binary logarithm of the size in bytes of a field with this value.
#[inline(always)]
pub(crate) fn field_size_log2(value: u64) -> u32 {
    /// The result for each number of significant bytes less one, two bits each.
    const LOGARITHMS: u32 = 0b11_11_11_11_10_10_01_00;
    let bytes = (63 - (value | 1).leading_zeros()) >> 3;
    (LOGARITHMS >> (2 * bytes)) & 3
}

/// Rotates an address so that the bits which vary least, its lowest four, become the highest.
pub(crate) fn rotated(address: u64) -> u64 {
    address.rotate_right(4)
}

/// The address of a [`rotated`] one.
pub(crate) fn unrotated(rotated: u64) -> u64 {
    rotated.rotate_left(4)
}

/// Maps signed differences of small magnitude to small numbers.
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

/// The difference of a [`zigzag`] number.
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}
