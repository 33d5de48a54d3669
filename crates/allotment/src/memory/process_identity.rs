//! Which process this is, so that a child made by fork knows that it is not its parent.
//!
//! A process id alone does not tell: the first process of a PID namespace has the id 1, and a child
//! that it forks into a new namespace has the id 1, too. So a handler counts the forks between the
//! start of the program and this process. The id is compared all the same: a child made by a bare
//! `clone` calls no handlers.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::os;
use crate::error::AllocError;

/// The forks between the start of the program and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// In a child made by fork. Async-signal-safe. If two threads registered it at the same time, it
/// counts twice, which differs from the parent's count as well.
pub(super) extern "C" fn count_fork() {
    // Relaxed: the child has one thread, and starts the others after this.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A process: its id in the lower half, and the number of forks that led to it in the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity(NonZeroU64);

impl ProcessIdentity {
    /// Has every later fork counted. What relies on an identity calls this before it hands out
    /// memory that children don't have.
    pub(crate) fn count_forks() -> Result<(), AllocError> {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        os::on_fork(count_fork, &REGISTERED)
    }

    /// This process. Children differ from it from [`count_forks`](Self::count_forks) on.
    pub(crate) fn current() -> Self {
        let forks = u64::from(FORKS.load(Ordering::Relaxed));
        let identity = NonZeroU64::new(forks << 32 | u64::from(std::process::id()));
        Self(identity.expect("a process id is not 0"))
    }

    /// Whether this process is the one that [`current`](Self::current) returned the identity in.
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }
}
