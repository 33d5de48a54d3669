//! Panics of the user's code: handlers, replies, callbacks, drops, factories. Each ends the call
//! that panicked, and no worker.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use allotment::{Arena, Budget, LocalPool, PoolString};
use allotment_server::{
    Configuration, Initialiser, ObjectFactories, Outcome, ReadOnlyShared, RequestContext, Running,
    Section, Shared,
};

const FOR_EVER: Duration = Duration::MAX;

/// A value that counts its drops, and whose drop panics if it is armed.
struct Bomb {
    armed: bool,
    drops: Arc<AtomicUsize>,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.armed, "a drop that panics");
    }
}

struct Drops(Arc<AtomicUsize>);

impl Drops {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn bomb(&self) -> Bomb {
        Bomb { armed: true, drops: Arc::clone(&self.0) }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn start<Q: Send + 'static, A: Send + 'static>(
    name: &str,
    handler: impl Fn(&mut RequestContext<'_, (), ()>, Q) -> A + Send + Sync + 'static,
) -> Running<(), (), Q, A> {
    Initialiser::new(name).workers(1).objects((), ()).start(handler).unwrap()
}

/// Asserts that the server's one worker has not ended.
fn assert_worker_runs<Q, A>(running: &Running<(), (), Q, A>) {
    assert_eq!(running.workers().len(), 1);
}

#[test]
fn a_panic_ends_its_request_and_the_same_worker_goes_on() {
    let running = start("panic", |_, how: u32| match how {
        0 => panic!("a text"),
        1 => panic!("a text with the number {how}"),
        2 => panic_any(17),
        _ => thread::current().id(),
    });
    let thread = running.submit(9).unwrap().wait().done().unwrap();
    for (how, expected) in
        [(0, "a text"), (1, "a text with the number 1"), (2, "a panic that carries no text")]
    {
        let Outcome::Panicked(panicked) = running.submit(how).unwrap().wait() else {
            panic!("no panic")
        };
        assert_eq!((&*panicked.message, &*panicked.worker), (expected, "panic-0"));
        assert_eq!(panicked.request, u64::from(how) + 2);
    }
    assert_eq!(running.submit(9).unwrap().wait(), Outcome::Done(thread));
    let counts = running.stop(FOR_EVER).unwrap().counts();
    assert_eq!((counts.accepted, counts.done, counts.panicked), (5, 2, 3));
}

#[test]
fn after_a_panic_pool_and_arena_are_others() {
    let running = start("anew", |context, panics: Option<mpsc::Sender<_>>| {
        let pool = context.pool();
        context.arena().alloc_str("left by a panic");
        let in_pool = PoolString::from("unwound");
        if let Some(sender) = panics {
            sender.send(pool).unwrap();
            panic!("with {in_pool} in the pool");
        }
        (pool, context.arena().statistics().live_objects)
    });
    let (sender, receiver) = mpsc::channel();
    let first = running.submit(None).unwrap().wait().done().unwrap();
    assert!(matches!(running.submit(Some(sender)).unwrap().wait(), Outcome::Panicked(_)));
    let before = receiver.recv().unwrap();
    let after = running.submit(None).unwrap().wait().done().unwrap();
    assert_eq!((first, before), ((before, 1), first.0), "one pool until the panic");
    assert_ne!(after.0, before);
    assert_eq!(after.1, 1);
    for _ in 0..50 {
        let (sender, _receiver) = mpsc::channel();
        assert!(matches!(running.submit(Some(sender)).unwrap().wait(), Outcome::Panicked(_)));
    }
    running.submit(None).unwrap().wait().done().unwrap();
    let allocators = allotment::report().allocators.into_iter();
    let mut kinds: Vec<_> =
        allocators.filter(|one| one.name == "anew-0").map(|one| one.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["arena", "pool"], "the ones before are gone");
}

#[test]
fn a_panic_with_the_budget_used_up_leaves_a_worker_with_a_smaller_pool() {
    let budget = Budget::new(1 << 20);
    let ours = budget.clone();
    let running = Initialiser::new("smaller")
        .workers(1)
        .pool(move |worker| LocalPool::builder().name(worker).reserved(768 << 10).budget(&ours))
        .objects((), ())
        .start(|_: &mut RequestContext<'_, (), ()>, panics: bool| {
            assert!(!panics);
            PoolString::from("of the new pool").len()
        })
        .unwrap();
    assert!(budget.used() > 512 << 10, "a second one does not fit");
    assert!(matches!(running.submit(true).unwrap().wait(), Outcome::Panicked(_)));
    assert_eq!(running.submit(false).unwrap().wait(), Outcome::Done(15));
    assert!(budget.used() < 512 << 10);
    drop(running);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_payload_whose_own_drop_panics_ends_no_worker() {
    let drops = Drops::new();
    let running = start("payload", |_, bomb: Option<Bomb>| {
        if let Some(bomb) = bomb {
            panic_any(bomb);
        }
        7
    });
    assert!(matches!(running.submit(Some(drops.bomb())).unwrap().wait(), Outcome::Panicked(_)));
    assert_eq!(running.submit(None).unwrap().wait(), Outcome::Done(7));
    assert_eq!(drops.count(), 1);
    assert_worker_runs(&running);
}

#[test]
fn a_request_whose_drop_panics_is_a_panic_of_the_handler() {
    let drops = Drops::new();
    let running = start("request", |_, bomb: Option<Bomb>| bomb.is_some());
    let Outcome::Panicked(panicked) = running.submit(Some(drops.bomb())).unwrap().wait() else {
        panic!("no panic")
    };
    assert_eq!(panicked.message, "a drop that panics");
    assert_eq!(running.submit(None).unwrap().wait(), Outcome::Done(false));
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_reply_that_nobody_waits_for_and_whose_drop_panics_ends_no_worker() {
    let drops = Drops::new();
    let running = start("reply", |_, request: Option<(Bomb, mpsc::Receiver<()>)>| {
        request.map(|(bomb, released)| {
            released.recv().unwrap();
            bomb
        })
    });
    let (release, released) = mpsc::channel();
    drop(running.submit(Some((drops.bomb(), released))).unwrap());
    release.send(()).unwrap();
    assert!(matches!(running.submit(None).unwrap().wait(), Outcome::Done(None)));
    assert_eq!((drops.count(), running.counts().failed_replies), (1, 1));
    // The same with a callback that ignores it.
    let (release, released) = mpsc::channel();
    running.submit_with(Some((drops.bomb(), released)), |_| ()).unwrap();
    release.send(()).unwrap();
    assert!(matches!(running.submit(None).unwrap().wait(), Outcome::Done(None)));
    assert_eq!((drops.count(), running.counts().failed_replies), (2, 2));
    assert_worker_runs(&running);
}

#[test]
fn a_callback_that_panics_ends_no_worker_and_what_it_held_is_dropped() {
    let drops = Drops::new();
    let running = start("callback", |_, ()| 7);
    let held = drops.bomb();
    running
        .submit_with((), move |outcome| {
            assert_eq!(outcome, Outcome::Done(7));
            let mut held = held;
            held.armed = false;
            panic!("a callback that panics");
        })
        .unwrap();
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done(7));
    assert_eq!((drops.count(), running.counts().failed_replies), (1, 1));
    assert_worker_runs(&running);
}

#[test]
fn requests_dropped_at_the_stop_may_panic_in_their_drops_and_callbacks() {
    let drops = Drops::new();
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Shared::new(released);
    let running = start("stop", move |_, bomb: Option<Bomb>| {
        if bomb.is_none() {
            enter.send(()).unwrap();
            released.with(|released| released.recv().unwrap());
        }
    });
    let first = running.submit(None).unwrap();
    entered.recv().unwrap();
    let mut tickets = Vec::new();
    for number in 0..4 {
        if number % 2 == 0 {
            tickets.push(running.submit(Some(drops.bomb())).unwrap());
        } else {
            let panics = |outcome| panic!("the callback got {outcome:?}");
            running.submit_with(Some(drops.bomb()), panics).unwrap();
        }
    }
    let handle = running.handle();
    let stuck = running.stop_at_once(Duration::ZERO).unwrap_err();
    for ticket in tickets {
        assert_eq!(ticket.wait(), Outcome::Dropped);
    }
    assert_eq!(drops.count(), 4);
    release.send(()).unwrap();
    let counts = stuck.wait(FOR_EVER).unwrap().counts();
    assert_eq!((counts.accepted, counts.done, counts.dropped), (5, 1, 4));
    assert_eq!((counts.failed_replies, handle.counts()), (4, counts));
    assert_eq!(first.wait(), Outcome::Done(()));
}

struct Fragile(Arc<AtomicUsize>);

impl ReadOnlyShared for Fragile {}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("an old generation whose drop panics");
    }
}

#[test]
fn an_old_generation_whose_drop_panics_ends_no_worker_and_loses_no_reply() {
    let drops = Drops::new();
    let fragile = || Fragile(Arc::clone(&drops.0));
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let running = Initialiser::new("fragile")
        .workers(1)
        .objects(fragile(), Shared::new(released))
        .start(move |context, stay: bool| {
            if stay {
                enter.send(()).unwrap();
                context.shared().with(|released: &mut mpsc::Receiver<()>| released.recv().unwrap());
            }
            context.generation()
        })
        .unwrap();
    let slow = running.submit(true).unwrap();
    entered.recv().unwrap();
    assert_eq!(running.publish(fragile()), 2);
    release.send(()).unwrap();
    assert_eq!(slow.wait(), Outcome::Done(1));
    assert_eq!(running.submit(false).unwrap().wait(), Outcome::Done(2));
    assert_eq!(drops.count(), 1);
    let stopped = running.stop(FOR_EVER).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(stopped))).is_err(), "the last generation's");
}

