//! The queue of waiting requests, and the state of each worker, under one lock.
//!
//! No code of the user's runs under the lock: requests are dropped and outcomes are delivered
//! outside it.

use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::counts::{RequestCounts, WorkerCounts};
use crate::current_server;
use crate::outcome::{Outcome, RefusalReason, Refused};
use crate::panics::run_catching;
use crate::ticket::OutcomeSender;

/// The largest number of requests for which memory is allocated at the start. A longer queue grows
/// when it is used.
const MAX_INITIAL_CAPACITY: usize = 1024;

/// How long an idle worker waits for the tasks that were woken before it wakes others.
const HAND_ON_AFTER: Duration = Duration::from_millis(1);

/// What a submitter does when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Wait until there is space.
    Wait,
    /// Wait until there is space, at most this long.
    WaitFor(Duration),
    /// Refuse the request at once.
    Refuse,
}

/// The state of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerState {
    /// The worker's name.
    pub name: Box<str>,
    /// The current request, if there is one.
    pub request: Option<CurrentRequest>,
}

/// A worker's current request, from when the worker took it until the reply was delivered and the
/// memory reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentRequest {
    /// The request's number.
    pub number: u64,
    /// When the worker took it.
    pub since: Instant,
}

/// A request in the queue.
pub(crate) struct QueuedRequest<Q, A> {
    pub number: u64,
    pub request: Q,
    pub sender: OutcomeSender<A>,
}

pub(crate) struct RequestQueue<Q, A> {
    /// The server's number in the process. Tickets and workers identify their server by it.
    pub server: u64,
    /// How many requests may wait beyond the number of idle workers.
    limit: usize,
    /// Set under the lock. Read under it too, except by callers for whom a stale value is harmless.
    stopping: AtomicBool,
    state: Mutex<QueueState<Q, A>>,
    /// Wakes a worker: a request was added, or the server is stopping.
    request_added: Condvar,
    /// Wakes a submitter: the queue may have space, or the server is stopping.
    space_available: Condvar,
    /// Wakes threads that wait for the end of the workers.
    worker_ended: Condvar,
    /// By the worker's number.
    counts: Box<[WorkerCounts]>,
}

struct QueueState<Q, A> {
    requests: VecDeque<QueuedRequest<Q, A>>,
    /// Workers that wait for a request.
    idle_workers: usize,
    /// Submitting threads that wait for space.
    waiting_submitters: usize,
    /// Submitting tasks that wait for space, by their numbers, which ascend: a task keeps its turn
    /// when it is polled again.
    waiting_tasks: VecDeque<(u64, Waker)>,
    /// Tasks that were woken for space and are expected to use it, in the order of their wake-ups.
    woken_tasks: VecDeque<u64>,
    /// The number of the task that waited last.
    last_task: u64,
    /// Workers that have ended or are about to.
    ending_workers: usize,
    accepted: u64,
    refused: u64,
    dropped: u64,
    failed_replies: u64,
    /// By the worker's number.
    workers: Box<[WorkerRecord]>,
}

struct WorkerRecord {
    name: Box<str>,
    request: Option<CurrentRequest>,
    ended: bool,
}

impl<Q, A> QueueState<Q, A> {
    /// The number of further requests for which a queue with this limit has space.
    fn space(&self, limit: usize) -> usize {
        limit.saturating_add(self.idle_workers).saturating_sub(self.requests.len())
    }

    /// Whether a queue with this limit has no space for a request.
    fn is_full(&self, limit: usize) -> bool {
        self.space(limit) == 0
    }

    /// Adds a request and returns its number.
    fn add(&mut self, request: Q, sender: OutcomeSender<A>) -> u64 {
        self.accepted += 1;
        let number = self.accepted;
        self.requests.push_back(QueuedRequest { number, request, sender });
        number
    }

    /// Notes that a task was polled or dropped. Those that were woken before it and have done
    /// neither are expected no longer: they may never be polled again.
    fn end_wake_up(&mut self, task: u64) {
        if let Some(position) = self.woken_tasks.iter().position(|number| *number == task) {
            self.woken_tasks.drain(..=position);
        }
    }

    /// The position of a waiting task, or as an error where it would be.
    fn position(&self, task: u64) -> Result<usize, usize> {
        self.waiting_tasks.binary_search_by_key(&task, |(number, _)| *number)
    }

    /// Takes the task that has waited longest, if a queue with this limit has space that no woken
    /// task is expected to use. The caller wakes it when it has released the lock.
    fn task_to_wake(&mut self, limit: usize) -> Option<Waker> {
        if self.space(limit) <= self.woken_tasks.len() {
            return None;
        }
        let (task, waker) = self.waiting_tasks.pop_front()?;
        self.woken_tasks.push_back(task);
        Some(waker)
    }
}

/// What a submitting task has not handed over yet.
pub(crate) struct Submission<Q, A> {
    pub request: Q,
    pub sender: OutcomeSender<A>,
}

