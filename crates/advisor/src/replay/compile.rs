//! The second pass over a recording, which writes the steps.
//!
//! Memory: about 30 bytes for each live block, 4 for each slot, 16 for each shape (and several for
//! its table), at most 64 KiB of steps for each running thread, and 12 bytes for each 8192 written
//! steps. The file has 8 bytes for each step. There is a step for each allocation and each free,
//! and one each time that no block of a group is live for which a plan may use an arena.

use super::number_map::{BitSet, NumberMap};
use super::sequence::{
    FilePart, MOST_SLOTS, MOST_TOUCHED, NO_GROUP, RecordedShape, Step, StepKind, StepSequence,
    ThreadSteps,
};
use super::thread_chains;
use super::thread_scan::ThreadScan;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use trace_format::raw::{AllocationFlags, AllocationFunction};
use trace_format::{Event, EventAction, NodeId, TraceError};

/// Steps of a thread that are written together.
const PIECE_STEPS: usize = 8192;
/// The fewest events of an epoch, and the most epochs.
const LEAST_EPOCH: u64 = 1024;
const MOST_EPOCHS: u64 = 1024;

/// What the sequence is compiled for.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// For each node: the group of its allocations, if a plan may serve them; otherwise
    /// [`NO_GROUP`].
    pub group_of: Vec<u32>,
    /// For each group: whether to write a step each time that it has no live block.
    pub scoped: Vec<bool>,
    /// Also write the order of the steps of all threads.
    pub turns: bool,
}

/// Why a recording can't be compiled.
#[derive(Debug)]
pub enum CompileError {
    Trace(TraceError),
    Write(io::Error),
    TooMany(&'static str, usize),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Write(error) => write!(
                f,
                "can't write the steps to {}: {error}; they need 8 bytes per event, so set TMPDIR to a place with more room",
                std::env::temp_dir().display()
            ),
            Self::TooMany(what, most) => {
                write!(f, "it has more than {most} {what}, which can't be replayed")
            }
        }
    }
}

impl From<TraceError> for CompileError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<io::Error> for CompileError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// A live block.
#[derive(Debug, Clone, Copy)]
struct ReplayBlock {
    thread: u32,
    slot: u32,
    shape: u32,
    group: u32,
    crosses: bool,
}

/// The state of a thread.
#[derive(Debug, Default)]
struct CompiledThread {
    steps: Vec<u64>,
    free: Vec<u32>,
    live: u64,
    /// The block that this thread is resizing.
    resizing: Option<ReplayBlock>,
}

/// Runs the second pass, and writes the steps to the file.
pub fn compile(
    events: impl Iterator<Item = Result<Event, TraceError>>,
    scan: &ThreadScan,
    options: &CompileOptions,
    file: &mut File,
) -> Result<StepSequence, CompileError> {
    let mut compiler = Compiler::new(scan, options, file);
    for event in events {
        compiler.event(&event?)?;
    }
    compiler.finish()
}

struct Compiler<'c> {
    options: &'c CompileOptions,
    crossing: &'c BitSet,
    out: StepWriter<'c>,
    sequence: StepSequence,
    thread_states: Vec<CompiledThread>,
    /// For each thread: the number of its last event.
    last: Vec<u64>,
    /// For each chain: the index of its current thread, or of the next one.
    current: Vec<usize>,
    live: NumberMap<u64, ReplayBlock>,
    shapes: NumberMap<(u64, u64), u32>,
    list: Vec<RecordedShape>,
    /// Freed shared slots, each with the epoch of its free.
    freed: VecDeque<(u32, u32)>,
    /// For each group and thread: the number of the thread's own live blocks.
    scopes: NumberMap<u64, u64>,
    events: u64,
    /// Live bytes, counting only those that the replay writes.
    touched: u64,
    epoch_length: u64,
    turns: Vec<u64>,
}

