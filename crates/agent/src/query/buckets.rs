//! Divides a range into intervals, and aggregates the values of each.

use super::json::OutOfMemory;
use super::parameters::GroupFunction;
use crate::store::{PointRun, RunPoints, Second};
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use std::ops::Range;

/// The aggregate of an interval's values. NaN is no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate {
    /// The smallest value; infinity if there was none.
    pub min: f64,
    /// The largest value; minus infinity if there was none.
    pub max: f64,
    /// The sum.
    pub sum: f64,
    /// The number of values.
    pub count: u64,
}

impl Aggregate {
    /// The aggregate of no values.
    pub const EMPTY: Self = Self { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, count: 0 };

    #[inline]
    fn take(&mut self, value: f32) {
        let known = !value.is_nan();
        let value = f64::from(value);
        // A comparison with NaN is false.
        self.min = if value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
        self.sum += if known { value } else { 0.0 };
        self.count += u64::from(known);
    }

    /// Adds the values of another aggregate.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.min = if other.min < self.min { other.min } else { self.min };
        self.max = if other.max > self.max { other.max } else { self.max };
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Returns the aggregate by one function; NaN of no values.
    #[inline]
    pub fn value(self, group: GroupFunction) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        match group {
            GroupFunction::Average => self.sum / self.count as f64,
            GroupFunction::Min => self.min,
            GroupFunction::Max => self.max,
            GroupFunction::Sum => self.sum,
        }
    }
}

/// A range divided into one interval for each requested point, with an aggregate for each interval.
/// It is used for one dimension after the other.
#[derive(Debug)]
pub struct Buckets<A: Allocator> {
    /// The first second of each interval, and then the end of the range.
    bounds: Vec<Second, A>,
    aggregates: Vec<Aggregate, A>,
}

impl<A: Allocator + Copy> Buckets<A> {
    /// Divides a range that has at least as many seconds as points. The range may reach beyond the
    /// seconds that can be counted; intervals there are empty.
    pub fn new(range: Range<i64>, points: u32, memory: A) -> Result<Self, OutOfMemory> {
        let seconds = i128::from(range.end) - i128::from(range.start);
        let mut bounds = Vec::new_in(memory);
        bounds.try_reserve_exact(points as usize + 1)?;
        let bound = |point: u32| {
            let second = i128::from(range.start) + i128::from(point) * seconds / i128::from(points);
            second.clamp(0, Second::MAX.into()) as Second
        };
        bounds.extend((0..=points).map(bound));
        let mut aggregates = Vec::new_in(memory);
        aggregates.try_reserve_exact(points as usize)?;
        aggregates.resize(points as usize, Aggregate::EMPTY);
        Ok(Self { bounds, aggregates })
    }

    /// Returns the aggregates, one for each interval.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// Empties the aggregates.
    pub fn clear(&mut self) {
        self.aggregates.fill(Aggregate::EMPTY);
    }

    /// Adds the points of a run. A point belongs to the interval that contains its first second.
    #[inline]
    pub fn take(&mut self, run: PointRun<'_>) {
        match run.points {
            RunPoints::Values(values) => {
                self.spread(run, values, |aggregate, value| aggregate.take(*value))
            }
            RunPoints::Summaries(summaries) => self.spread(run, summaries, |aggregate, summary| {
                if summary.count > 0 {
                    aggregate.merge(Aggregate {
                        min: f64::from(summary.min),
                        max: f64::from(summary.max),
                        sum: f64::from(summary.sum),
                        count: u64::from(summary.count),
                    });
                }
            }),
        }
    }

