//! The events of all threads in the order of their time.

use crate::raw::{Flags, Lock};
use crate::stream::{Head, Held, MOST_HELD, Stream};
use crate::{ModuleId, Modules, NodeId, Process, Stacks, TraceError};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;

/// Something that a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds since the process began.
    pub time_ns: u64,
    /// The process's number of the thread; they count from 0 in the order in which they were first seen.
    pub thread: u32,
    /// What it did.
    pub what: What,
}

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It allocated a block; the time is the one after the call.
    Alloc {
        /// Where.
        address: u64,
        /// Bytes that were asked for.
        size: u64,
        /// The stack that asked.
        site: NodeId,
        /// How.
        flags: Flags,
    },
    /// It freed a block; the time is the one before the call. A block that isn't live was there before the recording
    /// began, or before a fork.
    Free {
        /// Where.
        address: u64,
        /// By a reallocation, whose new block is this thread's next allocation.
        by_realloc: bool,
    },
    /// It asked for the usable size of a block.
    Usable {
        /// Where.
        address: u64,
    },
    /// It waited for a lock; the time is when it had it.
    LockWait {
        /// The lock's address.
        address: u64,
        /// What kind of lock.
        lock: Lock,
        /// How long it waited.
        duration_ns: u64,
        /// The stack that waited.
        site: NodeId,
    },
    /// The thread did its first, or something more behind its end.
    ThreadStart {
        /// The system's number of it.
        system_id: u32,
    },
    /// The thread ended; what it does behind its destructors comes after another start.
    ThreadEnd,
    /// A module was noticed, before any stack that has frames in it.
    ModuleLoaded(ModuleId),
    /// A module has gone.
    ModuleUnloaded(ModuleId),
}

/// The next event of a stream in the order of events: frees are stamped before the call and allocations after, so of
/// the two at one time the free was first.
type Key = Reverse<(u64, bool, u32)>;

/// The events of a process in the order of their time.
///
/// An iterator; after an error it ends. It keeps in memory the chunk that each thread is in, and the stacks and kinds.
#[derive(Debug)]
pub struct Events<'r> {
    streams: Vec<Stream<'r>>,
    waiting: BinaryHeap<Key>,
    /// The stream whose events come now, and the key of the first one of another stream.
    current: Option<u32>,
    start_tick: u64,
    ns_of_tick: u64,
    /// When the recording of the process ended; what some of its threads wrote from there on isn't all that happened.
    end_ns: u64,
    stacks: Stacks,
    modules: Modules,
    /// The threads that were seen, by the recorder's number.
    threads: HashMap<u32, u32>,
}

/// Threads of a process.
const MOST_THREADS: usize = 1 << 24;
/// What is later than 146 years isn't told apart.
const LATEST_NS: u64 = 1 << 62;

impl<'r> Events<'r> {
    pub(crate) fn new(file: &'r File, process: &'r Process, stacks: Stacks) -> Self {
        Self::within(file, process, stacks, Held::new(MOST_HELD))
    }

    fn within(file: &'r File, process: &'r Process, stacks: Stacks, held: Held) -> Self {
        let mut streams = Vec::new();
        let mut waiting = BinaryHeap::new();
        for chunks in process.streams.values() {
            // It is opened when its time has come.
            waiting.push(Reverse((chunks[0].tick, false, streams.len() as u32)));
            streams.push(Stream::new(file, chunks, held.clone()));
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

    /// The stacks that were met so far.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// The modules that were met so far.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// What is left once there are no more events.
    pub fn into_parts(self) -> (Stacks, Modules) {
        (self.stacks, self.modules)
    }

    #[inline]
    fn ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.ns_of_tick)) >> 32;
        ns.min(u128::from(LATEST_NS)) as u64
    }

    fn key(&self, stream: u32) -> Key {
        let state = &self.streams[stream as usize];
        Reverse((state.tick(), matches!(state.head, Some(Head::Alloc { .. })), stream))
    }

    /// The stream whose head is the next event.
    #[inline]
    fn turn(&mut self) -> Result<Option<usize>, TraceError> {
        if let Some(current) = self.current {
            if self.streams[current as usize].advance()? {
                let key = self.key(current);
                match self.waiting.peek() {
                    // Reversed: the largest comes first.
                    Some(other) if *other > key => self.waiting.push(key),
                    _ => return Ok(Some(current as usize)),
                }
            }
            self.current = None;
        }
        while let Some(Reverse((_, _, stream))) = self.waiting.pop() {
            if self.streams[stream as usize].head.is_some() {
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
            let Some(number) = self.turn()? else { return Ok(None) };
            let time = self.streams[number].tick().saturating_sub(self.start_tick);
            let time_ns = self.ns(time);
            if time_ns >= self.end_ns {
                self.current = None;
                self.waiting.clear();
                return Ok(None);
            }
            let stream = &mut self.streams[number];
            if stream.has_announced() {
                stream.learn(&mut self.stacks, &self.modules)?;
            }
            let stream = &mut self.streams[number];
            let what = match stream.head.clone() {
                Some(Head::Alloc { address, kind }) => {
                    let kind = stream.kind(kind)?;
                    What::Alloc { address, size: kind.size, site: kind.site, flags: kind.flags }
                }
                Some(Head::Free { address, by_realloc }) => What::Free { address, by_realloc },
                Some(Head::Usable { address }) => What::Usable { address },
                Some(Head::Thread { thread, system_id }) => {
                    let threads = self.threads.len();
                    stream.thread = *self.threads.entry(thread).or_insert(threads as u32);
                    if threads > MOST_THREADS {
                        return Err(stream.wrong("more threads than a recording can have"));
                    }
                    What::ThreadStart { system_id }
                }
                Some(Head::ThreadEnd) => What::ThreadEnd,
                Some(Head::Wait(wait)) => {
                    let site = stream.node(wait.node)?;
                    let duration_ns = self.ns(wait.ticks);
                    What::LockWait { address: wait.address, lock: wait.lock, duration_ns, site }
                }
                Some(Head::Module(at)) => {
                    let loaded = self.modules.load(&stream.module(&at)?, time_ns);
                    What::ModuleLoaded(loaded.map_err(|what| stream.wrong(what))?)
                }
                Some(Head::ModuleGone { start }) => match self.modules.unload(start, time_ns) {
                    Some(id) => What::ModuleUnloaded(id),
                    // Another thread has said so.
                    None => continue,
                },
                None => continue,
            };
            return Ok(Some(Event { time_ns, thread: self.streams[number].thread, what }));
        }
    }
}

