//! `c-arena`, `c-free-list`, `c-slab-handle`: the header's inline functions in a C program,
//! compared with the same loops in Rust.
//!
//! # Invariants
//!
//! 1. The declarations below match `inline.c` and `allotment.h`, and neither lets a panic or an
//!    exception out.
//! 2. A creating call never returns null (it aborts instead). Its result is used only by the thread
//!    that made it, except for a slab, which any thread may use. It is destroyed once, after its
//!    last use.
//! 3. An array of places has as many places as are passed to a call.

use super::stress;
use crate::workloads::fixed_size::Shape;
use crate::workloads::kind::{InlineLoop, QUERY_ALLOC, WorkloadKind};
use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::run_error::RunError;
use crate::workloads::variant::Variant;
use crate::workloads::workload::RunSpec;

const PAIRS: WorkloadKind = WorkloadKind::FixedSize(Shape::Pair);

static ARENA: [Variant; 2] = [
    Variant::ours(
        "c-arena",
        "allot_arena_alloc_aligned() of allotment.h, compiled by the C compiler",
        ARENA_POLICY,
        linked::arena,
    ),
    Variant::peer(
        "allotment-arena-raw",
        "the same objects with Arena::alloc_layout() in Rust, as in query-alloc",
        ARENA_POLICY,
        |spec, observer| {
            spec.measure_as(WorkloadKind::Objects(QUERY_ALLOC), "allotment-arena-raw", observer)
        },
    ),
];

static FREE_LIST: [Variant; 2] = [
    Variant::ours(
        "c-free-list",
        "allot_free_list_alloc() and allot_free_list_free() of allotment.h",
        LIST_POLICY,
        linked::free_list,
    ),
    Variant::peer(
        "allotment-free-list",
        "the same pairs with RawFreeList in Rust, as in pair",
        LIST_POLICY,
        |spec, observer| spec.measure_as(PAIRS, "allotment-free-list", observer),
    ),
];

static SLAB_HANDLE: [Variant; 2] = [
    Variant::ours(
        "c-slab-handle",
        "allot_slab_handle_alloc() and allot_slab_handle_free() of allotment.h",
        SLAB_POLICY,
        linked::slab_handle,
    ),
    Variant::peer(
        "allotment-slab-handle",
        "the same pairs with RawSlabHandle in Rust, as in pair",
        SLAB_POLICY,
        |spec, observer| spec.measure_as(PAIRS, "allotment-slab-handle", observer),
    ),
];

const ARENA_POLICY: &str =
    "adaptive: chunks stay warm for later tasks of any thread; unused memory is released";
const LIST_POLICY: &str = "adaptive: empty slabs go to the recycler";
const SLAB_POLICY: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

impl InlineLoop {
    pub fn variants(self) -> &'static [Variant] {
        match self {
            Self::Arena => &ARENA,
            Self::FreeList => &FREE_LIST,
            Self::SlabHandle => &SLAB_HANDLE,
            Self::Stress => &stress::VARIANTS,
        }
    }
}

#[cfg(not(feature = "fast-peers"))]
mod linked {
    use super::{Measurement, Observer, RunError, RunSpec};

    pub(super) use {missing as arena, missing as free_list, missing as slab_handle};

    pub(super) fn missing(spec: &RunSpec, _: &dyn Observer) -> Result<Measurement, RunError> {
        Err(RunError::without_c(spec.workload))
    }
}

#[cfg(feature = "fast-peers")]
mod linked {
    use super::{Measurement, Observer, RunError, RunSpec};
    use crate::peers::OBJECT;
    use crate::workloads::WARM_UP;
    use crate::workloads::fixed_size::live;
    use crate::workloads::fixed_size::prepared::ObjectSlots;
    use crate::workloads::kind::DIMENSIONS;
    use crate::workloads::objects;
    use crate::workloads::task_threads::{self, TaskCounter};
    use crate::workloads::thread_group::{self, Worker};
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::OnceLock;

    /// A list, a slab or a handle of the C interface.
    type Pointer = *mut c_void;

    unsafe extern "C" {
        fn workloads_c_arena_query(objects: *mut NonNull<u8>, dimensions: usize, fill: u8);
        fn workloads_c_free_list(size: usize, align: usize) -> Pointer;
        fn workloads_c_free_list_fill(list: Pointer, places: *mut c_void, count: usize);
        fn workloads_c_free_list_pairs(list: Pointer, pairs: u64);
        fn workloads_c_free_list_empty(list: Pointer, places: *mut c_void, count: usize);
        fn allot_free_list_destroy(list: Pointer);
        fn workloads_c_slab(size: usize, align: usize) -> Pointer;
        fn workloads_c_slab_handle(slab: Pointer) -> Pointer;
        fn workloads_c_slab_handle_fill(handle: Pointer, places: *mut c_void, count: usize);
        fn workloads_c_slab_handle_pairs(handle: Pointer, pairs: u64);
        fn workloads_c_slab_handle_empty(handle: Pointer, places: *mut c_void, count: usize);
        fn allot_slab_handle_destroy(handle: Pointer);
        fn allot_slab_destroy(slab: Pointer);
    }

