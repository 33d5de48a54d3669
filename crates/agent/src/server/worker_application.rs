//! Passes requests from the HTTP server, which waits for sockets, to the workers, which answer.

use super::agent_objects::AgentObjects;
use super::http_server::{Application, HttpRequest, HttpStatistics};
use super::reply::Reply;
use super::request_error::RequestError;
use crate::configuration::SealedConfiguration;
use crate::memory::Memory;
use allotment_server::{Outcome, RefusalReason, ServerHandle};
use std::fmt;
use tokio::sync::oneshot;

/// Submits requests to the workers.
pub type WorkersHandle<M> = ServerHandle<SealedConfiguration, AgentObjects<M>, HttpRequest, Reply>;

/// Submits requests to the workers, and waits for their replies.
pub struct WorkerApplication<M: Memory> {
    workers: WorkersHandle<M>,
    queue: usize,
}

impl<M: Memory> WorkerApplication<M> {
    /// Creates the application for these workers. `queue` is the number of requests that may wait.
    pub fn new(workers: WorkersHandle<M>, queue: usize) -> Self {
        Self { workers, queue }
    }
}

impl<M: Memory> fmt::Debug for WorkerApplication<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerApplication").field("workers", &self.workers).finish()
    }
}

impl<M: Memory> Application for WorkerApplication<M> {
    async fn answer(&self, request: HttpRequest) -> Reply {
        let objects = self.workers.shared();
        let (sender, receiver) = oneshot::channel();
        let submitted = self.workers.submit_with(request, move |outcome| {
            // An error means that the connection has ended.
            let _ = sender.send(outcome);
        });
        let problem = match submitted {
            Ok(_number) => match receiver.await {
                Ok(Outcome::Done(reply)) => return reply,
                Ok(Outcome::Panicked(request)) => {
                    objects.counters.panicked.add();
                    objects.log.error(format_args!("{request}"));
                    RequestError::Panicked
                }
                Ok(Outcome::Dropped) | Err(_) => RequestError::Stopping,
            },
            Err(refused) => match refused.reason {
                RefusalReason::Stopping => RequestError::Stopping,
                _ => {
                    objects.counters.busy.add();
                    RequestError::Busy { queue: self.queue }
                }
            },
        };
        Reply::problem(&problem)
    }

    fn observe(&self, statistics: HttpStatistics) {
        self.workers.shared().counters.observe(statistics);
    }
}
