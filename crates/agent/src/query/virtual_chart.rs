//! The virtual chart of a query, in the memory of its request: for each dimension a structure with
//! two strings and an array of points, and a map from names to series.

use super::buckets::Aggregate;
use super::json::OutOfMemory;
use super::parameters::{GroupFunction, SeriesBy};
use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};

/// A dimension of the virtual chart.
#[derive(Debug)]
pub struct VirtualDimension<A: Allocator> {
    /// The chart's name and the dimension's name.
    pub id: Vec<u8, A>,
    /// The dimension's name.
    pub name: Vec<u8, A>,
    /// A value for each interval; NaN is a gap.
    pub points: Vec<f64, A>,
    /// The aggregate of its values.
    pub summary: Aggregate,
    /// The last value that is not a gap.
    pub last: f64,
}

/// A series of the reply.
#[derive(Debug)]
pub struct ReplySeries<A: Allocator> {
    /// The positions of its dimensions.
    pub members: Vec<u32, A>,
    /// A value for each interval; NaN where no dimension has one.
    pub points: Vec<f64, A>,
    /// The aggregate of its dimensions' values.
    pub summary: Aggregate,
}

impl<A: Allocator> ReplySeries<A> {
    /// Adds a dimension's points. Minima and maxima are combined to the minimum and the maximum.
    #[inline]
    fn add(&mut self, group: GroupFunction, points: &[f64], summary: Aggregate) {
        match group {
            GroupFunction::Average | GroupFunction::Sum => {
                self.merge(points, |sum, value| sum + value)
            }
            GroupFunction::Min => self.merge(points, f64::min),
            GroupFunction::Max => self.merge(points, f64::max),
        }
        self.summary.merge(summary);
    }

    #[inline]
    fn merge(&mut self, points: &[f64], add: impl Fn(f64, f64) -> f64) {
        for (sum, value) in self.points.iter_mut().zip(points) {
            // A gap in one dimension does not make a gap in the series.
            if !value.is_nan() {
                *sum = if sum.is_nan() { *value } else { add(*sum, *value) };
            }
        }
    }
}

/// The dimensions of a query, and the series that they make.
#[derive(Debug)]
pub struct VirtualChart<'s, A: Allocator + Copy> {
    memory: A,
    group: GroupFunction,
    by: SeriesBy,
    dimensions: Vec<Box<VirtualDimension<A>, A>, A>,
    series: Vec<ReplySeries<A>, A>,
    names: HashMap<&'s str, u32, DefaultHashBuilder, A>,
}

impl<'s, A: Allocator + Copy> VirtualChart<'s, A> {
    /// Creates an empty chart.
    pub fn new(memory: A, group: GroupFunction, by: SeriesBy) -> Self {
        Self {
            memory,
            group,
            by,
            dimensions: Vec::new_in(memory),
            series: Vec::new_in(memory),
            names: HashMap::with_hasher_in(DefaultHashBuilder::default(), memory),
        }
    }

    /// Adds a dimension of a chart, with the aggregates of its values in each interval.
    pub fn add(
        &mut self,
        chart: &str,
        name: &'s str,
        aggregates: &[Aggregate],
    ) -> Result<(), OutOfMemory> {
        let (memory, group) = (self.memory, self.group);
        let mut id = Vec::new_in(memory);
        id.try_reserve_exact(chart.len() + 1 + name.len())?;
        id.extend_from_slice(chart.as_bytes());
        id.push(b'.');
        id.extend_from_slice(name.as_bytes());
        let mut own_name = Vec::new_in(memory);
        own_name.try_reserve_exact(name.len())?;
        own_name.extend_from_slice(name.as_bytes());
        let mut points = Vec::new_in(memory);
        points.try_reserve_exact(aggregates.len())?;
        let (mut summary, mut last) = (Aggregate::EMPTY, f64::NAN);
        for aggregate in aggregates {
            let value = aggregate.value(group);
            points.push(value);
            summary.merge(*aggregate);
            last = if value.is_nan() { last } else { value };
        }
        let place = u32::try_from(self.dimensions.len()).map_err(|_| OutOfMemory)?;
        let series = self.series_of(name, aggregates.len())?;
        series.members.try_reserve(1)?;
        series.members.push(place);
        // Added now, while the points are in the cache.
        series.add(group, &points, summary);
        let dimension = VirtualDimension { id, name: own_name, points, summary, last };
        let dimension = Box::try_new_in(dimension, memory)?;
        self.dimensions.try_reserve(1)?;
        self.dimensions.push(dimension);
        Ok(())
    }

