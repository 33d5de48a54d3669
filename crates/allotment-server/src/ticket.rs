//! How the sender of a request gets its outcome: by a ticket or by a callback.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{self, Poll, Waker};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::current_server;
use crate::outcome::Outcome;
use crate::panics::run_catching;

/// Holds one outcome from its delivery until the ticket takes it. No code of the user's runs under
/// its lock.
pub(crate) struct OutcomeCell<A> {
    state: Mutex<OutcomeCellState<A>>,
    delivered: Condvar,
}

struct OutcomeCellState<A> {
    outcome: Option<Outcome<A>>,
    waker: Option<Waker>,
}

impl<A> OutcomeCell<A> {
    pub(crate) fn new() -> Arc<Self> {
        let state = Mutex::new(OutcomeCellState { outcome: None, waker: None });
        Arc::new(Self { state, delivered: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, OutcomeCellState<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, outcome: Outcome<A>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.delivered.notify_one();
        if let Some(waker) = waker {
            current_server::wake(waker);
        }
    }
}

/// Delivers the outcome of one request, exactly once. A sender that is dropped delivers
/// [`Outcome::Dropped`].
pub(crate) struct OutcomeSender<A>(
    /// `None` once the outcome is delivered or the sender is cancelled.
    Option<OutcomeTarget<A>>,
);

enum OutcomeTarget<A> {
    Ticket(Arc<OutcomeCell<A>>),
    Callback(Box<dyn FnOnce(Outcome<A>) + Send>),
}

impl<A> OutcomeSender<A> {
    pub(crate) fn to_ticket(cell: Arc<OutcomeCell<A>>) -> Self {
        Self(Some(OutcomeTarget::Ticket(cell)))
    }

    pub(crate) fn to_callback(callback: Box<dyn FnOnce(Outcome<A>) + Send>) -> Self {
        Self(Some(OutcomeTarget::Callback(callback)))
    }

    /// Delivers the outcome. Returns whether the callback, the waker and the drop of an unwanted
    /// reply ended without a panic.
    pub(crate) fn send(mut self, outcome: Outcome<A>) -> bool {
        self.deliver(outcome)
    }

    /// Delivers nothing: the request was refused, and its sender gets it back.
    pub(crate) fn cancel(mut self) {
        self.0 = None;
    }

    fn deliver(&mut self, outcome: Outcome<A>) -> bool {
        match self.0.take() {
            None => true,
            Some(target) => run_catching(move || match target {
                OutcomeTarget::Ticket(cell) => cell.set(outcome),
                OutcomeTarget::Callback(callback) => callback(outcome),
            }),
        }
    }
}

impl<A> Drop for OutcomeSender<A> {
    fn drop(&mut self) {
        self.deliver(Outcome::Dropped);
    }
}

/// A ticket for a reply: wait for it, poll it, or await it. It may be dropped unread; the request
/// is handled in any case. A handler can neither wait for nor await a ticket of its own server:
/// both panic, as [`wait`](Self::wait) says.
#[must_use = "only the ticket gives access to the reply; drop it if no reply is wanted"]
pub struct Ticket<A> {
    pub(crate) cell: Arc<OutcomeCell<A>>,
    pub(crate) number: u64,
    pub(crate) server: u64,
}

impl<A> Ticket<A> {
    /// Returns the request's number. The first accepted request has number 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the outcome is available, so that [`wait`](Self::wait) returns at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.cell.lock().outcome.is_some()
    }

    /// Waits for the outcome.
    ///
    /// # Panics
    /// In a handler or reply callback of the same server, if the outcome is not available yet: if
    /// all workers waited like this, none would be left to work. The panic ends only the calling
    /// request.
    #[must_use]
    pub fn wait(self) -> Outcome<A> {
        match self.wait_until(None) {
            Some(outcome) => outcome,
            None => unreachable!("a wait without a deadline ends with an outcome"),
        }
    }

    /// Waits for the outcome, at most this long.
    ///
    /// # Errors
    /// With the ticket, when the time is over.
    ///
    /// # Panics
    /// As for [`wait`](Self::wait).
    pub fn wait_for(self, time: Duration) -> Result<Outcome<A>, Self> {
        // A time beyond the clock's range is no limit.
        self.wait_until(Instant::now().checked_add(time)).ok_or(self)
    }

    /// Panics: the calling thread is a worker of the server that the outcome must come from.
    fn refuse_to_wait(&self) -> ! {
        panic!(
            "a worker must not wait for request {} of its own server: if all workers waited, none would be left to work; use `submit_with`",
            self.number
        );
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Outcome<A>> {
        let mut state = self.cell.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Some(outcome);
            }
            if current_server::is(self.server) {
                drop(state);
                self.refuse_to_wait();
            }
            state = match deadline {
                None => self.cell.delivered.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    let waited = self.cell.delivered.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl<A> Future for Ticket<A> {
    type Output = Outcome<A>;

    // Panics on a worker of the same server, as `wait` does.

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Outcome<A>> {
        // Wakers are cloned and dropped outside the lock, because they run the executor's code.
        let waker = context.waker().clone();
        let mut state = self.cell.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        if current_server::polls_itself(self.server) {
            drop(state);
            self.refuse_to_wait();
        }
        let previous_waker = state.waker.replace(waker);
        drop(state);
        drop(previous_waker);
        Poll::Pending
    }
}

impl<A> fmt::Debug for Ticket<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("number", &self.number)
            .field("ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}