impl<'c> Compiler<'c> {
    fn new(scan: &'c ThreadScan, options: &'c CompileOptions, file: &'c mut File) -> Self {
        let chains = thread_chains::chains(&scan.spans);
        let mut threads = vec![ThreadSteps::default(); scan.spans.len()];
        for (chain, members) in chains.iter().enumerate() {
            for &thread in members {
                threads[thread as usize].chain = chain as u32;
            }
        }
        Self {
            options,
            crossing: &scan.crossing,
            out: StepWriter { file, at: 0 },
            thread_states: scan.spans.iter().map(|_| CompiledThread::default()).collect(),
            last: scan.spans.iter().map(|span| span.map_or(0, |span| span.last)).collect(),
            current: vec![0; chains.len()],
            sequence: StepSequence { threads, chains, ..StepSequence::default() },
            live: NumberMap::default(),
            shapes: NumberMap::default(),
            list: Vec::new(),
            freed: VecDeque::new(),
            scopes: NumberMap::default(),
            events: 0,
            touched: 0,
            epoch_length: LEAST_EPOCH.max(scan.events.div_ceil(MOST_EPOCHS)),
            turns: Vec::new(),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), CompileError> {
        let thread = event.thread;
        match event.action {
            EventAction::Alloc { address, size, site, flags } => {
                self.allocated(thread, address, size, site, flags)?;
            }
            EventAction::Free { address, by_realloc } => self.freed(thread, address, by_realloc)?,
            _ => return Ok(()),
        }
        self.events += 1;
        let number = thread as usize;
        if self.last[number] + 1 == self.events {
            self.ended(thread)?;
        }
        if self.events.is_multiple_of(self.epoch_length) && self.sequence.chains.len() > 1 {
            self.next_epoch()?;
        }
        Ok(())
    }

    fn allocated(
        &mut self,
        thread: u32,
        address: u64,
        size: u64,
        site: NodeId,
        flags: AllocationFlags,
    ) -> Result<(), CompileError> {
        let crosses = self.crossing.get(self.sequence.allocations);
        self.sequence.allocations += 1;
        let group = self.options.group_of.get(site.0 as usize).copied().unwrap_or(NO_GROUP);
        let shape = self.shape(size, group, flags, crosses)?;
        let resized = match flags.function() {
            AllocationFunction::Realloc => self.thread_states[thread as usize].resizing.take(),
            _ => None,
        };
        self.free_unresized(thread)?;
        if let Some(lost) = self.live.remove(&address) {
            self.sequence.skipped.lost_frees += 1;
            self.free(thread, lost)?;
        }
        if let Some(old) = resized {
            self.push(thread, Step::new(StepKind::ResizeFrom, old.slot, old.crosses, old.shape))?;
            self.release_slot(thread, old);
        }
        let slot = self.take_slot(thread, crosses)?;
        let kind = if resized.is_some() { StepKind::ResizeTo } else { StepKind::Allocate };
        self.push(thread, Step::new(kind, slot, crosses, shape))?;
        let block = ReplayBlock { thread, slot, shape, group, crosses };
        if !crosses {
            self.thread_states[thread as usize].live += 1;
            if self.is_scoped(group) {
                *self.scopes.entry(scope(group, thread)).or_default() += 1;
            }
        }
        if let Some(old) = resized {
            self.reset_if_empty(thread, old)?;
        }
        self.live.insert(address, block);
        self.touched += self.list[shape as usize].size.min(MOST_TOUCHED as u64);
        self.sequence.peak_touched = self.sequence.peak_touched.max(self.touched);
        Ok(())
    }

    fn freed(&mut self, thread: u32, address: u64, by_realloc: bool) -> Result<(), CompileError> {
        self.free_unresized(thread)?;
        match self.live.remove(&address) {
            None => self.sequence.skipped.unknown_frees += 1,
            Some(block) if by_realloc => self.thread_states[thread as usize].resizing = Some(block),
            Some(block) => self.free(thread, block)?,
        }
        Ok(())
    }

    /// Frees the block that the thread began to resize, if the resize didn't come.
    fn free_unresized(&mut self, thread: u32) -> Result<(), CompileError> {
        match self.thread_states[thread as usize].resizing.take() {
            Some(block) => self.free(thread, block),
            None => Ok(()),
        }
    }

    fn free(&mut self, thread: u32, block: ReplayBlock) -> Result<(), CompileError> {
        self.push(thread, Step::new(StepKind::Free, block.slot, block.crosses, block.shape))?;
        self.release_slot(thread, block);
        self.reset_if_empty(thread, block)
    }

    /// Frees a block's slot; the block is no longer live.
    fn release_slot(&mut self, thread: u32, block: ReplayBlock) {
        debug_assert!(block.crosses || block.thread == thread);
        self.touched -= self.list[block.shape as usize].size.min(MOST_TOUCHED as u64);
        if block.crosses {
            let epoch = self.sequence.arrivals.len() as u32;
            self.freed.push_back((epoch, block.slot));
            return;
        }
        let state = &mut self.thread_states[thread as usize];
        state.free.push(block.slot);
        state.live -= 1;
        if self.is_scoped(block.group)
            && let Some(live) = self.scopes.get_mut(&scope(block.group, thread))
        {
            *live -= 1;
        }
    }

    fn reset_if_empty(&mut self, thread: u32, gone: ReplayBlock) -> Result<(), CompileError> {
        if gone.crosses
            || !self.is_scoped(gone.group)
            || self.scopes.get(&scope(gone.group, thread)).is_some_and(|live| *live > 0)
        {
            return Ok(());
        }
        self.push(thread, Step::new(StepKind::Reset, 0, false, gone.group))
    }

    fn is_scoped(&self, group: u32) -> bool {
        self.options.scoped.get(group as usize).is_some_and(|scoped| *scoped)
    }

    fn take_slot(&mut self, thread: u32, shared: bool) -> Result<u32, CompileError> {
        let next = if shared {
            // With several threads, a slot is reused only after all threads have left the epoch of
            // its free.
            let at_once = self.sequence.chains.len() > 1;
            let epoch = self.sequence.arrivals.len() as u32;
            if let Some(&(freed, slot)) = self.freed.front()
                && (!at_once || freed + 2 <= epoch)
            {
                self.freed.pop_front();
                return Ok(slot);
            }
            &mut self.sequence.shared_slots
        } else {
            if let Some(slot) = self.thread_states[thread as usize].free.pop() {
                return Ok(slot);
            }
            &mut self.sequence.threads[thread as usize].slots
        };
        if *next as usize == MOST_SLOTS {
            return Err(CompileError::TooMany("blocks live at once", MOST_SLOTS));
        }
        *next += 1;
        Ok(*next - 1)
    }

    fn shape(
        &mut self,
        size: u64,
        group: u32,
        flags: AllocationFlags,
        crosses: bool,
    ) -> Result<u32, CompileError> {
        let size = size.max(1);
        let shape = RecordedShape {
            size,
            group,
            align_log2: alignment(size, flags),
            zeroed: flags.function() == AllocationFunction::Calloc,
            crosses,
        };
        let [key, group] = shape.to_words();
        let key = (key, group);
        if let Some(number) = self.shapes.get(&key) {
            return Ok(*number);
        }
        let number = u32::try_from(self.list.len())
            .map_err(|_| CompileError::TooMany("kinds of blocks", u32::MAX as usize))?;
        self.list.push(shape);
        self.shapes.insert(key, number);
        Ok(number)
    }

    fn push(&mut self, thread: u32, step: Step) -> Result<(), CompileError> {
        let state = &mut self.thread_states[thread as usize];
        state.steps.push(step.0);
        self.sequence.steps += 1;
        if state.steps.len() == PIECE_STEPS {
            self.out.steps(state, &mut self.sequence.threads[thread as usize])?;
        }
        if self.options.turns {
            match self.turns.last_mut() {
                Some(turn) if *turn >> 32 == u64::from(thread) && *turn as u32 != u32::MAX => {
                    *turn += 1;
                }
                _ => self.turns.push(u64::from(thread) << 32 | 1),
            }
            if self.turns.len() > PIECE_STEPS {
                // The last turn may still grow.
                let last = self.turns.pop();
                self.out.words(&mut self.turns, &mut self.sequence.turns)?;
                self.turns.extend(last);
            }
        }
        Ok(())
    }

    /// Ends a thread.
    fn ended(&mut self, thread: u32) -> Result<(), CompileError> {
        self.free_unresized(thread)?;
        let state = &mut self.thread_states[thread as usize];
        let about = &mut self.sequence.threads[thread as usize];
        about.leaves = state.live > 0;
        self.current[about.chain as usize] += 1;
        self.out.steps(state, about)?;
        state.steps = Vec::new();
        state.free = Vec::new();
        Ok(())
    }

    fn next_epoch(&mut self) -> Result<(), CompileError> {
        let epoch = self.sequence.arrivals.len() as u32;
        let mut arrivals = 0;
        for chain in 0..self.current.len() {
            if let Some(&thread) = self.sequence.chains[chain].get(self.current[chain]) {
                self.push(thread, Step::new(StepKind::Epoch, 0, false, epoch))?;
                arrivals += 1;
            }
        }
        self.sequence.arrivals.push(arrivals);
        Ok(())
    }

    fn finish(mut self) -> Result<StepSequence, CompileError> {
        let mut words: Vec<u64> = Vec::with_capacity(2 * self.list.len().min(PIECE_STEPS));
        for shapes in self.list.chunks(PIECE_STEPS) {
            words.extend(shapes.iter().flat_map(|shape| shape.to_words()));
            let offset = self.out.at;
            self.out.words(&mut words, &mut Vec::new())?;
            self.sequence.shapes.push(FilePart { offset, count: shapes.len() as u32 });
        }
        self.out.words(&mut self.turns, &mut self.sequence.turns)?;
        debug_assert!(self.thread_states.iter().all(|state| state.steps.is_empty()));
        Ok(self.sequence)
    }
}

/// A block's alignment as a power of two. Without a request, that is the one that a type of `size`
/// bytes may need, up to 8. Malloc aligns to 16, but hardly any type needs that, and asking for it
/// would cost the allocators that can do with less.
fn alignment(size: u64, flags: AllocationFlags) -> u8 {
    let asked = flags.alignment().trailing_zeros();
    let pages = if flags.function() == AllocationFunction::Pages { 12 } else { 0 };
    let natural = size.ilog2().min(3);
    asked.max(natural).max(pages) as u8
}

fn scope(group: u32, thread: u32) -> u64 {
    u64::from(group) << 32 | u64::from(thread)
}

struct StepWriter<'o> {
    file: &'o mut File,
    at: u64,
}

impl StepWriter<'_> {
    fn steps(&mut self, state: &mut CompiledThread, thread: &mut ThreadSteps) -> io::Result<()> {
        self.words(&mut state.steps, &mut thread.steps)
    }

    /// Writes the words, and clears them.
    fn words(&mut self, words: &mut Vec<u64>, pieces: &mut Vec<FilePart>) -> io::Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all(&bytes)?;
        pieces.push(FilePart { offset: self.at, count: words.len() as u32 });
        self.at += bytes.len() as u64;
        words.clear();
        Ok(())
    }
}
