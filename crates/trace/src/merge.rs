//! The events of all threads in the order of their times.

use crate::error::TraceError;
use crate::modules::{ModuleId, Modules};
use crate::process::Process;
use crate::raw::{AllocationFlags, LockKind};
use crate::stacks::{NodeId, Stacks};
use crate::stream::{MAX_STREAM_MEMORY, PendingEvent, Stream, StreamMemory};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;

/// An event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The time in nanoseconds since the process began.
    pub time_ns: u64,
    /// The number of the thread. Threads are numbered from 0 in the order of their first events.
    pub thread: u32,
    /// What happened.
    pub action: EventAction,
}

/// What happened in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAction {
    /// The thread allocated a block. The time is that after the call.
    Alloc {
        /// The address of the block.
        address: u64,
        /// The requested size in bytes.
        size: u64,
        /// The stack of the call.
        site: NodeId,
        /// How it was allocated.
        flags: AllocationFlags,
    },
    /// The thread freed a block. The time is that before the call. A block that is not live was
    /// allocated before the recording began, or before a fork.
    Free {
        /// The address of the block.
        address: u64,
        /// By a reallocation. Its new block is this thread's next allocation.
        by_realloc: bool,
    },
    /// The thread queried the usable size of a block.
    Usable {
        /// The address of the block.
        address: u64,
    },
    /// The thread waited for a lock. The time is that after the wait.
    LockWait {
        /// The lock's address.
        address: u64,
        /// The kind of lock.
        lock: LockKind,
        /// The duration of the wait in nanoseconds.
        duration_ns: u64,
        /// The stack of the call.
        site: NodeId,
    },
    /// The thread's first event follows, or more events follow after its end.
    ThreadStart {
        /// The kernel's thread id.
        system_id: u32,
    },
    /// The thread ended. If it does more after its destructors, another start comes first.
    ThreadEnd,
    /// A module was noticed. This comes before any stack with frames in the module.
    ModuleLoaded(ModuleId),
    /// A module was unloaded.
    ModuleUnloaded(ModuleId),
}

/// The position of an event in the order of all: its time, whether it is an allocation, its stream.
/// Frees are stamped before the call and allocations after it, so of two at the same time, the free
/// was first.
type EventKey = Reverse<(u64, bool, u32)>;

/// The events of a process in the order of their times.
///
/// An iterator, which ends after an error. It keeps the current chunk of each stream in memory, and
/// the stacks and kinds.
#[derive(Debug)]
pub struct Events<'r> {
    streams: Vec<Stream<'r>>,
    /// The next events of the other streams.
    waiting: BinaryHeap<EventKey>,
    /// The stream of the last event. It is not in `waiting`.
    current: Option<u32>,
    start_tick: u64,
    ns_of_tick: u64,
    /// When the recording of the process ended. Later events are incomplete, and are left out.
    end_ns: u64,
    stacks: Stacks,
    modules: Modules,
    /// The numbers of threads, by the recorder's numbers.
    threads: HashMap<u32, u32>,
}

/// The limit on the number of threads in a process.
const MAX_THREADS: usize = 1 << 24;
/// All later times, of more than 146 years, are reported as this one.
const MAX_NS: u64 = 1 << 62;

impl<'r> Events<'r> {
    pub(crate) fn new(file: &'r File, process: &'r Process, stacks: Stacks) -> Self {
        Self::with_memory(file, process, stacks, StreamMemory::new(MAX_STREAM_MEMORY))
    }

    fn with_memory(
        file: &'r File,
        process: &'r Process,
        stacks: Stacks,
        memory: StreamMemory,
    ) -> Self {
        let mut streams = Vec::new();
        let mut waiting = BinaryHeap::new();
        for chunks in process.streams.values() {
            // The stream is opened when its first event is next.
            waiting.push(Reverse((chunks[0].tick, false, streams.len() as u32)));
            streams.push(Stream::new(file, chunks, memory.clone()));
        }
        Self {
            streams,
            waiting,
            current: None,
            start_tick: process.header.start_tick,
            ns_of_tick: process.ns_of_tick(),
            end_ns: process.end.as_ref().and_then(|end| end.full_at_ns).unwrap_or(u64::MAX),
            stacks,
            modules: Modules::default(),
            threads: HashMap::new(),
        }
    }

