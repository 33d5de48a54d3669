//! One run of one workload with one allocator.

use crate::peers::{
    About, Allocator, AnySize, AnySizeVisitor, Collections, CollectionsVisitor, Global,
    GlobalVisitor, Placement, PlacementVisitor, Scopes, ScopesVisitor, TaskVisitor,
};
use crate::workloads::collections::CollectionKind;
use crate::workloads::fixed_size::Shape;
use crate::workloads::kind::{Objects, WorkloadKind};
use crate::workloads::measurement::{
    ALLOC_SHARE, LIVE_BYTES, Measurement, RESPONSE_MS_AVG, RESPONSE_MS_MAX, RESPONSE_MS_MIN,
    milliseconds,
};
use crate::workloads::observer::Observer;
use crate::workloads::query::store::{CHARTS, DIMENSIONS, SYNTHETIC_CONTEXT, Store, VALUES};
use crate::workloads::query::{Callers, Queries, Question, Responses};
use crate::workloads::run_error::RunError;
use crate::workloads::subject::Subject;
use crate::workloads::support::can_run;
use crate::workloads::task_threads::Run;
use crate::workloads::trees::copy;
use crate::workloads::workload::RunSpec;
use crate::workloads::{collections, global, grow, handler, mixed, objects, scope, scope_free};
use std::time::Duration;

impl RunSpec {
    /// Runs it with the allocator or the variant called `allocator`.
    pub fn measure(
        &self,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        if let Subject::Variant(variant) = self.check(allocator)? {
            return (variant.run)(self, observer);
        }
        let threads = self.setting.threads;
        let tasks = self.workload.tasks(threads, self.effort);
        let equal = |work| EqualTasks { work, threads, tasks, observer };
        let (ops_a_task, live_a_thread, run) = match self.workload.kind {
            WorkloadKind::Query => {
                let (store, questions) = full_size();
                let outcome = self.queries(&store, &questions).measure(allocator, observer)?;
                let ms =
                    |of: fn(Responses) -> Duration| outcome.responses.map(of).map(milliseconds);
                return Ok(Measurement::timed(outcome.dimensions, outcome.wall)
                    .with_tasks(tasks, outcome.steady)
                    .with(&RESPONSE_MS_AVG, ms(|responses| responses.average))
                    .with(&RESPONSE_MS_MIN, ms(|responses| responses.min))
                    .with(&RESPONSE_MS_MAX, ms(|responses| responses.max)));
            }
            WorkloadKind::FixedSize(shape) => {
                return Ok(shape.measure(allocator, threads, self.effort, observer)?);
            }
            WorkloadKind::TreeCopy { exponent } => {
                let amount = copy::Amount::of(exponent, self.effort);
                return Ok(TreeCopy { amount, observer }.with(allocator)?);
            }
            WorkloadKind::Mixed { remote } => {
                let mixed = Mixed { remote, spec: self, observer };
                return Ok(mixed.with(allocator)?);
            }
            WorkloadKind::Objects(objects) => return self.objects(objects, allocator, observer),
            WorkloadKind::Collections(kind) => {
                let run = OwnCollections { kind, threads, tasks, observer }.with(allocator)?;
                (kind.ops(), kind.live_bytes(), run)
            }
            WorkloadKind::FreeInScope { objects } => {
                return Ok(FreeInScope { objects, threads, observer }.with(allocator)?);
            }
            WorkloadKind::Grow => {
                let bytes = grow::REPLY_BYTES as u64;
                (bytes, Some(bytes), equal(TaskWork::Grow).with(allocator)?)
            }
            WorkloadKind::Scope { exit } => {
                let work = if exit { TaskWork::ScopeExits } else { TaskWork::Scope };
                let run = equal(work).with(allocator)?;
                (scope::OBJECTS as u64, Some(scope::live_bytes()), run)
            }
            WorkloadKind::Handler => {
                let serve = Serve { threads, requests: tasks, observer };
                (1, None, serve.with(allocator)?)
            }
            WorkloadKind::Inline(_)
            | WorkloadKind::Container(_)
            | WorkloadKind::Client(_)
            | WorkloadKind::Locking
            | WorkloadKind::Published
            | WorkloadKind::FileScan(_) => {
                unreachable!("its rows are variants")
            }
        };
        let tasks = tasks * threads as u64;
        let live_bytes = live_a_thread.map(|bytes: u64| (threads as u64 * bytes) as f64);
        Ok(Measurement::timed(tasks * ops_a_task, run.wall)
            .with_tasks(tasks, run.steady)
            .with(&LIVE_BYTES, live_bytes))
    }

