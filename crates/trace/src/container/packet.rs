//! The header of a packet.

use crate::TraceError;
use crate::raw::CHUNK_CAPACITY;

/// The first bytes of a container.
pub const MAGIC: [u8; 8] = *b"ALLOTREC";
/// The largest packet that is not a chunk, in bytes.
pub(crate) const MAX_JSON_SIZE: u32 = 16 << 20;
/// Bytes of a packet's header.
pub const PACKET_HEADER_SIZE: usize = 40;
/// Bytes before the first packet.
pub(crate) const FILE_HEADER_SIZE: u64 = 16;

/// What a packet holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketKind {
    Chunk,
    ProcessHeader,
    ProcessEnd,
    RecordingEnd,
}

/// The header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketHeader {
    pub kind: PacketKind,
    pub process: u32,
    pub stream: u32,
    pub sequence: u32,
    /// The number of bytes after decompression. For JSON, the same as `length`.
    pub raw_length: u32,
    /// The number of bytes that follow.
    pub length: u32,
    pub tick: u64,
    /// The checksum of the bytes that follow.
    pub checksum: u32,
}

impl PacketHeader {
    pub fn to_bytes(self) -> [u8; PACKET_HEADER_SIZE] {
        let mut bytes = [0; PACKET_HEADER_SIZE];
        let kind: u32 = match self.kind {
            PacketKind::Chunk => 1,
            PacketKind::ProcessHeader => 2,
            PacketKind::ProcessEnd => 3,
            PacketKind::RecordingEnd => 4,
        };
        let words = [kind, self.process, self.stream, self.sequence, self.raw_length, self.length];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.tick.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let header_sum = checksum(&bytes[..36]);
        bytes[36..].copy_from_slice(&header_sum.to_le_bytes());
        bytes
    }

    /// Reads the header of the packet at an offset of the file, which errors name.
    pub fn read(bytes: &[u8; PACKET_HEADER_SIZE], offset: u64) -> Result<Self, TraceError> {
        let word =
            |i: usize| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap_or_default());
        if checksum(&bytes[..36]) != word(9) {
            return Err(TraceError::damaged(offset, "a packet's header with a wrong checksum"));
        }
        let kind = match word(0) {
            1 => PacketKind::Chunk,
            2 => PacketKind::ProcessHeader,
            3 => PacketKind::ProcessEnd,
            4 => PacketKind::RecordingEnd,
            other => {
                return Err(TraceError::damaged(
                    offset,
                    format!("a packet of the unknown kind {other}"),
                ));
            }
        };
        let header = Self {
            kind,
            process: word(1),
            stream: word(2),
            sequence: word(3),
            raw_length: word(4),
            length: word(5),
            tick: u64::from(word(6)) | u64::from(word(7)) << 32,
            checksum: word(8),
        };
        let max_length = if kind == PacketKind::Chunk {
            if header.raw_length as usize > CHUNK_CAPACITY {
                return Err(TraceError::damaged(offset, "a chunk that is too large"));
            }
            2 * CHUNK_CAPACITY as u32
        } else {
            MAX_JSON_SIZE
        };
        if header.length > max_length {
            return Err(TraceError::damaged(offset, "a packet that is too large"));
        }
        Ok(header)
    }
}

/// FNV-1a over words of eight bytes, folded. It detects the damage that disks and copies do to
/// files, and costs little.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        sum = (sum ^ u64::from_le_bytes(word.try_into().unwrap_or_default())).wrapping_mul(PRIME);
        sum ^= sum >> 29;
    }
    for &byte in rest {
        sum = (sum ^ u64::from(byte)).wrapping_mul(PRIME);
    }
    (sum ^ sum >> 32) as u32
}