impl<Q, A> RequestQueue<Q, A> {
    pub(crate) fn new(
        server: u64,
        limit: usize,
        worker_names: impl Iterator<Item = Box<str>>,
    ) -> Self {
        let workers: Box<[WorkerRecord]> =
            worker_names.map(|name| WorkerRecord { name, request: None, ended: false }).collect();
        let counts = workers.iter().map(|_| WorkerCounts::default()).collect();
        let capacity = limit.saturating_add(workers.len()).min(MAX_INITIAL_CAPACITY);
        let state = QueueState {
            requests: VecDeque::with_capacity(capacity),
            idle_workers: 0,
            waiting_submitters: 0,
            waiting_tasks: VecDeque::new(),
            woken_tasks: VecDeque::new(),
            last_task: 0,
            ending_workers: 0,
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
            request_added: Condvar::new(),
            space_available: Condvar::new(),
            worker_ended: Condvar::new(),
            counts,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to the queue and returns its number.
    pub(crate) fn push(
        &self,
        request: Q,
        sender: OutcomeSender<A>,
        when_full: WhenFull,
        on_worker: bool,
    ) -> Result<u64, Refused<Q>> {
        let mut state = self.lock();
        let mut deadline = None;
        let reason = loop {
            if self.is_stopping() {
                break RefusalReason::Stopping;
            }
            if !state.is_full(self.limit) {
                let number = state.add(request, sender);
                if state.idle_workers > 0 {
                    self.request_added.notify_one();
                }
                return Ok(number);
            }
            let time = match when_full {
                WhenFull::Refuse => break RefusalReason::Full(state.requests.len()),
                _ if on_worker => break RefusalReason::FullOnWorker,
                WhenFull::Wait => None,
                WhenFull::WaitFor(time) => Some(time),
            };
            state.waiting_submitters += 1;
            let timed_out;
            (state, timed_out) = match time {
                None => (wait(&self.space_available, state), false),
                Some(time) => {
                    let deadline =
                        *deadline.get_or_insert_with(|| Instant::now().checked_add(time));
                    wait_until(&self.space_available, state, deadline)
                }
            };
            state.waiting_submitters -= 1;
            // A submitter that timed out checks the queue once more: it may have consumed the
            // wake-up for the space that is there now.
            if timed_out && !self.is_stopping() && state.is_full(self.limit) {
                break RefusalReason::FullFor(time.unwrap_or_default());
            }
        };
        state.refused += 1;
        drop(state);
        sender.cancel();
        Err(Refused { request, reason })
    }

    /// Adds a task's request to the queue and returns its number, or notes the task's waker until
    /// there is space. `task` is the task's number; it is 0 while the task does not wait.
    pub(crate) fn poll_push(
        &self,
        submission: &mut Option<Submission<Q, A>>,
        task: &mut u64,
        when_full: WhenFull,
        on_worker: bool,
        waker: Waker,
    ) -> Poll<Result<u64, Refused<Q>>> {
        let mut state = self.lock();
        state.end_wake_up(*task);
        let previous = state.position(*task).ok();
        // Dropped outside the lock: it runs the executor's code.
        let _previous = previous.and_then(|position| state.waiting_tasks.remove(position));
        let reason = if self.is_stopping() {
            RefusalReason::Stopping
        } else if !state.is_full(self.limit) {
            *task = 0;
            let Submission { request, sender } = submission.take().expect("polled after its end");
            let number = state.add(request, sender);
            if state.idle_workers > 0 {
                self.request_added.notify_one();
            }
            drop(self.wake_tasks(state));
            return Poll::Ready(Ok(number));
        } else if when_full == WhenFull::Refuse {
            RefusalReason::Full(state.requests.len())
        } else if on_worker {
            RefusalReason::FullOnWorker
        } else {
            if *task == 0 {
                state.last_task += 1;
                *task = state.last_task;
            }
            let (Ok(turn) | Err(turn)) = state.position(*task);
            state.waiting_tasks.insert(turn, (*task, waker));
            drop(state);
            return Poll::Pending;
        };
        *task = 0;
        state.refused += 1;
        drop(state);
        let Submission { request, sender } = submission.take().expect("polled after its end");
        sender.cancel();
        Poll::Ready(Err(Refused { request, reason }))
    }

    /// Ends the wait of a task that was dropped. If it had been woken for space in the queue, wakes
    /// another one.
    pub(crate) fn forget_task(&self, task: u64) {
        let mut state = self.lock();
        state.end_wake_up(task);
        let waiting = state.position(task).ok();
        let forgotten = waiting.and_then(|position| state.waiting_tasks.remove(position));
        drop(self.wake_tasks(state));
        // Dropped outside the lock: it runs the executor's code.
        drop(forgotten);
    }

    /// Wakes waiting tasks, as many as there is space for beyond the woken tasks that are expected.
    /// Releases the lock while it runs a waker.
    fn wake_tasks<'q>(
        &'q self,
        mut state: MutexGuard<'q, QueueState<Q, A>>,
    ) -> MutexGuard<'q, QueueState<Q, A>> {
        while let Some(waker) = state.task_to_wake(self.limit) {
            drop(state);
            wake(waker);
            state = self.lock();
        }
        state
    }

