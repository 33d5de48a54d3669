//! The aggregation of collected values into the points of a reply.

/// Points of each series in a reply.
pub const POINTS: usize = 10;

/// The aggregate of the values of one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The number of collected values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The smallest; infinity if there are no values.
    pub min: f64,
    /// The largest; minus infinity if there are no values.
    pub max: f64,
}

impl Summary {
    /// The aggregate of no values.
    pub const EMPTY: Self = Self { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// Adds another aggregate.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The average; `None` if there are no values.
    pub fn average(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Aggregates `values` into `points`. Each point is the average of its part of the time, or NaN if
/// nothing was collected then.
#[inline]
pub fn aggregate(values: &[f64], points: &mut [f64; POINTS]) -> Summary {
    let (min, max) = extremes(values);
    let mut sum = 0.0;
    let mut from = 0;
    for (index, point) in points.iter_mut().enumerate() {
        let to = (index + 1) * values.len() / POINTS;
        let part: f64 = values[from..to].iter().sum();
        *point = part / (to - from) as f64;
        sum += part;
        from = to;
    }
    if sum.is_nan() {
        return aggregate_with_gaps(values, points);
    }
    Summary { count: values.len() as u64, sum, min, max }
}

/// The same for values with gaps, whose sum is NaN.
#[cold]
fn aggregate_with_gaps(values: &[f64], points: &mut [f64; POINTS]) -> Summary {
    let (min, max) = extremes(values);
    let mut whole = Summary { min, max, ..Summary::EMPTY };
    let mut from = 0;
    for (index, point) in points.iter_mut().enumerate() {
        let to = (index + 1) * values.len() / POINTS;
        let collected = || values[from..to].iter().filter(|value| !value.is_nan());
        let (count, sum) = (collected().count(), collected().sum::<f64>());
        *point = sum / count as f64;
        whole.count += count as u64;
        whole.sum += sum;
        from = to;
    }
    whole
}

/// The smallest and the largest value that is not NaN, computed four at a time.
#[inline]
fn extremes(values: &[f64]) -> (f64, f64) {
    // A comparison with NaN is false, so the right-hand side stays.
    let lesser = |a: f64, b: f64| if a < b { a } else { b };
    let greater = |a: f64, b: f64| if a > b { a } else { b };
    let mut min = [f64::INFINITY; 4];
    let mut max = [f64::NEG_INFINITY; 4];
    let (fours, rest) = values.as_chunks::<4>();
    for four in fours {
        for lane in 0..4 {
            min[lane] = lesser(four[lane], min[lane]);
            max[lane] = greater(four[lane], max[lane]);
        }
    }
    for value in rest {
        min[0] = lesser(*value, min[0]);
        max[0] = greater(*value, max[0]);
    }
    let min = lesser(lesser(min[0], min[1]), lesser(min[2], min[3]));
    let max = greater(greater(max[0], max[1]), greater(max[2], max[3]));
    (min, max)
}

/// Adds a dimension's points to its group's. A gap adds nothing, and a group has a gap only where
/// all of its dimensions have one.
#[inline]
pub fn add_points(group: &mut [f64; POINTS], dimension: &[f64; POINTS]) {
    for (sum, point) in group.iter_mut().zip(dimension) {
        *sum = if point.is_nan() {
            *sum
        } else if sum.is_nan() {
            *point
        } else {
            *sum + *point
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_average_of_its_part() {
        let values: Vec<f64> = (0..60).map(f64::from).collect();
        let mut points = [0.0; POINTS];
        let summary = aggregate(&values, &mut points);
        assert_eq!(points[0], 2.5);
        assert_eq!(points[9], 56.5);
        assert_eq!(summary, Summary { count: 60, sum: 1770.0, min: 0.0, max: 59.0 });
    }

    #[test]
    fn missing_values_are_left_out_and_an_empty_part_is_a_gap() {
        let mut points = [0.0; POINTS];
        let summary = aggregate(&[f64::NAN, 4.0, 2.0], &mut points);
        assert_eq!(points.iter().filter(|point| !point.is_nan()).count(), 2);
        assert_eq!((summary.count, summary.average()), (2, Some(3.0)));
        assert_eq!((summary.min, summary.max), (2.0, 4.0));
        assert_eq!(aggregate(&[], &mut points).average(), None);
        assert!(points.iter().all(|point| point.is_nan()));
    }

    #[test]
    fn a_gap_adds_nothing() {
        let mut group = [f64::NAN; POINTS];
        let mut dimension = [f64::NAN; POINTS];
        dimension[1] = 3.0;
        add_points(&mut group, &dimension);
        add_points(&mut group, &dimension);
        assert!(group[0].is_nan());
        assert_eq!(group[1], 6.0);
    }
}
