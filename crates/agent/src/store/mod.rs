//! The metrics: contexts, their charts, the charts' dimensions, and the points of each in three tiers.
//!
//! One [`StoreWriter`] adds charts and appends points; any number of readers look at a [`Structure`], which never changes, and lock one
//! chart at a time.

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

/// All charts of one kind, of whatever machine part they are.
#[derive(Debug)]
pub struct MetricContext<M: Memory> {
    name: Box<str>,
    title: Box<str>,
    units: Box<str>,
    charts: Vec<Arc<Chart<M>>>,
}

impl<M: Memory> MetricContext<M> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its charts show, in words.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What the values are in.
    #[must_use]
    pub fn units(&self) -> &str {
        &self.units
    }

    /// Its charts, in the order in which they appeared.
    #[must_use]
    pub fn charts(&self) -> &[Arc<Chart<M>>] {
        &self.charts
    }
}

/// What charts there are at a time.
#[derive(Debug)]
pub struct Structure<M: Memory> {
    generation: u64,
    contexts: BTreeMap<Box<str>, Arc<MetricContext<M>>>,
}

impl<M: Memory> Structure<M> {
    /// Its number: greater than that of every structure before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The context of this name.
    #[must_use]
    pub fn context(&self, name: &str) -> Option<&MetricContext<M>> {
        self.contexts.get(name).map(|context| &**context)
    }

    /// All contexts, by name.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &MetricContext<M>> {
        self.contexts.values().map(|context| &**context)
    }

    /// All charts, by context.
    pub fn charts(&self) -> impl Iterator<Item = &Arc<Chart<M>>> {
        self.contexts.values().flat_map(|context| &context.charts)
    }
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Contexts.
    pub contexts: u64,
    /// Charts.
    pub charts: u64,
    /// Dimensions of all charts.
    pub metrics: u64,
    /// Each tier's points.
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
    /// An empty store, and the only one who may write to it.
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

    /// The number of the newest structure, which changes when a chart appears or goes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The newest structure. It stays as it is while charts come and go.
    #[must_use]
    pub fn structure(&self) -> Arc<Structure<M>> {
        self.structure.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last second that all charts have; 0 before the first tick.
    #[must_use]
    pub fn newest(&self) -> Second {
        self.newest.load(Ordering::Acquire)
    }

    /// Where its buffers come from.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// How long points are kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// How much it holds. Locks one chart after the other.
    #[must_use]
    pub fn figures(&self) -> StoreStatistics {
        let structure = self.structure();
        let mut figures = StoreStatistics {
            contexts: structure.contexts.len() as u64,
            ..StoreStatistics::default()
        };
        for chart in structure.charts() {
            figures.charts += 1;
            figures.metrics += chart.dimensions().len() as u64;
            for (sum, one) in figures.tiers.iter_mut().zip(chart.read().statistics()) {
                *sum += one;
            }
        }
        figures
    }

    fn publish(&self, contexts: BTreeMap<Box<str>, Arc<MetricContext<M>>>) {
        let mut structure = self.structure.write().unwrap_or_else(PoisonError::into_inner);
        let generation = structure.generation + 1;
        let before =
            std::mem::replace(&mut *structure, Arc::new(Structure { generation, contexts }));
        drop(structure);
        self.generation.store(generation, Ordering::Release);
        // Charts that went free their buffers here, with their last reader, and outside of the lock.
        drop(before);
    }
}
