//! Workloads on boxes that one thread makes and another one drops. A box owns a value of 64 bytes,
//! which is written in full. No thread reads it.
//!
//! | file | holds |
//! |---|---|
//! | `channel` | one box at a time, through a channel of the standard library |
//! | `xmalloc` | batches of boxes, through a queue that all threads share |

mod channel;
mod xmalloc;

use crate::peers::Boxes;
use crate::workloads::measurement::Measurement;
use crate::workloads::observer::Observer;
use crate::workloads::setting::Effort;

/// How boxes go from thread to thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    /// One at a time, through a bounded channel.
    Channel,
    /// In batches, through a queue of all threads.
    Batches,
}

impl Handover {
    /// Runs it.
    pub fn run<A: Boxes>(
        self,
        threads: usize,
        effort: Effort,
        observer: &dyn Observer,
    ) -> Measurement {
        match self {
            Self::Channel => channel::run::<A>(channel::number_of_boxes(effort), observer),
            Self::Batches => {
                xmalloc::run::<A>(threads, xmalloc::number_of_batches(threads, effort), observer)
            }
        }
    }
}
