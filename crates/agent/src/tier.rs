//! The three resolutions that a metric is kept in.

/// Seconds since 1970.
pub type Second = u32;

/// A resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A point a second: the value.
    Second,
    /// A point a minute: a [`Summary`].
    Minute,
    /// A point an hour: a [`Summary`].
    Hour,
}

impl Tier {
    /// All, the finest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// Seconds that a point stands for.
    #[must_use]
    pub const fn step(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// Points that a buffer has room for; a metric's first one may have fewer.
    #[must_use]
    pub const fn capacity(self) -> u16 {
        match self {
            Self::Second => 1024,
            Self::Minute => 128,
            Self::Hour => 24,
        }
    }

    /// Bytes of a point.
    #[must_use]
    pub const fn point_bytes(self) -> usize {
        match self {
            Self::Second => size_of::<f32>(),
            Self::Minute | Self::Hour => size_of::<Summary>(),
        }
    }

    /// Bytes of a buffer of full size.
    #[must_use]
    pub const fn buffer_bytes(self) -> usize {
        self.capacity() as usize * self.point_bytes()
    }

    /// What the slab of its buffers is called.
    #[must_use]
    pub const fn buffers_name(self) -> &'static str {
        match self {
            Self::Second => "buffers of seconds",
            Self::Minute => "buffers of minutes",
            Self::Hour => "buffers of hours",
        }
    }
}

/// What the values of a minute or an hour came to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Summary {
    /// The least value; infinite when there was none.
    pub min: f32,
    /// The greatest value; minus infinity when there was none.
    pub max: f32,
    /// The sum.
    pub sum: f32,
    /// How many values were collected.
    pub count: u32,
}

const _: () = assert!(size_of::<Summary>() == 16);

impl Summary {
    /// Of no values.
    pub const EMPTY: Self = Self { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, count: 0 };

    /// Takes a value in; NaN is none.
    #[inline]
    pub fn take(&mut self, value: f32) {
        // A comparison with NaN is false.
        self.min = if value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
        let known = !value.is_nan();
        self.sum += if known { value } else { 0.0 };
        self.count += u32::from(known);
    }

    /// Takes in what another one saw.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The average; `None` of no values.
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
