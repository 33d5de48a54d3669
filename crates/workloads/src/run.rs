//! One run of one workload with one allocator.

use crate::catalogue::{Effort, Kind, Setting, Workload};
use crate::fixed_size::{Figures, Seconds, Shape};
use crate::query::store::{SYNTHETIC_CONTEXT, Store};
use crate::query::{Callers, Queries, Question, Responses};
use crate::team::{Run, Steady};
use crate::trees::copy;
use crate::watch::Watch;
use crate::{grow, objects};
use peers::{About, Allocator, Placement, PlacementVisitor, UnknownAllocator, Visitor};
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
    /// Tasks, over all threads; `None` of a workload that has none.
    pub tasks: Option<u64>,
    /// From the barrier to the last finish.
    pub wall: Duration,
    /// Bytes that the live objects of all threads ask for at most; in `churn`, at the end.
    pub live_bytes: Option<u64>,
    /// The steady state.
    pub steady: Steady,
    /// Response times, where there are callers.
    pub responses: Option<Responses>,
    /// Ordinary seconds, and a reservation, where there are any.
    pub seconds: Option<Seconds>,
    /// Nanoseconds for each node visited, where trees are walked besides.
    pub walk: Option<f64>,
}

impl Outcome {
    /// Nanoseconds for one operation: wall time by the operations of all threads.
    pub fn ns_per_op(&self) -> f64 {
        self.wall.as_nanos() as f64 / self.ops as f64
    }
}

impl From<Figures> for Outcome {
    fn from(figures: Figures) -> Self {
        Self {
            ops: figures.ops,
            tasks: None,
            wall: figures.wall,
            live_bytes: Some(figures.live_bytes),
            steady: Steady::default(),
            responses: None,
            seconds: figures.seconds,
            walk: figures.walk,
        }
    }
}

/// Why a run did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No allocator has this name.
    Unknown(UnknownAllocator),
    /// The allocator can't do it.
    Unable {
        /// The allocator.
        allocator: &'static str,
        /// The workload.
        workload: &'static str,
        /// What it lacks.
        lacks: Unable,
    },
    /// The workload runs with one number of threads only.
    Threads {
        /// The workload.
        workload: &'static str,
        /// The threads that it runs with.
        only: usize,
        /// What they are.
        meaning: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => unknown.fmt(f),
            Self::Unable { allocator, workload, lacks } => {
                write!(f, "'{allocator}' can't run '{workload}': {lacks}")
            }
            Self::Threads { workload, only, meaning } => {
                let s = if *only == 1 { "" } else { "s" };
                write!(f, "'{workload}' runs with {only} thread{s}: {meaning}")
            }
        }
    }
}

/// What an allocator lacks that a workload needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unable {
    /// It gives out objects of types it knows beforehand only.
    AnySize,
    /// It serves no tasks.
    Tasks,
    /// Its objects end with their task.
    FixedSize,
    /// It has values of one size only.
    EveryLayout,
    /// It serves one thread only.
    SeveralThreads,
    /// There is one for each data structure, and the workload has one structure, or none.
    ManyStructures,
    /// It is an allocator, and the workload compares placements.
    Placement,
    /// It is a placement.
    Allocator,
}

impl Unable {
    /// Whether it is plain from what row and workload are, and need not be said where nobody asked for the row.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::ManyStructures | Self::Placement | Self::Allocator)
    }
}

impl fmt::Display for Unable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnySize => "it has no objects of any size",
            Self::Tasks => "it serves objects of one size alone",
            Self::FixedSize => "its objects end with their task",
            Self::EveryLayout => "it has values of 64 B alone",
            Self::SeveralThreads => "it serves one thread alone",
            Self::ManyStructures => {
                "there is one for each of many structures, as in many-trees alone"
            }
            Self::Placement => {
                "it is an allocator, and not one of the ways in which a copied tree may lie"
            }
            Self::Allocator => "it is a way in which a tree may lie, for tree-copy alone",
        })
    }
}

impl std::error::Error for Refusal {}

impl From<UnknownAllocator> for Refusal {
    fn from(unknown: UnknownAllocator) -> Self {
        Self::Unknown(unknown)
    }
}

