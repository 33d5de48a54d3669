//! The life cycle: initialise, run, stop, initialise again. What each request can use, and what may
//! outlive it.

#[allow(dead_code, reason = "the library's tests use the rest of it")]
#[path = "../../allotment/tests/support/child.rs"]
mod child;

use core::sync::atomic::{AtomicUsize, Ordering};
use std::fmt::Write;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use allotment::{
    Arena, ArenaString, Budget, ErrorKind, LocalPool, PoolRef, PoolString, RwShared, Sealed,
};
use allotment_server::{
    ArenaBytes, Initialiser, Outcome, RefusalReason, RequestContext, Running, Shared, StartCause,
};
use child::Child;

const FOR_EVER: Duration = Duration::MAX;

/// A value that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn allocators_named(start: &str) -> Vec<(String, &'static str, u64)> {
    let allocators = allotment::report().allocators.into_iter();
    let mut named: Vec<_> = allocators
        .filter(|allocator| allocator.name.starts_with(start))
        .map(|allocator| (allocator.name, allocator.kind, allocator.statistics.held_bytes))
        .collect();
    named.sort_unstable();
    named
}

#[test]
fn a_request_reads_what_is_sealed_locks_what_is_shared_and_has_memory_of_its_own() {
    let url = Sealed::<&'static str>::new(|sealer| sealer.alloc_str("http://example.org"));
    let initialised =
        Initialiser::new("paper").workers(3).objects(url, Shared::new(Vec::<u32>::new()));
    let running = initialised
        .start(|context, user: u32| {
            let sessions = context.shared().with(|sessions: &mut Vec<u32>| {
                sessions.push(user);
                sessions.len()
            });
            let mut reply = ArenaString::new_in(context.arena());
            write!(reply, "{}/{user}", context.read_only().get()).unwrap();
            assert!(sessions >= 1);
            assert_eq!(context.pool(), allotment::pool::current());
            assert_ne!(context.pool(), PoolRef::GLOBAL);
            assert!(context.worker() < 3);
            assert_eq!(context.worker_name(), format!("paper-{}", context.worker()));
            assert_eq!(std::thread::current().name(), Some(context.worker_name()));
            reply.to_string()
        })
        .unwrap();
    let tickets: Vec<_> = (0..100).map(|user| running.submit(user).unwrap()).collect();
    for (user, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.number(), user as u64 + 1);
        assert_eq!(ticket.wait(), Outcome::Done(format!("http://example.org/{user}")));
    }
    let stopped = running.stop(FOR_EVER).unwrap();
    let counts = stopped.counts();
    assert_eq!((counts.accepted, counts.done, counts.panicked, counts.dropped), (100, 100, 0, 0));
    let mut users = stopped.into_shared().unwrap().into_inner();
    users.sort_unstable();
    assert_eq!(users, (0..100).collect::<Vec<_>>());
}

#[test]
fn each_worker_has_its_pool_and_its_arena_before_the_first_request() {
    let initialised = Initialiser::new("eager")
        .workers(3)
        .pool(|worker| LocalPool::builder().name(worker).reserved(300 << 10))
        .arena(|worker| Arena::builder().name(worker).hint(200 << 10))
        .objects((), ());
    assert_eq!(allocators_named("eager"), []);
    let running = initialised.start(|_, ()| ()).unwrap();
    let held = allocators_named("eager");
    let names: Vec<_> = held.iter().map(|(name, kind, _)| (&**name, *kind)).collect();
    let expected = ["eager-0", "eager-1", "eager-2"];
    assert_eq!(names, expected.map(|name| [(name, "arena"), (name, "pool")]).concat());
    for (name, kind, held) in held {
        assert!(
            held >= if kind == "pool" { 300 << 10 } else { 200 << 10 },
            "{name} {kind}: {held}"
        );
    }
    running.stop(FOR_EVER).unwrap();
    assert_eq!(allocators_named("eager"), []);
}

