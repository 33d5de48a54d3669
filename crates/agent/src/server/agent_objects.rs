//! What all workers share: objects under a lock, counters, and objects that synchronise themselves.

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

/// A counter that many threads increment.
#[derive(Debug, Default)]
pub struct EventCounter(AtomicU64);

impl EventCounter {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the count to one that was counted elsewhere.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of requests, configurations and connections.
#[derive(Debug, Default)]
pub struct AgentCounters {
    /// Requests answered with status 200.
    pub answered: EventCounter,
    /// Requests answered with a status from 400 to 499.
    pub refused: EventCounter,
    /// Requests refused because the queue was full.
    pub busy: EventCounter,
    /// Requests dropped because the client had gone before their turn came.
    pub abandoned: EventCounter,
    /// Requests refused because memory was used up.
    pub out_of_memory: EventCounter,
    /// Requests ended by a panic.
    pub panicked: EventCounter,
    /// How often the list of contexts was rendered.
    pub contexts_listed: EventCounter,
    /// Generations of the configuration.
    pub configurations: EventCounter,
    /// Invalid configurations, which were not adopted.
    pub broken_configurations: EventCounter,
    /// Open connections.
    pub connections: EventCounter,
    /// Connections that were accepted.
    pub accepted: EventCounter,
    /// Connections that were closed for others.
    pub evicted: EventCounter,
}

impl AgentCounters {
    /// Copies the HTTP server's statistics.
    pub fn observe(&self, statistics: HttpStatistics) {
        self.connections.set(statistics.open as u64);
        self.accepted.set(statistics.accepted);
        self.evicted.set(statistics.evicted);
    }
}

/// The list of contexts, rendered.
#[derive(Debug, Default)]
pub struct RenderedContexts {
    /// The store's structure that was rendered, or `None` at first.
    pub generation: Option<u64>,
    /// The rendered list.
    pub reply: Bytes,
}

/// What all workers share.
#[derive(Debug)]
pub struct AgentObjects<M: Memory> {
    /// The metrics, with a lock for each chart.
    pub store: Arc<Store<M>>,
    /// The users' sessions.
    pub sessions: Shared<SessionList>,
    /// The list of contexts, which is rendered again when the structure has changed.
    pub contexts: Shared<RenderedContexts>,
    /// The counters.
    pub counters: Arc<AgentCounters>,
    /// The collector's statistics.
    pub collector: Arc<CollectorStatistics>,
    /// The log.
    pub log: Arc<Log>,
    /// The limit on all memory, if there is one.
    pub limit: Option<Budget>,
    /// When the agent started.
    pub started: Instant,
}
