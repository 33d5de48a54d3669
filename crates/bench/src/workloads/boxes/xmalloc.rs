//! `xmalloc`: every thread makes batches of boxes and drops the batches of other threads.
//!
//! The name and the idea are those of `xmalloc-test` in mimalloc-bench. The threads share one
//! queue of batches under a mutex. A thread makes a batch of 100 to 200 boxes and *visits* the
//! queue: it adds its batch and takes the oldest batch of another thread, whose boxes it drops. If
//! the queue is full, it keeps its batch, drops batches of other threads, and visits the queue
//! again.
//!
//! # Invariants
//!
//! 1. A batch is in the queue or in the hands of one thread. The thread that takes it drops its
//!    boxes.
//! 2. There are [`arrays`] arrays for batches. At most [`capacity`] of them are in the queue, and
//!    each thread has at most two: the one that it fills and the one that it empties. The others
//!    are in [`Queue::empty`]. So a thread that has none finds one there.

use crate::peers::{BoxedValue, Boxes, LocalBoxes};
use crate::workloads::fixed_size::prepared;
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::setting::Effort;
use crate::workloads::thread_group;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The smallest number of boxes of a batch.
const LEAST: usize = 100;

/// The largest number of boxes of a batch.
const GREATEST: usize = 200;

/// The number of batch sizes that a thread draws. It repeats them.
const DRAWS: usize = 1024;

/// The batches in the queue, at most.
fn capacity(threads: usize) -> usize {
    8 * threads
}

/// The arrays for batches.
fn arrays(threads: usize) -> usize {
    capacity(threads) + 2 * threads
}

/// The number of batches that each thread makes.
pub fn number_of_batches(threads: usize, effort: Effort) -> usize {
    let boxes: usize = if effort.is_quick() { 6_000_000 } else { 24_000_000 };
    let boxes = if threads > 4 { 2 * boxes } else { boxes };
    boxes.div_ceil(threads * (LEAST + GREATEST) / 2)
}

/// Boxes that one thread made.
struct Batch<B> {
    boxes: Vec<B>,
    /// The index of the thread.
    maker: usize,
}

/// The queue that the threads share.
struct Queue<B> {
    full: VecDeque<Batch<B>>,
    /// Arrays without boxes.
    empty: Vec<Vec<B>>,
    capacity: usize,
    /// Batches that no thread has taken yet, those that are still to be made included.
    expected: usize,
}

/// What a thread has besides the batch whose boxes it drops.
struct Hands<B> {
    /// The index of the thread.
    index: usize,
    /// The batch that it has made and not yet added to the queue.
    made: Option<Batch<B>>,
    /// The array for its next batch.
    empty: Option<Vec<B>>,
}

impl<B> Queue<B> {
    /// An empty queue for `threads` threads that make `batches` batches each.
    fn new(threads: usize, batches: usize) -> Self {
        let capacity = capacity(threads);
        let array = |_| prepared::touched_vec(GREATEST);
        Self {
            full: VecDeque::from(prepared::touched_vec(capacity)),
            empty: (0..arrays(threads)).map(array).collect(),
            capacity,
            expected: threads * batches,
        }
    }

    /// Adds the batch that the thread has made, if there is room, and takes the oldest batch of
    /// another thread, if there is one. A thread that has neither a batch nor an array afterwards
    /// gets an array.
    fn visit(&mut self, hands: &mut Hands<B>) -> Option<Batch<B>> {
        self.empty.extend(hands.empty.take());
        if self.full.len() < self.capacity {
            self.full.extend(hands.made.take());
        }
        let others = self.full.iter().position(|batch| batch.maker != hands.index);
        let taken = others.and_then(|position| self.full.remove(position));
        self.expected -= usize::from(taken.is_some());
        if hands.made.is_none() && taken.is_none() {
            hands.empty = self.empty.pop();
        }
        taken
    }
}

fn lock<B>(queue: &Mutex<Queue<B>>) -> MutexGuard<'_, Queue<B>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs it with `batches` batches of each thread.
pub fn run<A: Boxes>(threads: usize, batches: usize, observer: &dyn Observer) -> Measurement {
    assert!(threads > 1, "another thread drops the boxes");
    let queue = Mutex::new(Queue::<A::Boxed>::new(threads, batches));
    let allocator = OnceLock::new();
    let results = thread_group::run(
        threads,
        observer,
        |index| {
            let random = &mut Random::stream(index as u64);
            let choices = (GREATEST - LEAST + 1) as u32;
            let draw = |_| (LEAST + random.below(choices) as usize) as u64;
            (0..DRAWS).map(draw).collect::<Vec<_>>()
        },
        |worker, sizes| {
            let local = allocator.get_or_init(A::new).local();
            let sizes = || sizes.iter().copied().cycle().take(batches);
            // SAFETY: all boxes in the queue are of this allocator.
            let work = || unsafe { make_and_drop(&local, &queue, worker.index, sizes()) };
            (worker.measured(|| local.within(work)), sizes().sum::<u64>())
        },
    );
    let live = arrays(threads) * GREATEST * size_of::<BoxedValue>();
    Measurement::timed(results.iter().map(|(_, boxes)| boxes).sum(), results[0].0)
        .with(&LIVE_BYTES, live as f64)
}

