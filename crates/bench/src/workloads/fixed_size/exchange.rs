//! `exchange-1000` and `exchange-1`: one thread allocates, and another one frees.
//!
//! A bounded queue of `rtrb`, with one producer and one consumer, is between them. The objects
//! travel in batches: the producer publishes a batch at a time, and the consumer releases the
//! batch's slots.

use super::prepared::ObjectSlots;
use crate::peers::{FixedSize, FixedSizeLocal, OBJECT};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::thread_group;
use rtrb::{Consumer, Producer, RingBuffer};
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// The producer and the consumer.
pub const THREADS: usize = 2;

/// The capacity of the queue in objects, or eight batches if that is more.
const CAPACITY: usize = 1024;

/// The number of times that a thread checks a full or empty queue before it yields the processor.
const SPINS: u32 = 100;

type QueueSlot<O> = MaybeUninit<O>;

/// One end of the queue.
enum QueueEnd<O> {
    Producer(Producer<QueueSlot<O>>),
    Consumer(Consumer<QueueSlot<O>>),
}

/// Runs it with `objects` objects, rounded up to whole batches.
pub fn run<A: FixedSize>(batch: usize, objects: usize, observer: &dyn Observer) -> Measurement {
    let batches = objects.div_ceil(batch);
    let capacity = CAPACITY.max(8 * batch);
    let (producer, consumer) = touched::<A::Object>(capacity);
    let ends =
        [QueueEnd::Producer(producer), QueueEnd::Consumer(consumer)].map(Some).map(Mutex::new);
    let store = OnceLock::new();
    let walls = thread_group::run(
        THREADS,
        observer,
        |index| {
            let end = ends[index].lock().unwrap_or_else(PoisonError::into_inner).take();
            (end.expect("each worker takes its end once"), ObjectSlots::<A::Object>::touched(batch))
        },
        |worker, (mut end, mut places)| {
            let local = store.get_or_init(|| A::new(OBJECT)).local();
            worker.measured(|| match (&mut end, batch) {
                (QueueEnd::Producer(producer), 1) => produce_singly(&local, producer, batches),
                (QueueEnd::Producer(producer), _) => {
                    produce(&local, producer, places.all(), batches);
                }
                // SAFETY: the producer pushes as many objects of the same allocator.
                (QueueEnd::Consumer(consumer), 1) => unsafe {
                    consume_singly(&local, consumer, batches);
                },
                // SAFETY: as above.
                (QueueEnd::Consumer(consumer), _) => unsafe {
                    consume(&local, consumer, batch, batches);
                },
            })
        },
    );
    // Objects in the queue, and in the current batches of the producer and the consumer.
    Measurement::timed((batches * batch) as u64, walls[0])
        .with(&LIVE_BYTES, ((capacity + 2 * batch) * OBJECT.size()) as f64)
}

/// A queue whose slots have all been used once.
fn touched<O>(capacity: usize) -> (Producer<QueueSlot<O>>, Consumer<QueueSlot<O>>) {
    let (mut producer, mut consumer) = RingBuffer::new(capacity);
    while producer.push(MaybeUninit::zeroed()).is_ok() {}
    while consumer.pop().is_ok() {}
    (producer, consumer)
}

/// Waits until `attempt` returns a value.
#[inline(always)]
fn until<T, E>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let mut spins = 0;
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(_) if spins < SPINS => {
                spins += 1;
                std::hint::spin_loop();
            }
            Err(_) => thread::yield_now(),
        }
    }
}

#[inline(never)]
fn produce<L: FixedSizeLocal>(
    local: &L,
    queue: &mut Producer<QueueSlot<L::Object>>,
    places: &mut [MaybeUninit<L::Object>],
    batches: usize,
) {
    for _ in 0..batches {
        for (word, place) in places.iter_mut().enumerate() {
            place.write(local.alloc(word as u64));
        }
        until(|| queue.push_entire_slice(places));
    }
}

/// # Safety
/// The other end pushes `batches` batches of live objects of this allocator, and does not use them
/// afterwards.
#[inline(never)]
unsafe fn consume<L: FixedSizeLocal>(
    local: &L,
    queue: &mut Consumer<QueueSlot<L::Object>>,
    batch: usize,
    batches: usize,
) {
    for _ in 0..batches {
        until(|| if queue.slots() < batch { Err(()) } else { Ok(()) });
        let objects =
            queue.read_chunk(batch).expect("the batch is there, and there is no other consumer");
        let (first, second) = objects.as_slices();
        for object in first.iter().chain(second) {
            // SAFETY: the caller's promise.
            unsafe { local.free(object.assume_init()) };
        }
        objects.commit_all();
    }
}

#[inline(never)]
fn produce_singly<L: FixedSizeLocal>(
    local: &L,
    queue: &mut Producer<QueueSlot<L::Object>>,
    objects: usize,
) {
    for word in 0..objects {
        let object = MaybeUninit::new(local.alloc(word as u64));
        until(|| queue.push(object));
    }
}

/// # Safety
/// As for [`consume`], with batches of one.
#[inline(never)]
unsafe fn consume_singly<L: FixedSizeLocal>(
    local: &L,
    queue: &mut Consumer<QueueSlot<L::Object>>,
    objects: usize,
) {
    for _ in 0..objects {
        let object = until(|| queue.pop());
        // SAFETY: the caller's promise.
        unsafe { local.free(object.assume_init()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn every_object_is_freed_once_by_the_thread_that_did_not_allocate_it() {
        for (batch, objects) in [(1, 5_000), (1000, 20_000)] {
            let (figures, audit) = audited(|| run::<Audited>(batch, objects, &Unobserved));
            assert_eq!(figures.ops(), objects as u64);
            assert_eq!((audit.allocated, audit.freed), (figures.ops(), figures.ops()));
            assert_eq!(audit.freed_elsewhere, figures.ops());
            assert!(audit.most_live * OBJECT.size() as u64 <= figures.live_bytes());
        }
    }

    #[test]
    fn objects_come_whole_batches_at_a_time() {
        let (figures, audit) = audited(|| run::<Audited>(1000, 1_500, &Unobserved));
        assert_eq!((figures.ops(), audit.freed), (2_000, 2_000));
        let batch: Vec<u64> = (0..1000).collect();
        assert_eq!(audit.words_freed, [batch.clone(), batch].concat());
    }
}
