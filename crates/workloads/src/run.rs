//! One run of one workload with one allocator.

use crate::catalogue::{Effort, Kind, Setting, Workload};
use crate::query::store::{SYNTHETIC_CONTEXT, Store};
use crate::query::{Callers, Queries, Question, Responses};
use crate::team::{Run, Steady};
use crate::watch::Watch;
use crate::{grow, objects};
use peers::{About, Allocator, UnknownAllocator, Visitor};
use std::fmt;
use std::time::Duration;

/// Charts of the full-size store.
pub const CHARTS: usize = 1000;
/// Dimensions of each of its charts.
pub const DIMENSIONS: usize = 100;
/// Values of each of its dimensions.
pub const VALUES: usize = 60;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The workload.
    pub workload: &'static Workload,
    /// Threads and callers.
    pub setting: Setting,
    /// How much of it.
    pub effort: Effort,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Operations, over all threads.
    pub ops: u64,
    /// Tasks, over all threads.
    pub tasks: u64,
    /// From the barrier to the last finish.
    pub wall: Duration,
    /// Bytes that the live objects of all threads ask for at most.
    pub live_bytes: Option<u64>,
    /// The steady state.
    pub steady: Steady,
    /// Response times, where there are callers.
    pub responses: Option<Responses>,
}

impl Outcome {
    /// Nanoseconds for one operation: wall time by the operations of all threads.
    pub fn ns_per_op(&self) -> f64 {
        self.wall.as_nanos() as f64 / self.ops as f64
    }
}

/// Why a run did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No allocator has this name.
    Unknown(UnknownAllocator),
    /// The allocator gives out objects of types it knows beforehand only.
    Sizes {
        /// The allocator.
        allocator: &'static str,
        /// The workload.
        workload: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::Sizes { allocator, workload } => {
                write!(f, "'{allocator}' can't run '{workload}': it has no objects of any size")
            }
        }
    }
}

impl std::error::Error for Refusal {}

impl From<UnknownAllocator> for Refusal {
    fn from(unknown: UnknownAllocator) -> Self {
        Self::Unknown(unknown)
    }
}

/// Whether an allocator can run a workload.
pub fn can_run(workload: &Workload, allocator: &About) -> bool {
    allocator.any_size || !workload.any_size
}

impl Load {
    /// Runs it with the allocator of this name.
    pub fn measure(&self, allocator: &str, watch: &dyn Watch) -> Result<Outcome, Refusal> {
        peers::with(allocator, Measure { load: self, watch })?
    }

    /// The part of the time that is spent in the allocator, in a run of its own; `None` where the
    /// workload has nothing beside it, or the processor no counter.
    pub fn share(&self, allocator: &str) -> Result<Option<f64>, Refusal> {
        peers::with(allocator, Share { load: self })?
    }

    fn check(&self, about: &'static About) -> Result<(), Refusal> {
        if can_run(self.workload, about) {
            return Ok(());
        }
        Err(Refusal::Sizes { allocator: about.name, workload: self.workload.name })
    }

    /// Runs it with an allocator by type.
    pub fn measure_with<A: Allocator>(&self, watch: &dyn Watch) -> Outcome {
        let threads = self.setting.threads;
        let tasks = self.workload.tasks(threads, self.effort);
        let all_tasks = tasks * threads as u64;
        let outcome = |run: Run<()>, ops_a_task: u64, live_a_task: u64| Outcome {
            ops: all_tasks * ops_a_task,
            tasks: all_tasks,
            wall: run.wall,
            live_bytes: Some(threads as u64 * live_a_task),
            steady: run.steady,
            responses: None,
        };
        match self.workload.kind {
            Kind::Query => {
                let (store, questions) = full_size();
                let outcome = self.queries(&store, &questions).run::<A>(watch);
                Outcome {
                    ops: outcome.dimensions,
                    tasks,
                    wall: outcome.wall,
                    live_bytes: None,
                    steady: outcome.steady,
                    responses: outcome.responses,
                }
            }
            Kind::Objects { dimensions } => {
                let ops = (dimensions * objects::SIZES.len()) as u64;
                let live = dimensions as u64 * objects::BYTES_A_DIMENSION;
                outcome(objects::run::<A>(threads, dimensions, tasks, watch), ops, live)
            }
            Kind::Grow => {
                let bytes = grow::REPLY_BYTES as u64;
                outcome(grow::run::<A>(threads, tasks, watch), bytes, bytes)
            }
        }
    }

    fn share_with<A: Allocator>(&self) -> Option<f64> {
        match self.workload.kind {
            Kind::Query => {
                let (store, questions) = full_size();
                let mut queries = self.queries(&store, &questions);
                // A share needs no more: it is a part, not a time.
                queries.count = queries.count.min(8);
                queries.share::<A>()
            }
            Kind::Objects { .. } | Kind::Grow => None,
        }
    }

    fn queries<'s>(&self, store: &'s Store, questions: &'s [Question]) -> Queries<'s> {
        let threads = self.setting.threads;
        Queries {
            store,
            questions,
            count: self.workload.tasks(threads, self.effort) as usize,
            callers: match self.setting.callers {
                None | Some(1) => Callers::One,
                Some(_) => Callers::Many { workers: threads },
            },
        }
    }
}

/// The full-size store and the question that takes all of it.
pub fn full_size() -> (Store, [Question; 1]) {
    let store = Store::synthetic(CHARTS, DIMENSIONS, VALUES);
    let question = Question::new(&store, SYNTHETIC_CONTEXT);
    (store, [question])
}

struct Measure<'l> {
    load: &'l Load,
    watch: &'l dyn Watch,
}

impl Visitor for Measure<'_> {
    type Output = Result<Outcome, Refusal>;

    fn visit<A: Allocator>(self, about: &'static About) -> Self::Output {
        self.load.check(about)?;
        Ok(self.load.measure_with::<A>(self.watch))
    }
}

struct Share<'l> {
    load: &'l Load,
}

impl Visitor for Share<'_> {
    type Output = Result<Option<f64>, Refusal>;

    fn visit<A: Allocator>(self, about: &'static About) -> Self::Output {
        self.load.check(about)?;
        Ok(self.load.share_with::<A>())
    }
}
