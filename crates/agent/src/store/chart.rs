//! A chart: dimensions that are collected together, behind one lock.

use super::chart_tier::{ChartTier, ChartTierRuns, TierStatistics};
use crate::memory::Memory;
use crate::tier::{Second, Summary, Tier};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The names of a chart's dimensions. Charts with the same names share them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Dimensions(Box<[Box<str>]>);

impl Dimensions {
    /// Creates the dimensions with these names.
    pub fn new<N: Into<Box<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no dimensions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name of one dimension.
    #[must_use]
    pub fn name(&self, dimension: usize) -> Option<&str> {
        self.0.get(dimension).map(|name| &**name)
    }

    /// Returns all names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// How long points are kept, in seconds, by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention(pub [u32; 3]);

impl Retention {
    /// Seconds for one hour, minutes for one day, hours for 30 days.
    pub const DEFAULT: Self = Self([3600, 86_400, 30 * 86_400]);

    fn slots(self, tier: Tier) -> u32 {
        self.0[tier as usize].div_ceil(tier.step())
    }
}

/// A chart.
pub struct Chart<M: Memory> {
    name: Box<str>,
    context: Box<str>,
    dimensions: Arc<Dimensions>,
    first_metric: u64,
    points: RwLock<TieredPoints<M>>,
}

/// The part of a chart that changes.
pub(super) struct TieredPoints<M: Memory> {
    seconds: ChartTier<M, f32>,
    minutes: ChartTier<M, Summary>,
    hours: ChartTier<M, Summary>,
    /// The summaries of the current minute, and its number.
    minute: Box<[Summary]>,
    this_minute: u32,
    /// The summaries of the current hour without its current minute, and its number.
    hour: Box<[Summary]>,
    this_hour: u32,
}

impl<M: Memory> Chart<M> {
    pub(super) fn new(
        name: Box<str>,
        context: Box<str>,
        dimensions: Arc<Dimensions>,
        memory: &Arc<M>,
        first_metric: u64,
        retention: Retention,
    ) -> Self {
        let count = dimensions.len();
        fn chart_tier<M: Memory, P: super::chart_tier::Point>(
            memory: &Arc<M>,
            tier: Tier,
            count: usize,
            first_metric: u64,
            retention: Retention,
        ) -> ChartTier<M, P> {
            ChartTier::new(memory.clone(), tier, count, first_metric, retention.slots(tier))
        }
        let points = TieredPoints {
            seconds: chart_tier(memory, Tier::Second, count, first_metric, retention),
            minutes: chart_tier(memory, Tier::Minute, count, first_metric, retention),
            hours: chart_tier(memory, Tier::Hour, count, first_metric, retention),
            minute: vec![Summary::EMPTY; count].into(),
            this_minute: 0,
            hour: vec![Summary::EMPTY; count].into(),
            this_hour: 0,
        };
        Self { name, context, dimensions, first_metric, points: RwLock::new(points) }
    }

    /// Returns the chart's name, which is unique in the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its context.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.context
    }

    /// Returns its dimensions.
    #[must_use]
    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    /// Returns the numbers of its dimensions among all metrics.
    pub(super) fn metrics(&self) -> Range<u64> {
        self.first_metric..self.first_metric + self.dimensions.len() as u64
    }

    /// Locks the points for reading. Other readers continue and the collector waits, so the guard
    /// should be dropped soon.
    #[must_use]
    pub fn read(&self) -> ChartPoints<'_, M> {
        ChartPoints(self.points.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, TieredPoints<M>> {
        self.points.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Memory> fmt::Debug for Chart<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dimensions = self.dimensions.len();
        f.debug_struct("Chart").field("name", &self.name).field("dimensions", &dimensions).finish()
    }
}

impl<M: Memory> TieredPoints<M> {
    /// Allocates the first buffers of values.
    pub fn alloc_first_buffers(&mut self) -> Result<(), allotment::AllocError> {
        self.seconds.alloc_first_buffers()
    }

    /// Appends the values of this second; NaN is a gap. Does nothing for a second that is not after
    /// the last one, or that is the largest possible. Returns which tiers got their first point:
    /// minutes, hours.
    pub fn append(&mut self, at: Second, values: &[f32]) -> [bool; 2] {
        let mut first_points = [false; 2];
        if at < self.seconds.next() || at == Second::MAX {
            return first_points;
        }
        let minute = at / 60;
        if self.seconds.next() == 0 {
            (self.this_minute, self.this_hour) = (minute, minute / 60);
        } else if minute != self.this_minute {
            first_points = self.end_minute(minute);
            self.this_minute = minute;
        }
        self.seconds.append(at, values);
        for (summary, value) in self.minute.iter_mut().zip(values) {
            summary.take(*value);
        }
        first_points
    }

