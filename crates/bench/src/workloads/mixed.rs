//! `mixed` and `mixed-remote`: each thread has 10,000 objects of any size. A random one is freed,
//! and an object of another size replaces it.
//!
//! In `mixed-remote` another thread frees one object in twenty. The threads form a ring. Each hands
//! these objects to the next thread, 32 at a time, through a bounded queue of `rtrb`, and then
//! frees what came from the thread before. A thread whose queue is full frees received objects
//! meanwhile, so the ring can't deadlock.
//!
//! # Invariants
//!
//! 1. Between [`fill`] and [`empty`], each place has a live object of its thread, and its size is
//!    stored with it.
//! 2. An object is in one place, in one thread's batch, or in one queue. The code that takes it
//!    out either frees it or moves it to another of these.
//! 3. Every thread's allocator outlives all objects: none is dropped before the measured part has
//!    ended for all threads, and by then each thread has freed everything that was handed to it.

use crate::peers::AnySize;
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::setting::Effort;
use crate::workloads::sizes;
use crate::workloads::thread_group::{self, Worker};
use rtrb::{Consumer, Producer, RingBuffer};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Live objects on each thread.
pub const LIVE: usize = 10_000;

/// One object in this many is freed by another thread.
pub const REMOTE: usize = 20;

/// The number of draws of a thread, which it repeats. It makes whole batches for other threads.
const DRAWS: usize = REMOTE * BATCH * 128;

/// The objects of a batch, which a thread passes on together.
const BATCH: usize = 32;

/// The most objects on their way from one thread to the next. It is large enough that a thread
/// whose neighbour waits for a processor has work for a time slice.
const QUEUE_CAPACITY: usize = 8192;

/// An object and its size.
#[derive(Clone, Copy)]
struct Object {
    at: NonNull<u8>,
    size: u16,
}

// SAFETY: an address and a number. The code that frees the object got it from its owner (invariant
// 2).
unsafe impl Send for Object {}

/// A place, and the size of its next object.
#[derive(Clone, Copy)]
struct Replacement {
    place: u16,
    size: u16,
}

/// A worker's data.
struct WorkerState {
    places: Box<[MaybeUninit<Object>]>,
    /// The sizes of the first objects.
    sizes: Vec<u16>,
    draws: Vec<Replacement>,
    /// The queue to the next thread, and the queue from the thread before.
    ring: Option<(Producer<Object>, Consumer<Object>)>,
}

/// Runs it. With `remote`, other threads free objects, which needs at least two threads.
pub fn run<A: AnySize>(
    remote: bool,
    threads: usize,
    effort: Effort,
    observer: &dyn Observer,
) -> Measurement {
    rounds::<A>(remote, threads, number_of_rounds(threads, effort), observer)
}

/// The number of rounds of each thread. It is large enough that each of many threads runs on its
/// core several times.
fn number_of_rounds(threads: usize, effort: Effort) -> usize {
    let pairs: usize = if effort.is_quick() { 6_000_000 } else { 30_000_000 };
    let pairs = if threads > 4 { 2 * pairs } else { pairs };
    pairs.div_ceil(threads * DRAWS)
}

fn rounds<A: AnySize>(
    remote: bool,
    threads: usize,
    rounds: usize,
    observer: &dyn Observer,
) -> Measurement {
    assert!(!remote || threads > 1, "frees by other threads need at least two threads");
    let ends: Vec<_> = if remote { ring(threads) } else { Vec::new() };
    let results = thread_group::run(
        threads,
        observer,
        |index| {
            let end = ends.get(index).and_then(|end: &Mutex<Option<_>>| {
                end.lock().unwrap_or_else(PoisonError::into_inner).take()
            });
            WorkerState::new(index, end)
        },
        |worker: Worker<'_, '_>, mut state| {
            let own = A::start();
            fill(&own, &mut state.places, &state.sizes);
            let work = || match &mut state.ring {
                None => {
                    for _ in 0..rounds {
                        // SAFETY: just filled.
                        unsafe { replace(&own, &mut state.places, &state.draws) };
                    }
                }
                Some((next, last)) => {
                    // SAFETY: just filled; both ends of the queues work with objects of `A`.
                    unsafe {
                        replace_in_ring(&own, &mut state.places, &state.draws, rounds, next, last)
                    };
                }
            };
            let wall = worker.measured(|| own.within(work));
            // SAFETY: the places are full, and not used afterwards.
            (wall, unsafe { empty(&own, &state.places) })
        },
    );
    Measurement::timed((threads * rounds * DRAWS) as u64, results[0].0)
        .with(&LIVE_BYTES, results.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64)
}