/// Makes batches of these sizes, and drops other threads' batches until every batch was taken.
///
/// # Safety
/// The batches in the queue are of this allocator.
#[inline(never)]
unsafe fn make_and_drop<L: LocalBoxes>(
    local: &L,
    queue: &Mutex<Queue<L::Boxed>>,
    index: usize,
    sizes: impl Iterator<Item = u64>,
) {
    let mut hands = Hands { index, made: None, empty: lock(queue).empty.pop() };
    for size in sizes {
        let mut boxes = hands.empty.take().expect("there are enough arrays (invariant 2)");
        boxes.extend((0..size).map(|word| local.boxed([word; 8])));
        hands.made = Some(Batch { boxes, maker: index });
        while hands.made.is_some() {
            let taken = lock(queue).visit(&mut hands);
            // SAFETY: the caller's promise.
            unsafe { drop_or_yield(local, taken, &mut hands) };
        }
    }
    loop {
        let mut queue = lock(queue);
        if queue.expected == 0 {
            break;
        }
        let taken = queue.visit(&mut hands);
        drop(queue);
        // SAFETY: the caller's promise.
        unsafe { drop_or_yield(local, taken, &mut hands) };
    }
}

/// Drops the boxes of a batch. Without one, yields the processor if the thread has nothing to do.
///
/// # Safety
/// The batch is of this allocator, and was taken from the queue.
#[inline(always)]
unsafe fn drop_or_yield<L: LocalBoxes>(
    local: &L,
    taken: Option<Batch<L::Boxed>>,
    hands: &mut Hands<L::Boxed>,
) {
    if let Some(Batch { mut boxes, .. }) = taken {
        for boxed in boxes.drain(..) {
            // SAFETY: the caller's promise; no other thread has the batch (invariant 1).
            unsafe { local.drop_box(boxed) };
        }
        hands.empty = Some(boxes);
    } else if hands.made.is_some() {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::BlockBoxes;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn every_box_is_dropped_once_by_a_thread_that_did_not_make_it() {
        for threads in [2, 3, 16] {
            let (figures, audit) = audited(|| run::<BlockBoxes<Audited>>(threads, 50, &Unobserved));
            let batches = (threads * 50) as u64;
            assert!((batches * LEAST as u64..=batches * GREATEST as u64).contains(&figures.ops()));
            assert_eq!((audit.allocated, audit.freed), (figures.ops(), figures.ops()));
            assert_eq!(audit.freed_elsewhere, figures.ops());
            assert!(audit.most_live_bytes <= figures.live_bytes());
        }
    }

    #[test]
    fn a_full_queue_gives_batches_of_others_and_keeps_the_threads_own() {
        let mut queue = Queue::<u64>::new(2, 100);
        let mut hands = [0, 1].map(|index| Hands { index, made: None, empty: None });
        let make = |queue: &mut Queue<u64>, hands: &mut Hands<u64>| {
            hands.made = Some(Batch { boxes: vec![7], maker: hands.index });
            queue.visit(hands)
        };
        for _ in 0..capacity(2) {
            assert!(make(&mut queue, &mut hands[0]).is_none(), "all batches are its own");
            assert!(hands[0].made.is_none() && hands[0].empty.is_some());
        }
        assert!(make(&mut queue, &mut hands[0]).is_none());
        assert!(hands[0].made.is_some(), "there is no room");
        let taken = make(&mut queue, &mut hands[1]).expect("the other thread's oldest");
        assert!((taken.maker, hands[1].made.is_some()) == (0, true), "there was no room");
        assert_eq!(queue.expected, 199);
        assert!(queue.visit(&mut hands[0]).is_none());
        assert!(hands[0].made.is_none(), "there is room again");
    }

    #[test]
    fn the_draws_reach_both_ends_and_quick_runs_are_shorter() {
        let (_, audit) = audited(|| run::<BlockBoxes<Audited>>(2, DRAWS, &Unobserved));
        // A batch's words count up from zero.
        let words = audit.words_allocated;
        assert_eq!(words.iter().max(), Some(&(GREATEST as u64 - 1)));
        for threads in [2, 16, crate::workloads::catalogue::MOST_THREADS] {
            let quick = number_of_batches(threads, Effort::Quick);
            assert!((1..=number_of_batches(threads, Effort::Full)).contains(&quick));
        }
    }
}
