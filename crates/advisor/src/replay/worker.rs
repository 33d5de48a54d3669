//! One round of one row, in a process of its own.

use super::check::{self, Curve};
use super::memory::{Form, Malloc, Null, Row};
use super::nowhere::Without;
use super::perform::{Common, perform, thread_time};
use super::plan::{self, Plan, Route};
use super::sequence::{Piece, STEP_BYTES, Sequence, Window, read_shapes, read_words};
use bench::console::failure::Failure;
use bench::console::print;
use bench::peers::{About, Global, Service, Visitor};
use bench::runner::child_process;
use bench::runner::resources;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Up to this many recorded threads get a thread each. With more, the threads of a lane share one.
pub const MOST_THREADS: usize = 4096;
/// Stack size of a replayed thread, which only calls allocators.
const STACK: usize = 512 << 10;
/// The malloc that serves what a plan doesn't.
pub const REST: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };

/// The allocator of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// None: the replay itself alone.
    Null,
    /// A malloc for everything.
    Malloc(String),
    /// Our allocators for some groups, glibc for the rest.
    Plan(Vec<Route>),
    /// glibc, and no allocator for the blocks of some groups.
    Without(Vec<u32>),
}

/// The job of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub file: PathBuf,
    pub sequence: Sequence,
    pub who: Who,
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
    pub curve: Option<Curve>,
}

/// `allot replay-round`, which `allot replay` starts: reads its job, prints a round.
pub fn run() -> Result<(), Failure> {
    child_process::end_with_parent();
    // If memory runs out, the kernel should end this process and no other. An error here is harmless.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(|error| failed(&error))?;
    let job: Job = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    // Freeing a large block makes glibc change its thresholds; it should begin as in a fresh program.
    std::mem::forget(text);
    let prepared = Prepared::new(job).map_err(|error| failed(&error))?;
    let round = match prepared.who.clone() {
        Who::Null => prepared.replay(&Null),
        Who::Malloc(name) => bench::peers::with(&name, ForMalloc(&prepared))
            .map_err(|error| Failure::Usage(error.to_string()))?,
        Who::Plan(routes) => bench::peers::with(REST, ForPlan(&prepared, routes))
            .map_err(|error| Failure::Usage(error.to_string()))?,
        Who::Without(_) => bench::peers::with(REST, ForRest(&prepared))
            .map_err(|error| Failure::Usage(error.to_string()))?,
    };
    let text = serde_json::to_string(&round).map_err(|error| failed(&error))?;
    print::line(text)
}

struct ForMalloc<'p>(&'p Prepared);

impl Visitor for ForMalloc<'_> {
    type Output = Round;

    const SERVICE: Service = Service::Global;

    fn global<G: Global>(self, _: &'static About) -> Round {
        self.0.replay(&Malloc::<G>::new())
    }
}

struct ForPlan<'p>(&'p Prepared, Vec<Route>);

impl Visitor for ForPlan<'_> {
    type Output = Round;

    const SERVICE: Service = Service::Global;

    fn global<G: Global>(self, _: &'static About) -> Round {
        self.0.replay(&Plan::<G>::new(self.1))
    }
}

struct ForRest<'p>(&'p Prepared);

impl Visitor for ForRest<'_> {
    type Output = Round;

    const SERVICE: Service = Service::Global;

    fn global<G: Global>(self, _: &'static About) -> Round {
        self.0.replay(&Without::<G>::new())
    }
}

/// What the measured part needs. The steps are read from their file piece by piece, so a long recording
/// takes no more memory than a short one.
#[derive(Debug)]
pub struct Prepared {
    pub sequence: Sequence,
    pub who: Who,
    pub forms: Vec<Form>,
    pub turns: Vec<u64>,
    file: File,
    check: bool,
}

/// Recorded threads that run after each other on one system thread, and how many of their lane ran before.
#[derive(Debug)]
pub struct Crew {
    lane: usize,
    before: usize,
    pub threads: Vec<u32>,
}

impl Prepared {
    pub fn new(job: Job) -> io::Result<Self> {
        let file = File::open(&job.file)?;
        let shapes = read_shapes(&file, &job.sequence.shapes)?;
        let forms = match &job.who {
            Who::Null | Who::Malloc(_) => plan::forms(&shapes, |_, _| 0),
            Who::Plan(routes) => {
                plan::forms(&shapes, |shape, layout| plan::way(routes, shape, layout))
            }
            Who::Without(groups) => {
                plan::forms(&shapes, |shape, _| u32::from(groups.contains(&shape.group)))
            }
        };
        let forms = forms.ok_or_else(|| {
            io::Error::other("the recording has a block that is larger than the address space")
        })?;
        std::mem::forget(shapes);
        let turns = read_words(&file, &job.sequence.turns)?;
        let Job { sequence, who, check, .. } = job;
        Ok(Self { sequence, who, forms, turns, file, check })
    }