#[test]
fn arena_and_pool_are_empty_when_a_request_begins_and_take_nothing_from_the_system_later() {
    let initialised = Initialiser::new("steady")
        .workers(1)
        .pool(|worker| LocalPool::builder().name(worker).reserved(1 << 20))
        .arena(|worker| Arena::builder().name(worker).hint(1 << 20))
        .objects((), ());
    let running = initialised
        .start(|context: &mut RequestContext<'_, (), ()>, ()| {
            let before = context.arena().statistics();
            assert_eq!((before.live_objects, before.live_bytes), (0, 0));
            for _ in 0..1000 {
                context.arena().alloc_str("text in the arena");
                let in_pool = PoolString::from("text in the pool");
                assert_eq!(in_pool.pool(), context.pool());
            }
            context.arena().statistics().source_calls
        })
        .unwrap();
    let calls: Vec<_> =
        (0..100).map(|_| running.submit(()).unwrap().wait().done().unwrap()).collect();
    assert!(calls.iter().all(|call| *call == calls[0]), "{calls:?}");
}

#[test]
fn what_a_request_made_in_its_pool_may_outlive_it_and_the_server() {
    let running = Initialiser::new("escape")
        .workers(2)
        .objects((), Shared::new(Vec::<PoolString>::new()))
        .start(|context, text: &'static str| {
            let kept = PoolString::from(text);
            assert_eq!(kept.pool(), context.pool());
            context.shared().with(|all: &mut Vec<_>| all.push(kept));
            PoolString::from("the reply")
        })
        .unwrap();
    let replies: Vec<_> = ["one", "two", "three", "four"]
        .map(|text| running.submit(text).unwrap())
        .map(|ticket| ticket.wait().done().unwrap())
        .into();
    let kept = running.stop(FOR_EVER).unwrap().into_shared().unwrap().into_inner();
    assert!(replies.iter().all(|reply| &**reply == "the reply"));
    let mut kept: Vec<&str> = kept.iter().map(|text| &**text).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["four", "one", "three", "two"]);
}

#[test]
fn a_reply_may_keep_the_requests_arena_and_the_next_request_gets_another() {
    let running = Initialiser::new("keep")
        .workers(1)
        .objects(Sealed::<&'static str>::new(|sealer| sealer.alloc_str("reply")), ())
        .start(|context: &mut RequestContext<'_, Sealed<&'static str>, ()>, number: usize| {
            assert_eq!(context.arena().statistics().live_objects, 0);
            context.arena().alloc_str("work before the reply");
            let word = context.read_only().get();
            ArenaBytes::new(context.take_arena(), |arena| {
                let mut text = ArenaString::new_in(arena);
                write!(text, "{word} {number} ").unwrap();
                text.push_str(&"x".repeat(number * 1000));
                text.into_str().as_bytes()
            })
        })
        .unwrap();
    let replies: Vec<_> =
        (0..20).map(|n| running.submit(n).unwrap().wait().done().unwrap()).collect();
    running.stop(FOR_EVER).unwrap();
    for (number, reply) in replies.iter().enumerate() {
        let expected = format!("reply {number} {}", "x".repeat(number * 1000));
        assert_eq!(&**reply, expected.as_bytes());
    }
}

#[test]
fn a_request_that_takes_its_arena_twice_gets_two() {
    let running = Initialiser::new("twice")
        .workers(1)
        .objects((), ())
        .start(|context: &mut RequestContext<'_, (), ()>, ()| {
            let first = context.take_arena();
            first.alloc_str("first");
            let second = context.take_arena();
            second.alloc_str("second");
            context.arena().alloc_str("third");
            [first, second].map(|arena| arena.statistics().live_objects)
        })
        .unwrap();
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done([1, 1]));
}

#[test]
fn an_arena_whose_first_chunk_the_budget_refuses_is_empty_and_refuses_with_an_error() {
    let budget = Budget::new(64 << 10);
    let ours = budget.clone();
    let running = Initialiser::new("tight")
        .workers(1)
        .arena(move |worker| Arena::builder().name(worker).hint(32 << 10).budget(&ours))
        .objects((), ())
        .start(|context: &mut RequestContext<'_, (), ()>, kept: bool| {
            let room = context.arena().try_alloc_str(&"x".repeat(16 << 10)).map(|_| ());
            (room, kept.then(|| context.take_arena()))
        })
        .unwrap();
    let ask = |kept| running.submit(kept).unwrap().wait().done().unwrap();
    let mut kept = Vec::new();
    let refused = loop {
        let (room, arena) = ask(true);
        kept.push(arena);
        match room {
            Ok(()) => assert!(kept.len() < 10),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::BudgetExceeded);
    drop(kept);
    ask(true).0.expect("the budget has room again");
}

