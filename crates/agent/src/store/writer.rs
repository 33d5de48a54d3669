//! The only writer of a store: adds charts and appends points.

use super::chart::{Chart, Dimensions};
use super::reservations::{BufferReservations, COARSE_TIERS};
use super::{MetricContext, Store};
use crate::memory::Memory;
use crate::tier::Second;
use allotment::AllocError;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The longest name of a context, a chart or a dimension, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// The largest number of dimensions of a chart. They are read under one lock.
pub const MAX_DIMENSIONS: usize = 10_000;

/// A chart to add.
#[derive(Clone, Debug)]
pub struct NewChart {
    /// Its name, which must be unique in the store.
    pub name: Box<str>,
    /// The name of its context, which is created if it does not exist.
    pub context: Box<str>,
    /// A description of the context.
    pub title: Box<str>,
    /// The unit of the values.
    pub units: Box<str>,
    /// Its dimensions. Charts with the same dimensions share the memory of the names.
    pub dimensions: Arc<Dimensions>,
}

/// Why a chart can't be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A chart of this name exists.
    Duplicate(Box<str>),
    /// A chart has no dimensions, or more than [`MAX_DIMENSIONS`].
    Dimensions(Box<str>, usize),
    /// A name is empty, or longer than [`MAX_NAME_BYTES`].
    Name(Box<str>),
    /// Memory for the first buffers is not available.
    Memory(AllocError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(name) => write!(f, "there is a chart named {name:?} already"),
            Self::Dimensions(name, count) => write!(
                f,
                "chart {name:?} has {count} dimensions; give it 1 to {MAX_DIMENSIONS}, or split it"
            ),
            Self::Name(name) => {
                let start: String = name.chars().take(40).collect();
                write!(
                    f,
                    "the name {start:?} has {} bytes; give it 1 to {MAX_NAME_BYTES}",
                    name.len()
                )
            }
            Self::Memory(error) => {
                write!(
                    f,
                    "no memory for new charts: {error}; raise the memory limit or collect less"
                )
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory(error) => Some(error),
            _ => None,
        }
    }
}

/// The only writer of a store: adds charts and appends points.
#[derive(Debug)]
pub struct StoreWriter<M: Memory> {
    store: Arc<Store<M>>,
    names: HashSet<Box<str>>,
    next_metric: u64,
    reservations: BufferReservations,
}

impl<M: Memory> StoreWriter<M> {
    pub(super) fn new(store: Arc<Store<M>>) -> Self {
        Self {
            store,
            names: HashSet::new(),
            next_metric: 0,
            reservations: BufferReservations::default(),
        }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store<M>> {
        &self.store
    }

    /// Adds all of these charts or none, with their first buffers of values. Returns the charts in
    /// the same order.
    ///
    /// # Errors
    /// When a name exists, is empty or too long, a chart has no dimensions or too many, or memory
    /// is not available.
    pub fn add(&mut self, charts: Vec<NewChart>) -> Result<Vec<Arc<Chart<M>>>, StoreError> {
        self.check(&charts)?;
        let mut new_charts = Vec::with_capacity(charts.len());
        let structure = self.store.structure();
        let mut contexts = structure.contexts.clone();
        let mut added: BTreeMap<Box<str>, Vec<Arc<Chart<M>>>> = BTreeMap::new();
        let mut metric = self.next_metric;
        for new in charts {
            let count = new.dimensions.len() as u64;
            contexts.entry(new.context.clone()).or_insert_with(|| {
                let (name, title, units) = (new.context.clone(), new.title, new.units);
                Arc::new(MetricContext { name, title, units, charts: Vec::new() })
            });
            let (memory, retention) = (&self.store.memory, self.store.retention);
            let chart = Chart::new(
                new.name,
                new.context.clone(),
                new.dimensions,
                memory,
                metric,
                retention,
            );
            chart.write().alloc_first_buffers().map_err(StoreError::Memory)?;
            let chart = Arc::new(chart);
            added.entry(new.context).or_default().push(chart.clone());
            new_charts.push(chart);
            metric += count;
        }
        for (name, charts) in added {
            let context = contexts.get_mut(&name).expect("made above");
            let mut all = context.charts.clone();
            all.extend(charts);
            *context = Arc::new(MetricContext {
                name,
                title: context.title.clone(),
                units: context.units.clone(),
                charts: all,
            });
        }
        self.next_metric = metric;
        new_charts.iter().for_each(|chart| {
            COARSE_TIERS.iter().for_each(|tier| self.reservations.add_chart(*tier, chart))
        });
        self.names.extend(new_charts.iter().map(|chart| Box::from(chart.name())));
        self.store.publish(contexts);
        Ok(new_charts)
    }

    fn check(&self, charts: &[NewChart]) -> Result<(), StoreError> {
        let mut new = HashSet::new();
        for chart in charts {
            let names = [&*chart.name, &*chart.context].into_iter().chain(chart.dimensions.names());
            for name in names {
                if name.is_empty() || name.len() > MAX_NAME_BYTES {
                    return Err(StoreError::Name(name.into()));
                }
            }
            if chart.dimensions.is_empty() || chart.dimensions.len() > MAX_DIMENSIONS {
                return Err(StoreError::Dimensions(chart.name.clone(), chart.dimensions.len()));
            }
            if self.names.contains(&chart.name) || !new.insert(&*chart.name) {
                return Err(StoreError::Duplicate(chart.name.clone()));
            }
        }
        Ok(())
    }

    /// Removes charts. Their points are freed with their last reader. Unknown names are ignored.
    pub fn remove(&mut self, names: &[&str]) {
        let structure = self.store.structure();
        let mut contexts = structure.contexts.clone();
        contexts.retain(|_, context| {
            let stays = |chart: &&Arc<Chart<M>>| !names.contains(&chart.name());
            if context.charts().iter().all(|chart| stays(&chart)) {
                return true;
            }
            let charts: Vec<_> = context.charts().iter().filter(stays).cloned().collect();
            let left = !charts.is_empty();
            let MetricContext { name, title, units, .. } = &**context;
            let (name, title, units) = (name.clone(), title.clone(), units.clone());
            *context = Arc::new(MetricContext { name, title, units, charts });
            left
        });
        for chart in structure.charts().filter(|chart| names.contains(&chart.name())) {
            self.names.remove(chart.name());
            let has_no_points = chart.write().has_no_points();
            for (tier, _) in COARSE_TIERS
                .into_iter()
                .zip(has_no_points)
                .filter(|(_, has_no_points)| *has_no_points)
            {
                self.reservations.remove_chart(tier, chart);
            }
        }
        self.store.publish(contexts);
    }

    /// Appends the values of this second, one for each dimension; NaN is a gap. Does nothing for a
    /// second that is not after the chart's last one.
    ///
    /// # Panics
    /// If the number of values differs from the number of dimensions.
    pub fn append(&mut self, chart: &Chart<M>, at: Second, values: &[f32]) {
        let first_points = chart.write().append(at, values);
        // Nothing is reserved for a chart that was removed.
        if first_points == [false; 2] || !self.names.contains(chart.name()) {
            return;
        }
        for (tier, _) in
            COARSE_TIERS.into_iter().zip(first_points).filter(|(_, first_points)| *first_points)
        {
            self.reservations.remove_chart(tier, chart);
        }
    }

    /// Publishes that all charts have the values of this second. Uses the idle time that follows to
    /// reserve buffers for the end of the minute and of the hour, when all charts need them at
    /// once.
    pub fn end_tick(&mut self, at: Second) {
        self.store.newest.store(at, Ordering::Release);
        self.reservations.reserve(self.store.memory(), at);
    }
}