    /// Runs the objects of queries with the allocator called `allocator`.
    pub(crate) fn objects(
        &self,
        objects: Objects,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        let threads = self.setting.threads;
        let tasks = self.workload.tasks(threads, self.effort);
        Ok(ObjectsOfQueries { objects, threads, tasks, observer }.with(allocator)?)
    }

    /// Runs pairs of an allocation and a free with the allocator called `allocator`.
    pub(crate) fn pairs(
        &self,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        Ok(Shape::Pair.measure(allocator, self.setting.threads, self.effort, observer)?)
    }

    /// The part of the time that is spent in the allocator, from a separate run. `None` if the
    /// workload does no other work, or if the processor has no counter or the system no timer for
    /// it.
    pub fn share(&self, allocator: &str) -> Result<Option<f64>, RunError> {
        self.check(allocator)?;
        if !self.workload.measures(&ALLOC_SHARE) {
            return Ok(None);
        }
        if self.workload.kind == WorkloadKind::Handler {
            let share = HandlersShare { threads: self.setting.threads, time: SHARE_TIME };
            return Ok(share.with(allocator)?);
        }
        let (store, questions) = full_size();
        let mut queries = self.queries(&store, &questions);
        // A share needs fewer queries: it is a ratio, not a time.
        queries.count = queries.count.min(8);
        Ok(queries.share(allocator)?)
    }

    fn check(&self, name: &str) -> Result<Subject, RunError> {
        let (workload, threads) = (self.workload, self.setting.threads);
        match workload.needed_threads() {
            Some(needed) if !needed.include(threads) => {
                return Err(RunError::Threads { workload: workload.name, needed });
            }
            _ => {}
        }
        let subject = Subject::named(name, &[workload])?;
        can_run(workload, subject, threads).map_err(|lacks| RunError::Unsupported {
            row: subject.name(),
            workload: workload.name,
            lacks,
        })?;
        match global::in_use() {
            in_use if workload.kind == WorkloadKind::Handler && in_use != Some(subject.name()) => {
                let allocator = subject.name();
                Err(RunError::Global { allocator, workload: workload.name, in_use })
            }
            _ => Ok(subject),
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

/// The full-size store, and the question that covers all of it.
pub fn full_size() -> (Store, [Question; 1]) {
    let store = Store::synthetic(CHARTS, DIMENSIONS, VALUES);
    let question = Question::new(&store, SYNTHETIC_CONTEXT);
    (store, [question])
}

/// A workload in which every worker does the same number of tasks.
struct EqualTasks<'l> {
    work: TaskWork,
    threads: usize,
    tasks: u64,
    observer: &'l dyn Observer,
}

/// What these tasks do.
enum TaskWork {
    Grow,
    Scope,
    ScopeExits,
}

impl TaskVisitor for EqualTasks<'_> {
    type Output = Run<()>;

    fn visit<A: Allocator>(self, _: &'static About) -> Run<()> {
        match self.work {
            TaskWork::Grow => grow::run::<A>(self.threads, self.tasks, self.observer),
            TaskWork::Scope => scope::run::<A>(self.threads, self.tasks, self.observer),
            TaskWork::ScopeExits => scope::run_exits::<A>(self.threads, self.tasks, self.observer),
        }
    }
}

/// The objects of queries.
struct ObjectsOfQueries<'w> {
    objects: Objects,
    threads: usize,
    tasks: u64,
    observer: &'w dyn Observer,
}