    /// Ends this worker's last request, and waits for the next one. Returns `None` when the worker
    /// is to end.
    pub(crate) fn take_next(&self, worker: usize) -> Option<QueuedRequest<Q, A>> {
        let mut state = self.lock();
        state.workers[worker].request = None;
        loop {
            if let Some(request) = state.requests.pop_front() {
                state.workers[worker].request =
                    Some(CurrentRequest { number: request.number, since: Instant::now() });
                self.wake_submitter(&state);
                drop(self.wake_tasks(state));
                return Some(request);
            }
            if self.is_stopping() {
                return None;
            }
            state.idle_workers += 1;
            self.wake_submitter(&state);
            state = self.wait_for_request(self.wake_tasks(state));
            state.idle_workers -= 1;
        }
    }

    /// Waits until a request may have come or the server is stopping. The caller is an idle worker,
    /// so there is space. A task that was woken for it may never be polled again. While tasks wait,
    /// others are therefore woken in its stead. (No task begins to wait while a worker waits here
    /// that was not notified: the queue is not full then.)
    fn wait_for_request<'q>(
        &'q self,
        mut state: MutexGuard<'q, QueueState<Q, A>>,
    ) -> MutexGuard<'q, QueueState<Q, A>> {
        while state.requests.is_empty() && !self.is_stopping() {
            if state.waiting_tasks.is_empty() {
                return wait(&self.request_added, state);
            }
            let waited = self.request_added.wait_timeout(state, HAND_ON_AFTER);
            let (locked, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = locked;
            if result.timed_out() {
                state.woken_tasks.clear();
                state = self.wake_tasks(state);
            }
        }
        state
    }

    fn wake_submitter(&self, state: &QueueState<Q, A>) {
        if state.waiting_submitters > 0 {
            self.space_available.notify_one();
        }
    }

    /// Refuses further requests. The workers end when no request waits.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        self.stopping.store(true, Ordering::Relaxed);
        self.request_added.notify_all();
        self.space_available.notify_all();
        let tasks = mem::take(&mut state.waiting_tasks);
        drop(state);
        tasks.into_iter().for_each(|(_, waker)| wake(waker));
    }

    /// Drops the waiting requests. Their outcomes are delivered on the calling thread.
    pub(crate) fn drop_waiting(&self) {
        let requests = mem::take(&mut self.lock().requests);
        let (mut dropped, mut failed_replies) = (0, 0);
        for QueuedRequest { request, sender, .. } in requests {
            dropped += 1;
            let delivered = sender.send(Outcome::Dropped);
            let request_dropped = run_catching(|| drop(request));
            failed_replies += u64::from(!(delivered && request_dropped));
        }
        let mut state = self.lock();
        state.dropped += dropped;
        state.failed_replies += failed_replies;
    }

    /// Marks the worker as ended, whatever ended it. The last worker stops the server and drops the
    /// waiting requests, because no worker is left to take them.
    pub(crate) fn mark_ended(&self, worker: usize) {
        let mut state = self.lock();
        state.ending_workers += 1;
        let is_last = state.ending_workers == state.workers.len();
        drop(state);
        if is_last {
            self.stop();
            self.drop_waiting();
        }
        let mut state = self.lock();
        state.workers[worker].request = None;
        state.workers[worker].ended = true;
        drop(state);
        self.worker_ended.notify_all();
    }

    /// Waits until all workers except `except` have ended, or until the deadline. Returns whether
    /// they have ended.
    pub(crate) fn wait_ended(&self, except: Option<usize>, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        let mut timed_out = false;
        loop {
            let mut workers = state.workers.iter().enumerate();
            if workers.all(|(number, worker)| Some(number) == except || worker.ended) {
                return true;
            }
            if timed_out {
                return false;
            }
            (state, timed_out) = wait_until(&self.worker_ended, state, deadline);
        }
    }

    /// Returns the state of the workers that have not ended.
    pub(crate) fn workers(&self) -> Vec<WorkerState> {
        let state = self.lock();
        let running = state.workers.iter().filter(|worker| !worker.ended);
        running
            .map(|worker| WorkerState { name: worker.name.clone(), request: worker.request })
            .collect()
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().requests.len()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn worker_counts(&self, worker: usize) -> &WorkerCounts {
        &self.counts[worker]
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        let state = self.lock();
        let mut counts = RequestCounts {
            accepted: state.accepted,
            refused: state.refused,
            dropped: state.dropped,
            failed_replies: state.failed_replies,
            ..RequestCounts::default()
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

/// Wakes a task. The executor's code may panic; the caller goes on.
fn wake(waker: Waker) {
    run_catching(|| current_server::wake(waker));
}

fn wait<'a, T>(condition: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a wake-up, at most until the deadline. Returns whether the wait timed out.
fn wait_until<'a, T>(
    condition: &Condvar,
    state: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else { return (wait(condition, state), false) };
    let left = deadline.saturating_duration_since(Instant::now());
    if left == Duration::ZERO {
        return (state, true);
    }
    let (state, result) =
        condition.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
    (state, result.timed_out())
}
