//! `mixed` and `mixed-remote`: objects of any size, of which each thread has 10,000; one of them at random is freed, and
//! one of another size takes its place.
//!
//! In `mixed-remote` one in twenty of them is freed by another thread. The threads stand in a ring; each hands such
//! objects to the next one, 32 at a time, by a bounded queue of `rtrb`, and then frees what has come from the one before.
//! A thread whose queue is full frees what it has got meanwhile, so that the ring can't come to a halt.
//!
//! # Invariants
//!
//! 1. Between [`fill`] and [`empty`] each place has a live object of its thread, with the size noted beside it.
//! 2. An object has one place, is in one thread's hand or in one queue, and who takes it out frees it or puts it into another.
//! 3. Every thread's allocator outlives all objects: none of them is dropped before the measured part has ended for
//!    all, and by then each thread has freed all that was handed to it.

use crate::catalogue::Effort;
use crate::crew::{self, Worker};
use crate::fixed_size::Figures;
use crate::random::Random;
use crate::sizes;
use crate::watch::Watch;
use peers::AnySize;
use rtrb::{Consumer, Producer, RingBuffer};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Objects that live at a time, on each thread.
pub const LIVE: usize = 10_000;

/// One object in so many is freed by another thread.
pub const REMOTE: usize = 20;

/// Draws after which a thread begins again: whole handfuls go to others.
const DRAWS: usize = REMOTE * HAND * 128;

/// Objects that a thread hands on together.
const HAND: usize = 32;

/// Objects that are on their way from one thread to the next at most: so many that a thread whose neighbour waits for a
/// processor has work for a turn of its own.
const ROOM: usize = 8192;

/// An object and its size.
#[derive(Clone, Copy)]
struct Object {
    at: NonNull<u8>,
    size: u16,
}

// SAFETY: an address and a number; who frees what is there has it from its owner (invariant 2).
unsafe impl Send for Object {}

/// A place, and the size of the object that comes there.
#[derive(Clone, Copy)]
struct Draw {
    place: u16,
    size: u16,
}

/// What a worker has ready.
struct Seat {
    places: Box<[MaybeUninit<Object>]>,
    /// The sizes of the first objects.
    sizes: Vec<u16>,
    draws: Vec<Draw>,
    /// To the next thread and from the one before.
    ring: Option<(Producer<Object>, Consumer<Object>)>,
}

/// Runs it; `remote` if there are frees by other threads, which takes two threads at least.
pub fn run<A: AnySize>(remote: bool, threads: usize, effort: Effort, watch: &dyn Watch) -> Figures {
    rounds::<A>(remote, threads, number_of_rounds(threads, effort), watch)
}

/// Rounds that each thread does: so many that each of many threads has several turns on its core.
fn number_of_rounds(threads: usize, effort: Effort) -> usize {
    let pairs: usize = if effort.is_quick() { 6_000_000 } else { 30_000_000 };
    let pairs = if threads > 4 { 2 * pairs } else { pairs };
    pairs.div_ceil(threads * DRAWS)
}

fn rounds<A: AnySize>(remote: bool, threads: usize, rounds: usize, watch: &dyn Watch) -> Figures {
    assert!(!remote || threads > 1, "nobody else is there to free anything");
    let ends: Vec<_> = if remote { ring(threads) } else { Vec::new() };
    let results = crew::run(
        threads,
        watch,
        |index| {
            let end = ends.get(index).and_then(|end: &Mutex<Option<_>>| {
                end.lock().unwrap_or_else(PoisonError::into_inner).take()
            });
            Seat::new(index, end)
        },
        |worker: Worker<'_, '_>, mut seat| {
            let own = A::start();
            fill(&own, &mut seat.places, &seat.sizes);
            let work = || match &mut seat.ring {
                None => {
                    for _ in 0..rounds {
                        // SAFETY: just filled.
                        unsafe { replace(&own, &mut seat.places, &seat.draws) };
                    }
                }
                Some((next, last)) => {
                    // SAFETY: just filled; both ends of the queues are at work with objects of `A`.
                    unsafe {
                        replace_in_ring(&own, &mut seat.places, &seat.draws, rounds, next, last)
                    };
                }
            };
            let wall = worker.measured(|| own.within(work));
            // SAFETY: the places are full, and not used after.
            (wall, unsafe { empty(&own, &seat.places) })
        },
    );
    Figures {
        ops: (threads * rounds * DRAWS) as u64,
        wall: results[0].0,
        live_bytes: results.iter().map(|(_, bytes)| bytes).sum(),
        seconds: None,
        walk: None,
    }
}

impl Seat {
    fn new(index: usize, ring: Option<(Producer<Object>, Consumer<Object>)>) -> Self {
        let random = &mut Random::stream(index as u64);
        let mut places = Box::new_uninit_slice(LIVE);
        // Without this the compiler asks for memory that is zero already, and touches none of it.
        black_box(&mut places);
        places.fill(MaybeUninit::zeroed());
        black_box(&mut places);
        let sizes = (0..LIVE).map(|_| sizes::draw(random)).collect();
        let draw = |_| Draw { place: random.below(LIVE as u32) as u16, size: sizes::draw(random) };
        Self { places, sizes, draws: (0..DRAWS).map(draw).collect(), ring }
    }
}

