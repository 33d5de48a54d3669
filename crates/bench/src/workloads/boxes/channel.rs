//! `channel`: one thread makes boxes and sends them through a bounded channel of the standard
//! library, and another thread drops them.

use crate::peers::{BoxedValue, Boxes, LocalBoxes};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The sender and the receiver.
const THREADS: usize = 2;

/// The boxes that the channel holds.
const CAPACITY: usize = 1024;

/// One end of the channel.
enum ChannelEnd<B> {
    Sender(SyncSender<B>),
    Receiver(Receiver<B>),
}

/// The number of boxes of a run.
pub fn number_of_boxes(effort: Effort) -> usize {
    if effort.is_quick() { 2_000_000 } else { 8_000_000 }
}

/// Runs it with this number of boxes.
pub fn run<A: Boxes>(boxes: usize, observer: &dyn Observer) -> Measurement {
    // Making the channel writes all of its memory.
    let (sender, receiver) = mpsc::sync_channel(CAPACITY);
    let ends =
        [ChannelEnd::Sender(sender), ChannelEnd::Receiver(receiver)].map(Some).map(Mutex::new);
    let allocator = OnceLock::new();
    let walls = thread_group::run(
        THREADS,
        observer,
        |index| {
            let end = ends[index].lock().unwrap_or_else(PoisonError::into_inner).take();
            end.expect("each worker takes its end once")
        },
        |worker, end| {
            let local = allocator.get_or_init(A::new).local();
            let work = || match &end {
                ChannelEnd::Sender(sender) => send_all(&local, sender, boxes),
                // SAFETY: the sender sends as many boxes of the same allocator.
                ChannelEnd::Receiver(receiver) => unsafe { drop_all(&local, receiver, boxes) },
            };
            worker.measured(|| local.within(work))
        },
    );
    // Boxes in the channel, and one in the hands of each thread.
    Measurement::timed(boxes as u64, walls[0])
        .with(&LIVE_BYTES, ((CAPACITY + THREADS) * size_of::<BoxedValue>()) as f64)
}

#[inline(never)]
fn send_all<L: LocalBoxes>(local: &L, sender: &SyncSender<L::Boxed>, boxes: usize) {
    for word in 0..boxes as u64 {
        sender.send(local.boxed([word; 8])).expect("the receiver lives as long as the run");
    }
}

/// # Safety
/// The sender sends boxes of this allocator, and keeps no copy of them.
#[inline(never)]
unsafe fn drop_all<L: LocalBoxes>(local: &L, receiver: &Receiver<L::Boxed>, boxes: usize) {
    for _ in 0..boxes {
        let boxed = receiver.recv().expect("the sender lives as long as the run");
        // SAFETY: the caller's promise.
        unsafe { local.drop_box(boxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::BlockBoxes;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn every_box_is_dropped_once_by_the_other_thread_in_the_order_of_sending() {
        let (figures, audit) = audited(|| run::<BlockBoxes<Audited>>(5_000, &Unobserved));
        assert_eq!((figures.ops(), audit.allocated, audit.freed), (5_000, 5_000, 5_000));
        assert_eq!(audit.freed_elsewhere, 5_000);
        assert!(audit.words_freed.iter().copied().eq(0..5_000));
        assert!(audit.most_live_bytes <= figures.live_bytes());
    }

    #[test]
    fn a_quick_run_is_shorter() {
        assert!(number_of_boxes(Effort::Quick) < number_of_boxes(Effort::Full));
    }
}
