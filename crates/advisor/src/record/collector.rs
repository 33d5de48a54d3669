//! Packs the raw files of processes into a recording, while they are written and afterwards.

use recorder::clock;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use trace_format::TraceError;
use trace_format::container::{
    AllocatorCosts, ChunkEvents, ProcessEnd, ProcessHeader, RecordingWriter, SampledCost,
};
use trace_format::raw::{
    CHUNK_CAPACITY, CHUNK_HEADER_SIZE, CHUNK_SIZE, ClockPair, Decoder, HEADER_SIZE,
    RawAllocatorCosts, RawChunkHeader, RawEvent, RawFileHeader, TICK_SHIFT, state,
};

/// The totals over all recorded processes.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct RecordingTotals {
    /// Processes; each program that a process executes counts.
    pub processes: u64,
    /// Threads of all of them.
    pub threads: u64,
    /// Allocations, frees and waits for locks.
    pub events: u64,
    /// Bytes of their chunks, before compression.
    pub raw_bytes: u64,
    /// Calls that were not recorded because memory ran out.
    pub missed: u64,
    /// The process whose recording ended early, and why; the rest of that process is lost.
    pub full: Option<EarlyEnd>,
    /// C++'s `operator new` was not recorded.
    pub new_unseen: Option<BypassingOperatorNew>,
    /// Processes whose executable has a `malloc` of its own.
    pub own_malloc: Option<ProcessesWithOwnMalloc>,
    /// Processes that still ran when the program had ended.
    pub still_running: u64,
    /// Parts of raw files that could not be read.
    pub damaged: Vec<String>,
}

/// A process's recording ended early.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct EarlyEnd {
    /// The process.
    pub pid: u32,
    /// Seconds since the process began.
    pub at_seconds: f64,
    /// Why.
    pub why: String,
}

/// Processes of which nothing was recorded, because their executable has a `malloc` of its own.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ProcessesWithOwnMalloc {
    /// The first one's executable.
    pub executable: String,
    pub processes: u64,
}

/// An `operator new` that isn't made of `malloc`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct BypassingOperatorNew {
    /// The first process that needed it.
    pub pid: u32,
    /// How many did.
    pub processes: u64,
    /// The library that has it in the first process.
    pub library: String,
    /// A line that says what is missing, and what to do about it.
    pub why: String,
}

impl BypassingOperatorNew {
    /// The reason, with the processes that it applies to.
    pub fn in_one_line(&self) -> String {
        let others = match self.processes {
            0 | 1 => String::new(),
            processes => format!(" and {} more", processes - 1),
        };
        format!("in process {}{others} {}", self.pid, self.why)
    }
}

/// A raw file.
struct RawFile {
    path: PathBuf,
    file: File,
    pid: u32,
    /// Its number in the recording.
    process: u32,
    start: ClockPair,
    /// The chunks that are still to be packed, and the number of the next chunk to be found.
    waiting: Vec<u32>,
    next: u32,
    /// The number of packed chunks of each stream.
    streams: BTreeMap<u32, u32>,
    events: u64,
    raw_bytes: u64,
    /// If the process still runs: the tick up to which its events are packed.
    until: u64,
}

/// A tick that no process reaches.
const NO_LIMIT: u64 = u64::MAX;
/// How late a thread may write an event, if another thread has its processor meanwhile.
const WRITE_DELAY: Duration = Duration::from_millis(100);

/// Packs raw files into a recording.
pub struct RawFileCollector {
    directory: PathBuf,
    writer: Option<RecordingWriter<BufWriter<File>>>,
    first: Option<u32>,
    raw_files: Vec<RawFile>,
    totals: RecordingTotals,
}

/// Nanoseconds of a tick, as a multiple of 2^-32.
fn ns_of_tick(start: ClockPair, now: ClockPair) -> u64 {
    let ticks = now.ticks.saturating_sub(start.ticks).max(1);
    let ns = now.ns.saturating_sub(start.ns).max(1);
    ((u128::from(ns) << 32) / u128::from(ticks)) as u64
}

