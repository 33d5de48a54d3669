//! How the sender of a request gets its outcome.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{self, Poll, Waker};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::panics::quietly;
use crate::worker;

/// A ticket for a reply: wait for it, poll it, or await it. It may be dropped unread; the request
/// is handled in any case.
#[must_use = "a ticket is how a reply is had; drop it if none is wanted"]
pub struct Ticket<A> {
    pub(crate) place: Arc<Place<A>>,
    pub(crate) number: u64,
    pub(crate) server: u64,
}

/// Where the outcome is put. No code of the user's runs under its lock.
pub(crate) struct Place<A> {
    state: Mutex<State<A>>,
    ready: Condvar,
}

struct State<A> {
    outcome: Option<Outcome<A>>,
    waker: Option<Waker>,
}

impl<A> Place<A> {
    pub(crate) fn new() -> Arc<Self> {
        let state = Mutex::new(State { outcome: None, waker: None });
        Arc::new(Self { state, ready: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, outcome: Outcome<A>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
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
        self.place.lock().outcome.is_some()
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
            None => unreachable!("it was waited for without end"),
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

    fn wait_until(&self, end: Option<Instant>) -> Option<Outcome<A>> {
        let mut state = self.place.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Some(outcome);
            }
            if worker::is_of(self.server) {
                drop(state);
                panic!(
                    "a worker waits for request {} of its own server: were all to do so, none would be left to work; use `submit_with`",
                    self.number
                );
            }
            state = match end {
                None => self.place.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.checked_duration_since(Instant::now())?;
                    let waited = self.place.ready.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl<A> Future for Ticket<A> {
    type Output = Outcome<A>;

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Outcome<A>> {
        // Cloned and dropped outside the lock: a waker runs its executor's code.
        let waker = context.waker().clone();
        let mut state = self.place.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
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

/// Where an outcome goes. Each answer is given exactly once: an answer that is dropped gives
/// [`Outcome::Dropped`].
pub(crate) struct Answer<A>(Option<To<A>>);

enum To<A> {
    Ticket(Arc<Place<A>>),
    Callback(Box<dyn FnOnce(Outcome<A>) + Send>),
}

impl<A> Answer<A> {
    pub(crate) fn to_ticket(place: Arc<Place<A>>) -> Self {
        Self(Some(To::Ticket(place)))
    }

    pub(crate) fn to_callback(callback: Box<dyn FnOnce(Outcome<A>) + Send>) -> Self {
        Self(Some(To::Callback(callback)))
    }

    /// Delivers the outcome. Returns whether the callback, the waker and the drop of a reply did so
    /// without a panic.
    pub(crate) fn give(mut self, outcome: Outcome<A>) -> bool {
        self.tell(outcome)
    }

    /// Gives no answer: the request was not accepted, and its sender gets it back.
    pub(crate) fn withdraw(mut self) {
        self.0 = None;
    }

    fn tell(&mut self, outcome: Outcome<A>) -> bool {
        match self.0.take() {
            None => true,
            Some(to) => quietly(move || match to {
                To::Ticket(place) => place.put(outcome),
                To::Callback(callback) => callback(outcome),
            }),
        }
    }
}

impl<A> Drop for Answer<A> {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}
