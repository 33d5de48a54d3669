//! The compressed file that a recording is kept and carried in.
//!
//! [`MAGIC`], the version and four zero bytes, then frames: a header of [`FRAME_HEADER_SIZE`] bytes and what it announces.
//! The first frame of each process is its [`ProcessHeader`] and the last one its [`ProcessEnd`], in between are its
//! chunks; the last frame of the file is the [`RecordingEnd`]. A file that was cut off is readable up to the cut.

mod columns;
mod frame;
mod headers;
mod writer;

pub(crate) use columns::unpack as decompress;
pub(crate) use frame::{FILE_HEADER_SIZE, checksum};
pub use frame::{FRAME_HEADER_SIZE, MAGIC, VERSION};
pub(crate) use frame::{FrameHeader, FrameKind};
pub use headers::{
    CallCosts, Cost, Costs, Outcome, ProcessEnd, ProcessHeader, RecordingEnd, SMALL,
    SmallTransfers, SystemCall, Usage,
};
pub use writer::{Chunk, Writer, compress};

/// The largest frame that isn't a chunk.
pub(crate) const LONGEST_JSON: u32 = 16 << 20;