impl RawFileCollector {
    /// A collector of the raw files in a directory into a recording that begins in `file`.
    pub fn new(directory: &Path, file: File) -> Result<Self, TraceError> {
        Ok(Self {
            directory: directory.to_owned(),
            writer: Some(RecordingWriter::new(BufWriter::with_capacity(1 << 20, file))?),
            first: None,
            raw_files: Vec::new(),
            totals: RecordingTotals::default(),
        })
    }

    /// Sets the process that becomes the recording's first.
    pub fn set_first_process(&mut self, pid: u32) {
        self.first = Some(pid);
    }

    /// Packs full chunks. Returns whether there were any.
    pub fn pack_full_chunks(&mut self) -> Result<bool, TraceError> {
        self.find_new_files(false)?;
        let mut any = false;
        for i in 0..self.raw_files.len() {
            any |= self.pack(i, false)?;
        }
        Ok(any)
    }

    /// Packs the rest after the program has ended.
    pub fn finish(
        mut self,
        end: &trace_format::container::RecordingEnd,
    ) -> Result<(RecordingTotals, u64), TraceError> {
        self.find_new_files(true)?;
        self.set_time_limits();
        for i in 0..self.raw_files.len() {
            self.pack(i, false)?;
            self.pack(i, true)?;
            self.end_process(i)?;
        }
        let Some(writer) = self.writer.take() else {
            return Err(TraceError::Io(io::Error::other("the recording has ended already")));
        };
        let file = writer.finish(end)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((self.totals, file.metadata()?.len()))
    }

    /// Sets one time limit for all events of each process that still runs, because the chunks of
    /// its threads are read one after the other.
    fn set_time_limits(&mut self) {
        let now = clock::now().ticks;
        let mut any = false;
        for raw in &mut self.raw_files {
            if still_runs(raw.pid, &raw.path) {
                raw.until = now;
                any = true;
            }
        }
        if any {
            // A thread reads the time before it writes its event.
            thread::sleep(WRITE_DELAY);
        }
    }

    fn writer(&mut self) -> Result<&mut RecordingWriter<BufWriter<File>>, TraceError> {
        self.writer
            .as_mut()
            .ok_or_else(|| io::Error::other("the recording has ended already").into())
    }

