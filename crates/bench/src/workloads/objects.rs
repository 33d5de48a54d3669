//! `query-alloc`, `query-small`, `typed`, `typed-small`: only the objects of a query.
//!
//! Each dimension has four objects, which are put into the task's memory by the allocator's
//! everyday call ([`Task::put`]). [`Content`] says what they are.
//!
//! The measured part is the steady state: before it, each worker runs [`WARM_UP`] queries. In
//! `query-alloc-cold` it is the first query of each worker instead, without the end of the query:
//! the first touch of memory.

use crate::peers::{Allocator, Task};
use crate::workloads::WARM_UP;
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use crate::workloads::thread_group;
use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Duration;

/// The objects of one dimension: its structure, name, identifier and group entry.
pub const SIZES: [usize; 4] = [192, 24, 40, 64];

const ALIGN: usize = 8;

/// The bytes requested by one dimension's objects.
pub const BYTES_A_DIMENSION: u64 = (SIZES[0] + SIZES[1] + SIZES[2] + SIZES[3]) as u64;

/// What the objects of a dimension hold.
pub trait Content: 'static {
    /// Puts the four objects of the dimension `index` into the task's memory, and returns their
    /// addresses.
    fn put<T: Task>(task: &T, index: usize, fill: u8) -> [NonNull<u8>; SIZES.len()];
}

/// Words that are all alike.
pub enum Words {}

/// Structures whose fields are computed.
pub enum Structures {}

impl Content for Words {
    #[inline(always)]
    fn put<T: Task>(task: &T, _: usize, fill: u8) -> [NonNull<u8>; SIZES.len()] {
        let word = u64::from_ne_bytes([fill; 8]);
        [
            task.put([word; SIZES[0] / 8]).cast(),
            task.put([word; SIZES[1] / 8]).cast(),
            task.put([word; SIZES[2] / 8]).cast(),
            task.put([word; SIZES[3] / 8]).cast(),
        ]
    }
}

/// A dimension of a virtual chart.
#[allow(dead_code, reason = "the work is to write them")]
struct Dimension {
    chart: u32,
    position: u32,
    hash: u64,
    first: f64,
    last: f64,
    sum: f64,
    count: u64,
    points: [f64; 10],
    flags: [u64; 8],
}

/// A dimension's name.
#[allow(dead_code, reason = "the work is to write them")]
struct Name {
    hash: u64,
    chart: u64,
    length: u64,
}

/// A dimension's identifier.
#[allow(dead_code, reason = "the work is to write them")]
struct Identifier {
    name: NonNull<u8>,
    hash: u64,
    chart: u64,
    length: u64,
    uses: u64,
}

/// A dimension's entry in its group.
#[allow(dead_code, reason = "the work is to write them")]
struct Entry {
    dimension: NonNull<u8>,
    name: NonNull<u8>,
    identifier: NonNull<u8>,
    group: u64,
    sum: f64,
    count: u64,
    least: f64,
    most: f64,
}

impl Content for Structures {
    #[inline(always)]
    fn put<T: Task>(task: &T, index: usize, fill: u8) -> [NonNull<u8>; SIZES.len()] {
        let number = index as u64;
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(fill);
        let value = hash as f64;
        let dimension = task.put(Dimension {
            chart: index as u32,
            position: u32::from(fill),
            hash,
            first: value,
            last: value + 1.0,
            sum: value * 10.0,
            count: 10,
            points: [value; 10],
            flags: [number; 8],
        });
        let name = task.put(Name { hash, chart: number, length: 12 }).cast();
        let identifier = Identifier { name, hash, chart: number, length: 24, uses: 1 };
        let identifier = task.put(identifier).cast();
        let dimension = dimension.cast();
        let entry = task.put(Entry {
            dimension,
            name,
            identifier,
            group: hash % 100,
            sum: value,
            count: 1,
            least: value,
            most: value,
        });
        [dimension, name, identifier, entry.cast()]
    }
}

const _: () = assert!(
    size_of::<Dimension>() == SIZES[0]
        && size_of::<Name>() == SIZES[1]
        && size_of::<Identifier>() == SIZES[2]
        && size_of::<Entry>() == SIZES[3]
);

/// Runs `queries` queries of `dimensions` x [`SIZES`] on each of `threads` workers, after those
/// that warm up.
pub fn run<A: Allocator, C: Content>(
    threads: usize,
    dimensions: usize,
    queries: u64,
    observer: &dyn Observer,
) -> Run<()> {
    let query = |allocator: &mut A, objects: &mut Vec<NonNull<u8>>, number: u64| {
        let task = allocator.begin();
        fill::<_, C>(&task, objects, number as u8);
        // SAFETY: the task's objects, which are not used after.
        unsafe { free(&task, objects) };
    };
    task_threads::run_warm(
        threads,
        observer,
        |_| touched(dimensions * SIZES.len()),
        |objects| {
            let mut allocator = A::start();
            (0..WARM_UP).for_each(|number| query(&mut allocator, objects, number));
            allocator
        },
        |allocator, objects: &mut Vec<NonNull<u8>>, counter: &mut TaskCounter<'_>| {
            for number in 0..queries {
                query(allocator, objects, number);
                counter.task_done();
            }
        },
    )
}

/// The outcome of `queries` queries on each worker.
pub(crate) fn outcome(
    run: &Run<()>,
    threads: usize,
    dimensions: usize,
    queries: u64,
) -> Measurement {
    let queries = queries * threads as u64;
    objects(queries * (dimensions * SIZES.len()) as u64, threads, dimensions, run.wall)
        .with_tasks(queries, run.steady)
}

