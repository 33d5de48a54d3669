//! Workloads on objects of one size, which outlive any task and which any thread may free.
//!
//! All are loops around [`FixedSizeLocal`](peers::FixedSizeLocal)'s calls, compiled once for each allocator.
//! Places for the objects are arrays that were touched beforehand, and so are the random orders. An object's
//! first word is written when it is allocated; no workload reads it before it is freed, so that what is
//! counted is the allocator's own traffic.

mod burst;
mod churn;
mod exchange;
pub(crate) mod live;
pub(crate) mod places;
pub mod stress;
mod tiers;

use crate::catalogue::Effort;
use crate::trees::{many, modify};
use crate::watch::Watch;
use live::Order;
use peers::{About, FixedSize, FixedSizeVisitor, UnknownAllocator};
use std::time::Duration;

pub use churn::STEPS as CHURN_STEPS;

/// Which of the workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Allocate, free at once.
    Pair,
    /// Allocate many, free in the opposite order.
    Lifo,
    /// Allocate many, free in the same order.
    Fifo,
    /// Replace one of many at random.
    Random,
    /// One thread allocates, another one frees; so many objects at a time.
    Exchange { batch: usize },
    /// The array allocator's own stress.
    Stress,
    /// Very many at once.
    BurstAlloc,
    /// The same, freed in random order.
    BurstFree,
    /// Random replacement after a burst.
    Churn,
    /// The hour boundary of a metrics store.
    Tiers { reserved: bool },
    /// Trees of 2^`exponent` nodes, built and modified.
    Tree { exponent: u32 },
    /// Very many small trees.
    ManyTrees(many::Order),
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// Operations, over all threads.
    pub ops: u64,
    /// From the common start of the measured part to the last finish.
    pub wall: Duration,
    /// Bytes of the objects that live at most; of `churn`, at the end of the measured part.
    pub live_bytes: u64,
    /// What `tiers-*` timed besides.
    pub seconds: Option<Seconds>,
    /// Nanoseconds for each node visited, where trees are walked besides.
    pub walk: Option<f64>,
}

/// Times beside the hour boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds {
    /// What the reservation took; `None` where the allocator has none.
    pub reserve: Option<Duration>,
    /// The average ordinary second's replacements.
    pub average: Duration,
    /// The worst one's.
    pub worst: Duration,
}

impl Shape {
    /// Whether its objects are all of the layout [`OBJECT`](peers::OBJECT).
    pub fn is_of_objects(self) -> bool {
        !matches!(self, Self::Tiers { .. } | Self::Tree { .. } | Self::ManyTrees(_))
    }

    /// Runs it with the allocator of this name.
    pub fn measure(
        self,
        allocator: &str,
        threads: usize,
        effort: Effort,
        watch: &dyn Watch,
    ) -> Result<Figures, UnknownAllocator> {
        peers::with_fixed_size(allocator, Measure { shape: self, threads, effort, watch })
    }

    fn run<A: FixedSize>(
        self,
        about: &About,
        threads: usize,
        effort: Effort,
        watch: &dyn Watch,
    ) -> Figures {
        let quick = effort.is_quick();
        match self {
            Self::Pair => live::run::<A>(Order::AtOnce, threads, effort, watch),
            Self::Lifo => live::run::<A>(Order::Lifo, threads, effort, watch),
            Self::Fifo => live::run::<A>(Order::Fifo, threads, effort, watch),
            Self::Random => live::run::<A>(Order::Random, threads, effort, watch),
            Self::Exchange { batch } => {
                let objects = if batch > 1 { 24_000_000 } else { 12_000_000 };
                exchange::run::<A>(batch, if quick { objects / 4 } else { objects }, watch)
            }
            Self::Stress => {
                stress::run::<A>(threads, stress::ELEMENTS, stress::time(effort), watch)
            }
            Self::BurstAlloc => burst::run::<A>(burst::Part::Alloc, burst::OBJECTS, threads, watch),
            Self::BurstFree => burst::run::<A>(burst::Part::Free, burst::OBJECTS, threads, watch),
            Self::Churn => churn::run::<A>(churn::FULL, threads, watch),
            Self::Tiers { reserved } => {
                let metrics = if quick { tiers::METRICS / 10 } else { tiers::METRICS };
                tiers::run::<A>(metrics, reserved, threads, watch)
            }
            Self::Tree { exponent } => {
                modify::run::<A>(modify::Amount::of(exponent, effort), watch)
            }
            Self::ManyTrees(order) => {
                many::run::<A>(order, many::FULL, about.one_for_each_structure, watch)
            }
        }
    }
}

struct Measure<'w> {
    shape: Shape,
    threads: usize,
    effort: Effort,
    watch: &'w dyn Watch,
}

impl FixedSizeVisitor for Measure<'_> {
    type Output = Figures;

    fn visit<A: FixedSize>(self, about: &'static About) -> Figures {
        self.shape.run::<A>(about, self.threads, self.effort, self.watch)
    }
}