    fn find_new_files(&mut self, all: bool) -> Result<(), TraceError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((pid, image)) =
                name.strip_suffix(".raw").and_then(|name| name.split_once('-'))
            else {
                continue;
            };
            if let (Ok(pid), Ok(image)) = (pid.parse::<u32>(), image.parse::<u32>())
                && !self.raw_files.iter().any(|raw| raw.path == path)
            {
                found.push((self.first != Some(pid), image, pid, path));
            }
        }
        found.sort();
        for (other, image, _, path) in found {
            if other && self.raw_files.is_empty() && !all {
                // The program itself is to be the first process.
                return Ok(());
            }
            self.begin_process(path, image)?;
        }
        Ok(())
    }

    fn begin_process(&mut self, path: PathBuf, image: u32) -> Result<(), TraceError> {
        let file = File::options().read(true).write(true).open(&path)?;
        let mut page = [0; HEADER_SIZE];
        if file.read_exact_at(&mut page, 0).is_err() {
            // The file is still being created.
            return Ok(());
        }
        let Ok(header) = RawFileHeader::read(&page) else { return Ok(()) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let command = header.command.strip_suffix(b"\0").unwrap_or(header.command);
        let begun = ProcessHeader {
            pid: header.pid,
            parent: header.parent,
            image,
            forked: header.state & state::FORKED != 0,
            executable: text(header.executable),
            command: command.split(|&byte| byte == 0).map(text).collect(),
            start_ns: header.start.ns,
            start_tick: header.start.ticks,
            ns_of_tick: ns_of_tick(header.start, clock::now()),
        };
        let (pid, start) = (header.pid, header.start);
        let process = self.writer()?.process(&begun)?;
        self.totals.processes += 1;
        self.raw_files.push(RawFile {
            path,
            file,
            pid,
            process,
            start,
            waiting: Vec::new(),
            next: 0,
            streams: BTreeMap::new(),
            events: 0,
            raw_bytes: 0,
            until: NO_LIMIT,
        });
        Ok(())
    }

    /// Packs the full chunks of a file, or all of them.
    fn pack(&mut self, number: usize, all: bool) -> Result<bool, TraceError> {
        let raw = &mut self.raw_files[number];
        let writer = self
            .writer
            .as_mut()
            .ok_or_else(|| TraceError::Io(io::Error::other("the recording has ended already")))?;
        let mut page = [0; HEADER_SIZE];
        raw.file.read_exact_at(&mut page, 0)?;
        if let Ok(header) = RawFileHeader::read(&page) {
            let length = raw.file.metadata()?.len().saturating_sub(HEADER_SIZE as u64);
            let there = header.chunks.min((length / CHUNK_SIZE as u64) as u32);
            raw.waiting.extend(raw.next..there.max(raw.next));
            raw.next = there.max(raw.next);
        }
        let mut any = false;
        let mut kept = Vec::new();
        let mut events = vec![0; CHUNK_CAPACITY];
        for chunk in std::mem::take(&mut raw.waiting) {
            let offset = HEADER_SIZE as u64 + u64::from(chunk) * CHUNK_SIZE as u64;
            let mut bytes = [0; CHUNK_HEADER_SIZE];
            raw.file.read_exact_at(&mut bytes, offset)?;
            let header = match RawChunkHeader::read(&bytes) {
                Ok(Some(header)) if header.full.is_some() || all => header,
                Ok(_) if !all => {
                    kept.push(chunk);
                    continue;
                }
                // A thread took the chunk, but the program ended before it wrote any event.
                Ok(_) => continue,
                Err(damage) => {
                    self.totals.damaged.push(format!("{}: {}", raw.path.display(), damage.what));
                    continue;
                }
            };
            let length = header.full.map_or(CHUNK_CAPACITY, |length| length as usize);
            let events = &mut events[..length];
            raw.file.read_exact_at(events, offset + CHUNK_HEADER_SIZE as u64)?;
            let ChunkSummary { whole, told, count } = count(events, header.tick, raw.until);
            let next = raw.streams.entry(header.stream).or_default();
            if *next != header.sequence || header.full.is_some() && whole != length {
                let what = format!("process {}: a chunk differs from what was written", raw.pid);
                self.totals.damaged.push(what);
                continue;
            }
            *next += 1;
            writer.chunk(ChunkEvents {
                process: raw.process,
                stream: header.stream,
                sequence: header.sequence,
                tick: header.tick,
                events: &events[..told],
            })?;
            raw.events += count;
            raw.raw_bytes += told as u64;
            if header.full.is_some() {
                punch_hole(&raw.file, offset);
            }
            any = true;
        }
        raw.waiting = kept;
        Ok(any)
    }

    fn end_process(&mut self, number: usize) -> Result<(), TraceError> {
        let raw = &self.raw_files[number];
        let mut page = [0; HEADER_SIZE];
        raw.file.read_exact_at(&mut page, 0)?;
        let header = RawFileHeader::read(&page).map_err(|damage| TraceError::Damaged {
            at: damage.at as u64,
            what: damage.what.to_owned(),
        })?;
        let rate = ns_of_tick(header.start, clock::now());
        let full = header.state & state::FULL != 0;
        let full_at_ns = full.then(|| {
            let ticks = header.full_at.saturating_sub(raw.start.ticks);
            ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
        });
        let exited = header.state & state::EXITED != 0;
        let end = ProcessEnd {
            ns_of_tick: rate,
            threads: header.threads,
            events: raw.events,
            raw_bytes: raw.raw_bytes,
            full_at_ns,
            full_error: full.then_some(header.error),
            missed: header.missed,
            stacks_checked: header.checked,
            stacks_wrong: header.wrong,
            costs: costs(&header.costs, rate),
            new_unseen: (header.state & state::NEW_BYPASSES_HOOKS != 0)
                .then(|| String::from_utf8_lossy(header.library).into_owned()),
            own_malloc: header.state & state::OWN_MALLOC != 0,
            exited,
            still_running: raw.until != NO_LIMIT || !exited && still_runs(raw.pid, &raw.path),
        };
        self.totals.threads += u64::from(end.threads);
        self.totals.events += end.events;
        self.totals.raw_bytes += end.raw_bytes;
        self.totals.missed += end.missed;
        self.totals.still_running += u64::from(end.still_running);
        if end.own_malloc {
            let executable = String::from_utf8_lossy(header.executable).into_owned();
            let known = ProcessesWithOwnMalloc { executable, processes: 0 };
            self.totals.own_malloc.get_or_insert(known).processes += 1;
        }
        if let Some(library) = &end.new_unseen {
            let (pid, why) = (raw.pid, why_unseen(library));
            let library = library.clone();
            let known = BypassingOperatorNew { pid, processes: 0, library, why };
            self.totals.new_unseen.get_or_insert(known).processes += 1;
        }
        if let Some(at) = full_at_ns
            && self.totals.full.is_none()
        {
            self.totals.full = Some(EarlyEnd {
                pid: raw.pid,
                at_seconds: at as f64 / 1e9,
                why: why_full(header.error as i32),
            });
        }
        let process = raw.process;
        self.writer()?.end_process(process, &end)
    }
}

