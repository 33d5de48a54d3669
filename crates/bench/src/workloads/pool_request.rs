//! `pool-request-1000` and others: requests that each leave one object behind, in a cache.
//!
//! A request allocates 50 objects with the sizes of [`sizes`]. It puts one of them into the cache,
//! which then drops its oldest object, and frees the others in the order of their allocation. Each
//! thread has a cache of its own. The caches are full before the measured part begins.
//!
//! # Invariants
//!
//! 1. A request frees each of its objects but one. That one is in the cache afterwards.
//! 2. An object leaves the cache once, and is then freed.

use crate::peers::{AnySize, Requests};
use crate::workloads::fixed_size::prepared;
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::sizes;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use std::hint::black_box;
use std::mem;
use std::ptr::NonNull;

/// The number of objects of a request.
const OBJECTS: usize = 50;

/// The number of different requests. They are repeated.
const REQUESTS: usize = 64;

/// The work of one request.
struct Request {
    /// The objects' sizes, in the order of allocation.
    sizes: [u16; OBJECTS],
    /// The object that goes into the cache.
    kept: usize,
}

impl Request {
    fn new(random: &mut Random) -> Self {
        let sizes = [(); OBJECTS].map(|()| sizes::draw(random));
        Self { sizes, kept: random.below(OBJECTS as u32) as usize }
    }

    /// The bytes of all objects.
    fn bytes(&self) -> u64 {
        self.sizes.iter().copied().map(u64::from).sum()
    }
}

/// The requests of a run. Every worker and every allocator gets the same ones.
fn requests() -> Vec<Request> {
    let random = &mut Random::stream(0);
    (0..REQUESTS).map(|_| Request::new(random)).collect()
}

/// The bytes of a full cache with `entries` entries and of the largest request.
pub fn live_bytes(entries: usize) -> u64 {
    let requests = requests();
    let kept = requests.iter().map(|request| u64::from(request.sizes[request.kept]));
    let cached: u64 = kept.cycle().take(entries).sum();
    cached + requests.iter().map(Request::bytes).max().unwrap_or(0)
}

/// An object and its size.
struct Object {
    at: NonNull<u8>,
    size: u16,
}

/// A worker's data.
struct WorkerState {
    requests: Vec<Request>,
    /// The memory of the cache, until the worker's server has it.
    cache: Vec<Object>,
}

/// One worker's server.
struct Server<A: Requests> {
    allocator: A,
    /// What requests have left behind.
    cache: Vec<Object>,
    /// The number of entries of a full cache.
    entries: usize,
    /// The index of the oldest object of a full cache.
    oldest: usize,
}

/// Serves `tasks` requests on each of `threads` workers, each with a cache of `entries` entries.
pub fn run<A: Requests>(
    entries: usize,
    threads: usize,
    tasks: u64,
    observer: &dyn Observer,
) -> Run<()> {
    task_threads::run_warm(
        threads,
        observer,
        |_| WorkerState { requests: requests(), cache: prepared::touched_vec(entries) },
        |state: &mut WorkerState| {
            let cache = mem::take(&mut state.cache);
            let mut server = Server { allocator: A::start(), cache, entries, oldest: 0 };
            for request in state.requests.iter().cycle().take(entries) {
                server.serve(request);
            }
            server
        },
        |server: &mut Server<A>, state, counter: &mut TaskCounter<'_>| {
            for request in state.requests.iter().cycle().take(tasks as usize) {
                server.serve(request);
                counter.task_done();
            }
        },
    )
}

impl<A: Requests> Server<A> {
    #[inline(never)]
    fn serve(&mut self, request: &Request) {
        let Self { allocator, cache, entries, oldest } = self;
        allocator.request(|memory| {
            let objects = allocate(memory, request);
            let kept = Object { at: objects[request.kept], size: request.sizes[request.kept] };
            if cache.len() < *entries {
                cache.push(kept);
            } else {
                let old = mem::replace(&mut cache[*oldest], kept);
                *oldest = if *oldest + 1 == *entries { 0 } else { *oldest + 1 };
                // SAFETY: an earlier request left it in the cache, which no longer has it
                // (invariants 1 and 2).
                unsafe { memory.free_elsewhere(old.at, sizes::layout(old.size)) };
            }
            // SAFETY: the objects were just allocated for this request.
            unsafe { free_others(memory, request, &objects) };
        });
    }
}

