//! `scope` and `scope-exit`: the memory of a request. The request allocates objects of many sizes,
//! frees half of them while it is served, and the rest at its end.
//!
//! If the allocator frees a task's objects together, the end of the request only ends the task.
//! Otherwise the remaining objects are freed one by one, in the order of their allocation.
//! `scope-exit` times only this end.
//!
//! # Invariant
//!
//! [`serve`] writes the address of each of a request's objects before anything reads it. It frees
//! the objects that [`Request::freed`] lists, each once and after its allocation. The objects of
//! [`Request::kept`] remain.

use crate::peers::{Allocator, Task};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::sizes;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use nix::sys::resource::{UsageWho, getrusage};
use std::hint::black_box;
use std::num::NonZero;
use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};

/// The number of objects of a request.
pub const OBJECTS: usize = 2_000;

/// The number of different requests. They are repeated.
const REQUESTS: usize = 8;

/// After every second allocation of a request, one of this many youngest objects is freed.
const YOUNGEST: usize = 16;

/// The work of one request.
struct Request {
    /// The objects' sizes, in the order of allocation.
    sizes: Vec<u16>,
    /// The objects that are freed after every second allocation.
    freed: Vec<u16>,
    /// The other objects.
    kept: Vec<u16>,
}

impl Request {
    fn new(random: &mut Random) -> Self {
        let mut freed = Vec::new();
        let mut kept: Vec<u16> = Vec::new();
        for object in 0..OBJECTS as u16 {
            kept.push(object);
            if object % 2 == 1 {
                let youngest = YOUNGEST.min(kept.len());
                let chosen = kept.len() - 1 - random.below(youngest as u32) as usize;
                freed.push(kept.remove(chosen));
            }
        }
        Self { sizes: (0..OBJECTS).map(|_| sizes::draw(random)).collect(), freed, kept }
    }

    /// The bytes of all objects that are live at the end of the request.
    fn bytes_kept(&self) -> u64 {
        self.kept.iter().map(|object| u64::from(self.sizes[usize::from(*object)])).sum()
    }
}

/// A worker's data.
struct WorkerState {
    requests: Vec<Request>,
    objects: Vec<NonNull<u8>>,
}

impl WorkerState {
    /// The same for every worker and allocator.
    fn new() -> Self {
        Self { requests: requests(), objects: black_box(vec![NonNull::dangling(); OBJECTS]) }
    }
}

fn requests() -> Vec<Request> {
    let random = &mut Random::stream(0);
    (0..REQUESTS).map(|_| Request::new(random)).collect()
}

/// The bytes of the live objects at the end of a request, for the largest request.
pub fn live_bytes() -> u64 {
    requests().iter().map(Request::bytes_kept).max().unwrap_or(0)
}

/// Serves `requests` requests on each of `threads` workers.
pub fn run<A: Allocator>(threads: usize, requests: u64, observer: &dyn Observer) -> Run<()> {
    task_threads::run(
        threads,
        observer,
        |_| WorkerState::new(),
        A::start,
        |allocator, state: &mut WorkerState, counter: &mut TaskCounter<'_>| {
            for request in state.requests.iter().cycle().take(requests as usize) {
                let task = allocator.begin();
                serve(&task, request, &mut state.objects);
                // SAFETY: this task has just served the request.
                unsafe { end(task, request, &state.objects) };
                counter.task_done();
            }
        },
    )
}

/// Like [`run`], except that [`Run::wall`] is the time of the ends of the requests.
///
/// Each end is timed separately. With more threads than processors, the system may interrupt a
/// thread during an end. Such an end counts as the average of the others. The sum is divided by the
/// number of threads that run at a time, so that it compares with the time of whole requests.
pub fn run_exits<A: Allocator>(threads: usize, requests: u64, observer: &dyn Observer) -> Run<()> {
    let clock = cost_of_the_clock();
    let run = task_threads::run(
        threads,
        observer,
        |_| WorkerState::new(),
        A::start,
        |allocator, state: &mut WorkerState, counter: &mut TaskCounter<'_>| {
            let mut exits = Exits::default();
            for request in state.requests.iter().cycle().take(requests as usize) {
                let task = allocator.begin();
                serve(&task, request, &mut state.objects);
                let interruptions = interruptions();
                let began = Instant::now();
                // SAFETY: this task has just served the request.
                unsafe { end(task, request, &state.objects) };
                let took = began.elapsed().saturating_sub(clock);
                exits.note(took, interruptions != self::interruptions());
                counter.task_done();
            }
            exits
        },
    );
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let all = run.results.iter().fold(Exits::default(), |all, one| all.and(one));
    Run {
        wall: all.estimate() / threads.min(processors) as u32,
        results: run.results.iter().map(|_| ()).collect(),
        steady: run.steady,
    }
}

/// The times of the ends of requests.
#[derive(Debug, Default, Clone, Copy)]
struct Exits {
    undisturbed: u32,
    /// The time of the undisturbed ends.
    time: Duration,
    interrupted: u32,
    interrupted_time: Duration,
}

impl Exits {
    fn note(&mut self, took: Duration, interrupted: bool) {
        if interrupted {
            self.interrupted += 1;
            self.interrupted_time += took;
        } else {
            self.undisturbed += 1;
            self.time += took;
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            undisturbed: self.undisturbed + other.undisturbed,
            time: self.time + other.time,
            interrupted: self.interrupted + other.interrupted,
            interrupted_time: self.interrupted_time + other.interrupted_time,
        }
    }

