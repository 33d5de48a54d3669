//! The queue of requests: its limit, when a submitter waits and when a request is refused. Replies
//! by ticket, by callback and by future.

use core::future::Future;
use core::pin::pin;
use core::task::{Poll, Waker};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::Wake;
use std::thread;
use std::time::Duration;

use allotment_server::{
    Initialised, Initialiser, Outcome, RefusalReason, RequestContext, Running, ServerHandle,
    Shared, WhenFull,
};

const FOR_EVER: Duration = Duration::MAX;

/// A gate that requests wait at.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

type Gated = Running<(), Arc<Gate>, u32, u32>;

fn gated(workers: usize, queue: usize, when_full: WhenFull) -> (Gated, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let initialiser = Initialiser::new("gated").workers(workers).queue(queue).when_full(when_full);
    let running = initialiser.objects((), Arc::clone(&gate)).start(
        |context: &mut RequestContext<'_, (), Arc<Gate>>, number: u32| {
            context.shared().pass();
            number
        },
    );
    (running.unwrap(), gate)
}

/// Waits until `working` workers are in a request and `waiting` requests wait.
fn wait_for_state(running: &Gated, working: usize, waiting: usize) {
    let busy = || running.workers().iter().filter(|worker| worker.request.is_some()).count();
    while (busy(), running.waiting()) != (working, waiting) {
        thread::yield_now();
    }
}

#[test]
fn a_full_queue_refuses_and_gives_the_request_back() {
    let (running, gate) = gated(2, 3, WhenFull::Refuse);
    let mut tickets = Vec::new();
    for number in 0..2 {
        tickets.push(running.submit(number).unwrap());
        wait_for_state(&running, number as usize + 1, 0);
    }
    for number in 2..5 {
        tickets.push(running.submit(number).unwrap());
    }
    let refused = running.submit(5).unwrap_err();
    assert_eq!((refused.request, refused.reason), (5, RefusalReason::Full(3)));
    assert!(refused.to_string().contains("queue is full (3 requests wait)"), "{refused}");
    gate.open();
    for (number, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.wait(), Outcome::Done(number));
    }
    assert_eq!(running.counts().refused, 1);
    running.submit(6).unwrap().wait().done().unwrap();
}

#[test]
fn a_queue_of_zero_takes_a_request_when_a_worker_is_free_for_it() {
    let (running, gate) = gated(2, 0, WhenFull::Refuse);
    let submit = |number| loop {
        match running.submit(number) {
            Ok(ticket) => break ticket,
            // A worker is not free before it has started, and has ended its last request.
            Err(refused) => assert!(matches!(refused.reason, RefusalReason::Full(_))),
        }
    };
    let (first, second) = (submit(1), submit(2));
    wait_for_state(&running, 2, 0);
    assert_eq!(running.submit(3).unwrap_err().reason, RefusalReason::Full(0));
    gate.open();
    assert_eq!((first.wait(), second.wait()), (Outcome::Done(1), Outcome::Done(2)));
    assert_eq!(submit(4).wait(), Outcome::Done(4));
}

#[test]
fn a_queue_of_zero_lets_submitters_wait_for_a_free_worker() {
    let running = Initialiser::new("direct").workers(3).queue(0).objects((), Shared::new(0_u64));
    let running = running
        .start(|context, number: u64| context.shared().with(|sum: &mut u64| *sum += number))
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for number in 0..500 {
                    running.submit(number).unwrap().wait().done().unwrap();
                }
            });
        }
    });
    assert_eq!(running.shared().with(|sum| *sum), 16 * (499 * 500 / 2));
}

#[test]
fn submitters_wait_for_space_and_no_request_is_lost_or_done_twice() {
    let running =
        Initialiser::new("space").workers(4).queue(2).objects((), Shared::new(Vec::new()));
    let running = running
        .start(|context, number: u32| {
            context.shared().with(|seen: &mut Vec<u32>| seen.push(number));
            number
        })
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..16_u32 {
            let handle = running.handle();
            scope.spawn(move || {
                let numbers = thread * 1000..(thread + 1) * 1000;
                // Every third ticket is dropped unread.
                for number in numbers {
                    let ticket = handle.submit(number).unwrap();
                    if number % 3 != 0 {
                        assert_eq!(ticket.wait(), Outcome::Done(number));
                    }
                }
            });
        }
    });
    let stopped = running.stop(FOR_EVER).unwrap();
    assert_eq!((stopped.counts().accepted, stopped.counts().done), (16_000, 16_000));
    let mut seen = stopped.into_shared().unwrap().into_inner();
    seen.sort_unstable();
    assert_eq!(seen, (0..16_000).collect::<Vec<_>>());
}

#[test]
fn a_submitter_waits_for_space_no_longer_than_it_may() {
    let (running, gate) = gated(1, 1, WhenFull::WaitFor(Duration::from_millis(5)));
    let first = running.submit(1).unwrap();
    wait_for_state(&running, 1, 0);
    let second = running.submit(2).unwrap();
    let refused = running.submit(3).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::FullFor(Duration::from_millis(5)));
    gate.open();
    assert_eq!((first.wait(), second.wait()), (Outcome::Done(1), Outcome::Done(2)));
    running.submit(4).unwrap().wait().done().unwrap();
}

#[test]
fn submitters_that_wait_for_space_are_refused_at_the_stop() {
    let (running, gate) = gated(1, 0, WhenFull::Wait);
    let first = running.submit(0).unwrap();
    wait_for_state(&running, 1, 0);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..8)
            .map(|number| {
                let handle = running.handle();
                scope.spawn(move || handle.submit(number).unwrap_err())
            })
            .collect();
        thread::sleep(Duration::from_millis(5));
        running.begin_stop();
        for (number, waiting) in (0..).zip(waiting) {
            let refused = waiting.join().unwrap();
            assert_eq!((refused.request, refused.reason), (number, RefusalReason::Stopping));
        }
    });
    gate.open();
    assert_eq!(first.wait(), Outcome::Done(0));
}

