//! The statistics of blocks that can be added up: those of a site are the sum of its stacks'.

use super::histogram::Histogram;

/// The most sizes that are counted separately.
pub const SIZES: usize = 16;
/// The largest size for which this project's pools, free lists and slabs have size classes. A
/// larger block has a mapping of its own.
pub const LARGEST: u64 = 32 << 10;

/// The number of blocks of each size. With more than [`SIZES`] different sizes, the rarest are
/// dropped.
#[derive(Debug, Clone, Default)]
pub struct SizeCounts {
    entries: Vec<(u64, u64)>,
    /// Some sizes were dropped.
    pub more: bool,
}

impl SizeCounts {
    #[inline]
    pub fn add(&mut self, size: u64, count: u64) {
        match self.entries.iter().position(|entry| entry.0 == size) {
            Some(index) => {
                self.entries[index].1 += count;
                // Frequent sizes move to the front.
                if index > 0 && self.entries[index].1 > self.entries[index - 1].1 {
                    self.entries.swap(index, index - 1);
                }
            }
            None => self.add_new(size, count),
        }
    }

    #[cold]
    fn add_new(&mut self, size: u64, count: u64) {
        if self.entries.len() == SIZES {
            self.more = true;
            // Misra-Gries: every size with a share of more than 1 / (SIZES + 1) stays.
            let least = self.entries.iter().map(|entry| entry.1).min().unwrap_or(0).min(count);
            self.entries.iter_mut().for_each(|entry| entry.1 -= least);
            self.entries.retain(|entry| entry.1 > 0);
            if count > least && self.entries.len() < SIZES {
                self.entries.push((size, count - least));
            }
        } else {
            self.entries.push((size, count));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.more |= other.more;
        other.entries.iter().for_each(|&(size, count)| self.add(size, count));
    }

    /// The most frequent size, and a lower bound of its count.
    pub fn dominant(&self) -> (u64, u64) {
        self.entries.iter().copied().max_by_key(|&(size, count)| (count, size)).unwrap_or_default()
    }

    /// The number of different sizes, at most [`SIZES`].
    pub fn different(&self) -> u32 {
        if self.more { SIZES as u32 } else { self.entries.len() as u32 }
    }
}

/// The statistics of the blocks of a stack, or of several.
#[derive(Debug, Clone, Default)]
pub struct BlockStatistics {
    pub count: u64,
    pub reallocated: u64,
    /// Blocks that realloc gave another size.
    pub resized: u64,
    pub bytes: u64,
    /// The bytes in blocks of more than [`LARGEST`].
    pub large_bytes: u64,
    pub least_size: u64,
    pub most_size: u64,
    pub sizes: SizeCounts,
    pub lifetime_ns: Histogram,
    pub lifetime_allocations: Histogram,
    /// Frees before the exit, and how many of them were by the allocating thread.
    pub freed: u64,
    pub freed_by_own: u64,
    pub freed_at_exit: u64,
    pub never_freed: u64,
    /// One bit for each thread that allocated, modulo 64.
    pub threads: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl BlockStatistics {
    #[inline]
    pub fn allocated(&mut self, size: u64, time_ns: u64, thread: u32, by_realloc: bool) {
        if self.count == 0 {
            self.first_ns = time_ns;
            self.least_size = size;
        }
        self.count += 1;
        self.reallocated += u64::from(by_realloc);
        self.bytes = self.bytes.saturating_add(size);
        if size > LARGEST {
            self.large_bytes = self.large_bytes.saturating_add(size);
        }
        self.least_size = self.least_size.min(size);
        self.most_size = self.most_size.max(size);
        self.sizes.add(size, 1);
        self.threads |= 1 << (thread % 64);
        self.last_ns = time_ns;
    }

    #[inline]
    pub fn freed(&mut self, ns: u64, allocations: u64, by_own: bool) {
        self.freed += 1;
        self.freed_by_own += u64::from(by_own);
        self.lifetime_ns.add(ns);
        self.lifetime_allocations.add(allocations);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.least_size = self.least_size.min(other.least_size);
        self.most_size = self.most_size.max(other.most_size);
        self.count += other.count;
        self.reallocated += other.reallocated;
        self.resized += other.resized;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.large_bytes = self.large_bytes.saturating_add(other.large_bytes);
        self.sizes.merge(&other.sizes);
        self.lifetime_ns.merge(&other.lifetime_ns);
        self.lifetime_allocations.merge(&other.lifetime_allocations);
        self.freed += other.freed;
        self.freed_by_own += other.freed_by_own;
        self.freed_at_exit += other.freed_at_exit;
        self.never_freed += other.never_freed;
        self.threads |= other.threads;
    }

    /// The share of the frees by the allocating thread; 1 if nothing was freed.
    pub fn same_thread_share(&self) -> f64 {
        share(self.freed_by_own, self.freed).unwrap_or(1.0)
    }

    /// The share of the blocks that lived to the end.
    pub fn permanent_share(&self) -> f64 {
        share(self.freed_at_exit + self.never_freed, self.count).unwrap_or(0.0)
    }

    /// The share of the most frequent size.
    pub fn dominant_share(&self) -> f64 {
        share(self.sizes.dominant().1, self.count).unwrap_or(0.0)
    }

    /// How differently the blocks of two stacks behave, from 0 to 1.
    pub fn distance(&self, other: &Self) -> f64 {
        let threads = (self.same_thread_share() - other.same_thread_share()).abs();
        let permanent = (self.permanent_share() - other.permanent_share()).abs();
        let one_size = self.dominant_share() > 0.8 && other.dominant_share() > 0.8;
        let sizes = if one_size && self.sizes.dominant().0 != other.sizes.dominant().0 {
            1.0
        } else {
            (self.dominant_share() - other.dominant_share()).abs()
        };
        // If almost nothing was freed before the end, lifetimes say nothing.
        let freed = self.permanent_share().max(other.permanent_share()) < 0.9;
        let lifetimes = if freed {
            self.lifetime_allocations.distance(&other.lifetime_allocations)
        } else {
            0.0
        };
        threads.max(permanent).max(sizes).max(lifetimes)
    }
}

/// `part / whole`; `None` if `whole` is 0.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_size_is_found_among_many_rare_ones() {
        let mut sizes = SizeCounts::default();
        for i in 0..10_000 {
            sizes.add(if i % 3 == 0 { 64 } else { 1000 + i }, 1);
        }
        let (size, count) = sizes.dominant();
        assert_eq!(size, 64);
        assert!((2_500..=3_334).contains(&count), "{count}");
        assert_eq!(sizes.different(), SIZES as u32);
    }