/// Whether an allocator can run a workload with so many threads; if not, what it lacks.
pub fn can_run(workload: &Workload, allocator: &About, threads: usize) -> Result<(), Unable> {
    let is_placement = allocator.kind == peers::Kind::Placement;
    let shape = match workload.kind {
        Kind::TreeCopy { .. } if is_placement => return Ok(()),
        Kind::TreeCopy { .. } => return Err(Unable::Placement),
        _ if is_placement => return Err(Unable::Allocator),
        _ if workload.has_tasks() && !allocator.tasks => return Err(Unable::Tasks),
        Kind::Query | Kind::Grow if !allocator.any_size => return Err(Unable::AnySize),
        Kind::Query | Kind::Grow | Kind::Objects { .. } => return Ok(()),
        Kind::FixedSize(shape) => shape,
    };
    match allocator.fixed_size {
        None => Err(Unable::FixedSize),
        _ if allocator.one_for_each_structure && !matches!(shape, Shape::ManyTrees(_)) => {
            Err(Unable::ManyStructures)
        }
        Some(serves) if !shape.is_of_objects() && !serves.every_layout => Err(Unable::EveryLayout),
        Some(serves) if threads > 1 && !serves.several_threads => Err(Unable::SeveralThreads),
        Some(_) => Ok(()),
    }
}

impl Load {
    /// Runs it with the allocator of this name.
    pub fn measure(&self, allocator: &str, watch: &dyn Watch) -> Result<Outcome, Refusal> {
        self.check(allocator)?;
        let threads = self.setting.threads;
        let tasks = self.workload.tasks(threads, self.effort);
        let (ops_a_task, live_a_task) = match self.workload.kind {
            Kind::Query => {
                let (store, questions) = full_size();
                let outcome = self.queries(&store, &questions).measure(allocator, watch)?;
                return Ok(Outcome {
                    ops: outcome.dimensions,
                    tasks: Some(tasks),
                    wall: outcome.wall,
                    live_bytes: None,
                    steady: outcome.steady,
                    responses: outcome.responses,
                    seconds: None,
                    walk: None,
                });
            }
            Kind::FixedSize(shape) => {
                return Ok(shape.measure(allocator, threads, self.effort, watch)?.into());
            }
            Kind::TreeCopy { exponent } => {
                let amount = copy::Amount::of(exponent, self.effort);
                return Ok(peers::with_placement(allocator, TreeCopy { amount, watch })?.into());
            }
            Kind::Objects { dimensions } => (
                (dimensions * objects::SIZES.len()) as u64,
                dimensions as u64 * objects::BYTES_A_DIMENSION,
            ),
            Kind::Grow => (grow::REPLY_BYTES as u64, grow::REPLY_BYTES as u64),
        };
        let run = peers::with(allocator, Alike { load: self, tasks, watch })?;
        let tasks = tasks * threads as u64;
        Ok(Outcome {
            ops: tasks * ops_a_task,
            tasks: Some(tasks),
            wall: run.wall,
            live_bytes: Some(threads as u64 * live_a_task),
            steady: run.steady,
            responses: None,
            seconds: None,
            walk: None,
        })
    }

    /// The part of the time that is spent in the allocator, in a run of its own; `None` where the
    /// workload has nothing beside it, or the processor no counter.
    pub fn share(&self, allocator: &str) -> Result<Option<f64>, Refusal> {
        self.check(allocator)?;
        if !self.workload.has_share() {
            return Ok(None);
        }
        let (store, questions) = full_size();
        let mut queries = self.queries(&store, &questions);
        // A share needs no more: it is a part, not a time.
        queries.count = queries.count.min(8);
        Ok(queries.share(allocator)?)
    }

    fn check(&self, allocator: &str) -> Result<(), Refusal> {
        let workload = self.workload;
        match workload.only_threads() {
            Some((only, meaning)) if only != self.setting.threads => {
                return Err(Refusal::Threads { workload: workload.name, only, meaning });
            }
            _ => {}
        }
        let about = peers::about(allocator)?;
        can_run(workload, about, self.setting.threads).map_err(|lacks| Refusal::Unable {
            allocator: about.name,
            workload: workload.name,
            lacks,
        })
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

/// A workload of which every worker does the same number of tasks.
struct Alike<'l> {
    load: &'l Load,
    tasks: u64,
    watch: &'l dyn Watch,
}

impl Visitor for Alike<'_> {
    type Output = Run<()>;

