//! One run of one workload with one allocator.

use crate::peers::{
    About, Allocator, AnySize, AnySizeVisitor, Boxes, BoxesVisitor, Collections,
    CollectionsVisitor, FixedSize, FixedSizeVisitor, Global, GlobalVisitor, Placement,
    PlacementVisitor, Requests, RequestsVisitor, Scopes, ScopesVisitor, Service, TaskVisitor,
};
use crate::workloads::kind::{Objects, WorkloadKind};
use crate::workloads::measurement::{ALLOC_SHARE, LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::query::store::{CHARTS, DIMENSIONS, SYNTHETIC_CONTEXT, Store, VALUES};
use crate::workloads::query::{Callers, Queries, Question};
use crate::workloads::run_error::RunError;
use crate::workloads::subject::Subject;
use crate::workloads::support::can_run;
use crate::workloads::task_threads::Run;
use crate::workloads::trees::copy;
use crate::workloads::workload::RunSpec;
use crate::workloads::{
    collections, global, grow, handler, mixed, objects, pool_request, scope, scope_free,
};
use std::time::Duration;

impl RunSpec {
    /// Runs it with the allocator or the variant called `allocator`.
    pub fn measure(
        &self,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        match self.check(allocator)? {
            Subject::Variant(variant) => (variant.run)(self, observer),
            Subject::Allocator(_) => self.measure_as(self.workload.kind, allocator, observer),
        }
    }

    /// Does the work of this kind with the allocator called `allocator`.
    pub(crate) fn measure_as(
        &self,
        kind: WorkloadKind,
        allocator: &str,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        let work = Work { kind, spec: self, observer };
        let measured = match kind.service() {
            Some(Service::Tasks) => TaskVisitor::with(work, allocator),
            Some(Service::FixedSize) => FixedSizeVisitor::with(work, allocator),
            Some(Service::Boxes) => BoxesVisitor::with(work, allocator),
            Some(Service::AnySize) => AnySizeVisitor::with(work, allocator),
            Some(Service::Requests) => RequestsVisitor::with(work, allocator),
            Some(Service::Collections) => CollectionsVisitor::with(work, allocator),
            Some(Service::Scopes) => ScopesVisitor::with(work, allocator),
            Some(Service::Global) => GlobalVisitor::with(work, allocator),
            Some(Service::Placement) => PlacementVisitor::with(work, allocator),
            None => unreachable!("its rows are variants"),
        };
        Ok(measured?)
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

    /// The tasks of each thread; in `query`, of all threads together.
    pub(crate) fn tasks(&self) -> u64 {
        self.workload.tasks(self.setting.threads, self.effort)
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
            count: self.tasks() as usize,
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

/// The work of one kind, for the allocator that a row names.
#[derive(Clone, Copy)]
struct Work<'r> {
    kind: WorkloadKind,
    spec: &'r RunSpec,
    observer: &'r dyn Observer,
}

impl Work<'_> {
    fn threads(self) -> usize {
        self.spec.setting.threads
    }

    /// The record of a run in which every worker did the same tasks.
    fn of_tasks(self, run: &Run<()>, ops_a_task: u64, live_a_thread: Option<u64>) -> Measurement {
        let threads = self.threads() as u64;
        let tasks = self.spec.tasks() * threads;
        Measurement::timed(tasks * ops_a_task, run.wall)
            .with_tasks(tasks, run.steady)
            .with(&LIVE_BYTES, live_a_thread.map(|bytes| (threads * bytes) as f64))
    }

    fn objects<A: Allocator, C: objects::Content>(
        self,
        Objects { dimensions, cold, .. }: Objects,
    ) -> Measurement {
        let threads = self.threads();
        if cold {
            return objects::run_cold::<A, C>(threads, dimensions, self.observer);
        }
        let tasks = self.spec.tasks();
        let run = objects::run::<A, C>(threads, dimensions, tasks, self.observer);
        objects::outcome(&run, threads, dimensions, tasks)
    }

    fn of_another_service(self) -> ! {
        unreachable!("{:?} needs {:?}", self.kind, self.kind.service())
    }
}

impl TaskVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: Allocator>(self, _: &'static About) -> Measurement {
        let (threads, tasks, observer) = (self.threads(), self.spec.tasks(), self.observer);
        match self.kind {
            WorkloadKind::Query => {
                let (store, questions) = full_size();
                self.spec.queries(&store, &questions).measure_with::<A>(observer)
            }
            WorkloadKind::Objects(objects) if objects.structures => {
                self.objects::<A, objects::Structures>(objects)
            }
            WorkloadKind::Objects(objects) => self.objects::<A, objects::Words>(objects),
            WorkloadKind::Grow => {
                let run = grow::run::<A>(threads, tasks, observer);
                self.of_tasks(&run, grow::REPLY_BYTES as u64, Some(grow::REPLY_BYTES as u64))
            }
            WorkloadKind::Scope { exit } => {
                let run = if exit { scope::run_exits::<A> } else { scope::run::<A> };
                let run = run(threads, tasks, observer);
                self.of_tasks(&run, scope::OBJECTS as u64, Some(scope::live_bytes()))
            }
            _ => self.of_another_service(),
        }
    }
}

impl FixedSizeVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: FixedSize>(self, about: &'static About) -> Measurement {
        let WorkloadKind::FixedSize(shape) = self.kind else { self.of_another_service() };
        shape.run::<A>(about, self.threads(), self.spec.effort, self.observer)
    }
}

