//! The waiting requests, and the state of each worker.
//!
//! No code of the user's runs under the lock: requests and answers are dropped and delivered
//! outside it.

use core::mem;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::initialiser::WhenFull;
use crate::outcome::{Refused, RefusedBecause};
use crate::panics::quietly;
use crate::ticket::Answer;

/// How many requests the queue has room for from the start. A longer queue grows.
const ROOM: usize = 1024;

/// The state of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerState {
    /// The worker's name.
    pub name: Box<str>,
    /// The current request, if there is one.
    pub call: Option<Call>,
}

/// A worker's current request, from when the worker took it until the reply was delivered and the
/// memory reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The request's number.
    pub request: u64,
    /// When the worker took it.
    pub since: Instant,
}

/// How many requests there have been, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Accepted. Each of them is or will be one of `done`, `panicked` and `dropped`.
    pub accepted: u64,
    /// Not accepted.
    pub refused: u64,
    /// Handled to the end.
    pub done: u64,
    /// Ended by a panic of the handler.
    pub panicked: u64,
    /// Dropped at the stop.
    pub dropped: u64,
    /// Outcomes whose callback (or drop) panicked.
    pub failed_replies: u64,
}

pub(crate) struct Job<Q, A> {
    pub number: u64,
    pub request: Q,
    pub answer: Answer<A>,
}

/// A worker's counters. Only that worker writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounts {
    pub done: Counter,
    pub panicked: Counter,
    pub failed_replies: Counter,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct State<Q, A> {
    jobs: VecDeque<Job<Q, A>>,
    /// Workers that wait for a request.
    idle: usize,
    /// Submitters that wait for room.
    submitters: usize,
    /// Workers that have ended or are about to.
    leaving: usize,
    accepted: u64,
    refused: u64,
    dropped: u64,
    failed_replies: u64,
    workers: Box<[Slot]>,
}

struct Slot {
    name: Box<str>,
    call: Option<Call>,
    ended: bool,
}

pub(crate) struct Queue<Q, A> {
    /// The server's number in the process. Tickets and workers identify their server by it.
    pub server: u64,
    limit: usize,
    /// Set under the lock. Read under it too, except by callers for whom a stale value is harmless.
    stopping: AtomicBool,
    state: Mutex<State<Q, A>>,
    work: Condvar,
    room: Condvar,
    ended: Condvar,
    counts: Box<[WorkerCounts]>,
}

impl<Q, A> Queue<Q, A> {
    pub(crate) fn new(server: u64, limit: usize, names: impl Iterator<Item = Box<str>>) -> Self {
        let workers: Box<[Slot]> =
            names.map(|name| Slot { name, call: None, ended: false }).collect();
        let counts = workers.iter().map(|_| WorkerCounts::default()).collect();
        let jobs = VecDeque::with_capacity(limit.saturating_add(workers.len()).min(ROOM));
        let state = State {
            jobs,
            idle: 0,
            submitters: 0,
            leaving: 0,
            accepted: 0,
            refused: 0,
            dropped: 0,
            failed_replies: 0,
            workers,
        };
        Self {
            server,
            limit,
            stopping: AtomicBool::new(false),
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
            counts,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request in the queue and returns its number.
    pub(crate) fn put(
        &self,
        request: Q,
        answer: Answer<A>,
        when_full: WhenFull,
        on_worker: bool,
    ) -> Result<u64, Refused<Q>> {
        let mut state = self.lock();
        let mut end = None;
        let because = loop {
            if self.is_stopping() {
                break RefusedBecause::Stopping;
            }
            let waiting = state.jobs.len();
            if waiting < self.limit.saturating_add(state.idle) {
                state.accepted += 1;
                let number = state.accepted;
                state.jobs.push_back(Job { number, request, answer });
                if state.idle > 0 {
                    self.work.notify_one();
                }
                return Ok(number);
            }
            let time = match when_full {
                WhenFull::Refuse => break RefusedBecause::Full(waiting),
                _ if on_worker => break RefusedBecause::FullOnWorker,
                WhenFull::Wait => None,
                WhenFull::WaitFor(time) => Some(time),
            };
            state.submitters += 1;
            let late;
            (state, late) = match time {
                None => (wait(&self.room, state), false),
                Some(time) => {
                    let end = *end.get_or_insert_with(|| Instant::now().checked_add(time));
                    wait_until(&self.room, state, end)
                }
            };
            state.submitters -= 1;
            // The queue is checked again after the time is over, so that no wake-up is lost.
            if late
                && !self.is_stopping()
                && state.jobs.len() >= self.limit.saturating_add(state.idle)
            {
                break RefusedBecause::FullFor(time.unwrap_or_default());
            }
        };
        state.refused += 1;
        drop(state);
        answer.withdraw();
        Err(Refused { request, because })
    }

    /// Returns the next request for this worker, which has finished its last one, or `None` when
    /// the worker is to end.
    pub(crate) fn take(&self, worker: usize) -> Option<Job<Q, A>> {
        let mut state = self.lock();
        state.workers[worker].call = None;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.workers[worker].call =
                    Some(Call { request: job.number, since: Instant::now() });
                self.wake_submitter(&state);
                return Some(job);
            }
            if self.is_stopping() {
                return None;
            }
            state.idle += 1;
            self.wake_submitter(&state);
            state = wait(&self.work, state);
            state.idle -= 1;
        }
    }