#[test]
fn a_handler_whose_drop_panics_fails_no_stop() {
    let drops = Drops::new();
    let bomb = drops.bomb();
    let running = start("handler", move |_, ()| {
        let whole = &bomb;
        whole.armed
    });
    assert_eq!(running.submit(()).unwrap().wait(), Outcome::Done(true));
    assert_eq!(running.stop(FOR_EVER).unwrap().counts().done, 1);
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_closure_that_makes_memory_and_panics_later_ends_requests_and_no_worker() {
    let broken = Arc::new(AtomicBool::new(false));
    let [for_arenas, for_pools] = [(); 2].map(|()| Arc::clone(&broken));
    let check = |broken: &AtomicBool| assert!(!broken.load(Ordering::Relaxed), "no memory today");
    let running = Initialiser::new("later")
        .workers(1)
        .arena(move |worker| {
            check(&for_arenas);
            Arena::builder().name(worker)
        })
        .pool(move |worker| {
            check(&for_pools);
            LocalPool::builder().name(worker)
        })
        .objects((), ())
        .start(|context: &mut RequestContext<'_, (), ()>, ()| context.take_arena())
        .unwrap();
    running.submit(()).unwrap().wait().done().unwrap();
    broken.store(true, Ordering::Relaxed);
    // This request has the arena that was made after the first one, or none if the worker was
    // slower than this test.
    _ = running.submit(()).unwrap().wait();
    for _ in 0..3 {
        let Outcome::Panicked(panicked) = running.submit(()).unwrap().wait() else {
            panic!("no panic")
        };
        assert_eq!(panicked.message, "no memory today");
    }
    broken.store(false, Ordering::Relaxed);
    // The worker may still be making its memory, and fail at it.
    _ = running.submit(()).unwrap().wait();
    running.submit(()).unwrap().wait().done().unwrap();
    assert_worker_runs(&running);
}

#[test]
fn a_factory_that_panics_leaves_nothing() {
    let drops = Drops::new();
    let count = Arc::clone(&drops.0);
    let configuration = Configuration::new("test")
        .with(Section::new("text", "a").with("panics", false))
        .with(Section::new("object", "b").with("panics", false))
        .with(Section::new("object", "c").with("panics", true));
    let made = |section: &Section| {
        assert!(!section.get::<bool>("panics").unwrap(), "a factory that panics");
    };
    let factories = ObjectFactories::new()
        .read_only::<&'static str>("text", move |sealer, section| {
            made(section);
            Ok(sealer.try_alloc_str(section.name())?)
        })
        .shared("object", move |section| {
            made(section);
            Ok(Bomb { armed: false, drops: Arc::clone(&count) })
        });
    let regions = || {
        let allocators = allotment::report().allocators.into_iter();
        allocators.filter(|allocator| allocator.name == "read-only objects").count()
    };
    let before = regions();
    let initialise = |configuration: &Configuration| {
        let made = catch_unwind(AssertUnwindSafe(|| {
            Initialiser::new("factories").from_configuration(&factories, configuration).map(drop)
        }));
        assert!(made.is_err());
    };
    initialise(&configuration);
    assert_eq!((drops.count(), regions()), (1, before));
    initialise(&Configuration::new("test").with(Section::new("text", "a").with("panics", true)));
    assert_eq!((drops.count(), regions()), (1, before));
}

