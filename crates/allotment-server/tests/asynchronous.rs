//! Async tasks submit and await requests: no thread is blocked, no wake-up is lost, and a worker
//! does not wait for itself.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use allotment_server::{
    Initialiser, Outcome, RefusalReason, Refused, RequestContext, Running, ServerHandle, Ticket,
    WhenFull,
};

const FOR_EVER: Duration = Duration::MAX;

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

type Submitted = Result<Ticket<u32>, Refused<u32>>;

/// A future and the number of its wake-ups.
struct Task {
    future: Pin<Box<dyn Future<Output = Submitted>>>,
    wakes: Arc<Wakes>,
}

impl Task {
    fn submit(running: &Server, request: u32) -> Self {
        Self { future: Box::pin(running.submit_async(request)), wakes: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Submitted> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// Waits until it has been woken. Fails if that does not happen.
    fn wait_for_wake_up(&self) {
        let begin = Instant::now();
        while self.wakes() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is not woken");
            thread::yield_now();
        }
    }
}

type Server = Running<(), (), u32, u32>;

/// A server with one worker, whose requests wait for one message each; and the submitted first
/// request, which the worker has taken.
fn gated(limit: usize, when_full: WhenFull) -> (Server, mpsc::Sender<()>, Ticket<u32>) {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let running = Initialiser::new("gated")
        .workers(1)
        .queue(limit)
        .when_full(when_full)
        .objects((), ())
        .start(move |_: &mut RequestContext<'_, (), ()>, number: u32| {
            let _ = enter.send(());
            released.lock().unwrap().recv().unwrap();
            number
        })
        .unwrap();
    // With a queue of zero and `Refuse`, it is refused until the worker has started.
    let first = loop {
        match running.submit(0) {
            Ok(first) => break first,
            Err(refused) => assert_eq!(refused.reason, RefusalReason::Full(0)),
        }
    };
    entered.recv().unwrap();
    (running, release, first)
}

#[test]
fn a_task_waits_for_space_without_blocking_and_is_woken_once_for_it() {
    let (running, release, first) = gated(1, WhenFull::WaitFor(Duration::ZERO));
    let second = running.submit(1).unwrap();
    let mut tasks = [2, 3].map(|number| Task::submit(&running, number));
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    // Polled again, it still waits once, and keeps its turn.
    assert!(tasks[0].poll().is_pending());
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0]);
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
    // The worker takes the second request. There is space for one: the task that waits longest.
    tasks[0].wait_for_wake_up();
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 0]);
    let Poll::Ready(Ok(third)) = tasks[0].poll() else { panic!("there is space") };
    assert!(tasks[1].poll().is_pending());
    (0..2).for_each(|_| release.send(()).unwrap());
    assert_eq!((second.wait(), third.wait()), (Outcome::Done(1), Outcome::Done(2)));
    let Poll::Ready(Ok(fourth)) = tasks[1].poll() else { panic!("there is space") };
    release.send(()).unwrap();
    assert_eq!(block_on(fourth), Outcome::Done(3));
}

#[test]
fn a_task_that_does_not_use_its_wake_up_does_not_keep_others_from_an_idle_worker() {
    let (running, release, first) = gated(0, WhenFull::Wait);
    let mut tasks: Vec<_> = (1..9).map(|number| Task::submit(&running, number)).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
    // Only the last one is ever polled again.
    tasks[7].wait_for_wake_up();
    let Poll::Ready(Ok(last)) = tasks[7].poll() else { panic!("the worker is idle") };
    release.send(()).unwrap();
    assert_eq!(last.wait(), Outcome::Done(8));
    // The others lost nothing.
    let first = loop {
        if let Poll::Ready(first) = tasks[0].poll() {
            break first.unwrap();
        }
        thread::yield_now();
    };
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(1));
}