impl<A: Requests> Drop for Server<A> {
    fn drop(&mut self) {
        let cache = mem::take(&mut self.cache);
        self.allocator.request(|memory| {
            for object in cache {
                // SAFETY: an earlier request left it in the cache, which no longer has it
                // (invariants 1 and 2).
                unsafe { memory.free_elsewhere(object.at, sizes::layout(object.size)) };
            }
        });
    }
}

/// Allocates the objects of a request and writes the first word of each.
#[inline(always)]
fn allocate<M: AnySize>(memory: &M, request: &Request) -> [NonNull<u8>; OBJECTS] {
    let objects = request.sizes.map(|size| {
        let object = memory.alloc(sizes::layout(size));
        // SAFETY: a fresh object with at least the size and alignment of a word.
        unsafe { object.cast::<u64>().write(u64::from(size)) };
        object
    });
    black_box(objects)
}

/// Frees the objects of a request, except for the one that is kept.
///
/// # Safety
/// They are live objects of `memory`, allocated for this request.
#[inline(always)]
unsafe fn free_others<M: AnySize>(memory: &M, request: &Request, objects: &[NonNull<u8>; OBJECTS]) {
    for (index, (object, size)) in objects.iter().zip(request.sizes).enumerate() {
        if index != request.kept {
            // SAFETY: the caller's promise.
            unsafe { memory.free(*object, sizes::layout(size)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{Audited, audited};

    #[test]
    fn each_object_is_freed_once_and_one_of_each_request_lives_in_the_cache() {
        for (entries, threads) in [(1, 1), (100, 1), (100, 3)] {
            let (run, audit) = audited(|| run::<Audited>(entries, threads, 250, &Unobserved));
            assert_eq!((run.results.len(), run.steady.tasks), (threads, threads as u64 * 250));
            let requests = threads * (entries + 250);
            assert_eq!(audit.allocated, (requests * OBJECTS) as u64);
            assert_eq!(audit.freed, audit.allocated);
            // A full cache, and the objects of one request.
            assert!(audit.most_live <= (threads * (entries + OBJECTS)) as u64);
            assert!(audit.most_live >= (entries + OBJECTS) as u64);
        }
    }

    #[test]
    fn the_oldest_object_leaves_the_cache_first() {
        const ENTRIES: usize = 10;
        let (_, audit) = audited(|| run::<Audited>(ENTRIES, 1, 20, &Unobserved));
        let kept: Vec<u64> = requests()[..ENTRIES]
            .iter()
            .map(|request| u64::from(request.sizes[request.kept]))
            .collect();
        // After the cache is full, the first free of each request is the oldest object's.
        let filled = ENTRIES * (OBJECTS - 1);
        let oldest = audit.words_freed[filled..].iter().step_by(OBJECTS).take(ENTRIES);
        assert!(oldest.copied().eq(kept));
    }

    #[test]
    fn requests_differ_and_are_the_same_each_time() {
        let [one, again] = [requests(), requests()];
        assert!(one.iter().map(|r| (r.sizes, r.kept)).eq(again.iter().map(|r| (r.sizes, r.kept))));
        assert_ne!(one[0].sizes, one[1].sizes);
        // About 110 bytes for each object.
        for request in &one {
            assert!((2_500..10_000).contains(&request.bytes()), "{}", request.bytes());
        }
    }

    #[test]
    fn the_live_bytes_are_those_of_a_full_cache_and_a_request() {
        let (_, audit) = audited(|| run::<Audited>(REQUESTS, 1, 2 * REQUESTS as u64, &Unobserved));
        let said = live_bytes(REQUESTS);
        assert!((said * 9 / 10..=said).contains(&audit.most_live_bytes), "{said}");
    }
}
