//! An executor for tasks that move between threads: one queue, from which each worker takes the next
//! task, so that a task that waits goes on on any of them.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor. Its threads are the caller's, which call [`run`](Self::run).
#[derive(Default)]
pub struct Executor {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The tasks that wait for a worker.
    ready: VecDeque<Arc<Task>>,
    /// The number of tasks that have not ended.
    unfinished: usize,
    /// The panic of the first task that panicked.
    panic: Option<Box<dyn Any + Send>>,
}

struct Task {
    executor: Arc<Executor>,
    /// `None` once it has ended.
    work: Mutex<Option<Work>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let executor = self.executor.clone();
        executor.state().ready.push_back(self);
        executor.changed.notify_one();
    }
}

impl Executor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }

    /// Starts a task.
    pub fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let task = Task { executor: self.clone(), work: Mutex::new(Some(Box::pin(work))) };
        let mut state = self.state();
        state.unfinished += 1;
        state.ready.push_back(Arc::new(task));
        drop(state);
        self.changed.notify_one();
    }

    /// Polls tasks on the calling thread, at most `polls` times. Returns whether there are tasks
    /// left: not when all have ended, or one has panicked.
    pub fn run(&self, polls: usize) -> bool {
        for _ in 0..polls {
            let mut state = self.state();
            let task = loop {
                if state.panic.is_some() || state.unfinished == 0 {
                    return false;
                }
                match state.ready.pop_front() {
                    Some(task) => break task,
                    None => state = self.changed.wait(state).expect("no thread panics with it"),
                }
            };
            drop(state);
            self.poll(&task);
        }
        true
    }

    fn poll(&self, task: &Arc<Task>) {
        // A task that woke itself may still be polled by the worker that it ran on.
        let mut work = task.work.lock().expect("panics are caught below");
        let Some(future) = work.as_mut() else { return };
        let waker = Waker::from(task.clone());
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let panic = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(())) => None,
            Err(panic) => Some(panic),
        };
        // It is dropped before it counts as ended.
        *work = None;
        drop(work);
        let mut state = self.state();
        state.unfinished -= 1;
        if state.panic.is_none() {
            state.panic = panic;
        }
        let is_over = state.unfinished == 0 || state.panic.is_some();
        drop(state);
        if is_over {
            self.changed.notify_all();
        }
    }

    /// Takes the panic of the first task that panicked, if one did.
    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.state().panic.take()
    }
}

/// Lets other tasks run. The task may go on on another thread.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut has_yielded = false;
    std::future::poll_fn(move |context| {
        if core::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