#[test]
fn space_that_woken_tasks_do_not_use_goes_to_others_while_all_workers_are_busy() {
    let (running, release, first) = gated(2, WhenFull::Wait);
    let queued = [1, 2].map(|number| running.submit(number).unwrap());
    let mut tasks: Vec<_> = (3..7).map(|number| Task::submit(&running, number)).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    // The first task is woken, and not polled.
    release.send(()).unwrap();
    tasks[0].wait_for_wake_up();
    release.send(()).unwrap();
    tasks[1].wait_for_wake_up();
    // The queue has space for two. The second task takes one, and the other goes to the third.
    assert_eq!(tasks[2].wakes(), 0);
    let Poll::Ready(Ok(second)) = tasks[1].poll() else { panic!("there is space") };
    assert_eq!((tasks[2].wakes(), tasks[3].wakes()), (1, 0));
    let Poll::Ready(Ok(third)) = tasks[2].poll() else { panic!("there is space") };
    // Late: it waits again, and is woken before the fourth.
    assert!(tasks[0].poll().is_pending());
    release.send(()).unwrap();
    while tasks[0].wakes() == 1 {
        thread::yield_now();
    }
    assert_eq!(tasks[3].wakes(), 0);
    let Poll::Ready(Ok(late)) = tasks[0].poll() else { panic!("there is space") };
    (0..3).for_each(|_| release.send(()).unwrap());
    assert_eq!(first.wait(), Outcome::Done(0));
    assert_eq!(queued.map(Ticket::wait), [1, 2].map(Outcome::Done));
    assert_eq!([second, third, late].map(Ticket::wait), [4, 5, 3].map(Outcome::Done));
}

#[test]
fn a_task_that_is_dropped_after_its_wake_up_passes_it_on() {
    let (running, release, first) = gated(1, WhenFull::Wait);
    let second = running.submit(1).unwrap();
    let mut tasks: Vec<_> = (2..5).map(|number| Task::submit(&running, number)).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    // One that was not woken has nothing to pass on.
    drop(tasks.remove(1));
    assert_eq!(tasks[1].wakes(), 0);
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
    tasks[0].wait_for_wake_up();
    assert_eq!(tasks[1].wakes(), 0);
    drop(tasks.remove(0));
    assert_eq!(tasks[0].wakes(), 1);
    let Poll::Ready(Ok(last)) = tasks[0].poll() else { panic!("there is space") };
    (0..2).for_each(|_| release.send(()).unwrap());
    assert_eq!((second.wait(), last.wait()), (Outcome::Done(1), Outcome::Done(4)));
    assert_eq!(running.counts().accepted, 3);
}

#[test]
fn tasks_that_wait_get_their_requests_back_at_the_stop() {
    let (running, release, first) = gated(0, WhenFull::Wait);
    let mut tasks: Vec<_> = (1..5).map(|number| Task::submit(&running, number)).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    running.begin_stop();
    for (number, task) in (1..).zip(&mut tasks) {
        assert_eq!(task.wakes(), 1);
        let Poll::Ready(Err(refused)) = task.poll() else { panic!("the server stops") };
        assert_eq!((refused.request, refused.reason), (number, RefusalReason::Stopping));
    }
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
    assert_eq!(running.counts().refused, 4);
}

#[test]
fn a_task_is_refused_at_once_where_threads_are() {
    let (running, release, first) = gated(0, WhenFull::Refuse);
    let mut task = Task::submit(&running, 1);
    let Poll::Ready(Err(refused)) = task.poll() else { panic!("the queue is full") };
    assert_eq!((refused.request, refused.reason), (1, RefusalReason::Full(0)));
    release.send(()).unwrap();
    assert_eq!(first.wait(), Outcome::Done(0));
}

#[test]
fn a_worker_that_awaits_a_ticket_or_space_of_its_own_server_does_not_wait_for_itself() {
    static HANDLE: OnceLock<ServerHandle<(), (), u32, u32>> = OnceLock::new();
    let handler = |_: &mut RequestContext<'_, (), ()>, number: u32| {
        let handle = HANDLE.get().unwrap();
        match number {
            0 => 0,
            1 => block_on(handle.submit(0).unwrap()).done().unwrap(),
            _ => {
                let _waits = handle.submit(0).unwrap();
                let refused = block_on(handle.submit_async(0)).unwrap_err();
                assert_eq!(refused.reason, RefusalReason::FullOnWorker);
                7
            }
        }
    };
    let initialiser = Initialiser::new("own").workers(1).queue(1).when_full(WhenFull::Wait);
    let running = initialiser.objects((), ()).start(handler).unwrap();
    HANDLE.set(running.handle()).unwrap();
    let Outcome::Panicked(panicked) = block_on(running.submit(1).unwrap()) else {
        panic!("it can't be done")
    };
    assert!(panicked.message.contains("must not wait"), "{panicked}");
    assert_eq!(block_on(running.submit(2).unwrap()), Outcome::Done(7));
    running.stop(FOR_EVER).unwrap();
}

