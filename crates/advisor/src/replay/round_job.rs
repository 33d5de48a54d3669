//! A round of a row: the job that its child process gets, its result, and what the child prepares.

use super::allocator_plan::{self, Route};
use super::live_bytes::LiveBytesCurve;
use super::sequence::{FilePart, STEP_BYTES, StepBuffer, StepSequence, read_shapes, read_words};
use super::step_loop::SharedState;
use super::thread_memory::RoutedShape;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Up to this many recorded threads get a thread each. With more, the threads of a chain share one.
pub const MOST_THREADS: usize = 4096;
/// The malloc that serves what a plan doesn't.
pub const REST: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };

/// The name of the row without an allocator.
pub const NULL: &str = "null";

/// The allocator of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowAllocator {
    /// No allocator: the cost of the replay itself.
    Null,
    /// A built-in malloc, for all blocks.
    Malloc(String),
    /// A malloc in a shared library, which is preloaded, for all blocks.
    Preloaded(PathBuf),
    /// This project's allocators for some groups, glibc for the rest.
    Plan(Vec<Route>),
    /// glibc, and no allocator for the blocks of some groups.
    Without(Vec<u32>),
}

/// The job of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub struct RoundJob {
    pub file: PathBuf,
    pub sequence: StepSequence,
    pub allocator: RowAllocator,
    /// Perform the steps in the recorded order of all threads, and check every block.
    pub check: bool,
}

/// The result of a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// CPU time of all threads, without the time in which they waited for each other.
    pub time_ns: u64,
    /// From the first step to the last.
    pub wall_ns: u64,
    /// Without what the replay itself holds.
    pub peak_resident: Option<u64>,
    pub minor_faults: Option<u64>,
    /// The curve of live bytes, with `check`.
    pub curve: Option<LiveBytesCurve>,
}

/// What a child process needs for a round. The steps are read from their file piece by piece, so a
/// long recording takes no more memory than a short one.
#[derive(Debug)]
pub struct PreparedReplay {
    pub sequence: StepSequence,
    pub allocator: RowAllocator,
    pub shapes: Vec<RoutedShape>,
    pub turns: Vec<u64>,
    file: File,
    pub check: bool,
}

/// Recorded threads that run one after another on one system thread. `before` threads of their
/// chain run earlier on other threads.
#[derive(Debug)]
pub struct ReplayThread {
    pub chain: usize,
    pub before: usize,
    pub threads: Vec<u32>,
}

impl PreparedReplay {
    pub fn new(job: RoundJob) -> io::Result<Self> {
        let file = File::open(&job.file)?;
        let recorded = read_shapes(&file, &job.sequence.shapes)?;
        let shapes = match &job.allocator {
            RowAllocator::Null | RowAllocator::Malloc(_) | RowAllocator::Preloaded(_) => {
                allocator_plan::routed_shapes(&recorded, |_, _| 0)
            }
            RowAllocator::Plan(routes) => {
                allocator_plan::routed_shapes(&recorded, |shape, layout| {
                    allocator_plan::route(routes, shape, layout)
                })
            }
            RowAllocator::Without(groups) => {
                allocator_plan::routed_shapes(&recorded, |shape, _| {
                    u32::from(groups.contains(&shape.group))
                })
            }
        };
        let shapes = shapes.ok_or_else(|| {
            io::Error::other("the recording has a block that is larger than the address space")
        })?;
        std::mem::forget(recorded);
        let turns = read_words(&file, &job.sequence.turns)?;
        let RoundJob { sequence, allocator, check, .. } = job;
        Ok(Self { sequence, allocator, shapes, turns, file, check })
    }

    /// The steps of a piece. Ends the process if they can't be read: other threads may wait for
    /// them.
    pub fn read<'w>(
        &self,
        step_buffer: &'w mut StepBuffer,
        piece: &FilePart,
    ) -> &'w [[u8; STEP_BYTES]] {
        step_buffer.read(&self.file, piece).unwrap_or_else(|error| {
            eprintln!("allot: can't read the steps of the replay: {error}");
            std::process::exit(1);
        })
    }

    pub fn shared(&self) -> SharedState {
        let sequence = &self.sequence;
        SharedState::new(
            sequence.shared_slots as usize,
            sequence.arrivals.clone(),
            sequence.chains.len(),
        )
    }

    pub fn replay_threads(&self) -> Vec<ReplayThread> {
        let chains = self.sequence.chains.iter().enumerate();
        if self.sequence.threads.len() > MOST_THREADS {
            let replay_thread = |(chain, threads): (usize, &Vec<u32>)| ReplayThread {
                chain,
                before: 0,
                threads: threads.clone(),
            };
            return chains.map(replay_thread).collect();
        }
        chains
            .flat_map(|(chain, threads)| {
                let replay_thread = move |(before, thread): (usize, &u32)| ReplayThread {
                    chain,
                    before,
                    threads: vec![*thread],
                };
                threads.iter().enumerate().map(replay_thread)
            })
            .collect()
    }
}
