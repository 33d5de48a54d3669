//! Recordings that are made in memory.

use std::fs::File;
use std::io::Write;
use trace_format::container::{
    ChunkEvents, ProcessEnd, ProcessHeader, RecordingEnd, RecordingWriter,
};
use trace_format::raw::{CHUNK_CAPACITY, Encoder, MAX_MODULE_SIZE};

/// 5 ns per tick, times 2^32.
pub const FIVE_NS: u64 = 5 << 32;

/// Writes a stream in chunks, as a recorder does.
pub struct Stream {
    buffer: Vec<u8>,
    encoder: Encoder,
    begin_tick: u64,
    pub chunks: Vec<(u64, Vec<u8>)>,
}

impl Stream {
    pub fn new(tick: u64) -> Self {
        let mut stream = Self {
            buffer: Vec::new(),
            encoder: Encoder::closed(),
            begin_tick: tick,
            chunks: Vec::new(),
        };
        stream.open(tick);
        stream
    }

    fn open(&mut self, tick: u64) {
        self.buffer = vec![0; CHUNK_CAPACITY];
        self.begin_tick = tick;
        // SAFETY: the buffer is zero, and is not used otherwise until the chunk is closed.
        unsafe { self.encoder.open(self.buffer.as_mut_ptr(), CHUNK_CAPACITY, tick) };
    }

    fn close(&mut self) {
        let used = CHUNK_CAPACITY - self.encoder.bytes_left();
        self.buffer.truncate(used);
        self.chunks.push((self.begin_tick, std::mem::take(&mut self.buffer)));
    }

    /// The encoder, with space for any event.
    pub fn encoder(&mut self, tick: u64) -> &mut Encoder {
        if self.encoder.bytes_left() < MAX_MODULE_SIZE {
            self.close();
            self.open(tick);
        }
        &mut self.encoder
    }

    pub fn finish(mut self) -> Vec<(u64, Vec<u8>)> {
        self.close();
        std::mem::take(&mut self.chunks)
    }
}

pub fn header(pid: u32) -> ProcessHeader {
    ProcessHeader {
        pid,
        parent: 1,
        image: 0,
        forked: false,
        executable: "/usr/bin/program".to_owned(),
        command: vec!["program".to_owned(), "argument".to_owned()],
        start_ns: 17,
        start_tick: 1_000,
        ns_of_tick: FIVE_NS,
    }
}

/// A container of one process with these streams' chunks.
pub fn container(streams: &[Vec<(u64, Vec<u8>)>]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new()).unwrap();
    let process = writer.process(&header(42)).unwrap();
    for (stream, chunks) in streams.iter().enumerate() {
        for (sequence, (tick, events)) in chunks.iter().enumerate() {
            let (stream, sequence) = (stream as u32, sequence as u32);
            writer.chunk(ChunkEvents { process, stream, sequence, tick: *tick, events }).unwrap();
        }
    }
    let end = ProcessEnd { ns_of_tick: FIVE_NS, exited: true, ..Default::default() };
    writer.end_process(process, &end).unwrap();
    writer.finish(&RecordingEnd::default()).unwrap()
}

/// The bytes as a file.
pub fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}
