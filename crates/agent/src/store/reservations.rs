//! Reserves the buffers that all metrics need at the same time: their first buffers of minutes and
//! hours.
//!
//! Later buffers are needed at different times, because first buffers differ in size. The need for
//! first buffers is known when a chart is added, so they are reserved in the seconds before the
//! boundary, a share in each second.

use super::chart::Chart;

use super::chart_tier::first_capacity;
use crate::memory::Memory;
use crate::tier::{Second, Tier};

/// The tiers whose first points all come at once.
pub(super) const COARSE_TIERS: [Tier; 2] = [Tier::Minute, Tier::Hour];

/// When reserving begins and ends, in seconds before the boundary, by tier.
const LEAD_SECONDS: [(u32, u32); 2] = [(55, 5), (600, 65)];

/// The largest number of buffers to reserve in one second. If charts were added just before a
/// boundary, the rest is allocated at the boundary itself, from cold memory.
const MAX_PER_SECOND: u64 = 50_000;

/// First buffers that no metric has yet, by tier and capacity.
#[derive(Debug)]
pub(super) struct BufferReservations {
    due: [Vec<u32>; 2],
    all: [u64; 2],
    reserved: [u64; 2],
}

impl Default for BufferReservations {
    fn default() -> Self {
        let due = COARSE_TIERS.map(|tier| vec![0; usize::from(tier.capacity()) + 1]);
        Self { due, all: [0; 2], reserved: [0; 2] }
    }
}

impl BufferReservations {
    pub fn add_chart<M: Memory>(&mut self, tier: Tier, chart: &Chart<M>) {
        let index = tier as usize - 1;
        for metric in chart.metrics() {
            self.due[index][usize::from(first_capacity(tier, metric))] += 1;
            self.all[index] += 1;
        }
    }

    pub fn remove_chart<M: Memory>(&mut self, tier: Tier, chart: &Chart<M>) {
        let index = tier as usize - 1;
        for metric in chart.metrics() {
            self.due[index][usize::from(first_capacity(tier, metric))] -= 1;
            self.all[index] -= 1;
        }
        self.reserved[index] = self.reserved[index].min(self.all[index]);
    }

    /// Reserves the share that is due in this second.
    pub fn reserve<M: Memory>(&mut self, memory: &M, now: Second) {
        let mut left = MAX_PER_SECOND;
        let before = self.reserved;
        for (index, tier) in COARSE_TIERS.into_iter().enumerate() {
            let to_boundary = tier.step() - now % tier.step();
            let (from, until) = LEAD_SECONDS[index];
            if to_boundary > from {
                continue;
            }
            let share = u64::from((from - to_boundary + 1).min(from - until));
            let due = self.all[index] * share / u64::from(from - until);
            let more = due.saturating_sub(self.reserved[index]).min(left);
            left -= more;
            self.reserved[index] += more;
        }
        if self.reserved == before {
            return;
        }
        let buffers = (0..COARSE_TIERS.len()).flat_map(|index| {
            let (reserved, all) = (self.reserved[index], self.all[index]);
            self.due[index].iter().zip(0..).filter(|(due, _)| **due > 0).map(
                move |(due, capacity)| {
                    (
                        COARSE_TIERS[index],
                        capacity,
                        (u64::from(*due) * reserved).div_ceil(all) as usize,
                    )
                },
            )
        });
        // After a refusal the buffers are allocated at the boundary, as far as memory is available
        // then.
        let _ = memory.reserve_buffers(buffers);
    }
}