    fn visit<A: Allocator>(self, _: &'static About) -> Run<()> {
        let threads = self.load.setting.threads;
        match self.load.workload.kind {
            Kind::Objects { dimensions } => {
                objects::run::<A>(threads, dimensions, self.tasks, self.watch)
            }
            Kind::Grow => grow::run::<A>(threads, self.tasks, self.watch),
            Kind::Query => unreachable!("its workers share the queries"),
            Kind::FixedSize(_) | Kind::TreeCopy { .. } => unreachable!("it has no tasks"),
        }
    }
}

/// Trees that lie as a placement has it.
struct TreeCopy<'w> {
    amount: copy::Amount,
    watch: &'w dyn Watch,
}

impl PlacementVisitor for TreeCopy<'_> {
    type Output = Figures;

    fn visit<P: Placement>(self, _: &'static About) -> Figures {
        copy::run::<P>(self.amount, self.watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Unwatched;

    fn load(name: &str, threads: usize) -> Load {
        let workload = Workload::named(name).unwrap();
        Load { workload, setting: workload.setting(threads), effort: Effort::Quick }
    }

    #[test]
    fn operations_and_live_bytes_are_those_of_all_threads() {
        let outcome = load("query-small", 2).measure("bumpalo-reset", &Unwatched).unwrap();
        let tasks = outcome.tasks.unwrap();
        assert_eq!(outcome.ops, tasks * 400);
        assert_eq!(outcome.live_bytes, Some(2 * 100 * 320));
        assert_eq!(outcome.steady.tasks, tasks - 2 * 2);
        assert!(outcome.ns_per_op() > 0.0);
    }

    #[test]
    fn what_can_not_run_is_refused() {
        let refused = |name, threads, allocator| match load(name, threads)
            .measure(allocator, &Unwatched)
            .unwrap_err()
        {
            Refusal::Unable { allocator: refused, workload, lacks } => {
                assert_eq!((refused, workload), (allocator, name));
                lacks
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("grow", 1, "typed-arena"), Unable::AnySize);
        assert_eq!(refused("grow", 1, "slab"), Unable::Tasks);
        assert_eq!(refused("pair", 1, "bumpalo"), Unable::FixedSize);
        assert_eq!(refused("pair", 2, "slab"), Unable::SeveralThreads);
        assert_eq!(refused("tiers-cold", 2, "sharded-slab"), Unable::EveryLayout);
        assert_eq!(refused("tree-8", 1, "slab"), Unable::EveryLayout);
        assert_eq!(refused("pair", 2, "allotment-free-list"), Unable::SeveralThreads);
        assert_eq!(refused("tree-8", 1, "allotment-free-list-a-tree"), Unable::ManyStructures);
        assert_eq!(refused("tree-copy-8", 1, "allotment-free-list"), Unable::Placement);
        assert_eq!(refused("tree-8", 1, "compact-copy"), Unable::Allocator);
        assert_eq!(refused("grow", 1, "compact-copy"), Unable::Allocator);
        let refused = load("exchange-1", 3).measure("sharded-slab", &Unwatched).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "'exchange-1' runs with 2 threads: a producer and a consumer"
        );
        let refused = load("tree-8", 2).measure("sharded-slab", &Unwatched).unwrap_err();
        assert_eq!(refused.to_string(), "'tree-8' runs with 1 thread: a tree is one thread's");
        let unknown = load("grow", 1).measure("no-such", &Unwatched).unwrap_err();
        assert!(unknown.to_string().contains("'no-such'"), "{unknown}");
    }

    #[test]
    fn objects_of_one_size_have_no_tasks() {
        let outcome = load("burst-free", 2).measure("sharded-slab", &Unwatched).unwrap();
        assert_eq!((outcome.tasks, outcome.steady.faults_per_task()), (None, None));
        assert_eq!((outcome.ops, outcome.live_bytes), (2_000_000, Some(2_000_000 * 64)));
    }

    #[test]
    fn trees_are_walked_where_a_placement_has_laid_them() {
        let outcome = load("tree-copy-8", 1).measure("compact-copy", &Unwatched).unwrap();
        assert_eq!((outcome.tasks, outcome.live_bytes), (None, Some(32 << 20)));
        assert_eq!(outcome.ops, 4 << 20);
    }

    #[test]
    fn only_a_query_has_a_share() {
        assert_eq!(load("query-small", 1).share("bumpalo"), Ok(None));
    }
}
