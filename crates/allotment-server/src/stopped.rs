//! The last phase, which leads back to the first two.

use core::fmt;
use std::sync::Arc;

use allotment::Published;
use allotment::sealed::PublishedGuard;

use crate::counts::RequestCounts;
use crate::initialised::Initialised;
use crate::initialiser::Initialiser;
use crate::queue::WorkerState;
use crate::read_only_shared::ReadOnlyShared;
use crate::server_state::ServerState;

/// The last phase: no worker runs, except abandoned ones. The objects still exist.
pub struct Stopped<R: ReadOnlyShared, S> {
    options: Initialiser,
    generations: Arc<Published<R>>,
    shared: Arc<S>,
    counts: RequestCounts,
    abandoned: Vec<WorkerState>,
}

impl<R: ReadOnlyShared, S> Stopped<R, S> {
    pub(crate) fn new<Q, A>(server: &ServerState<R, S, Q, A>, abandoned: Vec<WorkerState>) -> Self {
        Self {
            options: server.options.clone(),
            generations: Arc::clone(&server.generations),
            shared: Arc::clone(&server.shared),
            counts: server.queue.counts(),
            abandoned,
        }
    }

    /// Returns how many requests there were, by outcome.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    /// Returns the workers that were abandoned in a request. They use the objects until that
    /// request ends.
    #[must_use]
    pub fn abandoned(&self) -> &[WorkerState] {
        &self.abandoned
    }

    /// Returns the read-only objects that were published last.
    pub fn read_only(&self) -> PublishedGuard<'_, R> {
        self.generations.read()
    }

    /// Returns the shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// Returns the shared objects by value, or `None` if an abandoned worker or a handle still uses
    /// them.
    #[must_use]
    pub fn into_shared(self) -> Option<S> {
        Arc::into_inner(self.shared)
    }
}

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Stopped<R, S> {
    /// Leads back to the first phase, with the same options. All objects are dropped.
    pub fn reinitialise(self) -> Initialiser {
        self.options
    }

    /// Leads back to the second phase, with other read-only objects and the same shared objects:
    /// users keep their sessions.
    pub fn with_read_only<R2: ReadOnlyShared>(self, read_only: R2) -> Initialised<R2, S> {
        let generations = Arc::new(Published::new(read_only));
        Initialised { options: self.options, generations, shared: self.shared }
    }

    /// Leads back to the second phase, with the same objects.
    pub fn unchanged(self) -> Initialised<R, S> {
        let Self { options, generations, shared, .. } = self;
        Initialised { options, generations, shared }
    }
}

impl<R: ReadOnlyShared, S> fmt::Debug for Stopped<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped")
            .field("server", &self.options.name)
            .field("counts", &self.counts)
            .field("abandoned", &self.abandoned)
            .finish_non_exhaustive()
    }
}
