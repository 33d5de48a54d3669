//! Computed metrics, for measurements and tests.

use crate::memory::Memory;
use crate::store::{Chart, Dimensions, NewChart, Second, StoreError, StoreWriter};
use std::fmt;
use std::sync::Arc;

/// The largest number of computed metrics.
pub const MAX_METRICS: u32 = 20_000_000;

/// Charts in each context, if the number of contexts is not given.
const CHARTS_PER_CONTEXT: u32 = 1000;

/// Dimensions of each chart, if the number of charts is not given.
const DIMENSIONS_PER_CHART: u32 = 100;

/// The number of metrics, charts and contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticShape {
    metrics: u32,
    charts: u32,
    contexts: u32,
}

/// Why these numbers are not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticShapeError {
    /// No metrics, or more than [`MAX_METRICS`].
    Metrics(u32),
    /// No charts, more than metrics, or so few that a chart would have too many dimensions.
    Charts(u32, u32),
    /// No contexts, or more than charts.
    Contexts(u32, u32),
}

impl fmt::Display for SyntheticShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Metrics(metrics) => {
                write!(f, "{metrics} computed metrics; give --synthetic 1 to {MAX_METRICS}")
            }
            Self::Charts(charts, metrics) => write!(
                f,
                "{metrics} metrics in {charts} charts; a chart has 1 to {} metrics",
                crate::store::MAX_DIMENSIONS
            ),
            Self::Contexts(contexts, charts) => {
                write!(
                    f,
                    "{charts} charts in {contexts} contexts; a context has at least one chart"
                )
            }
        }
    }
}

impl std::error::Error for SyntheticShapeError {}

impl SyntheticShape {
    /// Checks the numbers. `None` stands for 100 metrics in each chart, and 1000 charts in each
    /// context.
    ///
    /// # Errors
    /// When the numbers are not possible.
    pub fn new(
        metrics: u32,
        charts: Option<u32>,
        contexts: Option<u32>,
    ) -> Result<Self, SyntheticShapeError> {
        if metrics == 0 || metrics > MAX_METRICS {
            return Err(SyntheticShapeError::Metrics(metrics));
        }
        let charts = charts.unwrap_or(metrics.div_ceil(DIMENSIONS_PER_CHART));
        let fits = charts > 0 && charts <= metrics;
        if !fits || metrics.div_ceil(charts) as usize > crate::store::MAX_DIMENSIONS {
            return Err(SyntheticShapeError::Charts(charts, metrics));
        }
        let contexts = contexts.unwrap_or(charts.div_ceil(CHARTS_PER_CONTEXT));
        if contexts == 0 || contexts > charts {
            return Err(SyntheticShapeError::Contexts(contexts, charts));
        }
        Ok(Self { metrics, charts, contexts })
    }

    /// Returns the number of metrics.
    #[must_use]
    pub fn metrics(self) -> u32 {
        self.metrics
    }

    /// Returns the first metric of a chart. All charts have the same number of metrics, or one
    /// more.
    fn first_metric(self, chart: u32) -> u32 {
        (u64::from(self.metrics) * u64::from(chart) / u64::from(self.charts)) as u32
    }
}

/// Returns the name of a computed context.
#[must_use]
pub fn context_name(context: u32) -> String {
    format!("synthetic.context_{context}")
}

/// Returns the name of a computed chart.
#[must_use]
pub fn chart_name(chart: u32) -> String {
    format!("synthetic.chart_{chart}")
}

/// Returns the value of a computed metric by its number: a sawtooth between 0 and 1023.
#[inline]
#[must_use]
pub fn value(metric: u32, at: Second) -> f32 {
    let phase = metric.wrapping_mul(2_654_435_761) >> 16;
    let slope = 1 + metric % 7;
    (phase.wrapping_add(at.wrapping_mul(slope)) & 1023) as f32
}

/// The computed charts of a store.
pub struct SyntheticCharts<M: Memory> {
    shape: SyntheticShape,
    charts: Vec<Arc<Chart<M>>>,
    values: Vec<f32>,
}

impl<M: Memory> SyntheticCharts<M> {
    /// Adds the charts.
    ///
    /// # Errors
    /// As for [`StoreWriter::add`].
    pub fn new(writer: &mut StoreWriter<M>, shape: SyntheticShape) -> Result<Self, StoreError> {
        let dimensions =
            |count| Arc::new(Dimensions::new((0..count).map(|n| format!("worker_{n:02}"))));
        let fewest = shape.metrics / shape.charts;
        // There are two numbers of dimensions, and all charts share their names.
        let sizes = [dimensions(fewest), dimensions(fewest + 1)];
        let new = |chart: u32| {
            let count = shape.first_metric(chart + 1) - shape.first_metric(chart);
            let context = u64::from(chart) * u64::from(shape.contexts) / u64::from(shape.charts);
            NewChart {
                name: chart_name(chart).into(),
                context: context_name(context as u32).into(),
                title: "Values computed for measurements".into(),
                units: "units".into(),
                dimensions: sizes[(count - fewest) as usize].clone(),
            }
        };
        let charts = writer.add((0..shape.charts).map(new).collect())?;
        Ok(Self { shape, charts, values: Vec::with_capacity(fewest as usize + 1) })
    }

    /// Appends the values of one second.
    pub fn collect(&mut self, writer: &mut StoreWriter<M>, at: Second) {
        for (number, chart) in (0..).zip(&self.charts) {
            let metrics = self.shape.first_metric(number)..self.shape.first_metric(number + 1);
            self.values.clear();
            self.values.extend(metrics.map(|metric| value(metric, at)));
            writer.append(chart, at, &self.values);
        }
    }
}

impl<M: Memory> fmt::Debug for SyntheticCharts<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyntheticCharts").field("shape", &self.shape).finish_non_exhaustive()
    }
}
