//! What can be added up: the statistics of a stack, of which a site's are the sum.

use super::histogram::Histogram;

/// Sizes that are told apart.
pub const SIZES: usize = 16;
/// The largest size that our pools, lists and slabs have classes for: what is larger is mapped, each block by itself.
pub const LARGEST: u64 = 32 << 10;

/// How often each size came; beyond [`SIZES`] different ones the rarest are forgotten.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    entries: Vec<(u64, u64)>,
    /// Not all sizes are in the entries.
    pub more: bool,
}

impl Sizes {
    #[inline]
    pub fn add(&mut self, size: u64, count: u64) {
        match self.entries.iter().position(|entry| entry.0 == size) {
            Some(index) => {
                self.entries[index].1 += count;
                // What comes often is found soon.
                if index > 0 && self.entries[index].1 > self.entries[index - 1].1 {
                    self.entries.swap(index, index - 1);
                }
            }
            None => self.newcomer(size, count),
        }
    }

    #[cold]
    fn newcomer(&mut self, size: u64, count: u64) {
        if self.entries.len() == SIZES {
            self.more = true;
            // Misra and Gries: whatever has more than a share of 1 / (SIZES + 1) stays.
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

    /// The most frequent size and how often it came, at least.
    pub fn dominant(&self) -> (u64, u64) {
        self.entries.iter().copied().max_by_key(|&(size, count)| (count, size)).unwrap_or_default()
    }

    /// Different sizes, as far as they are told apart.
    pub fn different(&self) -> u32 {
        if self.more { SIZES as u32 } else { self.entries.len() as u32 }
    }
}

/// What the blocks of one stack did.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub count: u64,
    pub reallocated: u64,
    pub bytes: u64,
    /// Of them, in blocks of more than [`LARGEST`].
    pub large_bytes: u64,
    pub least_size: u64,
    pub most_size: u64,
    pub sizes: Sizes,
    pub lifetime_ns: Histogram,
    pub lifetime_allocations: Histogram,
    /// Frees before the end, and those of them by the thread that allocated.
    pub freed: u64,
    pub freed_by_own: u64,
    pub freed_at_exit: u64,
    pub never_freed: u64,
    /// One bit for each thread that allocated, modulo 64.
    pub threads: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Tally {
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

    /// Share of the frees by the thread that allocated; 1 where nothing was freed.
    pub fn same_thread_share(&self) -> f64 {
        share(self.freed_by_own, self.freed).unwrap_or(1.0)
    }

    /// Share of the blocks that were there to the end.
    pub fn permanent_share(&self) -> f64 {
        share(self.freed_at_exit + self.never_freed, self.count).unwrap_or(0.0)
    }

    /// The share of the most frequent size.
    pub fn dominant_share(&self) -> f64 {
        share(self.sizes.dominant().1, self.count).unwrap_or(0.0)
    }

    /// How differently two stacks behave, from 0 to 1.
    pub fn distance(&self, other: &Self) -> f64 {
        let threads = (self.same_thread_share() - other.same_thread_share()).abs();
        let permanent = (self.permanent_share() - other.permanent_share()).abs();
        let one_size = self.dominant_share() > 0.8 && other.dominant_share() > 0.8;
        let sizes = if one_size && self.sizes.dominant().0 != other.sizes.dominant().0 {
            1.0
        } else {
            (self.dominant_share() - other.dominant_share()).abs()
        };
        // Where next to nothing was freed before the end, lifetimes say nothing.
        let freed = self.permanent_share().max(other.permanent_share()) < 0.9;
        let lifetimes = if freed {
            self.lifetime_allocations.distance(&other.lifetime_allocations)
        } else {
            0.0
        };
        threads.max(permanent).max(sizes).max(lifetimes)
    }
}

/// `part` of `whole`, where there is a whole.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_size_is_found_among_many_rare_ones() {
        let mut sizes = Sizes::default();
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
            let mut tally = Tally::default();
            for i in 0..100 {
                tally.allocated(size, i, 0, false);
                if last {
                    tally.never_freed += 1;
                } else {
                    tally.freed(lifetime, lifetime, own);
                }
            }
            tally
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
    fn what_is_added_up_is_what_one_would_have_counted() {
        let (mut all, mut a, mut b) = (Tally::default(), Tally::default(), Tally::default());
        for i in 0..1000_u64 {
            let part = if i % 3 == 0 { &mut a } else { &mut b };
            for tally in [&mut all, part] {
                tally.allocated(i % 5 * 16, i, (i % 4) as u32, i % 2 == 0);
                tally.freed(i, i / 2, i % 7 == 0);
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