#[test]
fn a_published_generation_is_for_the_next_request_and_a_running_one_keeps_its_own() {
    let (entered, wait_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Shared::new(released);
    let running = Initialiser::new("publish")
        .workers(2)
        .objects(Sealed::<u32>::new(|_| 1), released)
        .start(
            move |context: &mut RequestContext<'_, Sealed<u32>, Shared<mpsc::Receiver<()>>>,
                  stay| {
                let at_first = *context.read_only().get();
                if stay {
                    entered.send(()).unwrap();
                    context.shared().with(|released| released.recv().unwrap());
                }
                (at_first, *context.read_only().get(), context.generation())
            },
        )
        .unwrap();
    let slow = running.submit(true).unwrap();
    wait_entered.recv().unwrap();
    assert_eq!(running.publish(Sealed::new(|_| 2)), 2);
    assert_eq!(running.submit(false).unwrap().wait(), Outcome::Done((2, 2, 2)));
    release.send(()).unwrap();
    assert_eq!(slow.wait(), Outcome::Done((1, 1, 1)));
    assert_eq!((running.generation(), *running.read_only().get()), (2, 2));
}

#[test]
fn an_almost_read_only_object_is_replaced_under_a_read_write_lock() {
    let running = Initialiser::new("rw")
        .workers(2)
        .objects(RwShared::<u32>::new(|_| 1), ())
        .start(|context: &mut RequestContext<'_, RwShared<u32>, ()>, ()| {
            *context.read_only().read().get()
        })
        .unwrap();
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done(1));
    running.read_only().replace(|_| 2);
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done(2));
}

fn number(context: &mut RequestContext<'_, Sealed<u32>, Shared<u32>>, (): ()) -> (u32, u32) {
    let shared = context.shared().with(|count| {
        *count += 1;
        *count
    });
    (*context.read_only().get(), shared)
}

#[test]
fn a_stopped_server_is_initialised_again_with_the_same_or_other_objects_or_all_anew() {
    let sealed = |value: u32| Sealed::<u32>::new(move |_| value);
    let ask = |running: &Running<_, _, (), _>| running.submit(()).unwrap().wait();
    let running =
        Initialiser::new("again").workers(2).objects(sealed(1), Shared::new(0)).start(number);
    let running = running.unwrap();
    assert_eq!(ask(&running), Outcome::Done((1, 1)));
    running.publish(sealed(5));

    let running = running.stop(FOR_EVER).unwrap().unchanged().start(number).unwrap();
    assert_eq!(ask(&running), Outcome::Done((5, 2)));
    let running = running.stop(FOR_EVER).unwrap().with_read_only(sealed(7)).start(number).unwrap();
    assert_eq!(ask(&running), Outcome::Done((7, 3)));
    let again = running.stop(FOR_EVER).unwrap().reinitialise();
    let running = again.objects(sealed(9), Shared::new(0)).start(number).unwrap();
    assert_eq!(ask(&running), Outcome::Done((9, 1)));
}

#[test]
fn dropping_a_running_server_ends_its_workers_and_drops_its_objects() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (in_shared, in_handler) = (Counted(Arc::clone(&dropped)), Counted(Arc::clone(&dropped)));
    let running = Initialiser::new("dropped")
        .workers(4)
        .objects((), in_shared)
        .start(move |_, ()| _ = &in_handler)
        .unwrap();
    let handle = running.handle();
    running.submit(()).unwrap().wait().done().unwrap();
    drop(running);
    assert_eq!(handle.workers(), []);
    assert_eq!(handle.submit(()).unwrap_err().reason, RefusalReason::Stopping);
    assert!(handle.is_stopping());
    drop(handle);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert_eq!(allocators_named("dropped"), []);
}