    /// Returns the series of a dimension of this name. A new series consists of gaps.
    fn series_of(
        &mut self,
        name: &'s str,
        points: usize,
    ) -> Result<&mut ReplySeries<A>, OutOfMemory> {
        let found = match self.by {
            SeriesBy::Name => self.names.get(name).copied(),
            SeriesBy::Dimension => None,
        };
        let place = match found {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.series.len()).map_err(|_| OutOfMemory)?;
                let mut gaps = Vec::new_in(self.memory);
                gaps.try_reserve_exact(points)?;
                gaps.resize(points, f64::NAN);
                self.series.try_reserve(1)?;
                if self.by == SeriesBy::Name {
                    self.names.try_reserve(1).map_err(|_| OutOfMemory)?;
                    self.names.insert(name, place);
                }
                let members = Vec::new_in(self.memory);
                self.series.push(ReplySeries { members, points: gaps, summary: Aggregate::EMPTY });
                place
            }
        };
        Ok(&mut self.series[place as usize])
    }

    /// Returns the dimensions, in the order in which they were added.
    pub fn dimensions(&self) -> &[Box<VirtualDimension<A>, A>] {
        &self.dimensions
    }

    /// Returns the series, in the order in which they appeared.
    pub fn series(&self) -> &[ReplySeries<A>] {
        &self.series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

    fn aggregates(values: &[f64]) -> std::vec::Vec<Aggregate> {
        let aggregate = |value: f64| {
            if value.is_nan() {
                Aggregate::EMPTY
            } else {
                Aggregate { min: value, max: value, sum: value, count: 1 }
            }
        };
        values.iter().copied().map(aggregate).collect()
    }

    fn points(group: GroupFunction, by: SeriesBy) -> std::vec::Vec<std::vec::Vec<f64>> {
        let mut virtual_chart = VirtualChart::new(Global, group, by);
        virtual_chart.add("a", "x", &aggregates(&[1.0, f64::NAN, f64::NAN])).unwrap();
        virtual_chart.add("a", "y", &aggregates(&[5.0, 5.0, 5.0])).unwrap();
        virtual_chart.add("b", "x", &aggregates(&[2.0, 3.0, f64::NAN])).unwrap();
        assert_eq!(virtual_chart.dimensions()[2].id, b"b.x");
        assert_eq!(virtual_chart.dimensions()[2].last, 3.0);
        virtual_chart.series().iter().map(|series| series.points.to_vec()).collect()
    }

    #[test]
    fn dimensions_of_one_name_are_one_series() {
        let sums = points(GroupFunction::Average, SeriesBy::Name);
        assert_eq!(sums[0][..2], [3.0, 3.0]);
        assert!(sums[0][2].is_nan());
        assert_eq!(sums[1], [5.0, 5.0, 5.0]);
        assert_eq!(points(GroupFunction::Min, SeriesBy::Name)[0][..2], [1.0, 3.0]);
        assert_eq!(points(GroupFunction::Max, SeriesBy::Name)[0][..2], [2.0, 3.0]);
    }

    #[test]
    fn or_each_dimension_is_one() {
        let all = points(GroupFunction::Average, SeriesBy::Dimension);
        assert_eq!(all.len(), 3);
        assert_eq!(all[2][..2], [2.0, 3.0]);
    }

    #[test]
    fn memory_that_is_used_up_is_said_wherever_it_happens() {
        let mut refused = 0;
        for limit in (0..64).map(|step| step * 4096) {
            let budget = allotment::Budget::new(limit);
            let builder = allotment::Arena::builder().budget(&budget);
            let arena = builder.on_refusal(allotment::OnRefusal::ReturnError).build();
            let names: std::vec::Vec<_> = (0..100).map(|n| format!("name {n}")).collect();
            let mut virtual_chart =
                VirtualChart::new(&arena, GroupFunction::Average, SeriesBy::Name);
            let aggregates = aggregates(&[1.0; 100]);
            let fill =
                names.iter().try_for_each(|name| virtual_chart.add("chart", name, &aggregates));
            refused += u32::from(fill == Err(OutOfMemory));
        }
        assert!((10..64).contains(&refused), "{refused}");
    }
}
