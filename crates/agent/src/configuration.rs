//! The part of the configuration that requests read. It is sealed, so that nothing can change it
//! while they do.
//!
//! A new generation is published when the file is read again. Options that are fixed for the life
//! of the process (the address, the workers, the memory) have no effect there.

use crate::cli::ServeArguments;
use crate::sessions::SessionLimits;
use allotment::{AllocError, ReadOnly, Sealed};
use std::time::Duration;

/// What requests read.
#[derive(Debug, ReadOnly)]
pub struct AgentConfiguration<'s> {
    /// The title of the page.
    pub title: &'s str,
    /// The value of `--allocator`.
    pub allocator: &'s str,
    /// Limit on the points of a series.
    pub max_points: u32,
    /// Limit on sessions.
    pub max_sessions: u32,
    /// How long a session is kept after its last request.
    pub session_expiry: Duration,
    /// Limit on the memory of one request, in bytes.
    pub request_memory: u64,
    /// Limit on all memory, in bytes, if there is one.
    pub memory_limit: Option<u64>,
    /// Limit on waiting requests.
    pub queue: u32,
    /// Number of workers.
    pub workers: u32,
    /// Whether each request is logged before it is answered.
    pub log_requests: bool,
    /// Whether there are pages for tests, which panic and sleep.
    pub test_pages: bool,
}

impl AgentConfiguration<'_> {
    /// Returns the limits of the session list.
    pub fn sessions(&self) -> SessionLimits {
        SessionLimits { max: self.max_sessions as usize, expiry: self.session_expiry }
    }
}

/// One generation of the configuration.
pub type SealedConfiguration = Sealed<AgentConfiguration<'static>>;

/// Seals the options that requests read.
///
/// # Errors
/// When memory is not available.
pub fn seal(arguments: &ServeArguments) -> Result<SealedConfiguration, AllocError> {
    Sealed::builder().name("configuration").try_build(|sealer| {
        Ok::<_, AllocError>(AgentConfiguration {
            title: sealer.try_alloc_str(&arguments.title)?,
            allocator: sealer.try_alloc_str(arguments.allocator.as_str())?,
            max_points: arguments.max_points,
            max_sessions: arguments.max_sessions,
            session_expiry: Duration::from_secs(u64::from(arguments.session_minutes) * 60),
            request_memory: arguments.request_memory.0,
            memory_limit: arguments.memory_limit.map(|limit| limit.0),
            queue: arguments.queue,
            workers: arguments.workers(),
            log_requests: arguments.log_requests,
            test_pages: arguments.test_pages,
        })
    })
}