impl WorkerState {
    fn new(index: usize, ring: Option<(Producer<Object>, Consumer<Object>)>) -> Self {
        let random = &mut Random::stream(index as u64);
        let mut places = Box::new_uninit_slice(LIVE);
        // Without this, the compiler requests zeroed memory and touches none of it.
        black_box(&mut places);
        places.fill(MaybeUninit::zeroed());
        black_box(&mut places);
        let sizes = (0..LIVE).map(|_| sizes::draw(random)).collect();
        let draw =
            |_| Replacement { place: random.below(LIVE as u32) as u16, size: sizes::draw(random) };
        Self { places, sizes, draws: (0..DRAWS).map(draw).collect(), ring }
    }
}

type QueueEnds = Mutex<Option<(Producer<Object>, Consumer<Object>)>>;

/// Queues from each thread to the next one, whose slots have all been used once. For each thread:
/// the producer of its queue, and the consumer of the queue from the thread before.
fn ring(threads: usize) -> Vec<QueueEnds> {
    let (mut into, mut from): (Vec<_>, Vec<_>) = (0..threads)
        .map(|_| {
            let (mut into, mut from) = RingBuffer::new(QUEUE_CAPACITY);
            while into.push(Object { at: NonNull::dangling(), size: 0 }).is_ok() {}
            while from.pop().is_ok() {}
            (into, from)
        })
        .unzip();
    from.rotate_right(1);
    into.drain(..).zip(from).map(|ends| Mutex::new(Some(ends))).collect()
}

/// Allocates an object and writes its first word.
#[inline(always)]
fn new<A: AnySize>(own: &A, size: u16) -> Object {
    let at = own.alloc(sizes::layout(size));
    // SAFETY: a fresh object with at least the size and alignment of a word.
    unsafe { at.cast::<u64>().write(u64::from(size)) };
    Object { at, size }
}

#[inline(never)]
fn fill<A: AnySize>(own: &A, places: &mut [MaybeUninit<Object>], sizes: &[u16]) {
    for (place, size) in places.iter_mut().zip(sizes) {
        place.write(new(own, *size));
    }
    black_box(places);
}

/// Frees the object of each place, and returns the sum of their sizes in bytes.
///
/// # Safety
/// Each place has a live object of `own`.
#[inline(never)]
unsafe fn empty<A: AnySize>(own: &A, places: &[MaybeUninit<Object>]) -> u64 {
    let mut bytes = 0;
    for place in places {
        // SAFETY: the caller's promise.
        unsafe {
            let object = place.assume_init();
            bytes += u64::from(object.size);
            own.free(object.at, sizes::layout(object.size));
        }
    }
    bytes
}

/// Replaces the object of each drawn place.
///
/// # Safety
/// Each place has a live object of `own`.
#[inline(never)]
unsafe fn replace<A: AnySize>(own: &A, places: &mut [MaybeUninit<Object>], draws: &[Replacement]) {
    for draw in draws {
        let place = &mut places[usize::from(draw.place)];
        // SAFETY: the caller's promise.
        unsafe {
            let object = place.assume_init();
            own.free(object.at, sizes::layout(object.size));
        }
        place.write(new(own, draw.size));
    }
    black_box(places);
}

