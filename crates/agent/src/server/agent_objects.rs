//! What all workers share, by category: what is locked, what is counted, and what looks after itself.

use super::http_server::HttpStatistics;
use crate::collect::CollectorStatistics;
use crate::log::Log;
use crate::memory::Memory;
use crate::sessions::SessionList;
use crate::store::Store;
use allotment::Budget;
use allotment_server::Shared;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A counter that many threads add to.
#[derive(Debug, Default)]
pub struct EventCounter(AtomicU64);

impl EventCounter {
    /// One more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts in what was counted elsewhere.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What became of requests.
#[derive(Debug, Default)]
pub struct AgentCounters {
    /// Answered with what was asked for.
    pub answered: EventCounter,
    /// Answered with a status from 400 to 499.
    pub refused: EventCounter,
    /// Refused, as the queue was full.
    pub busy: EventCounter,
    /// Not worked out, as the client had gone before its turn came.
    pub abandoned: EventCounter,
    /// Refused, as memory was used up.
    pub out_of_memory: EventCounter,
    /// Ended by a panic.
    pub panicked: EventCounter,
    /// Contexts were listed anew, as a chart had appeared or gone.
    pub contexts_listed: EventCounter,
    /// Generations of the configuration.
    pub configurations: EventCounter,
    /// Configurations that were broken, and not taken over.
    pub broken_configurations: EventCounter,
    /// Connections that are open.
    pub connections: EventCounter,
    /// Connections that were taken in.
    pub accepted: EventCounter,
    /// Connections that had to make room.
    pub evicted: EventCounter,
}

impl AgentCounters {
    /// Puts in what the front has counted.
    pub fn observe(&self, figures: HttpStatistics) {
        self.connections.set(figures.open as u64);
        self.accepted.set(figures.accepted);
        self.evicted.set(figures.evicted);
    }
}

/// The list of contexts, rendered.
#[derive(Debug, Default)]
pub struct RenderedContexts {
    /// Of which structure of the store; none at first.
    pub generation: Option<u64>,
    /// The reply.
    pub reply: Bytes,
}

/// What all workers share.
#[derive(Debug)]
pub struct AgentObjects<M: Memory> {
    /// The metrics, with a lock for each chart.
    pub store: Arc<Store<M>>,
    /// The users' sessions.
    pub sessions: Shared<SessionList>,
    /// The list of contexts, made again when a chart appears.
    pub contexts: Shared<RenderedContexts>,
    /// Counted by all.
    pub counters: Arc<AgentCounters>,
    /// What the collector tells of itself.
    pub collecting: Arc<CollectorStatistics>,
    /// What is logged.
    pub log: Arc<Log>,
    /// The limit of all memory, if there is one.
    pub limit: Option<Budget>,
    /// When the agent began.
    pub began: Instant,
}