#[test]
fn sixteen_workers_with_panics_all_over_do_all_the_rest() {
    let running = Initialiser::new("storm").workers(16).queue(8).objects((), Shared::new(0_u64));
    let running = running
        .start(|context, number: u64| {
            let text = PoolString::from("in the pool");
            context.arena().alloc_str(&text);
            assert!(number % 7 != 0, "every seventh");
            context.shared().with(|sum: &mut u64| *sum += number);
            text
        })
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let handle = running.handle();
            scope.spawn(move || {
                for number in (thread..2000).step_by(4) {
                    let submitted = handle.submit_with(number, move |outcome| {
                        assert_eq!(matches!(outcome, Outcome::Panicked(_)), number % 7 == 0);
                        assert!(number % 11 != 0, "every eleventh callback");
                    });
                    submitted.unwrap();
                }
            });
        }
    });
    let stopped = running.stop(FOR_EVER).unwrap();
    let counts = stopped.counts();
    let sevenths = (0..2000).filter(|number| number % 7 == 0).count() as u64;
    let elevenths = (0..2000).filter(|number| number % 11 == 0).count() as u64;
    assert_eq!((counts.done, counts.panicked), (2000 - sevenths, sevenths));
    assert_eq!(counts.failed_replies, elevenths);
    let expected: u64 = (0..2000).filter(|number| number % 7 != 0).sum();
    assert_eq!(stopped.shared().with(|sum| *sum), expected);
}
