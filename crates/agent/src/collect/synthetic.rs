//! Metrics that are computed, as many as asked for: to measure, and to test against.

use crate::memory::Memory;
use crate::store::{Chart, Dimensions, NewChart, Second, StoreError, StoreWriter};
use std::fmt;
use std::sync::Arc;

/// The most metrics that can be asked for.
pub const MAX_METRICS: u32 = 20_000_000;

/// Charts of a context, as long as the number of contexts is not said.
const CHARTS_A_CONTEXT: u32 = 1000;

/// Dimensions of a chart, as long as the number of charts is not said.
const DIMENSIONS_A_CHART: u32 = 100;

/// How many metrics, in how many charts and contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticShape {
    metrics: u32,
    charts: u32,
    contexts: u32,
}

/// Why there can be no such metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticShapeError {
    /// None, or more than [`MAX_METRICS`].
    Metrics(u32),
    /// None, more than metrics, or so few that a chart would have too many dimensions.
    Charts(u32, u32),
    /// None, or more than charts.
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
    /// So many metrics; `None` stands for a hundred metrics a chart, and a thousand charts a context.
    ///
    /// # Errors
    /// Numbers that don't fit each other.
    pub fn new(
        metrics: u32,
        charts: Option<u32>,
        contexts: Option<u32>,
    ) -> Result<Self, SyntheticShapeError> {
        if metrics == 0 || metrics > MAX_METRICS {
            return Err(SyntheticShapeError::Metrics(metrics));
        }
        let charts = charts.unwrap_or(metrics.div_ceil(DIMENSIONS_A_CHART));
        let fits = charts > 0 && charts <= metrics;
        if !fits || metrics.div_ceil(charts) as usize > crate::store::MAX_DIMENSIONS {
            return Err(SyntheticShapeError::Charts(charts, metrics));
        }
        let contexts = contexts.unwrap_or(charts.div_ceil(CHARTS_A_CONTEXT));
        if contexts == 0 || contexts > charts {
            return Err(SyntheticShapeError::Contexts(contexts, charts));
        }
        Ok(Self { metrics, charts, contexts })
    }

    /// How many metrics.
    #[must_use]
    pub fn metrics(self) -> u32 {
        self.metrics
    }

    /// The first metric of a chart: all have the same number, or one more.
    fn first_metric(self, chart: u32) -> u32 {
        (u64::from(self.metrics) * u64::from(chart) / u64::from(self.charts)) as u32
    }
}

/// The name of a synthetic context.
#[must_use]
pub fn context_name(context: u32) -> String {
    format!("synthetic.context_{context}")
}

/// The name of a synthetic chart.
#[must_use]
pub fn chart_name(chart: u32) -> String {
    format!("synthetic.chart_{chart}")
}

/// The value of a metric, by its number among the synthetic ones: a saw of its own period between 0 and 1023.
#[inline]
#[must_use]
pub fn value(metric: u32, at: Second) -> f32 {
    let phase = metric.wrapping_mul(2_654_435_761) >> 16;
    let slope = 1 + metric % 7;
    (phase.wrapping_add(at.wrapping_mul(slope)) & 1023) as f32
}

/// The synthetic charts of a store.
pub struct SyntheticCharts<M: Memory> {
    shape: SyntheticShape,
    charts: Vec<Arc<Chart<M>>>,
    values: Vec<f32>,
}

impl<M: Memory> SyntheticCharts<M> {
    /// Adds them.
    ///
    /// # Errors
    /// As [`StoreWriter::add`].
    pub fn new(writer: &mut StoreWriter<M>, shape: SyntheticShape) -> Result<Self, StoreError> {
        let dimensions =
            |count| Arc::new(Dimensions::new((0..count).map(|n| format!("worker_{n:02}"))));
        let fewest = shape.metrics / shape.charts;
        // All have one of two shapes, and share their dimensions' names.
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

    /// Collects a second.
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