impl BoxesVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: Boxes>(self, _: &'static About) -> Measurement {
        let WorkloadKind::Boxes(handover) = self.kind else { self.of_another_service() };
        handover.run::<A>(self.threads(), self.spec.effort, self.observer)
    }
}

impl RequestsVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: Requests>(self, _: &'static About) -> Measurement {
        let WorkloadKind::RequestsWithCache { entries } = self.kind else {
            self.of_another_service()
        };
        let tasks = self.spec.tasks();
        let run = pool_request::run::<A>(entries, self.threads(), tasks, self.observer);
        self.of_tasks(&run, 1, Some(pool_request::live_bytes(entries)))
    }
}

impl AnySizeVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: AnySize>(self, _: &'static About) -> Measurement {
        let WorkloadKind::Mixed { remote } = self.kind else { self.of_another_service() };
        mixed::run::<A>(remote, self.threads(), self.spec.effort, self.observer)
    }
}

impl CollectionsVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: Collections>(self, _: &'static About) -> Measurement {
        let WorkloadKind::Collections(kind) = self.kind else { self.of_another_service() };
        let run = collections::run::<A>(kind, self.threads(), self.spec.tasks(), self.observer);
        self.of_tasks(&run, kind.ops(), kind.live_bytes())
    }
}

impl ScopesVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<A: Scopes>(self, _: &'static About) -> Measurement {
        let WorkloadKind::FreeInScope { objects } = self.kind else { self.of_another_service() };
        scope_free::run::<A>(objects, scope_free::OBJECTS, self.threads(), self.observer)
    }
}

impl GlobalVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<G: Global>(self, _: &'static About) -> Measurement {
        let run = handler::run::<G>(self.threads(), self.spec.tasks(), self.observer);
        self.of_tasks(&run, 1, None)
    }
}

impl PlacementVisitor for Work<'_> {
    type Output = Measurement;

    fn visit<P: Placement>(self, _: &'static About) -> Measurement {
        let WorkloadKind::TreeCopy { exponent } = self.kind else { self.of_another_service() };
        copy::run::<P>(copy::Amount::of(exponent, self.spec.effort), self.observer)
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
        for (why, name, threads, allocator) in [
            ("it serves objects of one size only", "grow", 1, "slab"),
            ("its objects are freed when their task ends", "pair", 1, "bumpalo"),
            ("its objects are freed when their task ends", "mixed", 1, "bumpalo"),
            ("it serves objects of one size only", "mixed", 1, "slab"),
            ("it can't be a program's global allocator", "handler", 1, "bumpalo"),
            ("it has no vector and no string of its own", "arena-vec", 1, "allotment-pool"),
            ("it has no scopes", "scope-free-1000", 1, "bumpalo"),
            ("it serves objects of one size only", "query-alloc-cold", 1, "slab"),
            ("it is a layout of a tree, for tree-copy only", "handler", 1, "compact-copy"),
            (
                "each thread has one of its own, and this workload shares one",
                "pair",
                1,
                "allotment-pool",
            ),
            (
                "it is an allocator, and this workload compares layouts of a tree",
                "tree-copy-8",
                1,
                "allotment-free-list",
            ),
            ("it is a layout of a tree, for tree-copy only", "tree-8", 1, "compact-copy"),
            ("it is a layout of a tree, for tree-copy only", "grow", 1, "compact-copy"),
        ] {
            assert_eq!(refused(name, threads, allocator).to_string(), why, "{name}, {allocator}");
        }
        assert_eq!(refused("grow", 1, "typed-arena"), Unsupported::AnySize);
        assert_eq!(refused("scope", 1, "bumpalo"), Unsupported::FreesWithinTasks);
        assert_eq!(refused("scope-exit", 1, "typed-arena"), Unsupported::AnySize);
        assert_eq!(refused("query-alloc", 1, "mmap-huge"), Unsupported::Reference);
        assert_eq!(refused("burst-alloc", 1, "mmap-small"), Unsupported::Reference);
        assert_eq!(refused("pair", 2, "slab"), Unsupported::SeveralThreads);
        assert_eq!(refused("tiers-cold", 2, "sharded-slab"), Unsupported::EveryLayout);
        assert_eq!(refused("tree-8", 1, "slab"), Unsupported::EveryLayout);
        assert_eq!(refused("pair", 2, "allotment-free-list"), Unsupported::SeveralThreads);
        assert_eq!(refused("tree-8", 1, "allotment-free-list-a-tree"), Unsupported::ManyStructures);
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
                assert_eq!(
                    runs(name),
                    about.serves(Service::Collections),
                    "{name} with {}",
                    about.name
                );
            }
            assert_eq!(runs("scope-free-1000"), about.serves(Service::Scopes), "{}", about.name);
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
        for about in crate::peers::known()
            .iter()
            .filter(|about| about.serves(Service::Global) && about.name != in_use)
        {
            let refused = load("handler", 1).measure(about.name, &Unobserved).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains(&format!("start it with ALLOT_GLOBAL={}", about.name)), "{text}");
        }
    }
}
