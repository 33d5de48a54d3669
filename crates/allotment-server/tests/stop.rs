//! Stopping: gracefully or at once, in time or not, from outside and from a handler.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use allotment_server::{
    Initialiser, Outcome, RefusalReason, RequestContext, Running, ServerHandle, Shared,
    StopTimedOut,
};

const FOR_EVER: Duration = Duration::MAX;
const SHORT: Duration = Duration::from_millis(5);

type Waiter = Running<(), Shared<Vec<u32>>, u32, u32>;

/// A server whose requests below 10 wait for one message each.
fn waiter(workers: usize) -> (Waiter, mpsc::Receiver<u32>, mpsc::Sender<()>) {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let running = Initialiser::new("waiter")
        .workers(workers)
        .objects((), Shared::new(Vec::new()))
        .start(move |context: &mut RequestContext<'_, (), Shared<Vec<u32>>>, number: u32| {
            if number < 10 {
                enter.send(number).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            context.shared().with(|done| done.push(number));
            number
        });
    (running.unwrap(), entered, release)
}

#[test]
fn a_graceful_stop_handles_what_waits_and_takes_no_more() {
    let (running, entered, release) = waiter(1);
    let handle = running.handle();
    let tickets: Vec<_> =
        [0, 10, 11, 12].map(|number| running.submit(number).unwrap()).into_iter().collect();
    entered.recv().unwrap();
    let stopping = thread::spawn(move || running.stop(FOR_EVER).unwrap());
    while !handle.is_stopping() {
        thread::yield_now();
    }
    assert_eq!(handle.submit(13).unwrap_err().reason, RefusalReason::Stopping);
    release.send(()).unwrap();
    let stopped = stopping.join().unwrap();
    let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait()).collect();
    assert_eq!(outcomes, [0, 10, 11, 12].map(Outcome::Done));
    assert_eq!(stopped.counts().refused, 1);
    assert_eq!(stopped.abandoned(), []);
}

#[test]
fn a_stop_at_once_drops_what_waits_and_ends_what_runs() {
    let (running, entered, release) = waiter(1);
    let [first, second, third] = [0, 10, 11].map(|number| running.submit(number).unwrap());
    let (sender, receiver) = mpsc::channel();
    running.submit_with(12, move |outcome| sender.send(outcome).unwrap()).unwrap();
    entered.recv().unwrap();
    let stopping = thread::spawn(move || running.stop_at_once(FOR_EVER).unwrap());
    assert_eq!([second.wait(), third.wait()], [Outcome::Dropped, Outcome::Dropped]);
    assert_eq!(receiver.recv(), Ok(Outcome::Dropped));
    assert!(receiver.recv().is_err(), "receiver once");
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
    let counts = stopping.join().unwrap().counts();
    assert_eq!((counts.accepted, counts.done, counts.dropped), (4, 1, 3));
}

#[test]
fn stuck_workers_are_named_with_their_request_and_end_when_they_are_waited_for() {
    let (running, entered, release) = waiter(3);
    let tickets = [1, 2].map(|number| running.submit(number).unwrap());
    let numbers = [entered.recv().unwrap(), entered.recv().unwrap()];
    assert_eq!(numbers.iter().sum::<u32>(), 3);
    let stuck = running.stop(SHORT).unwrap_err();
    let mut requests: Vec<_> =
        stuck.workers().iter().map(|worker| worker.request.unwrap().number).collect();
    requests.sort_unstable();
    assert_eq!((requests, stuck.waiting()), (vec![1, 2], 0));
    let text = stuck.to_string();
    assert!(text.starts_with("2 workers had not ended after 5ms: 'waiter-"), "{text}");
    assert!(text.contains("in request 1 for"), "{text}");
    assert!(text.ends_with("wait longer, or abandon them"), "{text}");

    release.send(()).unwrap();
    let stuck = stuck.wait(SHORT).unwrap_err();
    assert_eq!(stuck.workers().len(), 1);
    release.send(()).unwrap();
    let stopped = stuck.wait(FOR_EVER).unwrap();
    assert_eq!(stopped.counts().done, 2);
    let outcomes = tickets.map(|ticket| ticket.wait());
    assert_eq!(outcomes, [Outcome::Done(1), Outcome::Done(2)]);
}

#[test]
fn a_stuck_server_may_drop_what_waits() {
    let (running, entered, release) = waiter(1);
    let first = running.submit(1).unwrap();
    entered.recv().unwrap();
    let second = running.submit(2).unwrap();
    let stuck = running.stop(SHORT).unwrap_err();
    assert_eq!(stuck.waiting(), 1);
    let text = stuck.to_string();
    assert!(text.starts_with("1 worker had not ended after 5ms: 'waiter-0' in request"), "{text}");
    assert!(text.ends_with("; 1 request waits; wait longer, or abandon it"), "{text}");
    let stuck = stuck.stop_at_once(SHORT).unwrap_err();
    assert_eq!((stuck.waiting(), second.wait()), (0, Outcome::Dropped));
    release.send(()).unwrap();
    assert_eq!(stuck.wait(FOR_EVER).unwrap().counts().dropped, 1);
    assert_eq!(first.wait(), Outcome::Done(1));
}

