//! Writing a container.

use super::columns;
use super::headers::{ProcessEnd, ProcessHeader, RecordingEnd};
use super::packet::{FILE_HEADER_SIZE, MAGIC, MAX_JSON_SIZE, PacketHeader, PacketKind, checksum};
use crate::error::TraceError;
use crate::raw::CHUNK_CAPACITY;
use crate::version::VERSION;
use serde::Serialize;
use std::io::Write;

/// A chunk to be written to a container.
#[derive(Debug, Clone, Copy)]
pub struct ChunkEvents<'a> {
    /// The number of its process, from [`RecordingWriter::process`].
    pub process: u32,
    /// The number of its stream.
    pub stream: u32,
    /// Its number in the stream. Chunks are written in this order.
    pub sequence: u32,
    /// Ticks when it was taken.
    pub tick: u64,
    /// Its events.
    pub events: &'a [u8],
}

/// Writes a container. Each packet is complete when its call returns.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    file: W,
    processes: u32,
    written: u64,
}

/// Compresses events, for [`RecordingWriter::compressed`].
pub fn compress(events: &[u8]) -> Result<Vec<u8>, TraceError> {
    columns::pack(events)
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a container.
    pub fn new(mut file: W) -> Result<Self, TraceError> {
        let mut header = [0; FILE_HEADER_SIZE as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all(&header)?;
        Ok(Self { file, processes: 0, written: FILE_HEADER_SIZE })
    }

    /// The number of bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Begins a process, and returns its number.
    pub fn process(&mut self, header: &ProcessHeader) -> Result<u32, TraceError> {
        let process = self.processes;
        self.json(PacketKind::ProcessHeader, process, header)?;
        self.processes += 1;
        Ok(process)
    }

    /// Compresses and writes a chunk.
    pub fn chunk(&mut self, chunk: ChunkEvents<'_>) -> Result<(), TraceError> {
        let compressed = compress(chunk.events)?;
        self.compressed(chunk, &compressed)
    }

    /// Writes a chunk whose events [`compress`] has compressed.
    pub fn compressed(
        &mut self,
        chunk: ChunkEvents<'_>,
        compressed: &[u8],
    ) -> Result<(), TraceError> {
        if chunk.events.len() > CHUNK_CAPACITY || chunk.process >= self.processes {
            return Err(TraceError::damaged(self.written, "a chunk that no recorder writes"));
        }
        let header = PacketHeader {
            kind: PacketKind::Chunk,
            process: chunk.process,
            stream: chunk.stream,
            sequence: chunk.sequence,
            raw_length: chunk.events.len() as u32,
            length: compressed.len() as u32,
            tick: chunk.tick,
            checksum: checksum(compressed),
        };
        self.packet(header, compressed)
    }

    /// Ends a process.
    pub fn end_process(&mut self, process: u32, end: &ProcessEnd) -> Result<(), TraceError> {
        self.json(PacketKind::ProcessEnd, process, end)
    }

    /// Ends the container, and returns the file.
    pub fn finish(mut self, end: &RecordingEnd) -> Result<W, TraceError> {
        self.json(PacketKind::RecordingEnd, 0, end)?;
        self.file.flush()?;
        Ok(self.file)
    }

    fn json(
        &mut self,
        kind: PacketKind,
        process: u32,
        value: &impl Serialize,
    ) -> Result<(), TraceError> {
        let text = serde_json::to_vec(value).map_err(|error| TraceError::Io(error.into()))?;
        if text.len() > MAX_JSON_SIZE as usize {
            return Err(TraceError::damaged(self.written, "a header that is too long"));
        }
        let length = text.len() as u32;
        let header = PacketHeader {
            kind,
            process,
            stream: 0,
            sequence: 0,
            raw_length: length,
            length,
            tick: 0,
            checksum: checksum(&text),
        };
        self.packet(header, &text)
    }

    fn packet(&mut self, header: PacketHeader, body: &[u8]) -> Result<(), TraceError> {
        self.file.write_all(&header.to_bytes())?;
        self.file.write_all(body)?;
        self.written += (header.to_bytes().len() + body.len()) as u64;
        Ok(())
    }
}
