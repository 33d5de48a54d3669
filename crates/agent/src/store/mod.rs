//! The metrics: contexts, their charts, the charts' dimensions, and the points of each in three
//! tiers.
//!
//! One [`StoreWriter`] adds charts and appends points. Any number of readers use a [`Structure`],
//! which never changes, and lock one chart at a time.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `chart_tier` | the buffers of one tier of a chart |
//! | `chart` | a chart: its three tiers behind one lock |
//! | `reservations` | buffers that all charts need at the same time, reserved in advance |
//! | `writer` | adds charts and appends points; imports [`Store`] from this file |

mod chart;
mod chart_tier;
mod reservations;
mod writer;

pub use crate::tier::{Second, Summary, Tier};
pub use chart::{Chart, ChartPoints, Dimensions, PointRun, PointRuns, Retention, RunPoints};
pub use chart_tier::{TierStatistics, first_capacity};
pub use writer::{MAX_DIMENSIONS, MAX_NAME_BYTES, NewChart, StoreError, StoreWriter};

use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// All charts of one kind.
#[derive(Debug)]
pub struct MetricContext<M: Memory> {
    name: Box<str>,
    title: Box<str>,
    units: Box<str>,
    charts: Vec<Arc<Chart<M>>>,
}

impl<M: Memory> MetricContext<M> {
    /// Returns the context's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a description of its charts.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the unit of the values.
    #[must_use]
    pub fn units(&self) -> &str {
        &self.units
    }

    /// Returns its charts, in the order in which they were added.
    #[must_use]
    pub fn charts(&self) -> &[Arc<Chart<M>>] {
        &self.charts
    }
}

/// An immutable snapshot: which charts exist.
#[derive(Debug)]
pub struct Structure<M: Memory> {
    generation: u64,
    contexts: BTreeMap<Box<str>, Arc<MetricContext<M>>>,
}

impl<M: Memory> Structure<M> {
    /// Returns its number, which is greater than that of every earlier structure.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the context of this name.
    #[must_use]
    pub fn context(&self, name: &str) -> Option<&MetricContext<M>> {
        self.contexts.get(name).map(|context| &**context)
    }

    /// Returns all contexts, by name.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &MetricContext<M>> {
        self.contexts.values().map(|context| &**context)
    }

    /// Returns all charts, by context.
    pub fn charts(&self) -> impl Iterator<Item = &Arc<Chart<M>>> {
        self.contexts.values().flat_map(|context| &context.charts)
    }
}

/// The statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// The number of contexts.
    pub contexts: u64,
    /// The number of charts.
    pub charts: u64,
    /// The number of dimensions of all charts.
    pub metrics: u64,
    /// The statistics of each tier.
    pub tiers: [TierStatistics; 3],
}

/// The metrics.
#[derive(Debug)]
pub struct Store<M: Memory> {
    memory: Arc<M>,
    retention: Retention,
    structure: RwLock<Arc<Structure<M>>>,
    generation: AtomicU64,
    newest: AtomicU32,
}

impl<M: Memory> Store<M> {
    /// Creates an empty store, and its only writer.
    #[must_use]
    pub fn new(memory: Arc<M>, retention: Retention) -> (Arc<Self>, StoreWriter<M>) {
        let structure = Arc::new(Structure { generation: 0, contexts: BTreeMap::new() });
        let store = Arc::new(Self {
            memory,
            retention,
            structure: RwLock::new(structure),
            generation: AtomicU64::new(0),
            newest: AtomicU32::new(0),
        });
        (store.clone(), StoreWriter::new(store))
    }

    /// Returns the number of the newest structure. It changes when a chart is added or removed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the newest structure, which does not change when charts are added or removed later.
    #[must_use]
    pub fn structure(&self) -> Arc<Structure<M>> {
        self.structure.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the last second that all charts have, or 0 before the first tick.
    #[must_use]
    pub fn newest(&self) -> Second {
        self.newest.load(Ordering::Acquire)
    }

    /// Returns the allocator of its buffers.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns how long points are kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Returns the statistics. Locks one chart after the other.
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        let structure = self.structure();
        let mut statistics = StoreStatistics {
            contexts: structure.contexts.len() as u64,
            ..StoreStatistics::default()
        };
        for chart in structure.charts() {
            statistics.charts += 1;
            statistics.metrics += chart.dimensions().len() as u64;
            for (sum, one) in statistics.tiers.iter_mut().zip(chart.read().statistics()) {
                *sum += one;
            }
        }
        statistics
    }

    fn publish(&self, contexts: BTreeMap<Box<str>, Arc<MetricContext<M>>>) {
        let mut structure = self.structure.write().unwrap_or_else(PoisonError::into_inner);
        let generation = structure.generation + 1;
        let before =
            std::mem::replace(&mut *structure, Arc::new(Structure { generation, contexts }));
        drop(structure);
        self.generation.store(generation, Ordering::Release);
        // Removed charts free their buffers here, or with their last reader, outside the lock.
        drop(before);
    }
}