/// Does [`replace`] `rounds` times, except that one object in [`REMOTE`] goes to the next thread.
/// Frees the objects from the thread before.
///
/// # Safety
/// As for [`replace`]. `last` delivers live objects of another thread's allocator of the same type,
/// which no other code frees, and as many as go to `next`.
#[inline(never)]
unsafe fn replace_in_ring<A: AnySize>(
    own: &A,
    places: &mut [MaybeUninit<Object>],
    draws: &[Replacement],
    rounds: usize,
    next: &mut Producer<Object>,
    last: &mut Consumer<Object>,
) {
    let mut expected = rounds * (draws.len() / REMOTE);
    let mut batch = [Object { at: NonNull::dangling(), size: 0 }; BATCH];
    let mut held = 0;
    for draws in (0..rounds).flat_map(|_| draws.chunks_exact(REMOTE)) {
        let [draw, others @ ..] = draws else { unreachable!("a chunk has some draws") };
        let place = &mut places[usize::from(draw.place)];
        // SAFETY: the caller's promise.
        batch[held] = unsafe { place.assume_init() };
        place.write(new(own, draw.size));
        held += 1;
        while held == BATCH {
            if next.push_entire_slice(&batch).is_ok() {
                held = 0;
            }
            // SAFETY: the caller's promise.
            expected -= unsafe { free_all(own, last) };
            if held > 0 {
                thread::yield_now();
            }
        }
        // SAFETY: the caller's promise.
        unsafe { replace(own, places, others) };
    }
    while expected > 0 {
        // SAFETY: the caller's promise.
        let freed = unsafe { free_all(own, last) };
        expected -= freed;
        if freed == 0 {
            thread::yield_now();
        }
    }
}

/// Frees the objects that came from another thread, and returns their number.
///
/// # Safety
/// As for [`replace_in_ring`].
#[inline(always)]
unsafe fn free_all<A: AnySize>(own: &A, last: &mut Consumer<Object>) -> usize {
    let mut freed = 0;
    while let Ok(object) = last.pop() {
        // SAFETY: the caller's promise.
        unsafe { own.free_elsewhere(object.at, sizes::layout(object.size)) };
        freed += 1;
    }
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn each_operation_is_one_allocation_and_one_free_and_nothing_is_left() {
        for (remote, threads) in [(false, 1), (false, 3), (true, 2), (true, 3)] {
            let (figures, audit) = audited(|| rounds::<Audited>(remote, threads, 1, &Unobserved));
            assert_eq!(figures.ops(), (threads * DRAWS) as u64);
            assert_eq!(audit.allocated, figures.ops() + (threads * LIVE) as u64);
            assert_eq!(audit.freed, audit.allocated);
            let handed = if remote { figures.ops() / REMOTE as u64 } else { 0 };
            assert_eq!(audit.freed_elsewhere, handed);
        }
    }

    #[test]
    fn no_more_objects_live_than_there_are_places_and_room_between_threads() {
        let (figures, audit) = audited(|| rounds::<Audited>(false, 1, 1, &Unobserved));
        assert_eq!(audit.most_live, LIVE as u64);
        // About 110 bytes for each object, at any time.
        for bytes in [figures.live_bytes(), audit.most_live_bytes] {
            assert!((1_000_000..1_250_000).contains(&bytes), "{bytes}");
        }
        let (_, audit) = audited(|| rounds::<Audited>(true, 2, 1, &Unobserved));
        // Objects in the places, in the queues, and in each thread's batch.
        assert!(
            audit.most_live <= 2 * (LIVE + QUEUE_CAPACITY + BATCH) as u64,
            "{}",
            audit.most_live
        );
    }

    #[test]
    fn every_allocator_gets_the_same_sequence() {
        let sizes = || audited(|| rounds::<Audited>(false, 1, 1, &Unobserved)).1.words_allocated;
        let first = sizes();
        assert_eq!(first, sizes());
        assert!(first.iter().any(|size| *size > 900) && first.contains(&24));
    }

    #[test]
    fn quick_runs_are_shorter_and_no_thread_has_nothing_to_do() {
        for threads in [1, 2, 16, crate::workloads::catalogue::MOST_THREADS] {
            let quick = number_of_rounds(threads, Effort::Quick);
            assert!((1..=number_of_rounds(threads, Effort::Full)).contains(&quick));
        }
    }
}
