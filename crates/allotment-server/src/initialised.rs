//! The second phase: the objects are made, and no worker runs yet.

use core::fmt;
use std::sync::Arc;

use allotment::Published;
use allotment::sealed::PublishedGuard;

use crate::initialiser::Initialiser;
use crate::read_only_shared::ReadOnlyShared;

/// The second phase: one thread has made the objects, and no worker runs yet.
///
/// All workers use the shared objects. The compiler refuses objects that threads cannot share:
///
/// ```compile_fail,E0277
/// # use allotment_server::Initialiser;
/// let sessions = std::cell::RefCell::new(vec!["ada"]); // `Shared::new(…)` is right
/// let server = Initialiser::new("server").objects((), sessions);
/// ```
///
/// No worker runs yet, so nothing can be submitted:
///
/// ```compile_fail,E0599
/// # use allotment_server::Initialiser;
/// let server = Initialiser::new("server").objects((), ());
/// server.submit(());
/// ```
#[must_use = "`start` leads to the next phase"]
pub struct Initialised<R: ReadOnlyShared, S> {
    pub(crate) options: Initialiser,
    pub(crate) generations: Arc<Published<R>>,
    pub(crate) shared: Arc<S>,
}

impl Initialiser {
    /// Leads to the next phase, with objects that the caller has made.
    pub fn objects<R: ReadOnlyShared, S: Send + Sync + 'static>(
        self,
        read_only: R,
        shared: S,
    ) -> Initialised<R, S> {
        let generations = Arc::new(Published::new(read_only));
        Initialised { options: self, generations, shared: Arc::new(shared) }
    }
}

impl<R: ReadOnlyShared, S: Send + Sync + 'static> Initialised<R, S> {
    /// Returns the read-only objects.
    pub fn read_only(&self) -> PublishedGuard<'_, R> {
        self.generations.read()
    }

    /// Returns the shared objects.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.shared
    }
}

impl<R: ReadOnlyShared, S: fmt::Debug> fmt::Debug for Initialised<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initialised")
            .field("options", &self.options)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