    fn wake_submitter(&self, state: &State<Q, A>) {
        if state.submitters > 0 {
            self.room.notify_one();
        }
    }

    /// Accepts no more requests. The workers end when none is waiting.
    pub(crate) fn stop(&self) {
        let _state = self.lock();
        self.stopping.store(true, Ordering::Relaxed);
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Drops the waiting requests. Their outcomes are delivered on the calling thread.
    pub(crate) fn drop_waiting(&self) {
        let jobs = mem::take(&mut self.lock().jobs);
        let (mut dropped, mut failed) = (0, 0);
        for Job { request, answer, .. } in jobs {
            dropped += 1;
            let told = answer.give(crate::Outcome::Dropped);
            let gone = quietly(|| drop(request));
            failed += u64::from(!(told && gone));
        }
        let mut state = self.lock();
        state.dropped += dropped;
        state.failed_replies += failed;
    }

    /// Marks the worker as ended, for any reason. If all workers have ended, stops the server and
    /// drops the waiting requests, because no worker is left to take them.
    pub(crate) fn end(&self, worker: usize) {
        let mut state = self.lock();
        state.leaving += 1;
        let last = state.leaving == state.workers.len();
        drop(state);
        if last {
            self.stop();
            self.drop_waiting();
        }
        let mut state = self.lock();
        state.workers[worker].call = None;
        state.workers[worker].ended = true;
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until all workers except `but` have ended, or until `end`. Returns whether they have.
    pub(crate) fn wait_ended(&self, but: Option<usize>, end: Option<Instant>) -> bool {
        let mut state = self.lock();
        loop {
            let mut others = state.workers.iter().enumerate().filter(|(at, _)| Some(*at) != but);
            if others.all(|(_, worker)| worker.ended) {
                return true;
            }
            let late;
            (state, late) = wait_until(&self.ended, state, end);
            if late {
                let mut workers = state.workers.iter().enumerate();
                return workers.all(|(at, worker)| Some(at) == but || worker.ended);
            }
        }
    }

    /// Returns the workers that have not ended.
    pub(crate) fn living(&self) -> Vec<WorkerState> {
        let state = self.lock();
        let living = state.workers.iter().filter(|worker| !worker.ended);
        living.map(|worker| WorkerState { name: worker.name.clone(), call: worker.call }).collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().jobs.len()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn counts_of(&self, worker: usize) -> &WorkerCounts {
        &self.counts[worker]
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let mut counts = Counts {
            accepted: state.accepted,
            refused: state.refused,
            dropped: state.dropped,
            failed_replies: state.failed_replies,
            ..Counts::default()
        };
        drop(state);
        for worker in &self.counts {
            counts.done += worker.done.get();
            counts.panicked += worker.panicked.get();
            counts.failed_replies += worker.failed_replies.get();
        }
        counts
    }
}

fn wait<'a, T>(on: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a wake-up, at most until `end`. Returns whether that time has come.
fn wait_until<'a, T>(
    on: &Condvar,
    state: MutexGuard<'a, T>,
    end: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(end) = end else { return (wait(on, state), false) };
    let left = end.saturating_duration_since(Instant::now());
    if left == Duration::ZERO {
        return (state, true);
    }
    let (state, waited) = on.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
    (state, waited.timed_out())
}