    /// The steps of a piece. Ends the process if they can't be read: other threads may wait for them.
    pub fn read<'w>(&self, window: &'w mut Window, piece: &Piece) -> &'w [[u8; STEP_BYTES]] {
        window.read(&self.file, piece).unwrap_or_else(|error| {
            eprintln!("allot: can't read the steps of the replay: {error}");
            std::process::exit(1);
        })
    }

    pub fn replay<R: Row>(&self, row: &R) -> Round {
        if self.check {
            return Round { curve: Some(check::in_order(self, row)), ..Round::default() };
        }
        self.timed(row)
    }

    pub fn common(&self) -> Common {
        let sequence = &self.sequence;
        Common::new(sequence.shared_slots as usize, sequence.arrivals.clone(), sequence.lanes.len())
    }

    pub fn crews(&self) -> Vec<Crew> {
        let lanes = self.sequence.lanes.iter().enumerate();
        if self.sequence.threads.len() > MOST_THREADS {
            let crew = |(lane, threads): (usize, &Vec<u32>)| Crew {
                lane,
                before: 0,
                threads: threads.clone(),
            };
            return lanes.map(crew).collect();
        }
        lanes
            .flat_map(|(lane, threads)| {
                let crew = move |(before, thread): (usize, &u32)| Crew {
                    lane,
                    before,
                    threads: vec![*thread],
                };
                threads.iter().enumerate().map(crew)
            })
            .collect()
    }

    fn timed<R: Row>(&self, row: &R) -> Round {
        let common = self.common();
        let crews = self.crews();
        let Some((first, others)) = crews.split_first() else { return Round::default() };
        if others.is_empty() {
            // No other thread is started: some mallocs are faster in a process with one thread.
            let mut room = self.room(first);
            let before = Before::now();
            let time = self.crew(first, true, &mut room, &common, row);
            return before.round(time);
        }
        let barrier = Barrier::new(crews.len());
        thread::scope(|scope| {
            let mut running = Vec::with_capacity(others.len());
            for crew in others {
                let (common, barrier) = (&common, &barrier);
                let work = move || {
                    let guard = AbortIfPanicking;
                    let mut room = self.room(crew);
                    barrier.wait(); // ready
                    barrier.wait(); // begun
                    let time = self.crew(crew, false, &mut room, common, row);
                    std::mem::forget((guard, room));
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
            let mut room = self.room(first);
            barrier.wait();
            let before = Before::now();
            barrier.wait();
            let mut time = self.crew(first, true, &mut room, &common, row);
            for thread in running {
                time += thread.join().unwrap_or_default();
            }
            before.round(time)
        })
    }

    /// A crew's own memory, resident before the first step.
    fn room(&self, crew: &Crew) -> Room {
        let threads = || crew.threads.iter().map(|thread| &self.sequence.threads[*thread as usize]);
        let slots = threads().map(|thread| thread.slots).max().unwrap_or_default() as usize;
        Room {
            // Not null, so that the pages are written to.
            slots: vec![std::ptr::dangling_mut(); slots],
            window: Window::of(threads().flat_map(|thread| &thread.steps)),
        }
    }

    /// Performs a crew's steps, one recorded thread after the other.
    fn crew<R: Row>(
        &self,
        crew: &Crew,
        lasts: bool,
        room: &mut Room,
        common: &Common,
        row: &R,
    ) -> Duration {
        let mut time = Duration::ZERO;
        common.wait_for_turn(crew.lane, crew.before);
        for &thread in &crew.threads {
            let about = &self.sequence.threads[thread as usize];
            let began = thread_time();
            let apart = row.within(thread as usize, lasts || about.leaves, |memory| {
                // Without the time for reading and waiting.
                let mut apart = Duration::ZERO;
                let mut resizing = None;
                for piece in &about.steps {
                    let reading = thread_time();
                    let steps = self.read(&mut room.window, piece);
                    apart += thread_time().saturating_sub(reading);
                    let (forms, slots) = (&self.forms, &mut room.slots);
                    // SAFETY: this thread's steps of this sequence, piece after piece, with its forms and as many slots as it needs.
                    apart += unsafe { perform(steps, forms, slots, common, &mut resizing, memory) };
                }
                apart
            });
            time += (thread_time() - began).saturating_sub(apart);
            common.end_turn(crew.lane);
        }
        time
    }
}

/// A crew's own memory.
#[derive(Debug)]
struct Room {
    /// The addresses of its own blocks.
    slots: Vec<*mut u8>,
    window: Window,
}

/// What the process held before the measured part.
struct Before {
    resident: Option<u64>,
    faults: Option<u64>,
    began: Instant,
}

impl Before {
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

/// Ends the process if a thread panics; otherwise the other threads would wait for it and never return.
pub struct AbortIfPanicking;

impl Drop for AbortIfPanicking {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
