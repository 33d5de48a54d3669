//! What requests read of the agent's configuration: sealed, so that nothing can change it while they do.
//!
//! A new generation is published when the file is read again. What stands for the whole life of the process (the address,
//! the workers, the memory) is no part of it.

use crate::cli::ServeArguments;
use crate::sessions::SessionLimits;
use allotment::{AllocError, ReadOnly, Sealed};
use std::time::Duration;

/// What requests read.
#[derive(Debug, ReadOnly)]
pub struct AgentConfiguration<'s> {
    /// What the page is called.
    pub title: &'s str,
    /// The allocator's name, as `--allocator` has it.
    pub allocator: &'s str,
    /// The most points of a series.
    pub max_points: u32,
    /// The most sessions.
    pub max_sessions: u32,
    /// How long a session lives after its last request.
    pub session_expiry: Duration,
    /// The most bytes of one request.
    pub request_memory: u64,
    /// The most bytes of all; `None` is no limit.
    pub memory_limit: Option<u64>,
    /// Requests that wait at most.
    pub queue: u32,
    /// Workers.
    pub workers: u32,
    /// Whether each request is logged before it is answered.
    pub log_requests: bool,
    /// Whether pages for tests are there, which panic and sleep.
    pub test_pages: bool,
}

impl AgentConfiguration<'_> {
    /// The limits of sessions.
    pub fn sessions(&self) -> SessionLimits {
        SessionLimits { most: self.max_sessions as usize, expiry: self.session_expiry }
    }
}

/// A generation of the configuration.
pub type SealedConfiguration = Sealed<AgentConfiguration<'static>>;

/// Seals what the command line and the file say.
///
/// # Errors
/// When there is no memory for it.
pub fn seal(arguments: &ServeArguments) -> Result<SealedConfiguration, AllocError> {
    Sealed::builder().name("configuration").try_build(|sealer| {
        Ok::<_, AllocError>(AgentConfiguration {
            title: sealer.try_str(&arguments.title)?,
            allocator: sealer.try_str(arguments.allocator.as_str())?,
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