#[test]
fn a_ticket_is_waited_for_with_a_deadline_and_again() {
    let (running, gate) = gated(1, 1, WhenFull::Wait);
    let ticket = running.submit(7).unwrap();
    assert!(!ticket.is_ready());
    let ticket = ticket.wait_for(Duration::from_millis(2)).unwrap_err();
    gate.open();
    assert_eq!(ticket.wait_for(FOR_EVER).unwrap(), Outcome::Done(7));
    let ticket = running.submit(8).unwrap();
    while !ticket.is_ready() {
        thread::yield_now();
    }
    assert_eq!(ticket.wait_for(Duration::ZERO).unwrap(), Outcome::Done(8));
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = core::task::Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_ticket_is_a_future() {
    let (running, gate) = gated(1, 2, WhenFull::Wait);
    let (first, second) = (running.submit(1).unwrap(), running.submit(2).unwrap());
    thread::scope(|scope| {
        let awaited = scope.spawn(|| block_on(async { (first.await, second.await) }));
        thread::sleep(Duration::from_millis(2));
        gate.open();
        assert_eq!(awaited.join().unwrap(), (Outcome::Done(1), Outcome::Done(2)));
    });
}

struct Panic;

impl Wake for Panic {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_ends_no_worker() {
    let (running, gate) = gated(1, 1, WhenFull::Wait);
    let mut ticket = Box::pin(running.submit(1).unwrap());
    let waker = Waker::from(Arc::new(Panic));
    let mut context = core::task::Context::from_waker(&waker);
    assert_eq!(ticket.as_mut().poll(&mut context), Poll::Pending);
    gate.open();
    assert_eq!(running.submit(2).unwrap().wait(), Outcome::Done(2));
    assert_eq!(block_on(ticket), Outcome::Done(1));
    assert_eq!(running.counts().failed_replies, 1);
}

#[test]
fn a_callback_hears_the_outcome_once_on_the_workers_thread_outside_of_its_pool() {
    let running = Initialiser::new("call").workers(1).objects((), ());
    let running =
        running.start(|_: &mut RequestContext<'_, (), ()>, number: u32| number + 1).unwrap();
    let (sender, receiver) = mpsc::channel();
    let number = running
        .submit_with(41, move |outcome| {
            let thread = thread::current().name().map(str::to_owned);
            sender.send((outcome, thread, allotment::pool::current())).unwrap();
        })
        .unwrap();
    let (outcome, thread, pool) = receiver.recv().unwrap();
    assert_eq!((number, outcome), (1, Outcome::Done(42)));
    assert_eq!((thread.as_deref(), pool), (Some("call-0"), allotment::PoolRef::GLOBAL));
    assert!(receiver.recv().is_err(), "the callback is gone");
}

#[test]
fn a_callback_may_submit_and_never_waits_for_space_in_its_own_queue() {
    let running = Initialiser::new("chain").workers(1).queue(1).objects((), ());
    let running = running.start(|_: &mut RequestContext<'_, (), ()>, number: u32| number).unwrap();
    let (sender, receiver) = mpsc::channel();
    fn next(
        handle: &ServerHandle<(), (), u32, u32>,
        number: u32,
        sender: mpsc::Sender<Result<u32, RefusalReason>>,
    ) {
        let (same_handle, next_sender) = (handle.clone(), sender.clone());
        let submitted = handle.submit_with(number, move |outcome| {
            let number = outcome.done().unwrap();
            next_sender.send(Ok(number)).unwrap();
            if number < 100 {
                next(&same_handle, number + 1, next_sender);
            } else {
                // The first request fills the queue. To wait for the second, the only worker would
                // have to wait for itself.
                same_handle.submit(0).map(drop).unwrap();
                next_sender.send(Err(same_handle.submit(0).unwrap_err().reason)).unwrap();
            }
        });
        submitted.unwrap();
    }
    next(&running.handle(), 0, sender);
    let received: Vec<_> = receiver.iter().collect();
    let expected = (0..=100).map(Ok).chain([Err(RefusalReason::FullOnWorker)]);
    assert_eq!(received, expected.collect::<Vec<_>>());
}

#[test]
fn a_handler_that_waits_for_its_own_servers_reply_is_ended_and_not_a_deadlock() {
    type OptionalHandle = Option<ServerHandle<(), Arc<HandleHolder>, bool, u32>>;
    struct HandleHolder(Shared<OptionalHandle>);
    let holder = Arc::new(HandleHolder(Shared::new(None)));
    let initialised: Initialised<(), Arc<HandleHolder>> =
        Initialiser::new("own").workers(1).queue(4).objects((), Arc::clone(&holder));
    let running = initialised
        .start(|context: &mut RequestContext<'_, (), Arc<HandleHolder>>, asks: bool| {
            let handle = context.shared().0.with(|handle| handle.clone());
            match handle {
                Some(handle) if asks => handle.submit(false).unwrap().wait().done().unwrap(),
                _ => 7,
            }
        })
        .unwrap();
    holder.0.with(|handle| *handle = Some(running.handle()));
    let Outcome::Panicked(panicked) = running.submit(true).unwrap().wait() else {
        panic!("it waited for itself")
    };
    assert!(panicked.message.contains("its own server"), "{panicked}");
    assert_eq!(running.submit(false).unwrap().wait(), Outcome::Done(7));
    holder.0.with(|handle| *handle = None);
}