    /// The stacks of the events so far.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// The modules that were noticed so far.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The stacks and modules of all events so far.
    pub fn into_parts(self) -> (Stacks, Modules) {
        (self.stacks, self.modules)
    }

    #[inline]
    fn ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.ns_of_tick)) >> 32;
        ns.min(u128::from(MAX_NS)) as u64
    }

    fn key(&self, stream: u32) -> EventKey {
        let state = &self.streams[stream as usize];
        Reverse((state.tick(), matches!(state.pending, Some(PendingEvent::Alloc { .. })), stream))
    }

    /// The stream with the next event.
    #[inline]
    fn next_stream(&mut self) -> Result<Option<usize>, TraceError> {
        if let Some(current) = self.current {
            if self.streams[current as usize].advance()? {
                let key = self.key(current);
                match self.waiting.peek() {
                    // The order is reversed: the largest key comes first.
                    Some(other) if *other > key => self.waiting.push(key),
                    _ => return Ok(Some(current as usize)),
                }
            }
            self.current = None;
        }
        while let Some(Reverse((_, _, stream))) = self.waiting.pop() {
            if self.streams[stream as usize].pending.is_some() {
                self.current = Some(stream);
                return Ok(Some(stream as usize));
            }
            if self.streams[stream as usize].advance()? {
                let key = self.key(stream);
                self.waiting.push(key);
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn step(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let Some(number) = self.next_stream()? else { return Ok(None) };
            let time = self.streams[number].tick().saturating_sub(self.start_tick);
            let time_ns = self.ns(time);
            if time_ns >= self.end_ns {
                self.current = None;
                self.waiting.clear();
                return Ok(None);
            }
            let stream = &mut self.streams[number];
            if stream.has_announcements() {
                stream.apply_announcements(&mut self.stacks, &self.modules)?;
            }
            let stream = &mut self.streams[number];
            let action = match stream.pending.clone() {
                Some(PendingEvent::Alloc { address, kind }) => {
                    let kind = stream.kind(kind)?;
                    EventAction::Alloc {
                        address,
                        size: kind.size,
                        site: kind.site,
                        flags: kind.flags,
                    }
                }
                Some(PendingEvent::Free { address, by_realloc }) => {
                    EventAction::Free { address, by_realloc }
                }
                Some(PendingEvent::Usable { address }) => EventAction::Usable { address },
                Some(PendingEvent::Thread { thread, system_id }) => {
                    let threads = self.threads.len();
                    stream.thread = *self.threads.entry(thread).or_insert(threads as u32);
                    if threads > MAX_THREADS {
                        return Err(stream.error("more threads than a recording can have"));
                    }
                    EventAction::ThreadStart { system_id }
                }
                Some(PendingEvent::ThreadEnd) => EventAction::ThreadEnd,
                Some(PendingEvent::Wait(wait)) => {
                    let site = stream.node(wait.node)?;
                    let duration_ns = self.ns(wait.ticks);
                    EventAction::LockWait {
                        address: wait.address,
                        lock: wait.lock,
                        duration_ns,
                        site,
                    }
                }
                Some(PendingEvent::Module(decoder)) => {
                    let loaded = self.modules.load(&stream.module(&decoder)?, time_ns);
                    EventAction::ModuleLoaded(loaded.map_err(|what| stream.error(what))?)
                }
                Some(PendingEvent::ModuleUnloaded { start }) => {
                    match self.modules.unload(start, time_ns) {
                        Some(id) => EventAction::ModuleUnloaded(id),
                        // Another thread has reported that already.
                        None => continue,
                    }
                }
                None => continue,
            };
            return Ok(Some(Event { time_ns, thread: self.streams[number].thread, action }));
        }
    }
}

impl Events<'_> {
    /// Appends at most `max_count` events to `into`, and none at the end. Faster than one by one.
    pub fn read(&mut self, into: &mut Vec<Event>, max_count: usize) -> Result<(), TraceError> {
        into.reserve(max_count);
        for _ in 0..max_count {
            match self.step() {
                Ok(Some(event)) => into.push(event),
                Ok(None) => break,
                Err(error) => return Err(self.end_with(error)),
            }
        }
        Ok(())
    }

    /// Makes the iterator end after an error.
    #[cold]
    fn end_with(&mut self, error: TraceError) -> TraceError {
        self.current = None;
        self.waiting.clear();
        error
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.step() {
            Ok(event) => event.map(Ok),
            Err(error) => Some(Err(self.end_with(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordingReader;
    use crate::container::{ChunkEvents, ProcessEnd, ProcessHeader, RecordingWriter};
    use std::io::Write;

    /// A recording with one chunk for each stream.
    fn recording(streams: u32, events: &[u8]) -> RecordingReader {
        let mut writer = RecordingWriter::new(Vec::new()).unwrap();
        let header = ProcessHeader {
            pid: 1,
            parent: 0,
            image: 0,
            forked: false,
            executable: String::new(),
            command: Vec::new(),
            start_ns: 0,
            start_tick: 0,
            ns_of_tick: 1 << 40,
        };
        let process = writer.process(&header).unwrap();
        for stream in 0..streams {
            writer.chunk(ChunkEvents { process, stream, sequence: 0, tick: 0, events }).unwrap();
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        RecordingReader::from_file(file).unwrap()
    }

    fn read(reader: &RecordingReader, limit: usize) -> Result<usize, String> {
        let process = &reader.processes()[0];
        let memory = StreamMemory::new(limit);
        let mut events = Events::with_memory(&reader.file, process, Stacks::new(), memory.clone());
        let all = events.by_ref().try_fold(0, |all, event| event.map(|_| all + 1));
        let accounted: usize = events.streams.iter().map(Stream::accounted_bytes).sum();
        assert_eq!(accounted, memory.bytes());
        all.map_err(|error| error.to_string())
    }

    #[test]
    fn a_small_file_takes_no_more_memory_than_the_limit() {
        // A free, and nothing after it: about 50 bytes in the file.
        let mut events = vec![0; 200_000];
        events[..3].copy_from_slice(&[0b1000_0000, 1, 2]);
        let reader = recording(100, &events);
        assert!(reader.file.metadata().unwrap().len() < 20_000);
        assert_eq!(read(&reader, 30_000_000), Ok(100));
        let error = read(&reader, 10_000_000).unwrap_err();
        assert!(error.contains("more threads and stacks at once"), "{error}");
    }

    #[test]
    fn announcements_before_an_event_take_no_more_memory_than_the_limit() {
        // Nodes, and no event.
        let events = [1, 0, 2].repeat(60_000);
        let reader = recording(50, &events);
        assert_eq!(read(&reader, 100_000_000), Ok(0));
        let error = read(&reader, 1_000_000).unwrap_err();
        assert!(error.contains("more threads and stacks at once"), "{error}");
    }

    #[test]
    fn a_recording_that_ended_ends_for_all_streams() {
        // Three frees at ticks 1, 2 and 3. According to the process's end, an event at 2 was lost.
        let events = [0b1000_0000, 1, 2].repeat(3);
        let whole = recording(2, &events);
        assert_eq!(read(&whole, 1_000_000), Ok(6));
        let header = &whole.processes()[0].header;
        let mut writer = RecordingWriter::new(Vec::new()).unwrap();
        let process = writer.process(header).unwrap();
        for stream in 0..2 {
            let chunk = ChunkEvents { process, stream, sequence: 0, tick: 0, events: &events };
            writer.chunk(chunk).unwrap();
        }
        let ns_of_tick = header.ns_of_tick;
        let full_at_ns = Some((2 * ns_of_tick) >> 32);
        let end = ProcessEnd { ns_of_tick, full_at_ns, ..Default::default() };
        writer.end_process(process, &end).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        assert_eq!(read(&RecordingReader::from_file(file).unwrap(), 1_000_000), Ok(2));
    }

    #[test]
    fn a_stream_that_has_ended_takes_no_memory() {
        // The streams follow each other, by the times of their frees.
        let mut events = vec![0; 200_000];
        events[..3].copy_from_slice(&[0b1000_0000, 1, 2]);
        let mut writer = RecordingWriter::new(Vec::new()).unwrap();
        let reader = recording(0, &events);
        let process = writer.process(&reader.processes()[0].header).unwrap();
        for stream in 0..100 {
            let tick = u64::from(stream) * 10;
            writer
                .chunk(ChunkEvents { process, stream, sequence: 0, tick, events: &events })
                .unwrap();
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        assert_eq!(read(&RecordingReader::from_file(file).unwrap(), 1_000_000), Ok(100));
    }
}