type End = Mutex<Option<(Producer<Object>, Consumer<Object>)>>;

/// Queues from each thread to the next one, every slot of which has been used once. Thread by thread: the end to put in,
/// and the end of the queue from the thread before.
fn ring(threads: usize) -> Vec<End> {
    let (mut into, mut from): (Vec<_>, Vec<_>) = (0..threads)
        .map(|_| {
            let (mut into, mut from) = RingBuffer::new(ROOM);
            while into.push(Object { at: NonNull::dangling(), size: 0 }).is_ok() {}
            while from.pop().is_ok() {}
            (into, from)
        })
        .unzip();
    from.rotate_right(1);
    into.drain(..).zip(from).map(|ends| Mutex::new(Some(ends))).collect()
}

/// A new object whose first word is written.
#[inline(always)]
fn new<A: AnySize>(own: &A, size: u16) -> Object {
    let at = own.alloc(sizes::layout(size));
    // SAFETY: a fresh object of a word at least, aligned to one.
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

/// Frees the object of each place and says how many bytes they were.
///
/// # Safety
/// Each place has a live object of `own`'s.
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

/// Replaces the object of each place drawn.
///
/// # Safety
/// Each place has a live object of `own`'s.
#[inline(never)]
unsafe fn replace<A: AnySize>(own: &A, places: &mut [MaybeUninit<Object>], draws: &[Draw]) {
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

/// The same so many times over, where one object in [`REMOTE`] goes to the next thread and those of the thread before
/// are freed.
///
/// # Safety
/// As for [`replace`]; `last` brings live objects of another thread's allocator of the same type, which nobody else
/// frees, and as many as go to `next`.
#[inline(never)]
unsafe fn replace_in_ring<A: AnySize>(
    own: &A,
    places: &mut [MaybeUninit<Object>],
    draws: &[Draw],
    rounds: usize,
    next: &mut Producer<Object>,
    last: &mut Consumer<Object>,
) {
    let mut expected = rounds * (draws.len() / REMOTE);
    let mut hand = [Object { at: NonNull::dangling(), size: 0 }; HAND];
    let mut held = 0;
    for draws in (0..rounds).flat_map(|_| draws.chunks_exact(REMOTE)) {
        let [draw, others @ ..] = draws else { unreachable!("a chunk has some draws") };
        let place = &mut places[usize::from(draw.place)];
        // SAFETY: the caller's promise.
        hand[held] = unsafe { place.assume_init() };
        place.write(new(own, draw.size));
        held += 1;
        while held == HAND {
            if next.push_entire_slice(&hand).is_ok() {
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

/// Frees what has come from another thread; returns how many objects that were.
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
    use crate::testing::{Audited, audited};
    use crate::watch::Unwatched;

    #[test]
    fn each_operation_is_one_allocation_and_one_free_and_nothing_is_left() {
        for (remote, threads) in [(false, 1), (false, 3), (true, 2), (true, 3)] {
            let (figures, audit) = audited(|| rounds::<Audited>(remote, threads, 1, &Unwatched));
            assert_eq!(figures.ops, (threads * DRAWS) as u64);
            assert_eq!(audit.allocated, figures.ops + (threads * LIVE) as u64);
            assert_eq!(audit.freed, audit.allocated);
            let handed = if remote { figures.ops / REMOTE as u64 } else { 0 };
            assert_eq!(audit.freed_elsewhere, handed);
        }
    }

    #[test]
    fn no_more_objects_live_than_there_are_places_and_room_between_threads() {
        let (figures, audit) = audited(|| rounds::<Audited>(false, 1, 1, &Unwatched));
        assert_eq!(audit.most_live, LIVE as u64);
        // About 110 bytes each, whenever one looks.
        for bytes in [figures.live_bytes, audit.most_live_bytes] {
            assert!((1_000_000..1_250_000).contains(&bytes), "{bytes}");
        }
        let (_, audit) = audited(|| rounds::<Audited>(true, 2, 1, &Unwatched));
        // In the places, in the queues, and in each thread's hand.
        assert!(audit.most_live <= 2 * (LIVE + ROOM + HAND) as u64, "{}", audit.most_live);
    }

    #[test]
    fn every_allocator_gets_the_same_sequence() {
        let sizes = || audited(|| rounds::<Audited>(false, 1, 1, &Unwatched)).1.words_allocated;
        let first = sizes();
        assert_eq!(first, sizes());
        assert!(first.iter().any(|size| *size > 900) && first.contains(&24));
    }

    #[test]
    fn quick_runs_are_shorter_and_no_thread_has_nothing_to_do() {
        for threads in [1, 2, 16, crate::catalogue::MOST_THREADS] {
            let quick = number_of_rounds(threads, Effort::Quick);
            assert!((1..=number_of_rounds(threads, Effort::Full)).contains(&quick));
        }
    }
}
