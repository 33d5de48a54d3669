//! `pmr-vector`, `pmr-map`: C++ containers on our memory resources and on those of the standard
//! library.
//!
//! # Invariants
//!
//! 1. The declarations below match `containers.cpp`, which lets no exception out.
//! 2. The shared state outlives the threads' own states; each is destroyed once. A thread's state
//!    is used only by the thread that made it.

use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::variant::Variant;
use crate::workloads::workload::RunSpec;

/// Numbered as in `containers.cpp`.
#[derive(Debug, Clone, Copy)]
enum Resource {
    Arena = 0,
    Pool = 1,
    Slab = 2,
    Monotonic = 3,
    UnsynchronizedPool = 4,
    SynchronizedPool = 5,
    NewDelete = 6,
}

const CHUNKS: &str = "every chunk goes back to operator delete when its task or its thread ends";

/// The rows of both. Each of the project's resources is listed before the one of the standard
/// library that does the same work.
pub(crate) static VARIANTS: [Variant; 7] = [
    Variant::ours(
        "allotment-arena",
        "allot::arena_resource, one arena for each task",
        "adaptive: chunks stay warm for later tasks; unused memory is released",
        |spec, observer| linked::run(spec, Resource::Arena, observer),
    ),
    Variant::peer(
        "pmr-monotonic",
        "std::pmr::monotonic_buffer_resource, one per task; ratio to our arena",
        CHUNKS,
        |spec, observer| linked::run(spec, Resource::Monotonic, observer),
    )
    .compared_with("allotment-arena"),
    Variant::ours(
        "allotment-pool",
        "allot::pool_resource, one pool for each thread",
        "adaptive: a thread keeps as much empty memory as it reuses",
        |spec, observer| linked::run(spec, Resource::Pool, observer),
    )
    .compared_with("allotment-pool"),
    Variant::peer(
        "pmr-pool",
        "std::pmr::unsynchronized_pool_resource, one per thread; ratio to our pool",
        CHUNKS,
        |spec, observer| linked::run(spec, Resource::UnsynchronizedPool, observer),
    )
    .compared_with("allotment-pool"),
    Variant::ours(
        "allotment-slab",
        "allot::slab_resource, one for all threads",
        "adaptive: as many empty pages are kept as the program reuses; the others are released",
        |spec, observer| linked::run(spec, Resource::Slab, observer),
    )
    .compared_with("allotment-slab"),
    Variant::peer(
        "pmr-synchronized-pool",
        "std::pmr::synchronized_pool_resource, one for all; ratio to our slabs",
        CHUNKS,
        |spec, observer| linked::run(spec, Resource::SynchronizedPool, observer),
    )
    .compared_with("allotment-slab"),
    Variant::peer(
        super::LIBC,
        "std::pmr::new_delete_resource(), which calls malloc; ratio to our pool",
        "the C library's own",
        |spec, observer| linked::run(spec, Resource::NewDelete, observer),
    )
    .compared_with("allotment-pool"),
];

#[cfg(not(feature = "fast-peers"))]
mod linked {
    use super::{Measurement, Observer, Resource, RunError, RunSpec};

    pub(super) fn run(
        spec: &RunSpec,
        _: Resource,
        _: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        Err(RunError::without_c(spec.workload))
    }
}

#[cfg(feature = "fast-peers")]
mod linked {
    use super::{Measurement, Observer, Resource, RunError, RunSpec};
    use crate::workloads::kind::{Container, WorkloadKind};
    use crate::workloads::task_threads::{self, TaskCounter};
    use std::ffi::c_void;
    use std::hint::black_box;

    unsafe extern "C" {
        fn workloads_pmr_shared(which: u32) -> *mut c_void;
        fn workloads_pmr_end(all: *mut c_void);
        fn workloads_pmr_sit(all: *mut c_void) -> *mut c_void;
        fn workloads_pmr_leave(own: *mut c_void);
        fn workloads_pmr_task(own: *mut c_void, maps: u32, task: u64, sum: &mut u64) -> u64;
    }