/// Runs the first query on each of `threads` workers, without its end.
pub fn run_cold<A: Allocator, C: Content>(
    threads: usize,
    dimensions: usize,
    observer: &dyn Observer,
) -> Measurement {
    let walls = thread_group::run(
        threads,
        observer,
        |_| touched(dimensions * SIZES.len()),
        |worker, mut objects| {
            let mut allocator = A::start();
            let mut task = None;
            let wall = worker.measured(|| {
                let task = task.insert(allocator.begin());
                fill::<_, C>(task, &mut objects, 0xA5);
            });
            if let Some(task) = task {
                // SAFETY: the task's objects, which are not used after.
                unsafe { free(&task, &mut objects) };
            }
            wall
        },
    );
    objects((threads * dimensions * SIZES.len()) as u64, threads, dimensions, walls[0])
}

fn objects(ops: u64, threads: usize, dimensions: usize, wall: Duration) -> Measurement {
    let live_bytes = threads as u64 * dimensions as u64 * BYTES_A_DIMENSION;
    Measurement::timed(ops, wall).with(&LIVE_BYTES, live_bytes as f64)
}

/// An array for the objects' addresses, every page of it written.
pub(crate) fn touched(length: usize) -> Vec<NonNull<u8>> {
    let mut objects = Vec::with_capacity(length);
    for index in 0..length {
        // The values differ, so that the kernel can neither share nor omit a page.
        objects.push(NonNull::without_provenance(
            std::num::NonZeroUsize::MIN.saturating_add(black_box(index)),
        ));
    }
    objects
}

/// Puts the objects of a query into the task's memory.
fn fill<T: Task, C: Content>(task: &T, objects: &mut [NonNull<u8>], fill: u8) {
    let (dimensions, rest) = objects.as_chunks_mut::<{ SIZES.len() }>();
    debug_assert!(rest.is_empty());
    for (index, dimension) in dimensions.iter_mut().enumerate() {
        *dimension = C::put(task, index, fill);
    }
    // The objects are reachable from here, so the compiler must have written their bytes.
    black_box(dimensions);
}

/// Frees the objects of a query, if the task doesn't.
///
/// # Safety
/// [`fill`] has put them into this task's memory, and they are not used after.
unsafe fn free<T: Task>(task: &T, objects: &mut [NonNull<u8>]) {
    if !T::FREED_TOGETHER {
        for dimension in objects.as_chunks::<{ SIZES.len() }>().0 {
            for (object, size) in dimension.iter().zip(SIZES) {
                // SAFETY: allocated with this layout, and freed here only: the caller's promise.
                unsafe { task.free(*object, layout(size)) };
            }
        }
    }
}

#[inline(always)]
const fn layout(size: usize) -> Layout {
    match Layout::from_size_align(size, ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("the sizes are small and the alignment a power of two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{FreedTogether, NEEDLESS_FREES, System, take_counts};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_query_allocates_four_objects_a_dimension_and_leaves_none() {
        take_counts();
        let run = run::<System, Words>(1, 10, 3, &Unobserved);
        assert_eq!(take_counts(), ((WARM_UP + 3) * 40, 0));
        assert_eq!(run.steady.tasks, 3, "all that are measured");
        let cold = run_cold::<System, Structures>(1, 10, &Unobserved);
        assert_eq!((cold.ops(), cold.live_bytes()), (40, 3200));
        assert_eq!(take_counts(), (40, 0));
    }

    #[test]
    fn what_is_freed_together_is_not_freed_one_by_one() {
        take_counts();
        run::<FreedTogether, Structures>(1, 10, 3, &Unobserved);
        run_cold::<FreedTogether, Words>(1, 10, &Unobserved);
        assert_eq!(take_counts(), ((WARM_UP + 3 + 1) * 40, 0));
        assert_eq!(NEEDLESS_FREES.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_byte_is_written() {
        let mut system = System::start();
        let task = system.begin();
        let mut objects = touched(8);
        fill::<_, Words>(&task, &mut objects, 0xA5);
        for (index, object) in objects.iter().enumerate() {
            // SAFETY: the object is live and of this size.
            let bytes =
                unsafe { std::slice::from_raw_parts(object.as_ptr(), SIZES[index % SIZES.len()]) };
            assert!(bytes.iter().all(|byte| *byte == 0xA5));
        }
        // SAFETY: the task's, and not used after.
        unsafe { free(&task, &mut objects) };
    }

    #[test]
    fn structures_refer_to_each_other_and_differ() {
        let mut system = System::start();
        let task = system.begin();
        let mut objects = touched(8);
        fill::<_, Structures>(&task, &mut objects, 1);
        let entry = |dimension: usize| {
            // SAFETY: live, and the fourth object of a dimension is its entry.
            unsafe { objects[4 * dimension + 3].cast::<Entry>().as_ref() }
        };
        for dimension in 0..2 {
            let Entry { dimension: its, name, identifier, .. } = entry(dimension);
            assert_eq!([*its, *name, *identifier], objects[4 * dimension..4 * dimension + 3]);
        }
        assert_ne!(entry(0).sum.to_bits(), entry(1).sum.to_bits());
        // SAFETY: the task's, and not used after.
        unsafe { free(&task, &mut objects) };
    }

    #[test]
    fn workers_share_the_work_alike() {
        let run = run::<System, Words>(3, 5, 4, &Unobserved);
        assert_eq!(run.results.len(), 3);
        assert_eq!(run.steady.tasks, 3 * 4);
        assert_eq!(run_cold::<System, Words>(3, 5, &Unobserved).ops(), 60);
    }
}
