//! The compressed file in which a recording is stored.
//!
//! [`MAGIC`], the version and four zero bytes, then packets: a header of [`PACKET_HEADER_SIZE`]
//! bytes, and the bytes that it describes. The first packet of each process is its
//! [`ProcessHeader`], and the last its [`ProcessEnd`]; its chunks are in between. The last packet
//! of the file is the [`RecordingEnd`]. A file that was cut off is readable up to the cut.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `headers` | what is known about a recording besides its events |
//! | `columns` | the compression of chunks |
//! | `packet` | the headers of packets |
//! | `writer` | writing a container |

mod columns;
mod headers;
mod packet;
mod writer;

pub use crate::version::VERSION;
pub(crate) use columns::unpack as decompress;
pub use headers::{
    AllocatorCosts, ProcessEnd, ProcessHeader, ProgramExit, RecordingEnd, ResourceUsage, SMALL,
    SampledCost, SmallTransfers, SystemCallCosts, SystemCallCounts,
};
pub(crate) use packet::{FILE_HEADER_SIZE, checksum};
pub use packet::{MAGIC, PACKET_HEADER_SIZE};
pub(crate) use packet::{PacketHeader, PacketKind};
pub use writer::{ChunkEvents, RecordingWriter, compress};
