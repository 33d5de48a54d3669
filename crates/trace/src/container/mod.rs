//! The compressed file in which a recording is stored.
//!
//! [`MAGIC`], the version and four zero bytes, then frames: a header of [`FRAME_HEADER_SIZE`] bytes, and
//! the bytes that it describes. The first frame of each process is its [`ProcessHeader`], and the last
//! its [`ProcessEnd`]; its chunks are in between. The last frame of the file is the [`RecordingEnd`]. A
//! file that was cut off is readable up to the cut.
//!
//! The files, lowest first: `headers` (what is known besides the events), `columns` (the compression of
//! chunks), `frame` (the headers of frames), `writer`.

mod columns;
mod frame;
mod headers;
mod writer;

pub use crate::version::VERSION;
pub(crate) use columns::unpack as decompress;
pub(crate) use frame::{FILE_HEADER_SIZE, checksum};
pub use frame::{FRAME_HEADER_SIZE, MAGIC};
pub(crate) use frame::{FrameHeader, FrameKind};
pub use headers::{
    CallCosts, Cost, Costs, Outcome, ProcessEnd, ProcessHeader, RecordingEnd, SMALL,
    SmallTransfers, SystemCall, Usage,
};
pub use writer::{Chunk, Writer, compress};