/// The measured costs without those of reading the clock; `None` if nothing was measured.
fn costs(raw: &RawAllocatorCosts, ns_of_tick: u64) -> Option<AllocatorCosts> {
    let samples = raw.calls.iter().map(|call| call.0).sum::<u64>();
    if samples == 0 && raw.too_long == 0 {
        return None;
    }
    let ns_of_stamp = ns_of_tick as f64 / 2_f64.powi(32) / f64::from(1 << TICK_SHIFT);
    let stamp = raw.stamps as f64 / samples.max(1) as f64;
    let cost = |samples: u64, sum: u64| SampledCost {
        samples,
        ns: (sum as f64 - stamp * samples as f64).max(0.0) * ns_of_stamp,
    };
    let [allocations, frees, reallocations] = raw.calls.map(|(samples, sum)| cost(samples, sum));
    Some(AllocatorCosts {
        allocations,
        frees,
        reallocations,
        recorder: cost(samples, raw.recorder),
        too_long: raw.too_long,
        stamp_ns: stamp * ns_of_stamp,
    })
}

/// Why a process's recording ended early, and what to do about it.
fn why_full(error: i32) -> String {
    let remedy = match error {
        libc::EFBIG => "allow longer files with ulimit -f",
        libc::ENOSPC | libc::EDQUOT => "record to a place with more room",
        libc::EPERM => {
            "the program forbids itself calls of the kernel that recording needs (seccomp); switch that off to record it, if it has an option"
        }
        // The recorder keeps its file open, but a program may close it.
        _ => "the program closed the recording's file and left no way to open it again",
    };
    format!("{}; {remedy}", io::Error::from_raw_os_error(error))
}

/// A line that says that a library's own `operator new` isn't recorded, and what to do about it.
pub fn why_unseen(library: &str) -> String {
    format!(
        "operator new is {library}'s own and doesn't call malloc, so its blocks are not recorded, only those of malloc itself; record it with the C library's malloc, that is without that library in LD_PRELOAD or among those linked"
    )
}

/// Whether a process that didn't announce its exit still has its raw file mapped.
fn still_runs(pid: u32, path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(&name))
}

/// What a chunk contains.
struct ChunkSummary {
    /// Bytes of whole events.
    whole: usize,
    /// Bytes of the events up to the time limit.
    told: usize,
    /// The number of those that count as events.
    count: u64,
}

fn count(events: &[u8], tick: u64, until: u64) -> ChunkSummary {
    let mut decoder = Decoder::new(tick);
    let (mut told, mut count) = (0, 0);
    while let Ok(Some(event)) = decoder.next(events) {
        if decoder.tick() > until {
            continue;
        }
        told = decoder.position();
        count += u64::from(matches!(
            event,
            RawEvent::Alloc { .. }
                | RawEvent::Free { .. }
                | RawEvent::Usable { .. }
                | RawEvent::Wait(_)
        ));
    }
    ChunkSummary { whole: decoder.position(), told, count }
}

/// Returns the disk space of a packed chunk.
fn punch_hole(file: &File, offset: u64) {
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // A file system without this call keeps the chunk until the end.
    // SAFETY: it touches no memory.
    let _ = unsafe { libc::fallocate(file.as_raw_fd(), how, offset as i64, CHUNK_SIZE as i64) };
}