impl Events<'_> {
    /// Adds the next events to `into`, `most` of them if there are so many. Nothing is added at the end. Quicker than one by one.
    pub fn read(&mut self, into: &mut Vec<Event>, most: usize) -> Result<(), TraceError> {
        into.reserve(most);
        for _ in 0..most {
            match self.step() {
                Ok(Some(event)) => into.push(event),
                Ok(None) => break,
                Err(error) => return Err(self.end(error)),
            }
        }
        Ok(())
    }

    /// There is nothing behind an error.
    #[cold]
    fn end(&mut self, error: TraceError) -> TraceError {
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
            Err(error) => Some(Err(self.end(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;
    use crate::container::{Chunk, ProcessEnd, ProcessHeader, Writer};
    use std::io::Write;

    /// A recording with a chunk for each of so many streams.
    fn recording(streams: u32, events: &[u8]) -> Reader {
        let mut writer = Writer::new(Vec::new()).unwrap();
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
            writer.chunk(Chunk { process, stream, sequence: 0, tick: 0, events }).unwrap();
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        Reader::from_file(file).unwrap()
    }

    fn read(reader: &Reader, most: usize) -> Result<usize, String> {
        let process = &reader.processes()[0];
        let held = Held::new(most);
        let mut events = Events::within(&reader.file, process, Stacks::new(), held.clone());
        let all = events.by_ref().try_fold(0, |all, event| event.map(|_| all + 1));
        let left: usize = events.streams.iter().map(Stream::holds_now).sum();
        assert_eq!(left, held.now());
        all.map_err(|error| error.to_string())
    }

    #[test]
    fn a_small_file_takes_no_more_memory_than_is_said() {
        // A free, and nothing behind it: some 50 bytes in the file.
        let mut events = vec![0; 200_000];
        events[..3].copy_from_slice(&[0b1000_0000, 1, 2]);
        let reader = recording(100, &events);
        assert!(reader.file.metadata().unwrap().len() < 20_000);
        assert_eq!(read(&reader, 30_000_000), Ok(100));
        let error = read(&reader, 10_000_000).unwrap_err();
        assert!(error.contains("more threads and stacks at once"), "{error}");
    }

    #[test]
    fn what_is_announced_before_an_event_takes_no_more_than_is_said() {
        // Nodes, and no event.
        let events = [1, 0, 2].repeat(60_000);
        let reader = recording(50, &events);
        assert_eq!(read(&reader, 100_000_000), Ok(0));
        let error = read(&reader, 1_000_000).unwrap_err();
        assert!(error.contains("more threads and stacks at once"), "{error}");
    }

    #[test]
    fn a_recording_that_ended_ends_for_all_streams() {
        // Three frees, at ticks 1, 2 and 3; what one stream had at 2 was lost, says the process's end.
        let events = [0b1000_0000, 1, 2].repeat(3);
        let whole = recording(2, &events);
        assert_eq!(read(&whole, 1_000_000), Ok(6));
        let header = &whole.processes()[0].header;
        let mut writer = Writer::new(Vec::new()).unwrap();
        let process = writer.process(header).unwrap();
        for stream in 0..2 {
            let chunk = Chunk { process, stream, sequence: 0, tick: 0, events: &events };
            writer.chunk(chunk).unwrap();
        }
        let ns_of_tick = header.ns_of_tick;
        let full_at_ns = Some((2 * ns_of_tick) >> 32);
        let end = ProcessEnd { ns_of_tick, full_at_ns, ..Default::default() };
        writer.end_process(process, &end).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        assert_eq!(read(&Reader::from_file(file).unwrap(), 1_000_000), Ok(2));
    }

    #[test]
    fn what_ended_holds_nothing() {
        // One thread after the other, by the times of the frees.
        let mut events = vec![0; 200_000];
        events[..3].copy_from_slice(&[0b1000_0000, 1, 2]);
        let mut writer = Writer::new(Vec::new()).unwrap();
        let reader = recording(0, &events);
        let process = writer.process(&reader.processes()[0].header).unwrap();
        for stream in 0..100 {
            let tick = u64::from(stream) * 10;
            writer.chunk(Chunk { process, stream, sequence: 0, tick, events: &events }).unwrap();
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&writer.finish(&Default::default()).unwrap()).unwrap();
        assert_eq!(read(&Reader::from_file(file).unwrap(), 1_000_000), Ok(100));
    }
}