#[test]
fn no_workers_and_a_name_with_a_nul_byte_are_refused() {
    let start = |initialiser: Initialiser| {
        initialiser.objects((), ()).start(|_: &mut RequestContext<'_, (), ()>, ()| ()).unwrap_err()
    };
    let error = start(Initialiser::new("empty").workers(0));
    assert!(matches!(error.cause, StartCause::NoWorkers), "{error}");
    let error = start(Initialiser::new("a\0b"));
    assert!(matches!(error.cause, StartCause::BadName), "{error}");
    let error = start(Initialiser::new("n".repeat(64)).workers(1));
    assert!(
        matches!(&error.cause, StartCause::Memory(error) if error.kind() == ErrorKind::NameTooLong),
        "{error}"
    );
}

#[test]
fn workers_that_the_budget_has_no_memory_for_stop_those_that_started() {
    let budget = Budget::new(900 << 10);
    let dropped = Arc::new(AtomicUsize::new(0));
    let (in_shared, in_handler) = (Counted(Arc::clone(&dropped)), Counted(Arc::clone(&dropped)));
    let ours = budget.clone();
    let error = Initialiser::new("half")
        .workers(16)
        .arena(move |worker| Arena::builder().name(worker).hint(256 << 10).budget(&ours))
        .objects((), in_shared)
        .start(move |_, ()| _ = &in_handler)
        .unwrap_err();
    let StartCause::Memory(cause) = &error.cause else { panic!("{error}") };
    assert_eq!(cause.kind(), ErrorKind::BudgetExceeded);
    assert!(error.worker.starts_with("half-"), "{error}");
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert_eq!((budget.used(), allocators_named("half")), (0, Vec::new()));
}

#[test]
fn a_closure_that_makes_memory_and_panics_fails_the_start() {
    let error = Initialiser::new("broken")
        .workers(4)
        .pool(|worker| match worker {
            "broken-2" => panic!("no pool for you"),
            _ => LocalPool::builder(),
        })
        .objects((), ())
        .start(|_: &mut RequestContext<'_, (), ()>, ()| ())
        .unwrap_err();
    assert_eq!(&*error.worker, "broken-2");
    assert!(matches!(&error.cause, StartCause::Panicked(message) if message == "no pool for you"));
}

/// Runs in a child with a limited address space, where each thread asks for a stack of 1 GiB.
#[test]
fn a_thread_that_the_system_refuses_half_way_stops_those_that_started() {
    let test = "a_thread_that_the_system_refuses_half_way_stops_those_that_started";
    if !child::is("threads") {
        if std::env::var_os("ALLOTMENT_EXPECT_TOOL").is_some() {
            return;
        }
        let child = Child::new(test, "threads").limit_addresses(8 << 30);
        child.env("RUST_MIN_STACK", &(1 << 30).to_string()).succeeds();
        return;
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let (in_shared, in_handler) = (Counted(Arc::clone(&dropped)), Counted(Arc::clone(&dropped)));
    let error = Initialiser::new("refused")
        .workers(64)
        .objects((), in_shared)
        .start(move |_, ()| _ = &in_handler)
        .unwrap_err();
    assert!(matches!(error.cause, StartCause::Thread(_)), "{error}");
    assert_ne!(&*error.worker, "refused-0", "some had started");
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    assert_eq!(allocators_named("refused"), []);
    // The address space suffices for one again.
    let one = Initialiser::new("one").workers(1).objects((), ());
    let running = one.start(|_: &mut RequestContext<'_, (), ()>, ()| 7).unwrap();
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done(7));
}

#[test]
fn all_workers_work_at_once() {
    let meet = Arc::new(Barrier::new(16));
    let running = Initialiser::new("meet")
        .workers(16)
        .objects((), ())
        .start(move |_, ()| meet.wait().is_leader())
        .unwrap();
    let tickets: Vec<_> = (0..16).map(|_| running.submit(()).unwrap()).collect();
    let leaders = tickets.into_iter().map(|ticket| ticket.wait().done().unwrap());
    assert_eq!(leaders.filter(|leader| *leader).count(), 1);
}

#[test]
fn what_crosses_threads_is_send_and_sync() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<Initialiser>();
    both::<Running<(), (), u8, u8>>();
    both::<allotment_server::ServerHandle<(), (), u8, u8>>();
    both::<allotment_server::StopTimedOut<(), (), u8, u8>>();
    both::<ArenaBytes>();
    send::<allotment_server::Ticket<u8>>();
}