    #[cold]
    fn end_minute(&mut self, next: u32) -> [bool; 2] {
        let first = self.minutes.next() == 0;
        let mut first_hour = false;
        self.minutes.append(self.this_minute, &self.minute);
        for (hour, minute) in self.hour.iter_mut().zip(&mut self.minute) {
            hour.merge(*minute);
            *minute = Summary::EMPTY;
        }
        if next / 60 != self.this_hour {
            first_hour = self.hours.next() == 0;
            self.hours.append(self.this_hour, &self.hour);
            self.hour.fill(Summary::EMPTY);
            self.this_hour = next / 60;
        }
        [first, first_hour]
    }

    /// Returns the statistics of each tier.
    pub fn statistics(&self) -> [TierStatistics; 3] {
        [self.seconds.statistics(), self.minutes.statistics(), self.hours.statistics()]
    }

    /// Whether the minutes, and the hours, have no points yet.
    pub fn has_no_points(&self) -> [bool; 2] {
        [self.minutes.next() == 0, self.hours.next() == 0]
    }
}

/// A guard: a chart's points, locked for reading.
pub struct ChartPoints<'c, M: Memory>(RwLockReadGuard<'c, TieredPoints<M>>);

impl<M: Memory> ChartPoints<'_, M> {
    /// Returns the range from the oldest point of a tier to the end of its newest, or `None` if it
    /// has no points.
    #[must_use]
    pub fn span(&self, tier: Tier) -> Option<Range<Second>> {
        let points = &*self.0;
        let (oldest, next) = match tier {
            Tier::Second => (points.seconds.oldest(), points.seconds.next()),
            Tier::Minute => (points.minutes.oldest(), points.minutes.next()),
            Tier::Hour => (points.hours.oldest(), points.hours.next()),
        };
        Some(oldest? * tier.step()..next.saturating_mul(tier.step()))
    }

    /// Returns the points of a dimension in a tier whose first second lies in `range`: runs in the
    /// order of time, with holes where nothing was kept. A dimension that does not exist has none.
    pub fn runs(&self, dimension: usize, tier: Tier, range: Range<Second>) -> PointRuns<'_> {
        let step = tier.step();
        let (from, to) = (range.start.div_ceil(step), range.end.div_ceil(step));
        let points = &*self.0;
        let inner = match tier {
            Tier::Second => PointRunsInner::Values(points.seconds.runs(dimension, from, to)),
            Tier::Minute => PointRunsInner::Summaries(points.minutes.runs(dimension, from, to)),
            Tier::Hour => PointRunsInner::Summaries(points.hours.runs(dimension, from, to)),
        };
        PointRuns { inner, step }
    }

    /// Returns the statistics of each tier.
    #[must_use]
    pub fn statistics(&self) -> [TierStatistics; 3] {
        self.0.statistics()
    }
}

impl<M: Memory> fmt::Debug for ChartPoints<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChartPoints").field(&self.statistics()).finish()
    }
}

/// Consecutive points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRun<'p> {
    /// The first second of the first point.
    pub start: Second,
    /// Seconds from one point to the next.
    pub step: u32,
    /// The points.
    pub points: RunPoints<'p>,
}

/// The points of a [`PointRun`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunPoints<'p> {
    /// Points of [`Tier::Second`]; NaN is a gap.
    Values(&'p [f32]),
    /// Points of the other tiers; a count of 0 is a gap.
    Summaries(&'p [Summary]),
}

/// Iterates over the runs of a dimension's points.
pub struct PointRuns<'p> {
    inner: PointRunsInner<'p>,
    step: u32,
}

enum PointRunsInner<'p> {
    Values(ChartTierRuns<'p, f32>),
    Summaries(ChartTierRuns<'p, Summary>),
}

impl<'p> Iterator for PointRuns<'p> {
    type Item = PointRun<'p>;

    #[inline]
    fn next(&mut self) -> Option<PointRun<'p>> {
        let (slot, points) = match &mut self.inner {
            PointRunsInner::Values(runs) => runs.next().map(|(s, v)| (s, RunPoints::Values(v)))?,
            PointRunsInner::Summaries(runs) => {
                runs.next().map(|(s, v)| (s, RunPoints::Summaries(v)))?
            }
        };
        Some(PointRun { start: slot * self.step, step: self.step, points })
    }
}

impl fmt::Debug for PointRuns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PointRuns").field("step", &self.step).finish_non_exhaustive()
    }
}
