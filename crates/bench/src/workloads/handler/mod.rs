//! `handler`: a request to a small web service, whose code is ordinary: `serde_json`, `String`,
//! `Vec`, `HashMap`.
//!
//! It allocates only from the program's global allocator ([`crate::workloads::global`]). In the
//! malloc rows, that is the malloc. In `allotment-pool` it is `PoolGlobalAlloc`, and each thread
//! that serves requests has a pool and enters it for each request.

pub mod service;

use crate::peers::Global;
use crate::workloads::global::Sampling;
use crate::workloads::observer::{Observer, Unobserved};
use crate::workloads::sampled::{self, Samples};
use crate::workloads::task_threads::{self, Run, TaskCounter};
use service::{Shop, bodies, handle};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The number of different requests. They are repeated.
pub const REQUESTS: usize = 64;

/// The shop, the requests to it, and the expected replies.
struct Fixture {
    shop: Shop,
    bodies: Vec<String>,
    replies: Vec<String>,
}

impl Fixture {
    fn new() -> Self {
        let (shop, bodies) = (Shop::stocked(), bodies(REQUESTS));
        let replies = bodies.iter().map(|body| handle(&shop, body)).collect();
        Self { shop, bodies, replies }
    }

    /// Serves the request with this number.
    #[inline(never)]
    fn serve(&self, number: usize) {
        let reply = handle(&self.shop, black_box(&self.bodies[number]));
        assert!(reply == self.replies[number], "the reply is not the expected one");
        drop(black_box(reply));
    }
}

/// Serves `requests` requests on each of `threads` workers.
///
/// # Panics
/// If a reply is not the expected one: the allocator gave out memory that was in use.
pub fn run<G: Global>(threads: usize, requests: u64, observer: &dyn Observer) -> Run<()> {
    let fixture = Fixture::new();
    task_threads::run(
        threads,
        observer,
        |_| (),
        G::start,
        |allocator, (), counter: &mut TaskCounter<'_>| {
            for request in 0..requests {
                allocator.request(|| fixture.serve(request as usize % REQUESTS));
                counter.task_done();
            }
        },
    )
}

/// The part of the workers' time that is spent in the allocator, from 0 to 1. It comes from a
/// separate run that lasts `time`, whose times have no other use. The work of [`Global::request`]
/// around a request counts as the allocator's. `None` if it can't be measured.
pub fn share<G: Global>(name: &str, threads: usize, time: Duration) -> Option<f64> {
    let fixture = Fixture::new();
    let sampling = Sampling::begin::<G>(name);
    let run = task_threads::run(
        threads,
        &Unobserved,
        |_| (),
        G::start,
        |allocator, (), _: &mut TaskCounter<'_>| {
            let began = Instant::now();
            sampled::while_sampling(|| {
                for number in (0..REQUESTS).cycle() {
                    sampled::enter();
                    allocator.request(|| {
                        sampled::leave();
                        fixture.serve(number);
                        sampled::enter();
                    });
                    sampled::leave();
                    if number % 16 == 0 && began.elapsed() >= time {
                        break;
                    }
                }
            })
        },
    );
    drop(sampling);
    run.results.into_iter().fold(Samples::default(), Samples::and).share()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{About, GlobalVisitor};

    struct Serve;

    impl GlobalVisitor for Serve {
        type Output = (u64, Option<f64>);

        fn visit<G: Global>(self, about: &'static About) -> Self::Output {
            let run = run::<G>(2, REQUESTS as u64 + 5, &Unobserved);
            (run.steady.tasks, share::<G>(about.name, 2, Duration::from_millis(200)))
        }
    }

    #[test]
    fn requests_are_served_and_the_allocators_share_is_a_part_of_the_time() {
        let in_use = crate::workloads::global::in_use().expect("the tests' global allocator");
        let (tasks, share) = Serve.with(in_use).unwrap();
        assert_eq!(tasks, 2 * (REQUESTS as u64 + 5 - crate::workloads::WARM_UP));
        assert!(share.is_none_or(|share| share > 0.0 && share < 0.9), "{share:?}");
        assert!(share.is_some() || cfg!(not(all(target_os = "linux", target_env = "gnu"))));
    }
}
