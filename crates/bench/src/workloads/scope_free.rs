//! `scope-free-1000` and `scope-free-10000000`: objects that are freed one by one inside an arena's
//! scope. The time of a free must not grow with the number of objects in the scope.
//!
//! Only the frees are timed, so the first touch of the memory does not count.

use crate::peers::{SCOPED, Scopes};
use crate::workloads::measurement::{LIVE_BYTES, Measurement};
use crate::workloads::objects::touched;
use crate::workloads::observer::Observer;
use crate::workloads::thread_group;
use std::time::Duration;

/// Objects of each thread, over all of its scopes.
pub const OBJECTS: usize = 10_000_000;

/// Runs scopes of `in_scope` objects on each of `threads` workers, until each has had `objects`.
pub fn run<S: Scopes>(
    in_scope: usize,
    objects: usize,
    threads: usize,
    observer: &dyn Observer,
) -> Measurement {
    let scopes = objects / in_scope;
    let times = thread_group::run(
        threads,
        observer,
        |_| touched(in_scope),
        |worker, mut places| {
            let mut arena = S::start();
            // The first scope takes the memory.
            arena.scope(&mut places);
            let mut freeing = Duration::ZERO;
            worker.measured(|| {
                freeing = (0..scopes).map(|_| arena.scope(&mut places)).sum();
            });
            freeing
        },
    );
    let slowest = times.into_iter().max().unwrap_or_default();
    Measurement::timed((threads * scopes * in_scope) as u64, slowest)
        .with(&LIVE_BYTES, (threads * in_scope * SCOPED.size()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_scope_has_its_number_of_objects_and_the_slowest_thread_counts() {
        static SCOPES: AtomicUsize = AtomicUsize::new(0);
        struct Counting;
        impl Scopes for Counting {
            fn start() -> Self {
                Self
            }
            fn scope(&mut self, places: &mut [NonNull<u8>]) -> Duration {
                SCOPES.fetch_add(1, Ordering::Relaxed);
                Duration::from_nanos(places.len() as u64)
            }
        }
        let figures = run::<Counting>(100, 1_000, 2, &Unobserved);
        assert_eq!(SCOPES.load(Ordering::Relaxed), 2 * (10 + 1));
        assert_eq!((figures.ops(), figures.live_bytes()), (2_000, 2 * 100 * 16));
        let ns = figures.get(&crate::workloads::measurement::NS_PER_OP);
        assert_eq!(ns, Some(0.5), "a nanosecond for each of a thread's objects, on two threads");
    }
}
