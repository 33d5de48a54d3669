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
pub struct Configuration<'s> {
    /// What the page is called.
    pub title: &'s str,
    /// The allocator's name, as `--allocator` has it.
    pub allocator: &'s str,
    /// The most points of a series.
    pub most_points: u32,
    /// The most sessions.
    pub most_sessions: u32,
    /// How long a session lives after its last request.
    pub session_time: Duration,
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

impl Configuration<'_> {
    /// The limits of sessions.
    pub fn sessions(&self) -> SessionLimits {
        SessionLimits { most: self.most_sessions as usize, expiry: self.session_time }
    }
}

/// A generation of the configuration.
pub type Generation = Sealed<Configuration<'static>>;

/// Seals what the command line and the file say.
///
/// # Errors
/// When there is no memory for it.
pub fn seal(arguments: &ServeArguments) -> Result<Generation, AllocError> {
    Sealed::builder().name("configuration").try_build(|sealer| {
        Ok::<_, AllocError>(Configuration {
            title: sealer.try_str(&arguments.title)?,
            allocator: sealer.try_str(arguments.allocator.word())?,
            most_points: arguments.max_points,
            most_sessions: arguments.max_sessions,
            session_time: Duration::from_secs(u64::from(arguments.session_minutes) * 60),
            request_memory: arguments.request_memory.0,
            memory_limit: arguments.memory_limit.map(|limit| limit.0),
            queue: arguments.queue,
            workers: arguments.workers(),
            log_requests: arguments.log_requests,
            test_pages: arguments.test_pages,
        })
    })
}