    pub(super) fn arena(spec: &RunSpec, observer: &dyn Observer) -> Result<Measurement, RunError> {
        let threads = spec.setting.threads;
        let tasks = spec.tasks();
        let query = |objects: &mut Vec<NonNull<u8>>, query: u64| {
            // SAFETY: there is a place for each object of this number of dimensions (invariant 3).
            unsafe { workloads_c_arena_query(objects.as_mut_ptr(), DIMENSIONS, query as u8) };
        };
        let run = task_threads::run_warm(
            threads,
            observer,
            |_| objects::touched(DIMENSIONS * objects::SIZES.len()),
            |objects| (0..WARM_UP).for_each(|number| query(objects, number)),
            |(), objects: &mut Vec<NonNull<u8>>, counter: &mut TaskCounter<'_>| {
                for number in 0..tasks {
                    query(objects, number);
                    counter.task_done();
                }
            },
        );
        Ok(objects::outcome(&run, threads, DIMENSIONS, tasks))
    }

    /// The functions that make the pairs of one thread.
    struct PairCalls {
        fill: unsafe extern "C" fn(Pointer, *mut c_void, usize),
        pairs: unsafe extern "C" fn(Pointer, u64),
        empty: unsafe extern "C" fn(Pointer, *mut c_void, usize),
        destroy: unsafe extern "C" fn(Pointer),
    }

    pub(super) fn free_list(
        spec: &RunSpec,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        let calls = PairCalls {
            fill: workloads_c_free_list_fill,
            pairs: workloads_c_free_list_pairs,
            empty: workloads_c_free_list_empty,
            destroy: allot_free_list_destroy,
        };
        // SAFETY: lists support this layout.
        Ok(pairs(spec, observer, &calls, || unsafe {
            workloads_c_free_list(OBJECT.size(), OBJECT.align())
        }))
    }

    pub(super) fn slab_handle(
        spec: &RunSpec,
        observer: &dyn Observer,
    ) -> Result<Measurement, RunError> {
        /// A slab of the C interface, which all threads share.
        struct Slab(Pointer);
        // SAFETY: any thread may use a slab (invariant 2).
        unsafe impl Send for Slab {}
        // SAFETY: as above.
        unsafe impl Sync for Slab {}
        impl Drop for Slab {
            fn drop(&mut self) {
                // SAFETY: made below, and its handles are destroyed (invariant 2).
                unsafe { allot_slab_destroy(self.0) };
            }
        }
        let calls = PairCalls {
            fill: workloads_c_slab_handle_fill,
            pairs: workloads_c_slab_handle_pairs,
            empty: workloads_c_slab_handle_empty,
            destroy: allot_slab_handle_destroy,
        };
        let slab = OnceLock::new();
        // SAFETY: slabs support this layout; the slab outlives its handles (invariant 2).
        Ok(pairs(spec, observer, &calls, || unsafe {
            let slab = slab.get_or_init(|| Slab(workloads_c_slab(OBJECT.size(), OBJECT.align())));
            workloads_c_slab_handle(slab.0)
        }))
    }

    /// The C counterpart of `live::run`.
    fn pairs(
        spec: &RunSpec,
        observer: &dyn Observer,
        calls: &PairCalls,
        create: impl Fn() -> Pointer + Sync,
    ) -> Measurement {
        let threads = spec.setting.threads;
        let rounds = live::FreeOrder::AtOnce.rounds(threads, spec.effort);
        let walls = thread_group::run(
            threads,
            observer,
            |_| ObjectSlots::<NonNull<u8>>::touched(live::LIVE),
            |worker: Worker<'_, '_>, mut places| {
                let own = create();
                let places = places.all().as_mut_ptr().cast::<c_void>();
                // SAFETY: `create` made it on this thread, and there are as many places (invariants
                // 2 and 3), which are filled and then emptied.
                unsafe {
                    (calls.fill)(own, places, live::LIVE);
                    let wall = worker.measured(|| {
                        for _ in 0..rounds {
                            (calls.pairs)(own, live::LIVE as u64);
                        }
                    });
                    (calls.empty)(own, places, live::LIVE);
                    (calls.destroy)(own);
                    wall
                }
            },
        );
        live::FreeOrder::AtOnce.figures(threads, rounds, walls[0])
    }
}

#[cfg(all(test, feature = "fast-peers"))]
mod tests {
    use super::*;
    use crate::workloads::measurement::{QUERIES, SECONDS};
    use crate::workloads::observer::Unobserved;
    use crate::workloads::setting::Effort;
    use crate::workloads::workload::Workload;

    #[test]
    fn the_loops_in_c_do_what_those_in_rust_do() {
        for (name, threads) in [("c-arena", 2), ("c-free-list", 1), ("c-slab-handle", 2)] {
            let workload = Workload::named(name).unwrap();
            let spec =
                RunSpec { workload, setting: workload.setting(threads), effort: Effort::Counted };
            let outcomes = workload
                .variants()
                .iter()
                .map(|variant| spec.measure(variant.name, &Unobserved).unwrap())
                .collect::<Vec<_>>();
            let [c, rust] = &outcomes[..] else { panic!("two rows") };
            assert_eq!((c.ops(), c.get(&QUERIES)), (rust.ops(), rust.get(&QUERIES)), "{name}");
            assert_eq!(c.live_bytes(), rust.live_bytes(), "{name}");
            assert!(c.get(&SECONDS) > Some(0.0) && rust.get(&SECONDS) > Some(0.0), "{name}");
        }
    }
}
