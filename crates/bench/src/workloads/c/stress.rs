//! `c-stress`: the array allocator's stress test, in a C program that calls that allocator's own
//! functions.
//!
//! # Invariants
//!
//! 1. The declarations below match `stress.c`, which lets no exception out.
//! 2. `workloads_c_aral` never returns null (it aborts instead). Any thread may use its result,
//!    which is destroyed once, after the last use.
//! 3. An array of places has as many places as are passed to a cycle, and belongs to one thread.

use crate::workloads::fixed_size::Shape;
use crate::workloads::kind::WorkloadKind;
use crate::workloads::variant::Variant;

pub(crate) static VARIANTS: [Variant; 3] = [
    Variant::ours(
        "c-stress",
        "aral_mallocz() and aral_freez() of allotment_netdata.h, shared by all",
        SLAB_POLICY,
        linked::aral,
    ),
    Variant::ours(
        "allotment-slab",
        "the same cycles with RawSlab in Rust, as in stress",
        SLAB_POLICY,
        |spec, observer| {
            spec.measure_as(WorkloadKind::FixedSize(Shape::Stress), "allotment-slab", observer)
        },
    ),
    Variant::peer(
        super::LIBC,
        "the same C program with malloc() and free()",
        "the C library's",
        linked::libc,
    ),
];

const SLAB_POLICY: &str =
    "adaptive: as many empty pages are kept as the program reuses; the others are released";

#[cfg(not(feature = "fast-peers"))]
mod linked {
    use crate::workloads::measurement::Measurement;
    use crate::workloads::observer::Observer;
    use crate::workloads::run_error::RunError;
    use crate::workloads::workload::RunSpec;

    pub(super) use {missing as aral, missing as libc};

    pub(super) fn missing(spec: &RunSpec, _: &dyn Observer) -> Result<Measurement, RunError> {
        Err(RunError::without_c(spec.workload))
    }
}

#[cfg(feature = "fast-peers")]
mod linked {
    use crate::peers::OBJECT;
    use crate::workloads::fixed_size::prepared::ObjectSlots;
    use crate::workloads::fixed_size::stress::{self, ELEMENTS};
    use crate::workloads::measurement::Measurement;
    use crate::workloads::observer::Observer;
    use crate::workloads::run_error::RunError;
    use crate::workloads::thread_group;
    use crate::workloads::workload::RunSpec;
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Runs one cycle of the stress test on `elements` places, and returns the number of
    /// allocations.
    pub(super) type Cycle = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> usize;

    unsafe extern "C" {
        pub(super) fn workloads_c_stress_aral(
            ar: *mut c_void,
            places: *mut c_void,
            elements: usize,
        ) -> usize;
        pub(super) fn workloads_c_stress_libc(
            size: *mut c_void,
            places: *mut c_void,
            elements: usize,
        ) -> usize;
        fn workloads_c_aral(size: usize) -> *mut c_void;
        fn workloads_c_aral_destroy(ar: *mut c_void);
    }

    /// The allocator of a cycle: an ARAL, or the size to request from malloc.
    pub(super) struct CycleAllocator(pub *mut c_void);

    // SAFETY: any thread may use an ARAL (invariant 2), and no thread writes the size.
    unsafe impl Send for CycleAllocator {}
    // SAFETY: as above.
    unsafe impl Sync for CycleAllocator {}

    pub(super) struct Aral(pub CycleAllocator);

    impl Aral {
        pub(super) fn new() -> Self {
            // SAFETY: slabs support this size (invariant 1).
            Self(CycleAllocator(unsafe { workloads_c_aral(OBJECT.size()) }))
        }
    }

    impl Drop for Aral {
        fn drop(&mut self) {
            // SAFETY: made in `new`, and dropped after its last use (invariant 2).
            unsafe { workloads_c_aral_destroy(self.0.0) };
        }
    }

