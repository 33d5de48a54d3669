//! Runs one round of one row, in a process of its own.

use super::allocator_plan::{PlanFactory, Route};
use super::check;
use super::round_job::{PreparedReplay, REST, ReplayThread, Round, RoundJob, RowAllocator};
use super::sequence::StepBuffer;
use super::step_loop::{SharedState, perform, thread_time};
use super::thread_memory::{MallocFactory, MemoryFactory, NullFactory};
use super::without_groups::WithoutGroupsFactory;
use bench::console::failure::Failure;
use bench::console::print;
use bench::peers::{About, Global, GlobalVisitor};
use bench::runner::child_process;
use bench::runner::resources;
use bench::workloads::AbortIfPanicking;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Stack size of a replayed thread, which only calls allocators.
const STACK: usize = 512 << 10;

/// `allot replay-round`, which `allot replay` starts: reads its job, prints a round.
pub fn run() -> Result<(), Failure> {
    child_process::end_with_parent();
    // If memory runs out, the kernel should end this process and no other. An error here is
    // harmless.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(|error| failed(&error))?;
    let job: RoundJob = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    // Freeing a large block makes glibc change its thresholds; it should begin as in a fresh
    // program.
    std::mem::forget(text);
    let prepared = PreparedReplay::new(job).map_err(|error| failed(&error))?;
    let round = match prepared.allocator.clone() {
        RowAllocator::Null => replay(&prepared, &NullFactory),
        RowAllocator::Malloc(name) => MallocVisitor(&prepared)
            .with(&name)
            .map_err(|error| Failure::Usage(error.to_string()))?,
        RowAllocator::Preloaded(library) => {
            check_loaded(&library)?;
            MallocVisitor(&prepared)
                .with(REST)
                .map_err(|error| Failure::Usage(error.to_string()))?
        }
        RowAllocator::Plan(routes) => PlanVisitor(&prepared, routes)
            .with(REST)
            .map_err(|error| Failure::Usage(error.to_string()))?,
        RowAllocator::Without(_) => WithoutVisitor(&prepared)
            .with(REST)
            .map_err(|error| Failure::Usage(error.to_string()))?,
    };
    let text = serde_json::to_string(&round).map_err(|error| failed(&error))?;
    print::line(text)
}

/// Fails if the library is not loaded: the dynamic loader ignores one that it can't use.
fn check_loaded(library: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let real = library.canonicalize().map_err(|error| failed(&error))?;
    let maps = procfs::process::Process::myself().and_then(|own| own.maps());
    let maps = maps.map_err(|error| failed(&error))?;
    let is_loaded = maps
        .iter()
        .any(|map| matches!(&map.pathname, procfs::process::MMapPath::Path(path) if *path == real));
    if is_loaded {
        return Ok(());
    }
    Err(failed(&format!("{} could not be preloaded", library.display())))
}

struct MallocVisitor<'p>(&'p PreparedReplay);

impl GlobalVisitor for MallocVisitor<'_> {
    type Output = Round;

    fn visit<G: Global>(self, _: &'static About) -> Round {
        replay(self.0, &MallocFactory::<G>::new())
    }
}

struct PlanVisitor<'p>(&'p PreparedReplay, Vec<Route>);

impl GlobalVisitor for PlanVisitor<'_> {
    type Output = Round;

    fn visit<G: Global>(self, _: &'static About) -> Round {
        replay(self.0, &PlanFactory::<G>::new(self.1))
    }
}

struct WithoutVisitor<'p>(&'p PreparedReplay);

impl GlobalVisitor for WithoutVisitor<'_> {
    type Output = Round;

    fn visit<G: Global>(self, _: &'static About) -> Round {
        replay(self.0, &WithoutGroupsFactory::<G>::new())
    }
}

/// Performs one round.
pub fn replay<R: MemoryFactory>(prepared: &PreparedReplay, row: &R) -> Round {
    if prepared.check {
        return Round { curve: Some(check::in_order(prepared, row)), ..Round::default() };
    }
    timed(prepared, row)
}