impl ObjectsOfQueries<'_> {
    fn run<A: Allocator, C: objects::Content>(self) -> Measurement {
        let Self { objects: Objects { dimensions, cold, .. }, threads, tasks, observer } = self;
        if cold {
            return objects::run_cold::<A, C>(threads, dimensions, observer);
        }
        let run = objects::run::<A, C>(threads, dimensions, tasks, observer);
        objects::outcome(&run, threads, dimensions, tasks)
    }
}

impl TaskVisitor for ObjectsOfQueries<'_> {
    type Output = Measurement;

    fn visit<A: Allocator>(self, _: &'static About) -> Measurement {
        if self.objects.structures {
            self.run::<A, objects::Structures>()
        } else {
            self.run::<A, objects::Words>()
        }
    }
}

/// An allocator's own vector or strings.
struct OwnCollections<'w> {
    kind: CollectionKind,
    threads: usize,
    tasks: u64,
    observer: &'w dyn Observer,
}

impl CollectionsVisitor for OwnCollections<'_> {
    type Output = Run<()>;

    fn visit<A: Collections>(self, _: &'static About) -> Run<()> {
        collections::run::<A>(self.kind, self.threads, self.tasks, self.observer)
    }
}

/// Objects freed inside scopes.
struct FreeInScope<'w> {
    objects: usize,
    threads: usize,
    observer: &'w dyn Observer,
}

impl ScopesVisitor for FreeInScope<'_> {
    type Output = Measurement;

    fn visit<A: Scopes>(self, _: &'static About) -> Measurement {
        scope_free::run::<A>(self.objects, scope_free::OBJECTS, self.threads, self.observer)
    }
}

/// Objects of any size that belong to no task.
struct Mixed<'l> {
    remote: bool,
    spec: &'l RunSpec,
    observer: &'l dyn Observer,
}

impl AnySizeVisitor for Mixed<'_> {
    type Output = Measurement;

    fn visit<A: AnySize>(self, _: &'static About) -> Measurement {
        mixed::run::<A>(self.remote, self.spec.setting.threads, self.spec.effort, self.observer)
    }
}

/// Requests to ordinary code.
struct Serve<'w> {
    threads: usize,
    requests: u64,
    observer: &'w dyn Observer,
}

impl GlobalVisitor for Serve<'_> {
    type Output = Run<()>;

    fn visit<G: Global>(self, _: &'static About) -> Run<()> {
        handler::run::<G>(self.threads, self.requests, self.observer)
    }
}

/// The part of the time that such requests spend in the allocator.
struct HandlersShare {
    threads: usize,
    time: Duration,
}

/// About 24,000 samples. A share of a tenth is then accurate to about 2 % of itself.
const SHARE_TIME: Duration = Duration::from_millis(1200);

impl GlobalVisitor for HandlersShare {
    type Output = Option<f64>;

    fn visit<G: Global>(self, about: &'static About) -> Option<f64> {
        handler::share::<G>(about.name, self.threads, self.time)
    }
}

/// Trees whose nodes a placement has laid out.
struct TreeCopy<'w> {
    amount: copy::Amount,
    observer: &'w dyn Observer,
}