    /// The time of all ends, if none had been interrupted.
    fn estimate(&self) -> Duration {
        if self.undisturbed == 0 {
            return self.interrupted_time;
        }
        let all = f64::from(self.undisturbed + self.interrupted) / f64::from(self.undisturbed);
        self.time.mul_f64(all)
    }
}

/// How often the system has interrupted this thread; 0 if it doesn't count that.
fn interruptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// The measured time of doing nothing. Takes the minimum of several rounds, because interruptions
/// only add time.
fn cost_of_the_clock() -> Duration {
    const CALLS: u32 = 1_000;
    let round = |_| {
        let mut sum = Duration::ZERO;
        for _ in 0..CALLS {
            let began = Instant::now();
            black_box(());
            sum += began.elapsed();
        }
        sum / CALLS
    };
    (0..16).map(round).min().unwrap_or(Duration::ZERO)
}

/// Serves a request, without its end.
#[inline(never)]
fn serve<T: Task>(task: &T, request: &Request, objects: &mut [NonNull<u8>]) {
    let put = |objects: &mut [NonNull<u8>], index: usize| {
        let size = request.sizes[index];
        let object = task.alloc(sizes::layout(size));
        // SAFETY: a fresh object with at least the size and alignment of a word.
        unsafe { object.cast::<u64>().write(u64::from(size)) };
        objects[index] = object;
    };
    for (step, freed) in request.freed.iter().enumerate() {
        put(objects, 2 * step);
        put(objects, 2 * step + 1);
        let freed = usize::from(*freed);
        // SAFETY: this task allocated it with this layout before, and it is listed once (the
        // invariant).
        unsafe { task.free(objects[freed], sizes::layout(request.sizes[freed])) };
    }
    black_box(objects);
}

/// Ends a request.
///
/// # Safety
/// The task has served this request, and these are its objects.
#[inline(never)]
unsafe fn end<T: Task>(task: T, request: &Request, objects: &[NonNull<u8>]) {
    if !T::FREED_TOGETHER {
        for object in &request.kept {
            let object = usize::from(*object);
            // SAFETY: kept until here (the invariant), with this layout; not used afterwards.
            unsafe { task.free(objects[object], sizes::layout(request.sizes[object])) };
        }
    }
    drop(task);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{System, TogetherWithin, take_counts};

    #[test]
    fn half_of_the_objects_are_freed_within_and_each_of_the_others_is_kept() {
        for request in requests() {
            assert_eq!((request.freed.len(), request.kept.len()), (OBJECTS / 2, OBJECTS / 2));
            let mut all = [request.freed.clone(), request.kept.clone()].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..OBJECTS as u16), "each once");
            assert!(request.kept.is_sorted(), "in the order of their allocation");
            for (step, freed) in request.freed.iter().enumerate() {
                assert!(usize::from(*freed) <= 2 * step + 1, "after its allocation");
            }
        }
    }

    #[test]
    fn requests_differ_and_are_the_same_each_time() {
        let [one, again] = [requests(), requests()];
        assert!(one.iter().map(|r| &r.sizes).eq(again.iter().map(|r| &r.sizes)));
        assert!(one.iter().map(|r| &r.freed).eq(again.iter().map(|r| &r.freed)));
        assert_ne!(one[0].sizes, one[1].sizes);
        // About 110 bytes for each object.
        assert!((90_000..130_000).contains(&live_bytes()), "{}", live_bytes());
    }

    #[test]
    fn each_object_is_allocated_and_freed_once() {
        let requests = REQUESTS as u64 + 1;
        take_counts();
        run::<System>(1, requests, &Unobserved);
        assert_eq!(take_counts(), (requests * OBJECTS as u64, 0));
        let timed = run_exits::<System>(1, requests, &Unobserved);
        assert_eq!(take_counts(), (requests * OBJECTS as u64, 0));
        assert!(!timed.wall.is_zero());
    }

    #[test]
    fn what_is_freed_together_is_freed_one_by_one_only_within_the_request() {
        take_counts();
        run::<TogetherWithin>(1, 3, &Unobserved);
        let (allocated, live) = take_counts();
        assert_eq!((allocated, live), (3 * OBJECTS as u64, 0));
        assert_eq!(TogetherWithin::take_frees(), 3 * OBJECTS as u64 / 2);
    }

    #[test]
    fn workers_share_the_work_alike() {
        let run = run::<System>(3, 4, &Unobserved);
        assert_eq!((run.results.len(), run.steady.tasks), (3, 3 * 2));
    }

    #[test]
    fn an_interrupted_end_counts_as_the_average_of_the_others() {
        let mut exits = Exits::default();
        exits.note(Duration::from_nanos(10), false);
        exits.note(Duration::from_nanos(30), false);
        exits.note(Duration::from_millis(4), true);
        exits.note(Duration::from_millis(4), true);
        assert_eq!(exits.estimate(), Duration::from_nanos(80));
        let mut all_interrupted = Exits::default();
        all_interrupted.note(Duration::from_millis(4), true);
        assert_eq!(all_interrupted.estimate(), Duration::from_millis(4));
    }
}