#[test]
fn an_abandoned_worker_ends_its_call_on_objects_that_a_new_server_uses_already() {
    let (running, entered, release) = waiter(2);
    let stuck_request = running.submit(1).unwrap();
    entered.recv().unwrap();
    let stopped = running.stop(SHORT).unwrap_err().abandon();
    let [abandoned] = stopped.abandoned() else { panic!("{stopped:?}") };
    assert_eq!(abandoned.request.unwrap().number, 1);
    let again = stopped
        .unchanged()
        .start(|context: &mut RequestContext<'_, (), Shared<Vec<u32>>>, number: u32| {
            context.shared().with(|done| done.push(number));
        })
        .unwrap();
    again.submit(100).unwrap().wait().done().unwrap();
    release.send(()).unwrap();
    assert_eq!(stuck_request.wait(), Outcome::Done(1));
    let stopped = again.stop(FOR_EVER).unwrap();
    assert_eq!(stopped.shared().with(|done| done.clone()), [100, 1]);
}

#[test]
fn dropping_a_stuck_server_abandons_it_and_does_not_wait() {
    let (running, entered, release) = waiter(1);
    let first = running.submit(1).unwrap();
    entered.recv().unwrap();
    let second = running.submit(2).unwrap();
    drop(running.stop(SHORT).unwrap_err());
    assert_eq!(second.wait(), Outcome::Dropped);
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(1));
}

#[test]
fn a_thread_that_unwinds_does_not_wait_for_stuck_workers() {
    let (running, entered, release) = waiter(1);
    let first = running.submit(1).unwrap();
    entered.recv().unwrap();
    let unwinding = thread::spawn(move || {
        let _running = running;
        panic!("with a server");
    });
    assert!(unwinding.join().is_err());
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(1));
}

#[test]
fn a_handler_may_begin_the_stop() {
    type OptionalHandle = Option<ServerHandle<(), Arc<HandleHolder>, bool, bool>>;
    struct HandleHolder(Shared<OptionalHandle>);
    let holder = Arc::new(HandleHolder(Shared::new(None)));
    let running = Initialiser::new("begin")
        .workers(2)
        .objects((), Arc::clone(&holder))
        .start(|context: &mut RequestContext<'_, (), Arc<HandleHolder>>, stops: bool| {
            if stops {
                context.shared().0.with(|handle| handle.as_ref().unwrap().begin_stop());
            }
            context.is_stopping()
        })
        .unwrap();
    holder.0.with(|handle| *handle = Some(running.handle()));
    assert_eq!(running.submit(false).unwrap().wait(), Outcome::Done(false));
    assert_eq!(running.submit(true).unwrap().wait(), Outcome::Done(true));
    assert_eq!(running.submit(false).unwrap_err().reason, RefusalReason::Stopping);
    assert_eq!(running.stop(FOR_EVER).unwrap().counts().done, 2);
    holder.0.with(|handle| *handle = None);
}

type OptionalRunning = Option<Running<(), Arc<RunningHolder>, u32, usize>>;

#[derive(Default)]
struct RunningHolder(Mutex<OptionalRunning>);

#[test]
fn a_handler_that_stops_and_waits_is_not_waited_for_by_itself() {
    for drops in [false, true] {
        let holder = Arc::new(RunningHolder::default());
        let running = Initialiser::new("itself")
            .workers(3)
            .objects((), Arc::clone(&holder))
            .start(move |context: &mut RequestContext<'_, (), Arc<RunningHolder>>, number: u32| {
                if number == 0 {
                    return 0;
                }
                let running = context.shared().0.lock().unwrap().take().unwrap();
                if drops {
                    drop(running);
                    return 1;
                }
                let stuck: StopTimedOut<_, _, _, _> = running.stop(FOR_EVER).unwrap_err();
                assert_eq!(&*stuck.workers()[0].name, context.worker_name());
                stuck.workers().len()
            })
            .unwrap();
        let handle = running.handle();
        let tickets: Vec<_> = (0..10).map(|_| running.submit(0).unwrap()).collect();
        *holder.0.lock().unwrap() = Some(running);
        let stops = handle.submit(1).unwrap();
        assert_eq!(stops.wait(), Outcome::Done(1));
        for ticket in tickets {
            let outcome = ticket.wait();
            assert!(matches!(outcome, Outcome::Done(0) | Outcome::Dropped), "{outcome:?}");
        }
        assert!(handle.is_stopping());
    }
}

#[test]
fn stops_race_submitters_and_each_accepted_request_gets_one_outcome() {
    for round in 0..30 {
        let running = Initialiser::new("race").workers(4).queue(3).objects((), ());
        let running =
            running.start(|_: &mut RequestContext<'_, (), ()>, number: u32| number).unwrap();
        let (sender, receiver) = mpsc::channel();
        let submitters: Vec<_> = (0..12)
            .map(|_| {
                let (handle, sender) = (running.handle(), sender.clone());
                thread::spawn(move || {
                    let mut accepted = 0_u64;
                    loop {
                        let sender = sender.clone();
                        let submitted = handle.submit_with(1, move |outcome| {
                            sender.send(matches!(outcome, Outcome::Done(1))).unwrap();
                        });
                        match submitted {
                            Ok(_) => accepted += 1,
                            Err(refused) => {
                                assert_eq!(refused.reason, RefusalReason::Stopping);
                                return accepted;
                            }
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        while running.counts().done < 50 {
            thread::yield_now();
        }
        let stopped = match round % 2 {
            0 => running.stop(FOR_EVER),
            _ => running.stop_at_once(FOR_EVER),
        };
        let counts = stopped.unwrap().counts();
        let accepted: u64 = submitters.into_iter().map(|thread| thread.join().unwrap()).sum();
        let outcomes: Vec<bool> = receiver.iter().collect();
        let done = outcomes.iter().filter(|done| **done).count() as u64;
        assert_eq!((counts.accepted, outcomes.len() as u64), (accepted, accepted));
        assert_eq!((counts.done, counts.dropped), (done, accepted - done));
        assert!(round % 2 == 1 || counts.dropped == 0, "drained");
    }
}
