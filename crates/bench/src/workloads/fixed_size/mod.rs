//! Workloads on objects of one size. The objects outlive tasks, and any thread may free them.
//!
//! All are loops over [`FixedSizeLocal`](crate::peers::FixedSizeLocal)'s calls, compiled once for
//! each allocator. The places for the objects and the random orders are arrays that are touched
//! beforehand. An object's first word is written when it is allocated. No workload reads the object
//! before it is freed, so the measured traffic is the allocator's own.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `prepared` | places for objects, and random orders |
//! | `live` | one object is allocated and one is freed, while many are live |
//! | `burst` | many objects at once, then freed |
//! | `churn` | what is left of a burst, while the rest is used |
//! | `exchange` | one thread allocates, another frees |
//! | `tiers` | the hour boundary of a metrics store |
//! | `stress` | the array allocator's stress test |

mod burst;
mod churn;
mod exchange;
pub(crate) mod live;
pub(crate) mod prepared;
pub mod stress;
mod tiers;

use crate::peers::{About, FixedSize};
use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::setting::Effort;
use crate::workloads::trees::{many, modify};
use burst::BurstPart;
use live::FreeOrder;

pub use churn::STEPS as CHURN_STEPS;
pub(crate) use tiers::Boundary;

/// One of these workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Allocate one object and free it at once.
    Pair,
    /// Allocate many objects, then free them in reverse order.
    Lifo,
    /// Allocate many objects, then free them in the same order.
    Fifo,
    /// Replace a random one of many objects.
    Random,
    /// One thread allocates and another one frees, `batch` objects at a time.
    Exchange { batch: usize },
    /// The array allocator's stress test.
    Stress,
    /// Allocate very many objects at once: for the first time, or after the same was done before.
    BurstAlloc { cold: bool },
    /// Free very many objects in random order.
    BurstFree,
    /// Random replacement after a burst.
    Churn,
    /// The hour boundary of a metrics store.
    Tiers(Boundary),
    /// Trees of 2^`exponent` nodes, built and modified.
    Tree { exponent: u32 },
    /// Very many small trees.
    ManyTrees(many::PruneOrder),
}

impl Shape {
    /// Whether its objects are all of the layout [`OBJECT`](crate::peers::OBJECT).
    pub fn is_of_objects(self) -> bool {
        !matches!(self, Self::Tiers(_) | Self::Tree { .. } | Self::ManyTrees(_))
    }

    /// Runs it.
    pub fn run<A: FixedSize>(
        self,
        about: &About,
        threads: usize,
        effort: Effort,
        observer: &dyn Observer,
    ) -> Measurement {
        let quick = effort.is_quick();
        match self {
            Self::Pair => live::run::<A>(FreeOrder::AtOnce, threads, effort, observer),
            Self::Lifo => live::run::<A>(FreeOrder::Lifo, threads, effort, observer),
            Self::Fifo => live::run::<A>(FreeOrder::Fifo, threads, effort, observer),
            Self::Random => live::run::<A>(FreeOrder::Random, threads, effort, observer),
            Self::Exchange { batch } => {
                let objects = if batch > 1 { 24_000_000 } else { 12_000_000 };
                exchange::run::<A>(batch, if quick { objects / 4 } else { objects }, observer)
            }
            Self::Stress => {
                stress::run::<A>(threads, stress::ELEMENTS, stress::time(effort), observer)
            }
            Self::BurstAlloc { cold } => {
                let part = if cold { BurstPart::FirstAlloc } else { BurstPart::Alloc };
                burst::run::<A>(part, burst::OBJECTS, threads, observer)
            }
            Self::BurstFree => burst::run::<A>(BurstPart::Free, burst::OBJECTS, threads, observer),
            Self::Churn => churn::run::<A>(churn::FULL, threads, observer),
            Self::Tiers(boundary) => {
                let metrics = if quick { tiers::METRICS / 10 } else { tiers::METRICS };
                tiers::run::<A>(metrics, boundary, threads, observer)
            }
            Self::Tree { exponent } => {
                modify::run::<A>(modify::Amount::of(exponent, effort), observer)
            }
            Self::ManyTrees(order) => {
                many::run::<A>(order, many::FULL, about.one_for_each_structure, observer)
            }
        }
    }
}