    pub(super) fn aral(spec: &RunSpec, observer: &dyn Observer) -> Result<Measurement, RunError> {
        let aral = OnceLock::new();
        // SAFETY: the pointer is an ARAL.
        Ok(unsafe {
            run(spec, observer, workloads_c_stress_aral, || &aral.get_or_init(Aral::new).0)
        })
    }

    pub(super) fn libc(spec: &RunSpec, observer: &dyn Observer) -> Result<Measurement, RunError> {
        let mut size = OBJECT.size();
        let size = CycleAllocator((&raw mut size).cast());
        // SAFETY: the pointer points to a size.
        Ok(unsafe { run(spec, observer, workloads_c_stress_libc, || &size) })
    }

    /// Runs cycles on all threads until the time is over, as `stress::run` does for Rust.
    ///
    /// # Safety
    /// The allocator is of the kind that the cycle takes, and the same on all threads.
    unsafe fn run<'a>(
        spec: &RunSpec,
        observer: &dyn Observer,
        cycle: Cycle,
        allocator: impl Fn() -> &'a CycleAllocator + Sync,
    ) -> Measurement {
        let threads = spec.setting.threads;
        let time = stress::time(spec.effort);
        let walls = thread_group::run(
            threads,
            observer,
            |_| ObjectSlots::<NonNull<u8>>::touched(ELEMENTS),
            |worker, mut places| {
                let allocator = allocator();
                let places = places.all().as_mut_ptr().cast();
                let mut allocated = 0;
                let wall = worker.measured(|| {
                    let began = Instant::now();
                    while {
                        // SAFETY: there are as many places, all empty, and the allocator is the
                        // caller's promise (invariants 2 and 3).
                        allocated += unsafe { cycle(allocator.0, places, ELEMENTS) } as u64;
                        began.elapsed() < time
                    } {}
                });
                (wall, allocated)
            },
        );
        let ops = walls.iter().map(|(_, allocated)| allocated).sum();
        stress::figures(threads, ELEMENTS, ops, walls[0].0)
    }
}

#[cfg(all(test, feature = "fast-peers"))]
mod tests {
    use super::linked::{
        Aral, Cycle, CycleAllocator, workloads_c_stress_aral, workloads_c_stress_libc,
    };
    use crate::workloads::fixed_size::stress::pairs_a_cycle;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::setting::Effort;
    use crate::workloads::workload::RunSpec;
    use crate::workloads::workload::Workload;
    use std::ptr;

    #[test]
    fn a_cycle_in_c_allocates_as_many_as_one_in_rust() {
        let allocations = |cycle: Cycle, allocator: &CycleAllocator, elements: usize| {
            let mut places = vec![ptr::null_mut::<u8>(); elements];
            // SAFETY: there are as many places, and the allocator is the cycle's.
            unsafe { cycle(allocator.0, places.as_mut_ptr().cast(), elements) }
        };
        let aral = Aral::new();
        let mut size = 64_usize;
        let size = CycleAllocator((&raw mut size).cast());
        for elements in [1, 100, 999, 10_000] {
            let expected = pairs_a_cycle(elements) as usize;
            assert_eq!(allocations(workloads_c_stress_aral, &aral.0, elements), expected);
            assert_eq!(allocations(workloads_c_stress_libc, &size, elements), expected);
        }
    }

    #[test]
    fn every_row_does_whole_cycles_on_every_thread() {
        let workload = Workload::named("c-stress").unwrap();
        for variant in workload.variants() {
            let spec = RunSpec { workload, setting: workload.setting(2), effort: Effort::Quick };
            let outcome = spec.measure(variant.name, &Unobserved).unwrap();
            assert!(outcome.ops() >= 2 * pairs_a_cycle(10_000), "{}", variant.name);
            assert_eq!(outcome.ops() % pairs_a_cycle(10_000), 0, "{}", variant.name);
            assert_eq!(outcome.live_bytes(), 2 * 10_000 * 64, "{}", variant.name);
        }
    }
}
