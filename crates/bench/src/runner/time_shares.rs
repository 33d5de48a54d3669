//! How the sizes of one kind of workload share its time: a run of all sizes takes as long as a run
//! of one other workload.

use super::rounds::Limits;
use crate::workloads::Workload;
use std::time::Duration;

/// The time that the sizes of each kind have taken so far.
#[derive(Debug, Default)]
pub struct TimeShares(Vec<(&'static str, Duration)>);

impl TimeShares {
    /// The limits of the first workload in `to_be_run`, the workloads that are still to run. A
    /// workload without sizes has `limits` to itself.
    pub fn limits(&self, limits: Limits, to_be_run: &[&Workload]) -> Limits {
        let Some((time, kind)) = limits.time.zip(to_be_run.first().and_then(|first| kind(first)))
        else {
            return limits;
        };
        let spent =
            self.0.iter().find(|(name, _)| *name == kind).map_or(Duration::ZERO, |one| one.1);
        let weights =
            to_be_run.iter().filter(|other| self::kind(other) == Some(kind)).map(|one| weight(one));
        let share = weight(to_be_run[0]) / weights.sum::<f64>();
        Limits { time: Some(time.saturating_sub(spent).mul_f64(share)), ..limits }
    }

    /// Records the time that a workload took.
    pub fn note(&mut self, workload: &Workload, time: Duration) {
        let Some(kind) = kind(workload) else { return };
        match self.0.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, spent)) => *spent += time,
            None => self.0.push((kind, time)),
        }
    }
}

fn kind(workload: &Workload) -> Option<&'static str> {
    workload.exponent().and(workload.family())
}

/// The approximate time of a round relative to other sizes. It grows where the trees exceed the
/// caches.
fn weight(workload: &Workload) -> f64 {
    workload.exponent().map_or(1.0, |exponent| 1.0 + (f64::from(exponent) - 16.0).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(shares: &TimeShares, to_be_run: &[&Workload]) -> f64 {
        let limits = Limits { rounds: 5, time: Some(Duration::from_secs(100)) };
        shares.limits(limits, to_be_run).time.unwrap().as_secs_f64()
    }

    #[test]
    fn sizes_share_and_the_largest_has_most() {
        let all = Workload::all_named("tree").unwrap();
        let mut shares = TimeShares::default();
        let mut sum = 0.0;
        let mut last = 0.0;
        for first in 0..all.len() {
            let own = seconds(&shares, &all[first..]);
            assert!(own >= last, "{own} after {last}");
            shares.note(all[first], Duration::from_secs_f64(own));
            (sum, last) = (sum + own, own);
        }
        assert!((sum - 100.0).abs() < 0.01, "{sum}");
        assert!(last > 40.0);
    }

    #[test]
    fn what_one_left_or_took_too_much_is_the_others() {
        let all = Workload::all_named("tree-copy").unwrap();
        let mut shares = TimeShares::default();
        shares.note(all[0], Duration::from_secs(70));
        assert_eq!(seconds(&shares, &all[6..]), 30.0);
        shares.note(all[1], Duration::from_secs(70));
        assert_eq!(seconds(&shares, &all[6..]), 0.0);
    }

    #[test]
    fn a_size_alone_and_workloads_without_sizes_have_all_of_it() {
        let named = |name| Workload::named(name).unwrap();
        let mut shares = TimeShares::default();
        assert_eq!(
            seconds(&shares, &[named("tree-20"), named("tree-copy-20"), named("pair")]),
            100.0
        );
        shares.note(named("pair"), Duration::from_secs(50));
        shares.note(named("burst-alloc"), Duration::from_secs(50));
        assert_eq!(seconds(&shares, &[named("pair"), named("lifo")]), 100.0);
        assert_eq!(seconds(&shares, &[named("burst-alloc"), named("burst-free")]), 100.0);
        let unlimited = Limits { rounds: 2, time: None };
        assert!(shares.limits(unlimited, &[named("tree-8"), named("tree-10")]).time.is_none());
    }
}
