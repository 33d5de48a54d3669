//! Between the front, which waits for sockets, and the workers, which answer.

use super::front::{Application, Ask, Figures};
use super::objects::Objects;
use super::problem::Problem;
use super::reply::Reply;
use crate::configuration::Generation;
use crate::memory::Memory;
use allotment_server::{Outcome, RefusalReason, ServerHandle};
use std::fmt;
use tokio::sync::oneshot;

/// Submits requests to the workers.
pub type Workers<M> = ServerHandle<Generation, Objects<M>, Ask, Reply>;

/// Hands requests to the workers, and waits for their replies.
pub struct ToWorkers<M: Memory> {
    workers: Workers<M>,
    queue: usize,
}

impl<M: Memory> ToWorkers<M> {
    /// To these workers, with so many places in their queue.
    pub fn new(workers: Workers<M>, queue: usize) -> Self {
        Self { workers, queue }
    }
}

impl<M: Memory> fmt::Debug for ToWorkers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToWorkers").field("workers", &self.workers).finish()
    }
}

impl<M: Memory> Application for ToWorkers<M> {
    async fn answer(&self, ask: Ask) -> Reply {
        let objects = self.workers.shared();
        let (tell, told) = oneshot::channel();
        let submitted = self.workers.submit_with(ask, move |outcome| {
            // The connection may have ended meanwhile.
            let _ = tell.send(outcome);
        });
        let problem = match submitted {
            Ok(_number) => match told.await {
                Ok(Outcome::Done(reply)) => return reply,
                Ok(Outcome::Panicked(request)) => {
                    objects.counts.panicked.add();
                    objects.log.error(format_args!("{request}"));
                    Problem::Panicked
                }
                Ok(Outcome::Dropped) | Err(_) => Problem::Stopping,
            },
            Err(refused) => match refused.reason {
                RefusalReason::Stopping => Problem::Stopping,
                _ => {
                    objects.counts.busy.add();
                    Problem::Busy { queue: self.queue }
                }
            },
        };
        Reply::problem(&problem)
    }

    fn observe(&self, figures: Figures) {
        self.workers.shared().counts.observe(figures);
    }
}
