//! Opening a recording.

use crate::container::{
    FILE_HEADER_SIZE, FRAME_HEADER_SIZE, FrameHeader, FrameKind, MAGIC, ProcessEnd, ProcessHeader,
    RecordingEnd, VERSION, checksum,
};
use crate::{Events, Stacks, TraceError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A recording.
#[derive(Debug)]
pub struct Reader {
    pub(crate) file: File,
    processes: Vec<Process>,
    end: Option<RecordingEnd>,
    cut_at: Option<u64>,
}

/// A process image of a recording.
#[derive(Debug)]
pub struct Process {
    /// As it began.
    pub header: ProcessHeader,
    /// As it ended; `None` where the recording was cut off before.
    pub end: Option<ProcessEnd>,
    pub(crate) streams: BTreeMap<u32, Vec<FrameAt>>,
}

/// Where a chunk is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameAt {
    pub offset: u64,
    pub length: u32,
    pub raw_length: u32,
    pub tick: u64,
    pub checksum: u32,
}

impl Process {
    /// Bytes of its events in the file.
    pub fn compressed_bytes(&self) -> u64 {
        self.streams.values().flatten().map(|chunk| u64::from(chunk.length)).sum()
    }

    /// Bytes of its events before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.streams.values().flatten().map(|chunk| u64::from(chunk.raw_length)).sum()
    }

    /// Nanoseconds of a tick, as a multiple of 2^-32.
    pub(crate) fn ns_of_tick(&self) -> u64 {
        self.end.as_ref().map_or(self.header.ns_of_tick, |end| end.ns_of_tick)
    }
}

/// Whether all numbers leave room for their sums: nanoseconds of more than two years, or as many bytes, are none.
fn can_be_counted(value: &Value) -> bool {
    const MOST: f64 = (1_u64 << 56) as f64;
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number.abs() <= MOST),
        Value::Array(values) => values.iter().all(can_be_counted),
        Value::Object(fields) => fields.values().all(can_be_counted),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

impl Reader {
    /// Opens a recording, and finds its processes. A file that was cut off gives what is there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        // Opening a pipe would wait for somebody who writes to it.
        if !std::fs::metadata(path)?.is_file() {
            return Err(TraceError::NotAFile);
        }
        Self::from_file(File::open(path)?)
    }

    /// The same from a file that is open.
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
        let mut reader = Self { file, processes: Vec::new(), end: None, cut_at: None };
        let mut at = FILE_HEADER_SIZE;
        while reader.end.is_none() {
            match reader.frame(at, size)? {
                Some(next) => at = next,
                None => {
                    reader.cut_at = Some(at);
                    break;
                }
            }
        }
        Ok(reader)
    }

    /// Takes the frame at an offset. `Ok(None)`: the file ends before the frame does.
    fn frame(&mut self, at: u64, size: u64) -> Result<Option<u64>, TraceError> {
        let body = at + FRAME_HEADER_SIZE as u64;
        if body > size {
            return Ok(None);
        }
        let mut bytes = [0; FRAME_HEADER_SIZE];
        self.file.read_exact_at(&mut bytes, at)?;
        let header = FrameHeader::read(&bytes, at)?;
        let next = body + u64::from(header.length);
        if next > size {
            return Ok(None);
        }
        let number = header.process as usize;
        match header.kind {
            FrameKind::ProcessHeader => {
                if number != self.processes.len() {
                    return Err(TraceError::damaged(at, "a process out of order"));
                }
                let header = self.json(&header, body)?;
                self.processes.push(Process { header, end: None, streams: BTreeMap::new() });
            }
            FrameKind::ProcessEnd => {
                let end = self.json(&header, body)?;
                self.known(number, at)?.end = Some(end);
            }
            FrameKind::RecordingEnd => self.end = Some(self.json(&header, body)?),
            FrameKind::Chunk => {
                let chunks = self.known(number, at)?.streams.entry(header.stream).or_default();
                if chunks.len() != header.sequence as usize {
                    return Err(TraceError::damaged(at, "a chunk out of order"));
                }
                chunks.push(FrameAt {
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

    fn known(&mut self, number: usize, at: u64) -> Result<&mut Process, TraceError> {
        self.processes
            .get_mut(number)
            .ok_or_else(|| TraceError::damaged(at, "a frame of a process that was not announced"))
    }

    fn json<T: DeserializeOwned>(&self, header: &FrameHeader, at: u64) -> Result<T, TraceError> {
        let mut text = vec![0; header.length as usize];
        self.file.read_exact_at(&mut text, at)?;
        if checksum(&text) != header.checksum {
            return Err(TraceError::damaged(at, "a header with a wrong checksum"));
        }
        let damaged = |error: serde_json::Error| TraceError::damaged(at, error.to_string());
        let value: Value = serde_json::from_slice(&text).map_err(damaged)?;
        if !can_be_counted(&value) {
            return Err(TraceError::damaged(at, "a counted number that is impossibly large"));
        }
        serde_json::from_value(value).map_err(damaged)
    }

    /// The process images, in the order in which they were noticed; the program that was asked for is the first.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// How the program ended; `None` where the recording was cut off before.
    pub fn end(&self) -> Option<&RecordingEnd> {
        self.end.as_ref()
    }

    /// Where the recording was cut off, if it was: what is before can be read.
    pub fn cut_off_at(&self) -> Option<u64> {
        self.cut_at
    }

    /// All events of a process in the order of their time.
    pub fn events(&self, process: usize) -> Result<Events<'_>, TraceError> {
        let process = self.processes.get(process).ok_or(TraceError::NoSuchProcess(process))?;
        Ok(Events::new(&self.file, process, Stacks::new()))
    }

    /// The same once more, with the stacks that were left when they had been read before: all of them are known, and each
    /// event's has the number that it had.
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
