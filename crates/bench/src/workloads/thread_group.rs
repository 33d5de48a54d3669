//! The threads of a run. They work in parts: all threads begin a part at once, and none begins the
//! next part before all have ended this one.

use crate::workloads::observer::Observer;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The state that the workers of one run share.
pub struct ThreadGroup<'w> {
    threads: usize,
    observer: &'w dyn Observer,
    barrier: Barrier,
    /// The number of workers that have a processor of their own and are about to begin, counted
    /// over all parts.
    spinning: AtomicUsize,
    times: Mutex<Option<Times>>,
}

/// If each worker can have a processor, workers spin for this time before a measured part. Workers
/// that woke on the same processor are on different ones by then. Without this, the first
/// milliseconds would run with one processor less.
const SPIN: Duration = Duration::from_millis(10);

/// When the first worker began the measured part, and when the last one ended it.
struct Times {
    began: Instant,
    last_finish: Instant,
}

/// Runs `work` on `threads` workers and returns the result of each.
///
/// Each worker first calls `prepare` on its own thread, which makes and touches its data. Then the
/// observer gets `ready`, and then all workers work. A single worker is the calling thread itself,
/// and no thread is started: some mallocs are faster in a process with one thread.
pub fn run<S, R: Send>(
    threads: usize,
    observer: &dyn Observer,
    prepare: impl Fn(usize) -> S + Sync,
    work: impl Fn(Worker<'_, '_>, S) -> R + Sync,
) -> Vec<R> {
    let group = ThreadGroup {
        threads,
        observer,
        barrier: Barrier::new(threads),
        spinning: AtomicUsize::new(0),
        times: Mutex::new(None),
    };
    let worker = |index| {
        let worker = Worker { group: &group, index };
        let state = prepare(index);
        worker.lead(|| observer.ready());
        work(worker, state)
    };
    if threads == 1 {
        return vec![worker(0)];
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|index| {
                let worker = &worker;
                scope.spawn(move || {
                    let guard = AbortIfPanicking;
                    let result = worker(index);
                    std::mem::forget(guard);
                    result
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// One worker of a group.
#[derive(Clone, Copy)]
pub struct Worker<'c, 'w> {
    group: &'c ThreadGroup<'w>,
    /// The worker's number, from 0.
    pub index: usize,
}

impl Worker<'_, '_> {
    /// Runs the measured part, between the observer's `begin` and `end`. Returns the time from the
    /// common start until the last worker finishes, the same for all workers.
    pub fn measured(&self, part: impl FnOnce()) -> Duration {
        self.lead(|| {
            self.group.observer.begin();
            *self.times() = None;
        });
        self.spread();
        let began = Instant::now();
        part();
        let finished = Instant::now();
        {
            let mut times = self.times();
            let all = times.get_or_insert(Times { began, last_finish: finished });
            all.began = all.began.min(began);
            all.last_finish = all.last_finish.max(finished);
        }
        self.lead(|| self.group.observer.end());
        self.times().as_ref().map_or(Duration::ZERO, |all| all.last_finish - all.began)
    }

    /// All workers return at the same time, each on a processor of its own if there are enough.
    fn spread(&self) {
        let threads = self.group.threads;
        if threads == 1 {
            return;
        }
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if threads <= processors {
            let began = Instant::now();
            while began.elapsed() < SPIN {
                std::hint::spin_loop();
            }
            // Each worker adds one, so the count is a multiple of their number when all have
            // arrived.
            let before = self.group.spinning.fetch_add(1, Ordering::AcqRel);
            let all = (before / threads + 1) * threads;
            while self.group.spinning.load(Ordering::Acquire) < all {
                std::hint::spin_loop();
            }
        } else {
            self.wait();
        }
    }

    /// The first worker does `work` while the others wait.
    pub fn lead(&self, work: impl FnOnce()) {
        self.wait();
        if self.index == 0 {
            work();
        }
        self.wait();
    }

    /// Reports a step of the work to the observer, on one worker while the others wait.
    #[cfg(any(test, feature = "catalogue"))]
    pub fn step(&self, name: &'static str) {
        self.lead(|| self.group.observer.step(name));
    }

    fn wait(&self) {
        if self.group.threads > 1 {
            self.group.barrier.wait();
        }
    }

    fn times(&self) -> MutexGuard<'_, Option<Times>> {
        self.group.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aborts the process if it is dropped by a panic. Otherwise the other threads would wait for the
/// panicking one without end.
#[derive(Debug)]
pub struct AbortIfPanicking;

impl Drop for AbortIfPanicking {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Diary(Mutex<Vec<&'static str>>);

    impl Observer for Diary {
        fn ready(&self) {
            self.0.lock().unwrap().push("ready");
        }
        fn begin(&self) {
            self.0.lock().unwrap().push("begin");
        }
        fn end(&self) {
            self.0.lock().unwrap().push("end");
        }
        fn step(&self, name: &'static str) {
            self.0.lock().unwrap().push(name);
        }
    }

    #[test]
    fn the_observer_gets_each_event_once_and_in_order() {
        for threads in [1, 3] {
            let diary = Diary::default();
            let done = AtomicUsize::new(0);
            let walls = run(
                threads,
                &diary,
                |index| index,
                |worker, state| {
                    assert_eq!(worker.index, state);
                    let wall = worker.measured(|| _ = done.fetch_add(1, Ordering::Relaxed));
                    // All workers have done their part before any continues.
                    assert_eq!(done.load(Ordering::Relaxed), threads);
                    worker.step("step");
                    wall
                },
            );
            assert_eq!(*diary.0.lock().unwrap(), ["ready", "begin", "end", "step"]);
            assert_eq!(walls.len(), threads);
            assert!(walls.iter().all(|wall| *wall == walls[0]), "one time for all");
        }
    }
}
