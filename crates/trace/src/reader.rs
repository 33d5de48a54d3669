//! Opening a recording.

use crate::container::{
    FILE_HEADER_SIZE, MAGIC, PACKET_HEADER_SIZE, PacketHeader, PacketKind, RecordingEnd, checksum,
};
use crate::error::TraceError;
use crate::merge::Events;
use crate::process::{ChunkLocation, Process};
use crate::stacks::Stacks;
use crate::version::VERSION;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A recording.
#[derive(Debug)]
pub struct RecordingReader {
    pub(crate) file: File,
    processes: Vec<Process>,
    end: Option<RecordingEnd>,
    /// The offset at which the file was cut off.
    cut_off_at: Option<u64>,
}

/// Whether sums of the numbers cannot overflow. The limit is more than two years in nanoseconds.
fn has_summable_numbers(value: &Value) -> bool {
    const MAX: f64 = (1_u64 << 56) as f64;
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() <= MAX),
        Value::Array(values) => values.iter().all(has_summable_numbers),
        Value::Object(fields) => fields.values().all(has_summable_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

impl RecordingReader {
    /// Opens a recording, and finds its processes. A file that was cut off is read up to the cut.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        // Opening a pipe would wait for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(TraceError::NotAFile);
        }
        Self::from_file(File::open(path)?)
    }

    /// [`open`](Self::open) for an open file.
    pub fn from_file(file: File) -> Result<Self, TraceError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(TraceError::NotAFile);
        }
        let size = metadata.len();
        let mut start = [0; FILE_HEADER_SIZE as usize];
        if size < FILE_HEADER_SIZE {
            return Err(TraceError::NotARecording);
        }
        file.read_exact_at(&mut start, 0)?;
        if start[..8] != MAGIC {
            return Err(TraceError::NotARecording);
        }
        let version = u32::from_le_bytes(start[8..12].try_into().unwrap_or_default());
        if version != VERSION {
            return Err(TraceError::Version(version));
        }
        let mut reader = Self { file, processes: Vec::new(), end: None, cut_off_at: None };
        let mut offset = FILE_HEADER_SIZE;
        while reader.end.is_none() {
            match reader.read_packet(offset, size)? {
                Some(next) => offset = next,
                None => {
                    reader.cut_off_at = Some(offset);
                    break;
                }
            }
        }
        Ok(reader)
    }

    /// Reads the packet at an offset, and returns the offset of the next. `Ok(None)` if the file
    /// ends before the packet does.
    fn read_packet(&mut self, offset: u64, size: u64) -> Result<Option<u64>, TraceError> {
        let body = offset + PACKET_HEADER_SIZE as u64;
        if body > size {
            return Ok(None);
        }
        let mut bytes = [0; PACKET_HEADER_SIZE];
        self.file.read_exact_at(&mut bytes, offset)?;
        let header = PacketHeader::read(&bytes, offset)?;
        let next = body + u64::from(header.length);
        if next > size {
            return Ok(None);
        }
        let number = header.process as usize;
        match header.kind {
            PacketKind::ProcessHeader => {
                if number != self.processes.len() {
                    return Err(TraceError::damaged(offset, "a process out of order"));
                }
                let header = self.json(&header, body)?;
                self.processes.push(Process { header, end: None, streams: BTreeMap::new() });
            }
            PacketKind::ProcessEnd => {
                let end = self.json(&header, body)?;
                self.known_process(number, offset)?.end = Some(end);
            }
            PacketKind::RecordingEnd => self.end = Some(self.json(&header, body)?),
            PacketKind::Chunk => {
                let chunks =
                    self.known_process(number, offset)?.streams.entry(header.stream).or_default();
                if chunks.len() != header.sequence as usize {
                    return Err(TraceError::damaged(offset, "a chunk out of order"));
                }
                chunks.push(ChunkLocation {
                    offset: body,
                    length: header.length,
                    raw_length: header.raw_length,
                    tick: header.tick,
                    checksum: header.checksum,
                });
            }
        }
        Ok(Some(next))
    }

    fn known_process(&mut self, number: usize, offset: u64) -> Result<&mut Process, TraceError> {
        self.processes.get_mut(number).ok_or_else(|| {
            TraceError::damaged(offset, "a packet of a process that was not announced")
        })
    }

    fn json<T: DeserializeOwned>(
        &self,
        header: &PacketHeader,
        offset: u64,
    ) -> Result<T, TraceError> {
        let mut text = vec![0; header.length as usize];
        self.file.read_exact_at(&mut text, offset)?;
        if checksum(&text) != header.checksum {
            return Err(TraceError::damaged(offset, "a header with a wrong checksum"));
        }
        let damaged = |error: serde_json::Error| TraceError::damaged(offset, error.to_string());
        let value: Value = serde_json::from_slice(&text).map_err(damaged)?;
        if !has_summable_numbers(&value) {
            return Err(TraceError::damaged(offset, "a counted number that is impossibly large"));
        }
        serde_json::from_value(value).map_err(damaged)
    }

    /// The process images in the order in which the recorder noticed them. The first is the
    /// recorded program.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The end of the recording. `None` if the recording was cut off before.
    pub fn end(&self) -> Option<&RecordingEnd> {
        self.end.as_ref()
    }

    /// The offset at which the recording was cut off, if it was. Everything before is readable.
    pub fn cut_off_at(&self) -> Option<u64> {
        self.cut_off_at
    }

    /// All events of a process in the order of their times.
    pub fn events(&self, process: usize) -> Result<Events<'_>, TraceError> {
        let process = self.processes.get(process).ok_or(TraceError::NoSuchProcess(process))?;
        Ok(Events::new(&self.file, process, Stacks::new()))
    }

    /// [`events`](Self::events) for a second reading, with the stacks that remained after the
    /// first. All stacks are known, and each event has the same stack number as before.
    pub fn events_again(
        &self,
        process: usize,
        mut stacks: Stacks,
    ) -> Result<Events<'_>, TraceError> {
        let process = self.processes.get(process).ok_or(TraceError::NoSuchProcess(process))?;
        stacks.rewind();
        Ok(Events::new(&self.file, process, stacks))
    }
}