#[test]
fn tasks_and_threads_that_submit_at_the_same_time_all_get_through() {
    const EACH: u32 = 2_000;
    let initialiser = Initialiser::new("both").workers(2).queue(2).when_full(WhenFull::Wait);
    let running = initialiser
        .objects((), ())
        .start(|_: &mut RequestContext<'_, (), ()>, number: u32| number)
        .unwrap();
    thread::scope(|scope| {
        for kind in 0..6 {
            let handle = running.handle();
            scope.spawn(move || {
                for number in 0..EACH {
                    let ticket = match kind % 2 {
                        0 => handle.submit(number).unwrap(),
                        _ => block_on(handle.submit_async(number)).unwrap(),
                    };
                    assert_eq!(block_on(ticket), Outcome::Done(number));
                }
            });
        }
    });
    assert_eq!(running.counts().accepted, u64::from(6 * EACH));
    running.stop(FOR_EVER).unwrap();
}

/// Blocks the end of its thread until the other end sends or is dropped.
struct BlocksEnd(mpsc::Receiver<()>);

impl Drop for BlocksEnd {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

thread_local! {
    static AT_END: OnceLock<BlocksEnd> = const { OnceLock::new() };
}

#[test]
fn a_stop_does_not_wait_beyond_its_time_for_destructors_of_thread_locals() {
    let (end, ended) = mpsc::channel();
    let ended = Mutex::new(Some(ended));
    let running = Initialiser::new("slow")
        .workers(1)
        .objects((), ())
        .start(move |_: &mut RequestContext<'_, (), ()>, number: u32| {
            let ended = ended.lock().unwrap().take().unwrap();
            AT_END.with(|at_end| assert!(at_end.set(BlocksEnd(ended)).is_ok()));
            number
        })
        .unwrap();
    assert_eq!(running.submit(1).unwrap().wait(), Outcome::Done(1));
    // It would wait for ever: the thread ends after the message below.
    let stopped = running.stop(Duration::from_millis(300)).unwrap();
    assert!(stopped.abandoned().is_empty());
    end.send(()).unwrap();
}

/// A task that its waker polls at once, on the thread that wakes it.
struct PolledByItsWaker(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl PolledByItsWaker {
    fn poll(self: &Arc<Self>) {
        // A task that is being polled is not polled again inside that poll.
        let Ok(mut future) = self.0.try_lock() else { return };
        let waker = Waker::from(Arc::clone(self));
        let polled =
            future.as_mut().map(|task| task.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|polled| polled.is_ready()) {
            *future = None;
        }
    }
}

impl Wake for PolledByItsWaker {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

#[test]
fn a_task_that_is_polled_by_its_waker_on_the_workers_thread_gets_its_replies() {
    let (running, release, first) = gated(0, WhenFull::Wait);
    let (reply, replies) = mpsc::channel();
    let tasks: Vec<_> = (1..4)
        .map(|number| {
            let (handle, reply) = (running.handle(), reply.clone());
            let task = Box::pin(async move {
                let ticket = handle.submit_async(number).await.expect("the server runs");
                let _ = reply.send(ticket.await);
            });
            Arc::new(PolledByItsWaker(Mutex::new(Some(task))))
        })
        .collect();
    tasks.iter().for_each(PolledByItsWaker::poll);
    (0..4).for_each(|_| release.send(()).unwrap());
    assert_eq!(first.wait(), Outcome::Done(0));
    let mut done: Vec<_> = (0..3).map(|_| replies.recv_timeout(Duration::from_secs(20))).collect();
    done.sort_by_key(|outcome| format!("{outcome:?}"));
    assert_eq!(done, [1, 2, 3].map(|number| Ok(Outcome::Done(number))));
}
