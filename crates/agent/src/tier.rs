//! The three resolutions in which a metric is stored.

/// Seconds since 1970.
pub type Second = u32;

/// A resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// One point per second: the value.
    Second,
    /// One point per minute: a [`Summary`].
    Minute,
    /// One point per hour: a [`Summary`].
    Hour,
}

impl Tier {
    /// All tiers, the finest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// Returns the number of seconds that one point covers.
    #[must_use]
    pub const fn step(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// Returns the number of points in a full-size buffer. A metric's first buffer may have fewer.
    #[must_use]
    pub const fn capacity(self) -> u16 {
        match self {
            Self::Second => 1024,
            Self::Minute => 128,
            Self::Hour => 24,
        }
    }

    /// Returns the size of a point in bytes.
    #[must_use]
    pub const fn point_bytes(self) -> usize {
        match self {
            Self::Second => size_of::<f32>(),
            Self::Minute | Self::Hour => size_of::<Summary>(),
        }
    }

    /// Returns the size of a full-size buffer in bytes.
    #[must_use]
    pub const fn buffer_bytes(self) -> usize {
        self.capacity() as usize * self.point_bytes()
    }

    /// Returns the name of the slab for its full-size buffers.
    #[must_use]
    pub const fn buffers_name(self) -> &'static str {
        match self {
            Self::Second => "buffers of seconds",
            Self::Minute => "buffers of minutes",
            Self::Hour => "buffers of hours",
        }
    }
}

/// The values of a minute or an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Summary {
    /// The smallest value; infinity if there was none.
    pub min: f32,
    /// The largest value; minus infinity if there was none.
    pub max: f32,
    /// The sum.
    pub sum: f32,
    /// The number of values.
    pub count: u32,
}

const _: () = assert!(size_of::<Summary>() == 16);

impl Summary {
    /// The summary of no values.
    pub const EMPTY: Self = Self { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, count: 0 };

    /// Adds a value. NaN is no value.
    #[inline]
    pub fn take(&mut self, value: f32) {
        // A comparison with NaN is false.
        self.min = if value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
        let known = !value.is_nan();
        self.sum += if known { value } else { 0.0 };
        self.count += u32::from(known);
    }

    /// Adds the values of another summary.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Returns the average, or `None` of no values.
    #[must_use]
    pub fn average(self) -> Option<f32> {
        (self.count > 0).then(|| self.sum / self.count as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_sizes_of_the_design() {
        assert_eq!(Tier::ALL.map(Tier::buffer_bytes), [4096, 2048, 384]);
    }

    #[test]
    fn a_summary_leaves_gaps_out_and_merges() {
        let mut summary = Summary::EMPTY;
        for value in [3.0, f32::NAN, -1.0] {
            summary.take(value);
        }
        assert_eq!(summary, Summary { min: -1.0, max: 3.0, sum: 2.0, count: 2 });
        let mut other = Summary::EMPTY;
        other.take(10.0);
        summary.merge(other);
        summary.merge(Summary::EMPTY);
        assert_eq!(summary, Summary { min: -1.0, max: 10.0, sum: 12.0, count: 3 });
        assert_eq!((summary.average(), Summary::EMPTY.average()), (Some(4.0), None));
    }
}
