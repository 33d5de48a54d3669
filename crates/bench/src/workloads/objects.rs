//! `query-alloc` and `query-small`: only the objects of a query.

use crate::peers::{Allocator, Task};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;

/// The objects of one dimension: its structure, name, identifier and group entry.
pub const SIZES: [usize; 4] = [192, 24, 40, 64];

const ALIGN: usize = 8;

/// The bytes requested by one dimension's objects.
pub const BYTES_A_DIMENSION: u64 = (SIZES[0] + SIZES[1] + SIZES[2] + SIZES[3]) as u64;

/// Runs `queries` queries of `dimensions` x [`SIZES`] on each of `threads` workers.
pub fn run<A: Allocator>(
    threads: usize,
    dimensions: usize,
    queries: u64,
    observer: &dyn Observer,
) -> Run<()> {
    task_threads::run(
        threads,
        observer,
        |_| touched(dimensions * SIZES.len()),
        A::start,
        |allocator, objects: &mut Vec<NonNull<u8>>, counter: &mut TaskCounter<'_>| {
            for query in 0..queries {
                let task = allocator.begin();
                one_query(&task, objects, query as u8);
                drop(task);
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
    let live_bytes = threads as u64 * dimensions as u64 * BYTES_A_DIMENSION;
    Measurement::timed(queries * (dimensions * SIZES.len()) as u64, run.wall)
        .with_tasks(queries, run.steady)
        .with(&LIVE_BYTES, live_bytes as f64)
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

fn one_query<T: Task>(task: &T, objects: &mut [NonNull<u8>], fill: u8) {
    let (dimensions, rest) = objects.as_chunks_mut::<{ SIZES.len() }>();
    debug_assert!(rest.is_empty());
    for dimension in &mut *dimensions {
        for (place, size) in dimension.iter_mut().zip(SIZES) {
            let layout = layout(size);
            let object = task.alloc(layout);
            // SAFETY: the object is new and has `size` bytes.
            unsafe { object.write_bytes(fill, size) };
            *place = object;
        }
    }
    // The objects are reachable from here, so the compiler must have written their bytes.
    black_box(&mut *dimensions);
    if !T::FREED_TOGETHER {
        for dimension in &*dimensions {
            for (object, size) in dimension.iter().zip(SIZES) {
                // SAFETY: allocated above with this layout, and freed here only.
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
    use crate::workloads::testing::{NEEDLESS_FREES, System, Together, take_counts};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_query_allocates_four_objects_a_dimension_and_leaves_none() {
        take_counts();
        let run = run::<System>(1, 10, 3, &Unobserved);
        assert_eq!(take_counts(), (120, 0));
        assert_eq!(run.steady.tasks, 1);
    }

    #[test]
    fn what_is_freed_together_is_not_freed_one_by_one() {
        take_counts();
        run::<Together>(1, 10, 3, &Unobserved);
        assert_eq!(take_counts(), (120, 0));
        assert_eq!(NEEDLESS_FREES.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_byte_is_written() {
        let mut system = System::start();
        let task = system.begin();
        // Without freeing: the test reads the objects first.
        struct Kept<'t, T>(&'t T);
        impl<T: Task> Task for Kept<'_, T> {
            const FREED_TOGETHER: bool = true;
            fn alloc(&self, layout: Layout) -> NonNull<u8> {
                self.0.alloc(layout)
            }
            unsafe fn free(&self, _: NonNull<u8>, _: Layout) {}
            unsafe fn grow(&self, _: NonNull<u8>, _: Layout, _: usize) -> NonNull<u8> {
                unreachable!("these workloads grow nothing")
            }
        }
        let mut objects = touched(8);
        one_query(&Kept(&task), &mut objects, 0xA5);
        for (index, object) in objects.iter().enumerate() {
            let size = SIZES[index % SIZES.len()];
            // SAFETY: the object is live, of this size, and freed once, after it was read.
            unsafe {
                let bytes = std::slice::from_raw_parts(object.as_ptr(), size);
                assert!(bytes.iter().all(|byte| *byte == 0xA5));
                task.free(*object, layout(size));
            }
        }
    }

    #[test]
    fn workers_share_the_work_alike() {
        let run = run::<System>(3, 5, 4, &Unobserved);
        assert_eq!(run.results.len(), 3);
        assert_eq!(run.steady.tasks, 3 * 2);
    }
}