fn timed<R: MemoryFactory>(prepared: &PreparedReplay, row: &R) -> Round {
    let shared = prepared.shared();
    let replay_threads = prepared.replay_threads();
    let Some((first, others)) = replay_threads.split_first() else { return Round::default() };
    if others.is_empty() {
        // No other thread is started: some mallocs are faster in a process with one thread.
        let mut buffers = buffers(prepared, first);
        let baseline = Baseline::now();
        let time = run_thread(prepared, first, true, &mut buffers, &shared, row);
        return baseline.round(time);
    }
    let barrier = Barrier::new(replay_threads.len());
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(others.len());
        for replay_thread in others {
            let (shared, barrier) = (&shared, &barrier);
            let work = move || {
                let guard = AbortIfPanicking;
                let mut buffers = buffers(prepared, replay_thread);
                barrier.wait(); // ready
                barrier.wait(); // begin
                let time = run_thread(prepared, replay_thread, false, &mut buffers, shared, row);
                std::mem::forget((guard, buffers));
                time
            };
            match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    // The other threads would wait for it and never return.
                    eprintln!(
                        "allot: can't start thread {} of the replay: {error}; raise `ulimit -u` or the memory limit",
                        running.len() + 2
                    );
                    std::process::exit(1);
                }
            }
        }
        let mut buffers = buffers(prepared, first);
        barrier.wait();
        let baseline = Baseline::now();
        barrier.wait();
        let mut time = run_thread(prepared, first, true, &mut buffers, &shared, row);
        for thread in running {
            time += thread.join().unwrap_or_default();
        }
        baseline.round(time)
    })
}

/// Allocates a thread's buffers, resident before its first step.
fn buffers(prepared: &PreparedReplay, replay_thread: &ReplayThread) -> ThreadBuffers {
    let threads =
        || replay_thread.threads.iter().map(|thread| &prepared.sequence.threads[*thread as usize]);
    let slots = threads().map(|thread| thread.slots).max().unwrap_or_default() as usize;
    ThreadBuffers {
        // Not null, so that the pages are written to.
        slots: vec![std::ptr::dangling_mut(); slots],
        step_buffer: StepBuffer::of(threads().flat_map(|thread| &thread.steps)),
    }
}

/// Performs the steps of a thread, one recorded thread after another. Returns their CPU time
/// without reading and waiting.
fn run_thread<R: MemoryFactory>(
    prepared: &PreparedReplay,
    replay_thread: &ReplayThread,
    lasts: bool,
    buffers: &mut ThreadBuffers,
    shared: &SharedState,
    row: &R,
) -> Duration {
    let mut time = Duration::ZERO;
    shared.wait_for_turn(replay_thread.chain, replay_thread.before);
    for &thread in &replay_thread.threads {
        let about = &prepared.sequence.threads[thread as usize];
        let began = thread_time();
        let not_counted = row.within(thread as usize, lasts || about.leaves, |memory| {
            // The CPU time of reading and waiting.
            let mut not_counted = Duration::ZERO;
            let mut resizing = None;
            for piece in &about.steps {
                let reading = thread_time();
                let steps = prepared.read(&mut buffers.step_buffer, piece);
                not_counted += thread_time().saturating_sub(reading);
                let (shapes, slots) = (&prepared.shapes, &mut buffers.slots);
                // SAFETY: all pieces of this thread's steps of this sequence, in order, with its
                // shapes and slots.
                not_counted +=
                    unsafe { perform(steps, shapes, slots, shared, &mut resizing, memory) };
            }
            not_counted
        });
        time += (thread_time() - began).saturating_sub(not_counted);
        shared.end_turn(replay_thread.chain);
    }
    time
}

/// The memory that the replay itself needs for a thread.
#[derive(Debug)]
struct ThreadBuffers {
    /// The blocks in the thread's own slots.
    slots: Vec<*mut u8>,
    step_buffer: StepBuffer,
}

/// What the process held before the measured part.
struct Baseline {
    resident: Option<u64>,
    faults: Option<u64>,
    began: Instant,
}

impl Baseline {
    fn now() -> Self {
        resources::map_programs();
        let resident = resources::resident();
        resources::forget_peak();
        Self { resident, faults: resources::minor_faults(), began: Instant::now() }
    }

    fn round(self, time: Duration) -> Round {
        let wall = self.began.elapsed();
        let faults = resources::minor_faults();
        let net = |after: Option<u64>, before: Option<u64>| {
            after.zip(before).map(|(after, before)| after.saturating_sub(before))
        };
        Round {
            time_ns: time.as_nanos() as u64,
            wall_ns: wall.as_nanos() as u64,
            peak_resident: net(resources::peak_resident(), self.resident),
            minor_faults: net(faults, self.faults),
            curve: None,
        }
    }
}