    #[inline]
    fn spread<P>(&mut self, run: PointRun<'_>, points: &[P], take: impl Fn(&mut Aggregate, &P)) {
        let first = self.bounds.partition_point(|bound| *bound <= run.start);
        let Some(first) = first.checked_sub(1) else { return };
        let (mut rest, mut start) = (points, run.start);
        let Some(aggregates) = self.aggregates.get_mut(first..) else { return };
        for (aggregate, end) in aggregates.iter_mut().zip(&self.bounds[first + 1..]) {
            // The number of points whose first second is before the interval's end. It is zero if
            // one point covers the whole interval.
            let count = end.saturating_sub(start).div_ceil(run.step) as usize;
            let (these, others) = rest.split_at(count.min(rest.len()));
            for point in these {
                take(aggregate, point);
            }
            if others.is_empty() {
                return;
            }
            rest = others;
            start += count as u32 * run.step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Summary;
    use allocator_api2::alloc::Global;

    fn values(start: Second, points: &[f32]) -> PointRun<'_> {
        PointRun { start, step: 1, points: RunPoints::Values(points) }
    }

    fn sums(buckets: &Buckets<Global>) -> std::vec::Vec<f64> {
        buckets.aggregates().iter().map(|aggregate| aggregate.value(GroupFunction::Sum)).collect()
    }

    #[test]
    fn every_second_falls_into_one_interval() {
        for (seconds, points) in [(10, 10), (10, 3), (7, 2), (3600, 7), (1, 1)] {
            let mut buckets = Buckets::new(100..100 + i64::from(seconds), points, Global).unwrap();
            let ones = vec![1.0; seconds as usize];
            buckets.take(values(100, &ones));
            let sums = sums(&buckets);
            assert_eq!(sums.iter().sum::<f64>(), f64::from(seconds));
            let (least, most) = (seconds / points, seconds.div_ceil(points));
            assert!(sums.iter().all(|sum| (f64::from(least)..=f64::from(most)).contains(sum)));
        }
    }

    #[test]
    fn pieces_come_to_what_the_whole_does() {
        let all: std::vec::Vec<f32> = (0..600u16).map(f32::from).collect();
        let mut whole = Buckets::new(1000..1600, 17, Global).unwrap();
        whole.take(values(1000, &all));
        for cut in [0, 1, 35, 36, 37, 300, 599, 600] {
            let mut pieces = Buckets::new(1000..1600, 17, Global).unwrap();
            pieces.take(values(1000, &all[..cut]));
            pieces.take(values(1000 + cut as u32, &all[cut..]));
            assert_eq!(pieces.aggregates(), whole.aggregates(), "{cut}");
        }
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let mut buckets = Buckets::new(10..14, 2, Global).unwrap();
        buckets.take(values(10, &[1.0, f32::NAN, f32::NAN, f32::NAN]));
        assert_eq!(buckets.aggregates()[0].value(GroupFunction::Average), 1.0);
        assert!(buckets.aggregates()[1].value(GroupFunction::Average).is_nan());
        buckets.clear();
        assert!(buckets.aggregates().iter().all(|aggregate| aggregate.count == 0));
    }

    #[test]
    fn a_range_beyond_all_seconds_has_empty_intervals_there() {
        let mut early = Buckets::new(-20..20, 4, Global).unwrap();
        early.take(values(0, &[1.0; 40]));
        let counts = |buckets: &Buckets<Global>| {
            buckets
                .aggregates()
                .iter()
                .map(|aggregate| aggregate.count)
                .collect::<std::vec::Vec<_>>()
        };
        assert_eq!(counts(&early), [0, 0, 10, 10]);
        let end = i64::from(Second::MAX);
        let mut late = Buckets::new(end - 20..end + 20, 4, Global).unwrap();
        late.take(values(Second::MAX - 20, &[1.0; 20]));
        assert_eq!(counts(&late), [10, 10, 0, 0]);
        for range in [i64::MIN..i64::MIN + 10, i64::MAX - 10..i64::MAX, i64::MIN..i64::MAX] {
            let mut outside = Buckets::new(range, 3, Global).unwrap();
            outside.take(values(0, &[1.0]));
            assert!(outside.aggregates().iter().map(|aggregate| aggregate.count).sum::<u64>() <= 1);
        }
    }

    #[test]
    fn minutes_fall_where_they_begin() {
        let minute =
            |value: f32| Summary { min: value, max: value + 1.0, sum: value * 60.0, count: 60 };
        let points = [minute(1.0), Summary::EMPTY, minute(3.0), minute(4.0)];
        let mut buckets = Buckets::new(600..900, 2, Global).unwrap();
        buckets.take(PointRun { start: 660, step: 60, points: RunPoints::Summaries(&points) });
        // The interval 600..750 has the minutes at 660 and 720, and 750..900 those at 780 and 840.
        assert_eq!(buckets.aggregates()[0], Aggregate { min: 1.0, max: 2.0, sum: 60.0, count: 60 });
        assert_eq!(
            buckets.aggregates()[1],
            Aggregate { min: 3.0, max: 5.0, sum: 420.0, count: 120 }
        );
        assert_eq!(buckets.aggregates()[1].value(GroupFunction::Average), 3.5);
    }

    #[test]
    fn a_run_outside_of_the_range_does_no_harm() {
        let mut buckets = Buckets::new(10..20, 2, Global).unwrap();
        buckets.take(values(20, &[1.0]));
        buckets.take(values(5, &[1.0]));
        buckets.take(values(19, &[1.0, 1.0, 1.0]));
        buckets.take(values(15, &[]));
        assert_eq!(buckets.aggregates()[1].count, 1);
    }
}