    /// The state that all threads share.
    struct SharedResource(*mut c_void);

    // SAFETY: resources that threads can't share are in the threads' own states, not here.
    unsafe impl Sync for SharedResource {}

    impl Drop for SharedResource {
        fn drop(&mut self) {
            // SAFETY: all threads have left (invariant 2).
            unsafe { workloads_pmr_end(self.0) };
        }
    }

    /// A thread's own state.
    struct WorkerState(*mut c_void);

    impl Drop for WorkerState {
        fn drop(&mut self) {
            // SAFETY: on the thread that made it, after its last use (invariant 2).
            unsafe { workloads_pmr_leave(self.0) };
        }
    }

    pub(super) fn run(
        spec: &RunSpec,
        resource: Resource,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        let WorkloadKind::Container(container) = spec.workload.kind else {
            unreachable!("the variants are containers'")
        };
        let maps = u32::from(container == Container::Map);
        let threads = spec.setting.threads;
        let tasks = spec.tasks();
        // SAFETY: one of the kinds that it knows.
        let shared = SharedResource(unsafe { workloads_pmr_shared(resource as u32) });
        let run = task_threads::run(
            threads,
            observer,
            |_| (),
            // SAFETY: on the thread that uses it; `shared` outlives it (invariant 2).
            || WorkerState(unsafe { workloads_pmr_sit(black_box(&shared).0) }),
            |state, (), counter: &mut TaskCounter<'_>| {
                let (mut operations, mut sum) = (0, 0);
                for task in 0..tasks {
                    // SAFETY: this thread's own state (invariant 2).
                    operations += unsafe { workloads_pmr_task(state.0, maps, task, &mut sum) };
                    counter.task_done();
                }
                (operations, sum)
            },
        );
        let (operations, sum) = run.results[0];
        // The same tasks on all threads.
        assert!(
            run.results.iter().all(|other| *other == (operations, sum)),
            "a container has not what was put into it"
        );
        #[cfg(test)]
        super::tests::SUM.set(sum);
        Ok(Measurement::timed(operations * threads as u64, run.wall)
            .with_tasks(tasks * threads as u64, run.steady))
    }
}

#[cfg(all(test, feature = "fast-peers"))]
mod tests {
    use super::*;
    use crate::workloads::measurement::QUERIES;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::setting::Effort;
    use crate::workloads::workload::Workload;
    use std::cell::Cell;
    use std::io::Write;

    thread_local! {
        /// The sum of the containers' contents in the last run on this thread.
        pub(super) static SUM: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn containers_hold_the_same_on_every_resource() {
        if std::env::var_os("ALLOTMENT_LONG_TESTS").is_none() {
            // Not by `eprintln!`, which the harness shows for failing tests alone.
            let text = "SKIPPED: containers on every resource: ALLOTMENT_LONG_TESTS is not set";
            let _ = writeln!(std::io::stderr(), "{text}");
            return;
        }
        for name in ["pmr-vector", "pmr-map"] {
            let workload = Workload::named(name).unwrap();
            let mut found = Vec::new();
            for threads in [1, 2] {
                for variant in workload.variants() {
                    let setting = workload.setting(threads);
                    let spec = RunSpec { workload, setting, effort: Effort::Counted };
                    let outcome = spec.measure(variant.name, &Unobserved).unwrap();
                    let tasks = workload.tasks(threads, Effort::Counted);
                    assert_eq!(outcome.count(&QUERIES), tasks * threads as u64);
                    assert!(outcome.ops() > tasks * threads as u64 * 100, "{name}: {outcome:?}");
                    found.push((threads, outcome.ops(), SUM.get()));
                }
            }
            for threads in [1, 2] {
                let mut these = found.iter().filter(|one| one.0 == threads);
                let first = these.next().unwrap();
                assert!(first.2 > 0 && these.all(|other| other == first), "{name}: {found:?}");
            }
        }
    }
}
