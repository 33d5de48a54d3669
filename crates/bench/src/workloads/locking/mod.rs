//! `categories`: a request to the server of *Locking Categories*, which uses the session list, the
//! configuration and a reply.
//!
//! It looks up its session, reads title, URL, links and footer from the configuration, and renders
//! a page of about 3 KiB. Meanwhile it makes 57 short texts. In the servers with locks everywhere,
//! every use of an object takes a lock. With locking categories, only the session list has a lock.
//!
//! The files, lowest first; each imports only from files above it:
//!
//! | file | holds |
//! |---|---|
//! | `locks` | counts of the locks that a request takes |
//! | `sessions` | the list of sessions |
//! | `server` | what a server is: requests, the configuration, shared objects |
//! | `page` | the page that a request asks for |
//! | `servers` | servers whose objects are shared in several ways |

mod locks;
mod page;
mod server;
mod servers;
mod sessions;

use crate::peers::{About, Allocator, TaskVisitor};
use crate::workloads::measurement::{LOCKS_PER_OP, Measurement};
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::run_error::RunError;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use crate::workloads::variant::Variant;
use crate::workloads::workload::RunSpec;
use locks::Tally;
use server::{Request, Server};
use servers::{ByCategory, Locked, OnTheHeap};
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::{Mutex, RwLock};

use locks::locks_per_request;
pub use locks::{ALL_LOCKS, guarded};

/// The row with which ratios compare.
pub const OWN: &str = "allotment-categories";

/// The allocator of the locked servers' texts.
const HEAP: &str = if cfg!(target_env = "gnu") { "glibc" } else { "libc" };
const HEAPS_POLICY: &str = "the C library's defaults";

pub(crate) static VARIANTS: [Variant; 4] = [
    Variant::ours(
        OWN,
        "one mutex, for the session list; configuration Sealed, reply in an Arena",
        "adaptive: chunks stay warm for later requests of any thread",
        |spec, observer| run::<ByCategory>("allotment-arena", spec, observer),
    ),
    Variant::peer(
        "all-mutex",
        "session list, configuration, reply buffers and heap, each under a mutex",
        HEAPS_POLICY,
        |spec, observer| run::<Locked<Mutex<OnTheHeap>, true>>(HEAP, spec, observer),
    ),
    Variant::peer(
        "all-mutex-malloc",
        "all-mutex without the mutex around the C library's malloc",
        HEAPS_POLICY,
        |spec, observer| run::<Locked<Mutex<OnTheHeap>, false>>(HEAP, spec, observer),
    ),
    Variant::peer(
        "rwlock-configuration",
        "all-mutex with the configuration under a read-write lock",
        HEAPS_POLICY,
        |spec, observer| run::<Locked<RwLock<OnTheHeap>, true>>(HEAP, spec, observer),
    ),
];

/// The number of users of the server.
const USERS: u32 = 1024;

/// The number of different requests of a worker. They are repeated.
const REQUESTS: usize = 4096;

fn run<S: Server>(
    allocator: &str,
    spec: &RunSpec,
    observer: &dyn Observer,
) -> Result<Measurement, RunError> {
    let serve = Serve::<S> { spec, observer, server: PhantomData };
    let run = serve.with(allocator)?;
    let threads = spec.setting.threads as u64;
    let tasks = spec.tasks() * threads;
    let mut measurement = Measurement::timed(tasks, run.wall).with_tasks(tasks, run.steady);
    for (label, locks) in locks_per_request(run.results, tasks) {
        measurement.set_label(&LOCKS_PER_OP, label, locks);
    }
    Ok(measurement)
}

/// The server, with an allocator for the objects of a request.
struct Serve<'l, S> {
    spec: &'l RunSpec,
    observer: &'l dyn Observer,
    server: PhantomData<S>,
}

impl<S: Server> TaskVisitor for Serve<'_, S> {
    type Output = Run<[u64; 4]>;

    fn visit<A: Allocator>(self, _: &'static About) -> Self::Output {
        let threads = self.spec.setting.threads;
        let requests = self.spec.tasks();
        let server = S::new();
        task_threads::run(
            threads,
            self.observer,
            requests_of,
            A::start,
            |allocator, state: &mut Vec<Request>, counter: &mut TaskCounter<'_>| {
                let tally = Tally::default();
                for request in state.iter().cycle().take(requests as usize) {
                    server.serve(allocator.begin(), *request, &tally, |reply| {
                        black_box(reply);
                    });
                    counter.task_done();
                }
                tally.counts()
            },
        )
    }
}

fn requests_of(worker: usize) -> Vec<Request> {
    let mut random = Random::stream(worker as u64);
    (0..REQUESTS)
        .map(|_| Request { user: random.below(USERS), page: random.below(10_000) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::measurement::QUERIES;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::setting::Effort;
    use crate::workloads::testing::{FreedTogether, System};
    use crate::workloads::workload::Workload;

    fn pages<S: Server, A: Allocator>() -> (Vec<String>, [u64; 4]) {
        let (server, tally) = (S::new(), Tally::default());
        let mut allocator = A::start();
        let mut pages = Vec::new();
        for request in &requests_of(0)[..50] {
            server.serve(allocator.begin(), *request, &tally, |reply| {
                pages.push(String::from_utf8(reply.to_vec()).unwrap());
            });
        }
        (pages, tally.counts())
    }

    #[test]
    fn every_variant_renders_the_same_pages() {
        let (expected, locks) = pages::<ByCategory, FreedTogether>();
        assert_eq!(locks, [50, 0, 0, 0], "the session list alone");
        for page in &expected {
            assert!((2_048..=page::REPLY_CAPACITY).contains(&page.len()), "{}", page.len());
            assert!(page.contains(page::URL) && page.contains("Welcome, user "));
        }
        let (locked, locks) = pages::<Locked<Mutex<OnTheHeap>, true>, System>();
        assert_eq!(locked, expected);
        assert_eq!(locks[..3], [50, 50 * 19, 50 * 2]);
        assert!(locks[3] >= 50 * 2 * 57, "{locks:?}");
        let (locked, locks) = pages::<Locked<Mutex<OnTheHeap>, false>, System>();
        assert_eq!((locked == expected, locks[3]), (true, 0));
        assert_eq!(pages::<Locked<RwLock<OnTheHeap>, true>, System>().0, expected);
    }

    #[test]
    fn a_run_tells_the_locks_of_each_request() {
        let workload = Workload::named("categories").unwrap();
        let spec = RunSpec { workload, setting: workload.setting(2), effort: Effort::Quick };
        let locks = |variant: &str| {
            let outcome = spec.measure(variant, &Unobserved).unwrap();
            assert_eq!(outcome.count(&QUERIES), outcome.ops());
            guarded().map(|label| (label, outcome.get_label(&LOCKS_PER_OP, label).unwrap()))
        };
        let own = locks(OWN);
        assert_eq!(own[0], ("session_list", 1.0));
        assert!(own[1..].iter().all(|(_, count)| *count == 0.0), "{own:?}");
        assert_eq!(locks("all-mutex")[1], ("configuration", 19.0));
    }
}