    #[test]
    fn stacks_differ_by_size_by_lifetime_by_thread_and_by_whether_they_last() {
        let of = |size: u64, lifetime: u64, own: bool, last: bool| {
            let mut statistics = BlockStatistics::default();
            for i in 0..100 {
                statistics.allocated(size, i, 0, false);
                if last {
                    statistics.never_freed += 1;
                } else {
                    statistics.freed(lifetime, lifetime, own);
                }
            }
            statistics
        };
        let plain = of(64, 10, true, false);
        assert!(plain.distance(&of(64, 12, true, false)) < 0.1);
        for other in [
            of(80, 10, true, false),
            of(64, 1000, true, false),
            of(64, 10, false, false),
            of(64, 10, true, true),
        ] {
            assert!(plain.distance(&other) > 0.9, "{other:?}");
        }
    }

    #[test]
    fn merged_statistics_equal_those_of_all_blocks() {
        let (mut all, mut a, mut b) =
            (BlockStatistics::default(), BlockStatistics::default(), BlockStatistics::default());
        for i in 0..1000_u64 {
            let part = if i % 3 == 0 { &mut a } else { &mut b };
            for statistics in [&mut all, part] {
                statistics.allocated(i % 5 * 16, i, (i % 4) as u32, i % 2 == 0);
                statistics.freed(i, i / 2, i % 7 == 0);
            }
        }
        let mut sum = a.clone();
        sum.merge(&b);
        assert_eq!((sum.count, sum.bytes, sum.threads), (all.count, all.bytes, all.threads));
        assert_eq!(sum.lifetime_ns, all.lifetime_ns);
        assert_eq!(sum.sizes.different(), 5);
        assert!(sum.distance(&all) < 1e-9);
    }
}