impl PlacementVisitor for TreeCopy<'_> {
    type Output = Measurement;

    fn visit<P: Placement>(self, _: &'static About) -> Measurement {
        copy::run::<P>(self.amount, self.observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::measurement::{FAULTS_PER_QUERY, NS_PER_OP, QUERIES, STEADY_QUERIES};
    use crate::workloads::observer::Unobserved;
    use crate::workloads::run_error::Unsupported;
    use crate::workloads::setting::Effort;
    use crate::workloads::workload::Workload;

    fn load(name: &str, threads: usize) -> RunSpec {
        let workload = Workload::named(name).unwrap();
        RunSpec { workload, setting: workload.setting(threads), effort: Effort::Quick }
    }

    #[test]
    fn operations_and_live_bytes_are_those_of_all_threads() {
        let outcome = load("query-small", 2).measure("bumpalo-reset", &Unobserved).unwrap();
        let tasks = outcome.count(&QUERIES);
        assert_eq!(outcome.ops(), tasks * 400);
        assert_eq!(outcome.live_bytes(), 2 * 100 * 320);
        assert_eq!(outcome.count(&STEADY_QUERIES), tasks, "all that are measured");
        assert!(outcome.get(&NS_PER_OP).unwrap() > 0.0);
    }

    #[test]
    fn what_can_not_run_is_refused() {
        let refused = |name, threads, allocator| match load(name, threads)
            .measure(allocator, &Unobserved)
            .unwrap_err()
        {
            RunError::Unsupported { row, workload, lacks } => {
                assert_eq!((row, workload), (allocator, name));
                lacks
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("grow", 1, "typed-arena"), Unsupported::AnySize);
        assert_eq!(refused("grow", 1, "slab"), Unsupported::SeveralSizes);
        assert_eq!(refused("pair", 1, "bumpalo"), Unsupported::OutlivingTasks);
        assert_eq!(refused("mixed", 1, "bumpalo"), Unsupported::OutlivingTasks);
        assert_eq!(refused("mixed", 1, "slab"), Unsupported::SeveralSizes);
        assert_eq!(refused("scope", 1, "bumpalo"), Unsupported::FreesWithinTasks);
        assert_eq!(refused("scope-exit", 1, "typed-arena"), Unsupported::AnySize);
        assert_eq!(refused("handler", 1, "bumpalo"), Unsupported::Global);
        assert_eq!(refused("arena-vec", 1, "allotment-pool"), Unsupported::Collections);
        assert_eq!(refused("scope-free-1000", 1, "bumpalo"), Unsupported::Scopes);
        assert_eq!(refused("query-alloc-cold", 1, "slab"), Unsupported::SeveralSizes);
        assert_eq!(refused("query-alloc", 1, "mmap-huge"), Unsupported::Reference);
        assert_eq!(refused("burst-alloc", 1, "mmap-small"), Unsupported::Reference);
        assert_eq!(refused("handler", 1, "compact-copy"), Unsupported::Allocator);
        assert_eq!(refused("pair", 1, "allotment-pool"), Unsupported::Shared);
        assert_eq!(refused("pair", 2, "slab"), Unsupported::SeveralThreads);
        assert_eq!(refused("tiers-cold", 2, "sharded-slab"), Unsupported::EveryLayout);
        assert_eq!(refused("tree-8", 1, "slab"), Unsupported::EveryLayout);
        assert_eq!(refused("pair", 2, "allotment-free-list"), Unsupported::SeveralThreads);
        assert_eq!(refused("tree-8", 1, "allotment-free-list-a-tree"), Unsupported::ManyStructures);
        assert_eq!(refused("tree-copy-8", 1, "allotment-free-list"), Unsupported::Placement);
        assert_eq!(refused("tree-8", 1, "compact-copy"), Unsupported::Allocator);
        assert_eq!(refused("grow", 1, "compact-copy"), Unsupported::Allocator);
        assert_eq!(refused("grow", 1, "mutex"), Unsupported::VariantOf("published"));
        assert_eq!(refused("published", 1, "glibc"), Unsupported::Variants("published"));
        assert_eq!(refused("published", 1, "read"), Unsupported::Variants("published"));
        let refused = load("exchange-1", 3).measure("sharded-slab", &Unobserved).unwrap_err();
        assert_eq!(refused.to_string(), "'exchange-1' needs 2 threads: a producer and a consumer");
        let refused = load("tree-8", 2).measure("sharded-slab", &Unobserved).unwrap_err();
        assert_eq!(refused.to_string(), "'tree-8' needs 1 thread: a tree belongs to one thread");
        let refused = load("mixed-remote", 1).measure("bumpalo", &Unobserved).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "'mixed-remote' needs 2 threads or more: each thread hands objects to the next"
        );
        let unknown = load("grow", 1).measure("no-such", &Unobserved).unwrap_err();
        assert!(unknown.to_string().contains("'no-such'"), "{unknown}");
    }

    #[test]
    fn the_first_touch_of_memory_is_measured_on_pages_of_each_size() {
        for name in ["mmap-huge", "mmap-small", "allotment-arena", "multitude", "typed-arena"] {
            let outcome = load("query-alloc-cold", 2).measure(name, &Unobserved).unwrap();
            assert_eq!((outcome.ops(), outcome.get(&QUERIES)), (800_000, None), "{name}");
        }
        for name in ["mmap-huge", "mmap-small", "allotment-slab"] {
            let outcome = load("burst-alloc-cold", 1).measure(name, &Unobserved).unwrap();
            assert_eq!(outcome.ops(), 1_000_000, "{name}");
        }
    }

    #[test]
    fn vectors_strings_and_scopes_run_with_whoever_has_them() {
        for about in crate::peers::known() {
            let runs = |name| {
                let workload = Workload::named(name).unwrap();
                can_run(workload, Subject::Allocator(about), 2).is_ok()
            };
            for name in ["arena-vec", "arena-format"] {
                assert_eq!(runs(name), about.collections, "{name} with {}", about.name);
            }
            assert_eq!(runs("scope-free-1000"), about.scopes, "{}", about.name);
        }
        let outcome = load("scope-free-1000", 1).measure("allotment-arena", &Unobserved).unwrap();
        assert_eq!((outcome.ops(), outcome.live_bytes()), (10_000_000, 16_000));
    }

    #[test]
    fn objects_of_one_size_have_no_tasks() {
        let outcome = load("burst-free", 2).measure("sharded-slab", &Unobserved).unwrap();
        assert_eq!((outcome.get(&QUERIES), outcome.get(&FAULTS_PER_QUERY)), (None, None));
        assert_eq!(
            (outcome.ops(), outcome.get(&LIVE_BYTES)),
            (2_000_000, Some(2_000_000.0 * 64.0))
        );
    }

    #[test]
    fn trees_are_walked_where_a_placement_has_laid_them() {
        let outcome = load("tree-copy-8", 1).measure("compact-copy", &Unobserved).unwrap();
        assert_eq!(
            (outcome.get(&QUERIES), outcome.get(&LIVE_BYTES)),
            (None, Some(f64::from(8 << 20)))
        );
        assert_eq!(outcome.ops(), 4 << 20);
    }

    #[test]
    fn where_there_is_nothing_beside_the_allocator_there_is_no_share() {
        assert_eq!(load("query-small", 1).share("bumpalo"), Ok(None));
    }

    #[test]
    fn objects_of_any_size_and_requests_are_counted() {
        let own = crate::peers::known()[0].name;
        let outcome = load("mixed-remote", 2).measure(own, &Unobserved).unwrap();
        assert_eq!((outcome.get(&QUERIES), outcome.ops() % 20), (None, 0));
        assert!(outcome.get(&LIVE_BYTES).is_some_and(|bytes| bytes > 2e6));
        for name in ["scope", "scope-exit"] {
            let outcome = load(name, 2).measure(own, &Unobserved).unwrap();
            assert_eq!((outcome.get(&QUERIES), outcome.ops()), (Some(4_000.0), 4_000 * 2_000));
            assert_eq!(outcome.live_bytes(), 2 * scope::live_bytes());
        }
    }

    #[cfg(feature = "fast-peers")]
    #[test]
    fn what_only_its_thread_may_free_is_no_row_where_others_free() {
        let refused = load("mixed-remote", 2).measure("pmr-pool", &Unobserved).unwrap_err();
        assert!(refused.to_string().contains("only the thread that allocated"), "{refused}");
        assert!(load("mixed", 2).measure("pmr-pool", &Unobserved).is_ok());
    }

    #[test]
    fn ordinary_code_runs_with_the_programs_own_allocator_alone() {
        let in_use = global::in_use().expect("the tests' global allocator");
        let outcome = load("handler", 1).measure(in_use, &Unobserved).unwrap();
        assert_eq!(
            (outcome.ops(), outcome.get(&QUERIES), outcome.get(&LIVE_BYTES)),
            (20_000, Some(20_000.0), None)
        );
        let share = load("handler", 1).share(in_use).unwrap();
        assert!(share.is_none_or(|share| share > 0.0 && share < 0.9), "{share:?}");
        for about in
            crate::peers::known().iter().filter(|about| about.global && about.name != in_use)
        {
            let refused = load("handler", 1).measure(about.name, &Unobserved).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains(&format!("start it with ALLOT_GLOBAL={}", about.name)), "{text}");
        }
    }
}
